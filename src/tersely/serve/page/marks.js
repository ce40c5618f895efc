// Elements, and texts with marked stretches. Whatever a user or a model says goes in as text, never as markup.

/** An element with properties (`class`, `data-…` and ARIA as attributes) and children; strings become text nodes. */
export function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

/**
 * A text in which stretches are marked.
 *
 * `spans`: {start, end, …} by code points, as the server counts; JavaScript's own strings count an emoji or a rare
 * Chinese character as two. `draw(span, text)` makes the mark. Of spans that overlap the first is drawn.
 */
export function marked(text, spans, draw) {
  const points = Array.from(text);
  const box = element("p", { class: "text", lang: languageOf(text) });
  let at = 0;
  for (const span of [...spans].sort((one, other) => one.start - other.start)) {
    if (span.start < at || span.end <= span.start || span.end > points.length) continue;
    box.append(points.slice(at, span.start).join(""), draw(span, points.slice(span.start, span.end).join("")));
    at = span.end;
  }
  box.append(points.slice(at).join(""));
  return box;
}

/** "zh" where Chinese characters stand, so that the right shapes of them are drawn. */
export function languageOf(text) {
  if (/[\u3040-\u30ff]/.test(text)) return "ja";
  return /\p{Script=Han}/u.test(text) ? "zh" : null;
}
