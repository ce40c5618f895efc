// The page: pick a model, give it a text, see what it says; two models side by side where they can be compared.

import { Columns, badge } from "./columns.js";
import { element, languageOf } from "./marks.js";
import { Refused, listModels, useKey } from "./server.js";

const TASKS = {
  sequence_classification: ["Labels", "labels a text"],
  token_classification: ["Entities", "finds entities in a text"],
  question_answering: ["Answers", "answers a question from a text"],
};
const wordsOf = ({ task }) => TASKS[task] ?? [task, task];
const FIELDS = {
  text: { title: "Text", rows: 3, hint: "Type or paste a text." },
  text_pair: { title: "Second text", rows: 2, hint: "For models that compare two texts. Else leave it empty.", optional: true },
  question: { title: "Question", rows: 0, hint: "What do you want to know?" },
  context: { title: "Context", rows: 5, hint: "Paste the text that holds the answer." },
};
const fieldOf = (name) => FIELDS[name] ?? { title: name, rows: 3, hint: "" };
const at = (id) => document.getElementById(id);
let models = [];
let latest = 0; // errors of requests that a newer one has replaced are not shown

at("key").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(at("key-field").value.trim());
  start();
});
at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});
at("ask").addEventListener("keydown", (event) => {
  const typing = event.target.matches("textarea");
  if (event.key === "Enter" && typing && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    run();
  }
});
at("model").addEventListener("change", () => show(picked("model")));
at("beside").addEventListener("change", clear);
window.addEventListener("hashchange", () => show(named(location.hash) ?? picked("model")));
start();

async function start() {
  try {
    models = await listModels();
  } catch (error) {
    refuse(error, start);
    return;
  }
  at("key").hidden = true;
  at("notice").replaceChildren();
  if (!models.length) {
    notice("No model is served.", "Start the server with a model's folder: tersely serve DIR");
    return;
  }
  at("model").replaceChildren(...groups());
  at("ask").hidden = false;
  show(named(location.hash) ?? models[0]);
}

function groups() {
  const byTask = new Map();
  for (const model of models) byTask.set(model.task, [...(byTask.get(model.task) ?? []), model]);
  return [...byTask].map(([task, members]) =>
    element("optgroup", { label: wordsOf({ task })[0] }, ...members.map((model) => option(model))),
  );
}

function option(model) {
  return element("option", { value: model.name }, `${model.name} (${model.precision.toUpperCase()})`);
}

function picked(id) {
  return models.find((model) => model.name === at(id).value);
}

function named(hash) {
  return models.find((model) => `#${encodeURIComponent(model.name)}` === hash);
}

/** Make everything on the page be for this model. */
function show(model) {
  at("model").value = model.name;
  history.replaceState(null, "", `#${encodeURIComponent(model.name)}`);
  const others = models.filter((other) => comparable(model, other));
  at("beside").replaceChildren(element("option", { value: "" }, "none"), ...others.map(option));
  at("beside").value = partner(model, others)?.name ?? "";
  at("beside-field").hidden = !others.length;
  at("facts").replaceChildren(...facts(model));
  showFields(model);
  showExamples(model);
  clear();
}

function comparable(model, other) {
  const kind = ({ task, problem, labels, inputs }) => JSON.stringify([task, problem, labels, inputs]);
  return other !== model && kind(other) === kind(model);
}

/** The one of another precision whose name is most like the model's. */
function partner(model, others) {
  const alike = ({ name }) => [...name, ""].findIndex((letter, place) => letter !== model.name[place]);
  const found = others.filter((other) => other.precision !== model.precision);
  return found.sort((one, other) => alike(other) - alike(one))[0];
}

function facts(model) {
  const parts = [badge(model), element("span", {}, wordsOf(model)[1])];
  if (model.labels.length > 1) parts.push(element("span", {}, `${model.labels.length} labels`));
  if (typeof model.score === "number") parts.push(element("span", {}, `${model.metric} ${(100 * model.score).toFixed(2)}`));
  parts.push(element("span", {}, `on ${model.engine}`));
  return parts;
}

function showFields(model) {
  const kept = values();
  at("fields").replaceChildren(
    ...model.inputs.map((name) => {
      const { title, rows, hint, optional } = fieldOf(name);
      const about = { id: `field-${name}`, name, placeholder: hint, required: !optional, autocomplete: "off" };
      const area = rows ? element("textarea", { ...about, rows }) : element("input", about);
      area.value = kept[name] ?? "";
      area.addEventListener("input", () => setLanguage(area));
      area.style.setProperty("--rows", rows);
      if (!optional) return element("p", { class: "field" }, element("label", { for: area.id }, title), area);
      area.setAttribute("aria-label", title);
      const usual = area.value !== "" || model.examples.some((example) => name in example);
      const summary = element("summary", {}, title, element("span", { class: "hint" }, " optional"));
      return element("details", { open: usual }, summary, area);
    }),
  );
}

function setLanguage(area) {
  area.lang = languageOf(area.value) ?? "";
}

function areas() {
  return [...at("fields").querySelectorAll("textarea, input")];
}

function values() {
  return Object.fromEntries(areas().map((area) => [area.name, area.value]));
}

function showExamples(model) {
  const buttons = model.examples.map((example) => {
    const words = example.question ?? Object.values(example).join(" · ");
    const button = element("button", { type: "button", class: "example", title: words, lang: languageOf(words) }, words);
    button.addEventListener("click", () => {
      for (const area of areas()) {
        area.value = example[area.name] ?? "";
        setLanguage(area);
      }
      run();
    });
    return button;
  });
  at("examples").replaceChildren(at("examples").firstElementChild, ...buttons);
  at("examples").hidden = !buttons.length;
}

function clear() {
  latest += 1;
  at("answers").replaceChildren();
  at("notice").replaceChildren();
  at("spoken").textContent = "";
}

async function run() {
  if (!at("ask").reportValidity()) return;
  clear();
  const mine = latest;
  const chosen = [picked("model"), picked("beside")].filter(Boolean);
  at("answers").setAttribute("aria-busy", "true");
  try {
    const words = await new Columns(at("answers"), chosen, filledTexts()).run();
    if (mine === latest) at("spoken").textContent = words;
  } catch (error) {
    if (mine === latest) refuse(error, run);
  } finally {
    at("answers").removeAttribute("aria-busy");
  }
  if (mine === latest) (at("answers").firstChild ? at("answers") : at("notice")).scrollIntoView({ block: "nearest" });
}

/** The texts to send; a text that may be missing and is empty is left out. */
function filledTexts() {
  return Object.fromEntries(Object.entries(values()).filter(([name, text]) => text || !fieldOf(name).optional));
}

function refuse(error, again) {
  if (!(error instanceof Refused)) throw error;
  at("answers").replaceChildren();
  if (error.status === 401) {
    at("key").hidden = false;
    at("key-field").focus();
    at("links").hidden = true; // a link cannot carry the key
    notice("A key is needed.", error.message);
    return;
  }
  const title = { 0: "No connection", 413: "Too much text", 422: "This cannot be answered", 503: "The server is busy", 504: "No answer in time" };
  const retry = [0, 503, 504].includes(error.status) ? again : null;
  const wait = error.retryAfter ? ` It says to try again in ${error.retryAfter} s.` : "";
  notice(title[error.status] ?? `Error ${error.status}`, error.message + wait, retry);
}

function notice(title, line, again = null) {
  const box = element("div", { class: "note" }, element("strong", {}, title), element("p", {}, line));
  if (again) box.append(element("button", { type: "button", class: "quiet", onclick: again }, "Try again"));
  at("notice").replaceChildren(box);
}
