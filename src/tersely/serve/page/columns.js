// Ask one model or two with the same input and show the answers side by side.

import { parametersFor, readAnswer } from "./answers.js";
import { compare, pace } from "./compare.js";
import { drawAnswer, inWords } from "./draw.js";
import { element } from "./marks.js";
import { Refused, ask } from "./server.js";

const REPEATS = 20;

/** Columns for these models (the first is the one that was picked) in the place of what `place` shows. */
export class Columns {
  constructor(place, models, data) {
    this.data = data;
    this.entries = models.map((model) => ({ model, title: titleOf(model, models), times: [], answer: null }));
    this.verdict = element("div", { class: "verdict" });
    this.columns = element("div", { class: models.length > 1 ? "columns two" : "columns" });
    for (const entry of this.entries) {
      entry.clock = element("p", { class: "clock" });
      entry.body = element("div", { class: "body" }, element("p", { class: "hint waiting" }, "Asking …"));
      const engine = element("span", { class: "hint engine" }, `on ${entry.model.engine}`); // times are of both together
      const head = element("header", {}, element("h2", {}, entry.model.name), badge(entry.model), engine, entry.clock);
      this.columns.append(element("article", { class: "card" }, head, entry.body));
    }
    place.replaceChildren(this.verdict, this.columns);
  }

  /** Ask each in turn, so that neither slows the other, and draw; gives the answers in words. */
  async run() {
    for (const entry of this.entries) {
      entry.answer = await this.#time(entry);
      await this.#time(entry); // each of a model's two streams may prepare itself when it first meets a length
      entry.times = [];
      await this.#time(entry);
    }
    const [first, second] = this.entries;
    const same = second ? compare(first.answer, second.answer) : null;
    const order = first.answer.kind === "labels" ? first.answer.labels.map((label) => label.name) : [];
    for (const { answer, body, model } of this.entries) {
      body.replaceChildren(...drawAnswer(answer, this.data, model, order));
      const mark = body.querySelector(".context mark");
      if (mark) mark.parentElement.scrollTop = mark.offsetTop - mark.parentElement.clientHeight / 3;
    }
    this.#drawClocks();
    if (same) this.#drawVerdict(same);
    return this.entries.map(({ model, answer }) => `${model.name}: ${inWords(answer)}`).join(". ");
  }

  /** Ask each again and again, in turn; gives why that ended too early, if it did. */
  async #repeat(button) {
    button.disabled = true;
    for (const entry of this.entries) entry.times = [];
    try {
      for (let round = 1; round <= REPEATS && this.verdict.isConnected; round += 1) {
        button.textContent = `Timing ${round} of ${REPEATS} …`;
        for (const entry of this.entries) await this.#time(entry);
      }
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      return error.message.replace(/\.$/, "");
    }
    return "";
  }

  async #time(entry) {
    const { result, milliseconds } = await ask(entry.model.name, this.data, parametersFor(entry.model));
    entry.times.push(milliseconds);
    return readAnswer(entry.model, result);
  }

  #drawVerdict({ same, line }) {
    const words = same === null ? "Two numbers" : same ? "Same answer" : "Different answers";
    const sign = element("strong", { class: same === null ? "" : same ? "same" : "different" }, words);
    const said = element("p", {}, sign, `: ${line}.`, paceLine(this.entries));
    const button = element("button", { type: "button", class: "quiet" }, `Time each ${REPEATS} times`);
    button.addEventListener("click", async () => {
      const stopped = await this.#repeat(button);
      this.#drawClocks();
      this.#drawVerdict({ same, line: stopped ? `${line}; timing stopped: ${stopped}` : line });
      this.verdict.querySelector("button").focus();
    });
    this.verdict.replaceChildren(said, button);
  }

  #drawClocks() {
    const most = Math.max(...this.entries.map(({ times }) => median(times)));
    for (const { clock, times } of this.entries) {
      const bar = element("span", { class: "tick", "aria-hidden": "true" });
      bar.style.width = `${(100 * median(times)) / most}%`;
      const words = times.length > 1 ? `, median of ${times.length}` : "";
      clock.replaceChildren(element("strong", {}, milliseconds(median(times))), words, ...(this.entries.length > 1 ? [bar] : []));
    }
  }
}

/** How much faster one is, once that was looked at: a single request says little. */
function paceLine(entries) {
  if (entries.some(({ times }) => times.length < REPEATS)) return "";
  return ` ${pace(...entries.map(({ title, times }) => ({ title, milliseconds: median(times) })))}.`;
}

/** FP32 or INT8 where that tells the two apart, else the name. */
function titleOf(model, models) {
  const alike = models.filter(({ precision }) => precision === model.precision);
  return alike.length > 1 ? model.name : model.precision.toUpperCase();
}

export function badge(model) {
  return element("span", { class: `badge ${model.precision}` }, model.precision.toUpperCase());
}

export function milliseconds(value) {
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
