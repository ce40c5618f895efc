// Draw one answer: bars for labels, marks for entities, the answer in its context.

import { element, languageOf, marked } from "./marks.js";

const FIRST_BARS = 8; // a model of 100 labels shows the likeliest of them and offers the rest
const NO_BREAK = "\u2060"; // a label stays on the line where its stretch ends
const NOTHING = "There is no answer in this text.";
const HUES = [205, 28, 140, 320, 260, 55, 175, 0];

/** The answer as elements. `order`: labels in the order of the answer beside it, so that bars stand side by side. */
export function drawAnswer(answer, data, model, order) {
  if (answer.kind === "labels") return drawLabels(answer, order);
  if (answer.kind === "number") return [element("p", { class: "said" }, plain(answer.value))];
  if (answer.kind === "entities") return drawEntities(answer, data, model);
  if (answer.kind === "other") return [element("pre", {}, answer.text)];
  return drawStretch(answer, data);
}

/** The answer in a few words, for those who hear the page. */
export function inWords(answer) {
  if (answer.kind === "labels") return namesOf(answer.labels);
  if (answer.kind === "number") return plain(answer.value);
  if (answer.kind === "entities") return countsOf(answer.spans);
  return answer.text || NOTHING;
}

/** A share of one as people read it: 99.7 %. */
export function percent(share) {
  return `${(100 * share).toFixed(1)} %`;
}

function drawLabels(answer, order) {
  const { labels, several } = answer;
  const names = namesOf(labels);
  const said = /^\d+$/.test(names) ? `label ${names}` : names;
  const rows = order.map((name) => labels.find((label) => label.name === name)).filter(Boolean).map(drawBar);
  const list = element("ul", { class: several ? "bars several" : "bars" }, ...rows.slice(0, FIRST_BARS));
  const parts = [element("p", { class: "said", lang: languageOf(said) }, said), list];
  if (several) parts.push(element("p", { class: "hint" }, "Each label stands for itself; the line is at 50 %."));
  if (rows.length > FIRST_BARS) parts.push(drawMore(list, rows.slice(FIRST_BARS)));
  return parts;
}

function drawBar({ name, share, chosen }) {
  const fill = element("span", { class: "fill" });
  fill.style.width = `${Math.max(0.4, 100 * share)}%`;
  return element(
    "li",
    { class: chosen ? "bar chosen" : "bar" },
    element("span", { class: "name", lang: languageOf(name) }, name),
    element("span", { class: "share" }, percent(share)),
    element("span", { class: "track", "aria-hidden": "true" }, fill),
  );
}

function drawMore(list, rows) {
  const button = element("button", { type: "button", class: "quiet" }, `Show ${rows.length} more`);
  button.addEventListener("click", () => {
    list.append(...rows);
    rows[0].tabIndex = -1;
    rows[0].focus(); // the button goes away; the keyboard stays where the reader is
    button.remove();
  });
  return button;
}

function drawEntities({ spans }, { text }, model) {
  const kinds = kindsOf(model);
  const hue = (label) => HUES[Math.max(0, kinds.indexOf(label)) % HUES.length];
  const box = marked(text, spans, (span, stretch) => {
    const mark = element(
      "mark",
      { class: span.alone ? "entity alone" : "entity", title: titleOf(span) },
      stretch,
      element("span", { class: "kind" }, NO_BREAK, unseen(" ("), span.label, unseen(")")),
    );
    mark.style.setProperty("--hue", hue(span.label));
    return mark;
  });
  return [box, element("p", { class: "hint" }, countsOf(spans))];
}

function namesOf(labels) {
  return labels.filter(({ chosen }) => chosen).map(({ name }) => name).join(", ") || "none of the labels";
}

function countsOf(spans) {
  const count = new Map();
  for (const { label } of spans) count.set(label, (count.get(label) ?? 0) + 1);
  return [...count].map(([label, number]) => `${number} ${label}`).join(", ") || "No entities found.";
}

function unseen(text) {
  return element("span", { class: "unseen" }, text); // for those who hear the page
}

function titleOf({ label, share, alone }) {
  return [label, percent(share), alone ? "only in this answer" : ""].filter(Boolean).join(", ");
}

/** What a model can find, without the letters that say where in an entity a word stands: B-PER, I-PER → PER. */
function kindsOf({ labels }) {
  return [...new Set(labels.filter((label) => label !== "O").map((label) => label.replace(/^[BIOESMLUW][-_]/, "")))].sort();
}

function drawStretch({ text, start, end, share }, { context }) {
  const found = end > start;
  const said = element("p", { class: "said", lang: languageOf(text) }, found ? text : NOTHING);
  const box = marked(context, found ? [{ start, end }] : [], (_, stretch) => element("mark", { class: "answer" }, stretch));
  box.classList.add("context");
  box.tabIndex = 0; // long contexts scroll, also by keyboard
  box.setAttribute("aria-label", "Context");
  box.setAttribute("role", "group");
  const parts = [said];
  if (found) parts.push(element("p", { class: "hint" }, `${percent(share)} among the likeliest answers`));
  return [...parts, box];
}

function plain(number) {
  return Number.isInteger(number) ? String(number) : number.toPrecision(4);
}
