"use strict";
// The application: each view has an address (#/overview, #/case/NAME, ...), and shows the sections that are of it.
(() => {
  const { make, number, isNumber, draw, near, listTable, sortable } = lobench;
  const main = document.querySelector("main"), byId = (id) => document.getElementById(id);
  const linkTo = (view, ...parts) => `#/${[view, ...parts.map(encodeURIComponent)].join("/")}`;
  lobench.linkTo = linkTo;

  // Films can be stopped, and stand still for who asks the browser for less motion.
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const setFilm = (svg) => {
    const button = make("button", "", svg.parentElement, { type: "button", class: "play" });
    const set = (playing) => {
      if (playing) svg.unpauseAnimations(); else svg.pauseAnimations();
      button.textContent = playing ? "Pause" : "Play";
    };
    button.addEventListener("click", () => set(svg.animationsPaused()));
    set(!still);
  };
  let sortedCases = null;
  const setPart = (part) => {
    for (const svg of part.querySelectorAll("svg.chart[data-chart]")) near.observe(svg);
    for (const svg of part.querySelectorAll("svg.film")) setFilm(svg);
    const cases = part.querySelector("#cases");
    if (cases) sortable(cases, sortedCases, (sorted) => { sortedCases = sorted; });
  };
  setPart(document);
  lobench.setPart = setPart;
  if (!byId("explorer")) return;  // a page of some figures, without views

  let data = null, source = null, turn = 0;
  const placeOf = (list, key) => list.findIndex((one) => one === key);
  const subjects = () => data.subjects.map((one) => one.key), cases = () => data.cases.map((one) => one.name);
  const copyable = (text, parent, what) => {
    make("pre", text, parent, { tabindex: "0", "aria-label": what });
    const button = make("button", "Copy", parent, { type: "button", "aria-label": `Copy: ${what}` });
    button.addEventListener("click", async () => {
      try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; } catch { button.textContent = "Select and copy it"; }
    });
  };
  const facts = (pairs, parent) => {
    const list = make("dl", undefined, parent);
    for (const [name, value] of pairs) { make("dt", name, list); make("dd", value, list); }
  };
  const missing = (section, said) => { section.querySelector("h2").textContent = "Not here"; section.querySelector(".about").textContent = said; };

  const MEASURED = { number: true, measured: true, missing: "-" };
  const columnsOf = (first, ...names) => [{ name: first }, ...names.map((name) => ({ name, ...MEASURED }))];
  const tables = {
    evaluations: listTable(byId("h-evaluations").parentElement, {
      what: "evaluations", link: (row) => { const [subject, place] = row.slice(-2); return subject < 0 || place < 0 ? null : linkTo("evaluation", data.subjects[subject].key, data.cases[place].name); },
      onChange: ({ words, sorted }) => {
        const said = new URLSearchParams(words ? { filter: words } : {});
        if (sorted) said.set("sort", `${sorted.sign < 0 ? "-" : ""}${sorted.name}`);
        history.replaceState(null, "", `#/evaluations${said.size ? "?" : ""}${said}`);
      },
    }),
    case: listTable(byId("h-case").parentElement, { what: "subjects", link: (row) => linkTo("evaluation", ...row.slice(-2)) }),
    pair: listTable(byId("h-compare").parentElement, { what: "cases", link: (row) => linkTo("case", row.at(-1)) }),
  };

  const views = {
    case: ([name]) => {
      const section = byId("h-case").parentElement, place = placeOf(cases(), name);
      section.querySelector("h2").textContent = name;
      if (place < 0) { missing(section, `No case is called ${name}.`); return; }
      const { primary, about, file } = data.cases[place];
      section.querySelector(".about").textContent = `${about}; ${file}.`;
      const rows = data.subjects.flatMap((one, subject) => {
        const { has, texts, final } = lobench.cellOf(subject, place), [mean, lower, upper] = primary < 0 ? [null, null, null] : final(primary);
        return has ? [[one.label, mean, lower, upper, texts[0], one.key, name]] : [];
      });
      const metric = primary < 0 ? "value" : data.metrics[primary][0];
      tables.case.set({ columns: [...columnsOf("subject", `final ${metric}`, "95% from", "to"), { name: "seeds" }], rows });
    },
    evaluation: async ([key, name]) => {
      const section = byId("h-evaluation").parentElement, subject = placeOf(subjects(), key), place = placeOf(cases(), name);
      if (subject < 0 || place < 0 || !lobench.cellOf(subject, place).has) { missing(section, `${key} was not evaluated on ${name}.`); return; }
      const { label, with: given } = data.subjects[subject], { train, show, about, file } = data.cases[place], [said, bindings, seeds] = lobench.cellOf(subject, place).texts;
      section.querySelector("h2").textContent = `${label} on ${name}`;
      section.querySelector(".about").textContent = `${about}; ${said}.`;
      const own = turn, found = await source.evaluation(subject, place), body = make("div", undefined, undefined, { class: "found" });
      if (own !== turn) return;
      section.querySelector(".found").replaceWith(body);
      const links = make("p", undefined, body);
      make("a", "The case, with all its subjects", links, { href: linkTo("case", name) });
      if (!found) make("p", "Curves of seeds are not in this file, which would be too long: lobench view STORE shows them.", body, { class: "warning" });
      else {
        if (found.metrics.length) seedCharts(found, data.cases[place], body);
        facts(found.facts, body);
        if (found.log) { make("h3", "Log", body); make("pre", found.log, body, { tabindex: "0" }); }
      }
      if (given) {
        make("h3", "Repeat it", body);
        make("p", `Its gin bindings, and the commands that train it again and print what came of it. They run in the folder below which ${file} lies:`, body, { class: "quiet" });
        // The whole configuration goes with it: what a watch was given by --gin-param, and what the suite said then, count.
        const bound = bindings ? `cat > bound.gin <<'END_OF_BINDINGS'\n${bindings}\nEND_OF_BINDINGS\n` : "";
        copyable(`${bound}${[train, given, seeds, bound && "--lobench-gin-file bound.gin"].filter(Boolean).join(" ")}\n${show}`, body, "the commands that repeat it");
      } else make("p", `Its curves were imported: ${said}.`, body);
    },
    compare: async ([b, a]) => {
      const section = byId("h-compare").parentElement, picks = ["b", "a"].map((name) => section.querySelector(`select[name=${name}]`)), isPage = location.hash.startsWith("#/compare");
      section.querySelector("h2").textContent = "Compare";
      const keys = [b ?? data.pair[0], a ?? data.pair[1]], places = keys.map((key) => placeOf(subjects(), key)), body = section.querySelector(".found");
      picks.forEach((pick, at) => {
        pick.replaceChildren(...data.subjects.map((one) => make("option", one.label, undefined, { value: one.key })));
        pick.value = places[at] < 0 ? "" : keys[at];
        pick.onchange = () => { location.hash = linkTo(isPage ? "compare" : "overview", ...picks.map((one) => one.value)); };
      });
      section.querySelector(".whole").href = linkTo("compare", ...keys);
      section.querySelector(".whole").hidden = isPage;
      section.querySelector(".only").hidden = !isPage;
      const own = turn, found = places.includes(-1) || places[0] === places[1] ? null : await source.pair(...places);
      if (own !== turn) return;
      body.textContent = "";
      if (!found) {
        make("p", places[0] === places[1] ? "Pick two." : "This file does not hold the comparison of these two; this command makes it:", body, { class: "quiet" });
        if (!places.includes(-1) && places[0] !== places[1]) copyable(`lobench view ${data.store}`, body, "the command");
        tables.pair.set({ columns: columnsOf("case"), rows: [] });
        return;
      }
      const cards = make("div", undefined, body, { class: "cards" });
      for (const { label, value, note, kind } of found.cards) {
        const card = make("div", undefined, cards, { class: `card ${kind}` });
        make("p", label, card, { class: "label" }); make("p", value, card, { class: "value" }); make("p", note, card, { class: "quiet" });
      }
      const rows = found.cases.map(([place, ...values]) => [data.cases[place].name, ...values, data.cases[place].name]);
      tables.pair.set({ columns: [...columnsOf("case", "difference of score", "95% from", "to", "p (Holm)"), { name: "verdict" }, { name: "note" }], rows });
    },
    evaluations: (_, query) => {
      const given = new URLSearchParams(query), sort = given.get("sort");
      tables.evaluations.ask({ words: given.get("filter") ?? "", by: sort ? { name: sort.replace(/^-/, ""), sign: sort.startsWith("-") ? -1 : 1 } : null });
    },
  };
  const seedCharts = (found, { primary }, body) => {
    const named = found.metrics.map((metric) => data.metrics[metric][0]);
    const controls = make("p", undefined, body, { class: "controls" }), pick = make("select", undefined, make("label", "Metric ", controls));
    for (const name of named) make("option", name, pick);
    if (found.metrics.includes(primary)) pick.value = data.metrics[primary][0];
    const areItems = typeof found.seeds[0] === "string", figure = make("figure", undefined, areItems ? document.createElement("div") : body), legend = make("p", undefined, figure, { class: "legend" }), holder = make("div", undefined, figure);
    const show = () => {
      const metric = named.indexOf(pick.value), lines = found.seeds.map((seed, place) => ({ label: `seed ${seed}`, style: data.styles[place % data.styles.length], x: found.steps, y: found.curves[metric][place] }));
      legend.textContent = "";
      for (const { label, style } of lines) { const entry = make("button", undefined, legend, { type: "button", class: "entry", "aria-pressed": true }); make("span", undefined, entry, { class: `key ${style}`, "aria-hidden": "true" }); entry.append(label); }
      draw(holder, { title: `${pick.value} of each seed`, x: "inner step", y: pick.value, lines, logY: data.metrics[found.metrics[metric]][1] !== "max" && lobench.isWide(lines), height: 300 });
    };
    pick.addEventListener("change", show);
    show();
    const scroll = make("div", undefined, body, { class: "scroll", role: "region", tabindex: "0", "aria-label": "Seeds" }), table = make("table", undefined, scroll), head = make("tr", undefined, make("thead", undefined, table)), rows = make("tbody", undefined, table);
    for (const name of [areItems ? "item" : "seed", "diverged at inner step", ...named.map((name) => `final ${name}`)]) make("th", name, head, { scope: "col", class: "num" });
    found.seeds.forEach((seed, place) => {
      const row = make("tr", undefined, rows), at = found.diverged[seed];
      make("th", seed, row, { scope: "row", class: "num" });
      make("td", at ?? "-", row, { class: at === undefined ? "num" : "num bad" });
      for (const metric of found.curves) make("td", isNumber(metric[place].at(-1)) && at === undefined ? number(metric[place].at(-1)) : "diverged", row, { class: "num" });
    });
  };

  const parse = () => {
    const text = location.hash.slice(1);
    if (!text.startsWith("/")) return { view: text.includes("=") ? "curves" : "overview", parts: [], path: "/curves", query: text.includes("=") ? text : "" };
    const at = text.indexOf("?"), path = at < 0 ? text : text.slice(0, at), [view, ...parts] = path.slice(1).split("/").map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
    return { view, parts, path, query: at < 0 ? "" : text.slice(at + 1) };
  };
  const show = ({ moves }) => {
    const route = parse(), sections = [...main.querySelectorAll(":scope > section[data-view]")], isOf = (section) => section.dataset.view.split(" ").includes(route.view);
    turn++;
    const own = sections.filter(isOf);
    for (const section of sections) section.hidden = !isOf(section);
    byId("nothing").hidden = own.length > 0;
    for (const link of document.querySelectorAll("#views a")) {
      if (link.getAttribute("href") === `#/${route.view}`) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
    }
    if (data) {
      const { view, parts } = route, forced = view === "case" ? { case: [parts[0]] } : view === "compare" ? { subject: parts.length ? parts : data.pair } : {};
      const own = view === "overview" ? "compare" : view;
      if (Object.hasOwn(views, own)) views[own](parts, route.query);
      if (["curves", "case", "compare"].includes(view)) lobench.showCurves({ ...route, forced });
    }
    const title = own[0]?.querySelector("h2");
    if (!moves || !title) return;
    title.setAttribute("tabindex", "-1");
    title.focus({ preventScroll: true });
    scrollTo(0, 0);
  };
  addEventListener("hashchange", () => show({ moves: true }));

  // Takes what is new; what people picked, zoomed and sorted stays as it is.
  // The source of what comes when it is asked for: `curves(keys)`, `evaluation(subject, case)`, `pair(b, a)`.
  lobench.start = (found, from) => {
    [data, source] = [found, from];
    lobench.explore(data, from.curves);
    tables.evaluations.set(data.evaluations);
    show({ moves: false });
  };
  lobench.show = () => show({ moves: false });
  show({ moves: false });
  const held = byId("data");
  if (held) {
    const found = JSON.parse(held.textContent);
    lobench.start(found, { curves: async () => found.curves, evaluation: async (subject, place) => found.held[`${subject},${place}`], pair: async (b, a) => found.pairs[`${b},${a}`] });
  }
})();
