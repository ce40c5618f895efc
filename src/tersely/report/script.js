"use strict";
// Columns sort by a click on their heading; a model that is pointed at shows in the line below the plot and in the table.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const value = (row, place) => row.cells[place].textContent.trim();
  const number = (text) => Number.parseFloat(text.replace("−", "-").replace(/,/g, ""));
  [...table.tHead.rows[0].cells].forEach((head, place) => {
    head.querySelector("button").addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") === "descending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const numeric = head.classList.contains("number");
      const order = (a, b) => {
        const [x, y] = [value(a, place), value(b, place)];
        if (!numeric) return x.localeCompare(y);
        const [p, q] = [number(x), number(y)];
        return (Number.isNaN(p) ? -Infinity : p) - (Number.isNaN(q) ? -Infinity : q) || 0;
      };
      const rows = [...body.rows].sort(order);
      body.append(...(up ? rows : rows.reverse()));
    });
  });
}
const detail = document.querySelector(".detail");
const named = [...document.querySelectorAll("[data-name]")];
const point = (name) => {
  for (const one of named) one.classList.toggle("pointed", one.dataset.name === name);
  const shown = named.find((one) => one.dataset.name === name && one.matches(".point"));
  if (shown && detail) detail.textContent = shown.getAttribute("aria-label");
};
for (const one of named) {
  for (const event of ["pointerenter", "focus", "click"]) one.addEventListener(event, () => point(one.dataset.name));
}
