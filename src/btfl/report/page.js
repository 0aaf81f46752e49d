"use strict";
// Sort a table by the column whose heading is clicked; a second click turns the order round.
// Rows set apart (the oracle) stay below, and cells without a value come last.
for (const table of document.querySelectorAll("figure.table table")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    heading.firstElementChild.addEventListener("click", () => {
      const numeric = column > 0 && !table.classList.contains("words");
      const before = heading.getAttribute("aria-sort");
      const descending = before ? before === "ascending" : numeric;
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const body = table.tBodies[0];
      const keyed = [...body.rows].map((row) => [row, row.cells[column].dataset.key]);
      keyed.sort(([first, one], [second, two]) => {
        const apart = first.classList.contains("apart") - second.classList.contains("apart");
        if (apart) return apart;
        if (one === "" || two === "") return (one === "") - (two === "");
        const bothNumbers = !Number.isNaN(Number(one)) && !Number.isNaN(Number(two));
        const order = bothNumbers ? Number(one) - Number(two) : one.localeCompare(two);
        return descending ? -order : order;
      });
      body.append(...keyed.map(([row]) => row));
    });
  });
}
