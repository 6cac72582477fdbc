"use strict";
// The tables, charts and films that the page has from the start. A served page calls this again for what was replaced.
(() => {
  const { make, number, hover } = lobench;
  const isNumber = (value) => typeof value === "number";
  // Numbers by size, text by alphabet; what is missing or diverged comes last in either direction.
  const compare = (a, b, sign) => {
    if (isNumber(a) !== isNumber(b)) return isNumber(a) ? -1 : 1;
    return sign * (isNumber(a) ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
  };
  const sortButton = (head, name, onSort) => {
    head.textContent = "";
    const button = make("button", name, head);
    button.type = "button";
    button.addEventListener("click", () => {
      const ascending = head.getAttribute("aria-sort") !== "ascending";
      for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      onSort(ascending ? 1 : -1);
    });
  };

  // The evaluations: rows are made as far as they are shown.
  const PAGE = 100;
  const table = document.getElementById("evaluations");
  const [headRow, body] = [table.tHead.rows[0], table.tBodies[0]];
  const [more, count, filter] = ["more", "count", "filter"].map((id) => document.getElementById(id));
  let data = { columns: [], rows: [] }, shown = PAGE, texts = [], order = [], sorted = null;
  const text = (value, column) => value === null ? (data.columns[column].missing || "") : data.columns[column].measured && isNumber(value) ? number(value) : String(value);
  const draw = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = order.filter((index) => words.every((word) => texts[index].includes(word)));
    body.textContent = "";
    for (const index of found.slice(0, shown)) {
      const line = make("tr", undefined, body);
      data.rows[index].forEach((value, column) => {
        const cell = make(column ? "td" : "th", text(value, column), line);
        if (!column) cell.scope = "row";
        if (data.columns[column].number) cell.className = "num";
      });
    }
    count.textContent = `${found.length.toLocaleString("en")} of ${data.rows.length.toLocaleString("en")} evaluations` +
      (found.length > shown ? `, the first ${shown} shown` : "");
    more.hidden = found.length <= shown;
  };
  const sort = () => {
    const column = data.columns.findIndex((one) => one.name === sorted?.name);
    if (column >= 0) order.sort((a, b) => compare(data.rows[a][column], data.rows[b][column], sorted.sign));
    draw();
  };
  const setEvaluations = (found) => {
    const names = (one) => one.columns.map((column) => column.name).join("\n");
    const isSame = names(found) === names(data);
    data = found;
    texts = data.rows.map((row) => row.join(" ").toLowerCase());
    order = data.rows.map((_, index) => index);
    if (!isSame) {
      headRow.textContent = "";
      for (const column of data.columns) {
        const head = make("th", undefined, headRow);
        head.scope = "col";
        if (column.number) head.className = "num";
        sortButton(head, column.name, (sign) => { sorted = { name: column.name, sign }; sort(); });
      }
    }
    sort();
  };
  filter.addEventListener("input", () => { shown = PAGE; draw(); });
  more.addEventListener("click", () => { shown += 10 * PAGE; draw(); });
  setEvaluations(JSON.parse(document.getElementById("data").textContent));

  // The table of cases is there already; sorting moves its rows.
  let sortedCases = null;
  const setCases = () => {
    const cases = document.getElementById("cases");
    const heads = [...cases.tHead.rows[0].cells], names = heads.map((head) => head.textContent);
    heads.forEach((head, index) => {
      sortButton(head, head.textContent, (sign) => {
        const key = (row) => {
          const raw = row.cells[index].dataset.value ?? row.cells[index].textContent;
          return raw !== "" && Number.isFinite(Number(raw)) ? Number(raw) : raw;
        };
        cases.tBodies[0].append(...[...cases.tBodies[0].rows].sort((a, b) => compare(key(a), key(b), sign)));
        sortedCases = { name: names[index], sign };
      });
    });
    const again = heads[names.indexOf(sortedCases?.name)];
    if (again) {
      if (sortedCases.sign < 0) again.setAttribute("aria-sort", "ascending");  // a click turns it round
      again.querySelector("button").click();
    }
  };

  // Films can be stopped, and stand still for who asks the browser for less motion.
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const setFilm = (svg) => {
    const button = make("button", "", svg.parentElement);
    button.type = "button";
    button.className = "play";
    const set = (playing) => {
      if (playing) svg.unpauseAnimations(); else svg.pauseAnimations();
      button.textContent = playing ? "Pause" : "Play";
    };
    button.addEventListener("click", () => set(svg.animationsPaused()));
    set(!still);
  };

  // What stands behind the # of the address is the explorer's: a link to a section goes there and leaves it.
  document.addEventListener("click", (event) => {
    const there = document.getElementById(event.target.closest?.('a[href^="#h-"]')?.getAttribute("href").slice(1));
    if (!there) return;
    event.preventDefault();
    there.setAttribute("tabindex", "-1");
    there.focus({ preventScroll: true });
    there.scrollIntoView();
  });

  const setPart = (part) => {
    for (const svg of part.querySelectorAll("svg.chart[data-chart]")) hover(svg, JSON.parse(svg.dataset.chart));
    for (const svg of part.querySelectorAll("svg.film")) setFilm(svg);
    if (part.querySelector("#cases")) setCases();
  };
  setPart(document);
  Object.assign(lobench, { setEvaluations, setPart });
})();
