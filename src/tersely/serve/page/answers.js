// The server's result for one input, in one form for each kind of answer.

/** The result as {kind: "labels" | "number" | "entities" | "answer" | "other", …}, by what is in it. */
export function readAnswer(model, result) {
  if (model.problem) return readLabels(model, result);
  if ("tokens_label" in result) return readEntities(result);
  if ("answer" in result) return readStretch(result);
  return { kind: "other", text: JSON.stringify(result, null, 1) };
}

/** What a request must say besides the texts, for everything that the page shows to be in the answer. */
export function parametersFor({ problem }) {
  return problem && problem !== "regression" ? { all_scores: true } : {};
}

function readLabels({ labels, problem }, { value, label, scores }) {
  if (problem === "regression") return { kind: "number", value: value[0] };
  const several = problem === "multi_label_classification";
  const on = new Set(several ? label[0] : label);
  const rows = labels.map((name, index) => ({ name, share: scores[0][name], chosen: on.has(index) }));
  return { kind: "labels", several, labels: rows.sort((one, other) => other.share - one.share) };
}

function readEntities({ value }) {
  return { kind: "entities", spans: value[0].map(({ start, end, label, score }) => ({ start, end, label, share: score })) };
}

function readStretch({ answer, start, end, score }) {
  return { kind: "answer", text: answer[0], start: start[0], end: end[0], share: score[0] };
}
