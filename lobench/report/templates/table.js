"use strict";
// Tables that are sorted and filtered: rows are made as far as they are shown.
(() => {
  const { make, number } = lobench;
  const PAGE = 100, LONG = 48; // rows; letters of a cell that may have several lines
  const isNumber = (value) => typeof value === "number";
  // Numbers by size, text by alphabet; what is missing or diverged comes last in either direction.
  const { compare: byAlphabet } = new Intl.Collator("en", { numeric: true });
  const compare = (a, b, sign) => {
    if (isNumber(a) !== isNumber(b)) return isNumber(a) ? -1 : 1;
    return sign * (isNumber(a) ? a - b : byAlphabet(String(a), String(b)));
  };
  const sortButton = (head, name, onSort) => {
    head.textContent = "";
    const button = make("button", name, head, { type: "button" });
    button.addEventListener("click", () => {
      const ascending = head.getAttribute("aria-sort") !== "ascending";
      for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      onSort(ascending ? 1 : -1);
    });
  };

  // A table in a section: `set({columns, rows})` gives it rows; `onChange({words, sorted})` is told what people ask of it.
  // A column: name, number, measured (rounded), missing (what stands for null). `link(row)`: where its first cell leads.
  const listTable = (section, { link, what, onChange = () => {} }) => {
    const table = section.querySelector("table"), more = section.querySelector(".more"), count = section.querySelector(".count"), filter = section.querySelector("input[type=search]");
    let data = { columns: [], rows: [] }, shown = PAGE, texts = [], order = [], sorted = null;
    const text = (value, { missing = "", measured }) => value === null ? missing : measured && isNumber(value) ? number(value) : String(value);
    const draw = () => {
      const words = (filter?.value ?? "").toLowerCase().split(/\s+/).filter(Boolean), made = document.createDocumentFragment();
      const found = words.length ? order.filter((index) => words.every((word) => texts[index].includes(word))) : order;
      for (const index of found.slice(0, shown)) {
        const line = make("tr", undefined, made), row = data.rows[index];
        data.columns.forEach((column, place) => {
          const cell = make(place ? "td" : "th", undefined, line), said = text(row[place], column), to = place ? null : link(row);
          if (to) make("a", said, cell, { href: to }); else cell.textContent = said;
          if (!place) cell.scope = "row";
          if (column.number) cell.className = "num";
          else if (said.length > LONG) cell.className = "long";
        });
      }
      table.tBodies[0].replaceChildren(made);
      if (count) count.textContent = `${found.length.toLocaleString("en")} of ${data.rows.length.toLocaleString("en")} ${what}` + (found.length > shown ? `, the first ${shown} shown` : "");
      more.hidden = found.length <= shown;
    };
    const sort = () => {
      const column = data.columns.findIndex((one) => one.name === sorted?.name);
      if (column >= 0) order.sort((a, b) => compare(data.rows[a][column], data.rows[b][column], sorted.sign));
      draw();
    };
    const tell = () => onChange({ words: filter?.value ?? "", sorted });
    filter?.addEventListener("input", () => { shown = PAGE; draw(); tell(); });
    more.addEventListener("click", () => { shown += 10 * PAGE; draw(); });
    const heads = () => {
      const row = table.tHead.rows[0];
      row.textContent = "";
      for (const column of data.columns) {
        const head = make("th", undefined, row, { scope: "col", ...(column.number ? { class: "num" } : {}) });
        sortButton(head, column.name, (sign) => { sorted = { name: column.name, sign }; sort(); tell(); });
        if (column.name === sorted?.name) head.setAttribute("aria-sort", sorted.sign > 0 ? "ascending" : "descending");
      }
    };
    return {
      set: (found) => {
        const names = (one) => one.columns.map((column) => column.name).join("\n"), isSame = names(found) === names(data);
        data = found;
        texts = data.rows.map((row) => row.slice(0, data.columns.length).join(" ").toLowerCase());
        order = data.rows.map((_, index) => index);
        if (!isSame) heads();
        sort();
      },
      ask: ({ words, by }) => {
        if (filter && filter.value !== words) filter.value = words;
        sorted = by;
        order = data.rows.map((_, index) => index);
        shown = PAGE;
        heads();
        sort();
      },
    };
  };

  // A table that is there already: sorting moves its rows.
  const sortable = (table, sorted, onSort) => {
    const heads = [...table.tHead.rows[0].cells];
    const sort = (index, sign) => {
      const key = (row) => {
        const raw = row.cells[index].dataset.value ?? row.cells[index].textContent;
        return raw !== "" && Number.isFinite(Number(raw)) ? Number(raw) : raw;
      };
      table.tBodies[0].append(...[...table.tBodies[0].rows].sort((a, b) => compare(key(a), key(b), sign)));
    };
    heads.forEach((head, index) => {
      const name = head.textContent;
      sortButton(head, name, (sign) => { sort(index, sign); onSort({ name, sign }); });
      if (name !== sorted?.name) return;
      head.setAttribute("aria-sort", sorted.sign > 0 ? "ascending" : "descending");
      sort(index, sorted.sign);
    });
  };
  Object.assign(lobench, { listTable, sortable });
})();
