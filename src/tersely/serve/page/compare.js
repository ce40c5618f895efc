// Whether two models say the same, in one line.

/** {same, line} of two answers of one kind (`same` is null for numbers); entities of one alone are flagged `alone`. */
export function compare(first, second) {
  if (first.kind === "labels") return compareLabels(first, second);
  if (first.kind === "number") {
    return { same: null, line: `${Math.abs(first.value - second.value).toPrecision(2)} apart` };
  }
  if (first.kind === "entities") return compareEntities(first, second);
  if (first.kind === "other") return { same: first.text === second.text, line: "as the server gives them" };
  const same = first.start === second.start && first.end === second.end;
  return { same, line: same ? "the same stretch of the context" : "different stretches of the context" };
}

/** How many times as fast the quicker of two is, in words. */
export function pace(first, second) {
  const [quick, slow] = first.milliseconds <= second.milliseconds ? [first, second] : [second, first];
  const times = slow.milliseconds / quick.milliseconds;
  return times < 1.05 ? "Both are equally fast" : `${quick.title} is ${times.toFixed(1)} times as fast`;
}

function compareLabels(first, second) {
  const shares = new Map(second.labels.map((label) => [label.name, label]));
  const apart = first.labels.map(({ name, share }) => Math.abs(share - (shares.get(name)?.share ?? 0)));
  const same = first.labels.every(({ name, chosen }) => chosen === Boolean(shares.get(name)?.chosen));
  return { same, line: `probabilities at most ${(100 * Math.max(...apart)).toFixed(1)} points apart` };
}

function compareEntities(first, second) {
  const place = ({ start, end, label }) => `${start} ${end} ${label}`;
  const theirs = new Set(second.spans.map(place));
  const common = new Set(first.spans.map(place).filter((span) => theirs.has(span)));
  for (const span of [...first.spans, ...second.spans]) span.alone = !common.has(place(span));
  const all = new Set([...first.spans, ...second.spans].map(place)).size;
  const line = all === 0 ? "no entities in both" : `${common.size} of ${all} entities in both`;
  return { same: common.size === all, line };
}
