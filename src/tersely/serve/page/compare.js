// Whether two models say the same, in one line.

/** {same, line} of two answers of one kind (`same` is null for numbers); entities of one alone are flagged `alone`. */
export function compare(one, other) {
  if (one.kind === "labels") return compareLabels(one, other);
  if (one.kind === "number") {
    return { same: null, line: `${Math.abs(one.value - other.value).toPrecision(2)} apart` };
  }
  if (one.kind === "entities") return compareEntities(one, other);
  if (one.kind === "other") return { same: one.text === other.text, line: "as the server gives them" };
  const same = one.start === other.start && one.end === other.end;
  return { same, line: same ? "the same stretch of the context" : "different stretches of the context" };
}

/** How many times as fast the quicker of two is, in words. */
export function pace(one, other) {
  const [quick, slow] = one.milliseconds <= other.milliseconds ? [one, other] : [other, one];
  const times = slow.milliseconds / quick.milliseconds;
  return times < 1.05 ? "Both are equally fast" : `${quick.title} is ${times.toFixed(1)} times as fast`;
}

function compareLabels(one, other) {
  const shares = new Map(other.labels.map((label) => [label.name, label]));
  const apart = one.labels.map(({ name, share }) => Math.abs(share - (shares.get(name)?.share ?? 0)));
  const same = one.labels.every(({ name, chosen }) => chosen === Boolean(shares.get(name)?.chosen));
  return { same, line: `probabilities at most ${(100 * Math.max(...apart)).toFixed(1)} points apart` };
}

function compareEntities(one, other) {
  const place = ({ start, end, label }) => `${start} ${end} ${label}`;
  const theirs = new Set(other.spans.map(place));
  const common = new Set(one.spans.map(place).filter((span) => theirs.has(span)));
  for (const span of [...one.spans, ...other.spans]) span.alone = !common.has(place(span));
  const all = new Set([...one.spans, ...other.spans].map(place)).size;
  const line = all === 0 ? "no entities in both" : `${common.size} of ${all} entities in both`;
  return { same: common.size === all, line };
}
