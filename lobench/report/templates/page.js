"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const make = (name, text, parent) => {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    if (parent) parent.append(element);
    return element;
  };
  const isNumber = (value) => typeof value === "number";
  // As Python writes numbers on this page: four digits, a power of ten for what is far from 1, 4.089e13.
  const format = (value) => {
    const size = Math.abs(value), short = Number(value.toPrecision(4));
    if (size && (size < 1e-3 || size >= 1e6)) return short.toExponential().replace("e+", "e");
    return (Number.isInteger(value) ? value : short).toLocaleString("en", { maximumSignificantDigits: 6 });
  };
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
  const table = document.getElementById("evaluations");
  const [headRow, body] = [table.tHead.rows[0], table.tBodies[0]];
  const [more, count, filter] = ["more", "count", "filter"].map((id) => document.getElementById(id));
  const PAGE = 100;
  let shown = PAGE, rows = data.rows;
  const texts = data.rows.map((row) => row.join(" ").toLowerCase());
  const order = data.rows.map((_, index) => index);
  const text = (value, column) => value === null ? (data.columns[column].missing || "") : data.columns[column].measured && isNumber(value) ? format(value) : String(value);
  const draw = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = order.filter((index) => words.every((word) => texts[index].includes(word)));
    body.textContent = "";
    for (const index of found.slice(0, shown)) {
      const line = make("tr", undefined, body);
      rows[index].forEach((value, column) => {
        const cell = make(column ? "td" : "th", text(value, column), line);
        if (!column) cell.scope = "row";
        if (data.columns[column].number) cell.className = "num";
      });
    }
    count.textContent = `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} evaluations` +
      (found.length > shown ? `, the first ${shown} shown` : "");
    more.hidden = found.length <= shown;
  };
  data.columns.forEach((column, index) => {
    const head = make("th", undefined, headRow);
    head.scope = "col";
    if (column.number) head.className = "num";
    sortButton(head, column.name, (sign) => {
      order.sort((a, b) => compare(rows[a][index], rows[b][index], sign));
      draw();
    });
  });
  filter.addEventListener("input", () => { shown = PAGE; draw(); });
  more.addEventListener("click", () => { shown += 10 * PAGE; draw(); });
  draw();

  // The table of cases is there already; sorting moves its rows.
  const cases = document.getElementById("cases");
  [...cases.tHead.rows[0].cells].forEach((head, index) => {
    sortButton(head, head.textContent, (sign) => {
      const key = (row) => {
        const raw = row.cells[index].dataset.value ?? row.cells[index].textContent;
        return raw !== "" && Number.isFinite(Number(raw)) ? Number(raw) : raw;
      };
      cases.tBodies[0].append(...[...cases.tBodies[0].rows].sort((a, b) => compare(key(a), key(b), sign)));
    });
  });

  // Hovering, or a tap, shows the values nearest to the pointer.
  const tip = document.getElementById("tip");
  const said = (names, value) => names?.[value] ?? format(value);
  for (const svg of document.querySelectorAll("svg.chart")) {
    const chart = JSON.parse(svg.dataset.chart);
    const cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
    cursor.setAttribute("class", "cursor");
    const hide = () => { tip.hidden = true; cursor.remove(); };
    const show = (event) => {
      const box = svg.getBoundingClientRect();
      const at = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
      const all = chart.lines.flatMap((line) => line.points);
      if (!all.length) return;
      const nearest = all.reduce((a, b) => Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a);
      tip.textContent = "";
      make("p", `${chart.x} ${said(chart.xNames, nearest[1])}`, tip);
      for (const line of chart.lines) {
        if (!line.points.length) continue;
        const point = line.points.reduce((a, b) => Math.abs(b[0] - nearest[0]) < Math.abs(a[0] - nearest[0]) ? b : a);
        const band = point.length > 3 ? ` [${format(point[3])}, ${format(point[4])}]` : "";
        const where = point[1] === nearest[1] ? "" : ` (at ${said(chart.xNames, point[1])})`;
        make("p", `${line.label}: ${said(chart.yNames, point[2])}${band}${where}`, tip);
      }
      const [height, low] = [svg.viewBox.baseVal.height, 38];
      for (const [name, value] of [["x1", nearest[0]], ["x2", nearest[0]], ["y1", 8], ["y2", height - low]]) cursor.setAttribute(name, value);
      svg.append(cursor);
      tip.hidden = false;
      const left = event.clientX + 14 + tip.offsetWidth > innerWidth ? event.clientX - 14 - tip.offsetWidth : event.clientX + 14;
      tip.style.left = `${Math.max(4, left)}px`;
      tip.style.top = `${Math.min(Math.max(4, event.clientY + 14), innerHeight - tip.offsetHeight - 4)}px`;
    };
    svg.addEventListener("pointermove", show);
    svg.addEventListener("pointerdown", show);
    svg.addEventListener("pointerleave", hide);
  }

  // Films can be stopped, and stand still for who asks the browser for less motion.
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  for (const svg of document.querySelectorAll("svg.film")) {
    const button = make("button", "", svg.parentElement);
    button.type = "button";
    button.className = "play";
    const set = (playing) => {
      if (playing) svg.unpauseAnimations(); else svg.pauseAnimations();
      button.textContent = playing ? "Pause" : "Play";
    };
    button.addEventListener("click", () => set(svg.animationsPaused()));
    set(!still);
  }
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
})();
