"use strict";
// The explorer: what is picked stands behind the # of the address, so that a link holds the view.
(() => {
  const { make, number, isNumber, isWide, draw } = lobench;
  const form = document.getElementById("explorer");
  if (!form) return;
  const [PICKS, CHARTS, OPTIONS, STYLES] = [16, 60, 200, 8];
  const byId = (id) => document.getElementById(id);
  const [charts, note, legend, more] = ["explorer-charts", "explorer-note", "explorer-legend", "explorer-more"].map(byId);
  const selects = ["show", "band", "scale"].map((name) => [name, form.elements[name]]);
  const KINDS = ["subject", "case", "metric"];
  let data = null, getCurves = null, state = null, numCharts = CHARTS, drawn = 0;
  const figures = new Map();  // by case and metric, so that what is open stays open

  // What can be picked: a key for the link, and what it stands for now. `*last` moves on with its run.
  const index = (list, key) => new Map(list.map((one, place) => [key(one), place]));
  const offered = {
    subject: () => [
      ...(data.subjects.some((one) => one.last) ? [["*last", "last checkpoint"]] : []),
      ...(data.subjects.some((one) => one.best) ? [["*best", "best checkpoint"]] : []),
      ...data.subjects.map((one) => [one.key, one.label + (one.best ? " (best)" : "") + (one.last ? " (last)" : "")]),
    ],
    case: () => [["*all", "all cases"], ...data.cases.map((one) => [one.name, one.name])],
    metric: () => [["*primary", "each case's headline metric"], ...data.metrics.map(([name]) => [name, name])],
  };
  const subjectsOf = (keys) => {
    const known = index(data.subjects, (one) => one.key);
    const marked = (mark) => data.subjects.flatMap((one, place) => one[mark] ? [place] : []);
    return [...new Set(keys.flatMap((key) => key === "*last" ? marked("last") : key === "*best" ? marked("best") : known.has(key) ? [known.get(key)] : []))];
  };
  const casesOf = (keys) => {
    if (keys.includes("*all")) return data.cases.map((_, place) => place);
    const known = index(data.cases, (one) => one.name);
    return keys.flatMap((key) => known.has(key) ? [known.get(key)] : []);
  };
  const metricsOf = (keys, place) => {
    const known = index(data.metrics, ([name]) => name);
    return [...new Set(keys.flatMap((key) => key === "*primary" ? [data.cases[place].primary].filter((one) => one >= 0) : known.has(key) ? [known.get(key)] : []))];
  };

  const defaults = () => {
    const marked = offered.subject().map(([key]) => key).filter((key) => key.startsWith("*"));
    const alone = data.subjects.filter((one) => one.run === undefined);
    return {
      show: "curves", band: "quantiles", scale: "auto",
      subject: [...marked, ...alone.slice(0, 6 - marked.length).map((one) => one.key)],
      case: data.cases.length > 6 ? data.cases.slice(0, 6).map((one) => one.name) : ["*all"],
      metric: ["*primary"],
    };
  };
  const readLink = () => {
    const found = defaults(), text = location.hash.slice(1);
    if (!text.includes("=")) return found;
    const given = new URLSearchParams(text);
    for (const [name, select] of selects) {
      if ([...select.options].some((one) => one.value === given.get(name))) found[name] = given.get(name);
    }
    for (const kind of KINDS) if (given.has(kind)) found[kind] = given.getAll(kind).filter(Boolean);
    return found;
  };
  const writeLink = () => {
    const usual = defaults(), said = new URLSearchParams();
    for (const [name] of selects) if (state[name] !== usual[name]) said.set(name, state[name]);
    for (const kind of KINDS) {
      if (state[kind].join("\n") === usual[kind].join("\n")) continue;
      for (const key of state[kind].length ? state[kind] : [""]) said.append(kind, key);
    }
    const hash = said.toString();
    if (hash !== location.hash.slice(1)) history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
  };

  const count = {
    subject: () => subjectsOf(state.subject).length,
    case: () => casesOf(state.case).length,
    metric: () => state.metric.includes("*primary") ? `headline${state.metric.length > 1 ? ` and ${state.metric.length - 1}` : ""}` : state.metric.length,
  };
  // Lists to pick from: what is picked, and what the words find, as far as there is room.
  const listPicks = (kind) => {
    const box = byId(`pick-${kind}`), options = box.querySelector(".options"), words = box.querySelector("input[type=search]").value.toLowerCase().split(/\s+/).filter(Boolean);
    const focused = options.contains(document.activeElement) ? document.activeElement.value : null;
    const every = offered[kind](), picked = new Set(state[kind]);
    const known = new Set(every.map(([key]) => key));
    const found = every.filter(([key, label]) => picked.has(key) || words.every((word) => label.toLowerCase().includes(word)));
    // In their own order, so that nothing moves below a pointer; of a long list what is picked comes first.
    if (found.length > OPTIONS) found.sort((a, b) => picked.has(b[0]) - picked.has(a[0]));
    const gone = state[kind].filter((key) => !known.has(key)).map((key) => [key, `${key} (not here)`]);
    const rows = [...gone, ...found.slice(0, OPTIONS)];
    options.textContent = "";
    for (const [key, label] of rows) {
      const line = make("label", undefined, options);
      const check = make("input", undefined, line, { type: "checkbox", value: key });
      check.checked = picked.has(key);
      make("span", label, line);
      check.addEventListener("change", () => {
        state[kind] = check.checked ? [...state[kind], key] : state[kind].filter((one) => one !== key);
        changed();
      });
      if (key === focused) check.focus();
    }
    if (found.length > OPTIONS) make("p", `${found.length - OPTIONS} more: filter for them`, options, { class: "quiet" });
    box.querySelector("summary span").textContent = `${count[kind]()} of ${every.filter(([key]) => !key.startsWith("*")).length}`;
  };

  const style = (place) => `s${place % STYLES + 1}${place >= STYLES ? " dashed" : ""}`;
  const cell = (subject, place) => 3 * (subject * data.cases.length + place);
  const has = (subject, place) => data.cells[cell(subject, place)] >= 0;
  const final = (subject, place, metric) => data.finals[metric].slice(cell(subject, place), cell(subject, place) + 3);

  const curveLine = (curves, subject, place, metric, look) => {
    const found = curves.of[`${subject},${place},${metric}`];
    if (!found) return null;
    const [grid, mean, lower, upper, tenth, median, ninetieth] = found;
    const line = { label: data.subjects[subject].label, style: look, x: curves.grids[grid], y: mean };
    if (state.band === "interval" && lower) return { ...line, lower, upper };
    if (state.band === "quantiles" && median) return { ...line, y: median, lower: tenth, upper: ninetieth };
    return line;
  };
  // A run is one line; an optimizer, which stands at no outer step, goes straight across.
  const runLines = (picked, place, metric) => {
    const runs = [...new Set(picked.flatMap((subject) => data.subjects[subject].run ?? []))];
    const lines = runs.map((run, order) => {
      const members = data.subjects.flatMap((one, subject) => one.run === run && has(subject, place) ? [subject] : []).sort((a, b) => data.subjects[a].step - data.subjects[b].step);
      const values = members.map((subject) => final(subject, place, metric));
      const marks = members.flatMap((subject, at) => {
        const { best, last } = data.subjects[subject];
        return best || last ? [[at, best && last ? "best, last" : best ? "best" : "last"]] : picked.includes(subject) ? [[at, ""]] : [];
      });
      return {
        label: data.runs[run], style: style(order), x: members.map((subject) => data.subjects[subject].step), marks, dots: members.length <= 60,
        y: values.map((one) => one[0]), ...(state.band === "none" ? {} : { lower: values.map((one) => one[1]), upper: values.map((one) => one[2]) }),
      };
    }).filter((line) => line.x.length);
    const [low, high] = [Math.min(...lines.flatMap((line) => line.x)), Math.max(...lines.flatMap((line) => line.x))];
    const straight = picked.filter((subject) => data.subjects[subject].run === undefined && has(subject, place)).map((subject, order) => {
      const [mean, lower, upper] = final(subject, place, metric), ends = low < high ? [low, high] : [0, 1];
      const band = state.band === "none" ? {} : { lower: [lower, lower], upper: [upper, upper] };
      return { label: data.subjects[subject].label, style: `${style(lines.length + order).split(" ")[0]} dashed`, x: ends, y: [mean, mean], flat: true, ...band };
    });
    return [...lines, ...straight];
  };

  // The whole configuration goes with it: what a watch was given by --gin-param, and what the suite said then, count.
  const command = (subject, place) => {
    const { with: given } = data.subjects[subject], [bindings, seeds] = [1, 2].map((part) => data.texts[data.cells[cell(subject, place) + part]] ?? "");
    if (!given) return "";
    const file = bindings ? `cat > bound.gin <<'END_OF_BINDINGS'\n${bindings}\nEND_OF_BINDINGS\n` : "";
    return `${file}${[data.cases[place].train, given, seeds, file && "--lobench-gin-file bound.gin"].filter(Boolean).join(" ")}\n${data.cases[place].show}`;
  };
  const copyable = (text, parent, what) => {
    make("pre", text, parent, { tabindex: "0", "aria-label": what });
    const button = make("button", "Copy", parent, { type: "button", class: "copy", "aria-label": `Copy: ${what}` });
    button.addEventListener("click", async () => {
      try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; } catch { button.textContent = "Select and copy it"; }
    });
  };
  const fillDetails = (figure) => {
    const { details, place, metric, picked } = figure;
    const shown = picked.filter((subject) => has(subject, place));
    const content = JSON.stringify([place, metric, shown.map((subject) => [data.subjects[subject].key, final(subject, place, metric), ...data.cells.slice(cell(subject, place), cell(subject, place) + 3)])]);
    if (!details.open || figure.content === content) return;
    figure.content = content;
    const body = details.querySelector("div");
    body.textContent = "";
    make("p", `${data.cases[place].name}: ${data.cases[place].about}.`, body);
    const scroll = make("div", undefined, body, { class: "scroll", role: "region", tabindex: "0", "aria-label": `Final values of ${data.cases[place].name}` });
    const table = make("table", undefined, scroll), head = make("tr", undefined, make("thead", undefined, table)), rows = make("tbody", undefined, table);
    for (const text of ["subject", `final ${data.metrics[metric][0]}`, "95% interval", "seeds"]) make("th", text, head, { scope: "col" });
    for (const subject of shown) {
      const row = make("tr", undefined, rows), [mean, lower, upper] = final(subject, place, metric);
      make("th", data.subjects[subject].label, row, { scope: "row" });
      make("td", isNumber(mean) ? number(mean) : "not finite", row, { class: "num" });
      make("td", isNumber(lower) ? `[${number(lower)}, ${number(upper)}]` : "-", row, { class: "num" });
      make("td", data.texts[data.cells[cell(subject, place)]], row);
    }
    if (!shown.length) return;
    const label = make("label", "Repeat the numbers of ", body), chosen = make("select", undefined, label), about = make("div", undefined, body);
    for (const subject of shown) make("option", data.subjects[subject].label, chosen, { value: data.subjects[subject].key });
    if (shown.some((subject) => data.subjects[subject].key === figure.chosen)) chosen.value = figure.chosen;
    const say = () => {
      figure.chosen = chosen.value;
      about.textContent = "";
      const subject = subjectsOf([chosen.value])[0], text = command(subject, place);
      if (text) {
        make("p", `Its gin bindings, and the commands that train it again and print what came of it. They run in the folder below which ${data.cases[place].file} lies:`, about, { class: "quiet" });
        copyable(text, about, "the commands that repeat it");
      } else make("p", `Its curves were imported: ${data.texts[data.cells[cell(subject, place)]]}.`, about);
    };
    chosen.addEventListener("change", say);
    say();
  };

  const figureOf = (place, metric) => {
    const name = `${data.cases[place].name}\n${data.metrics[metric][0]}`;
    if (!figures.has(name)) {
      const box = make("figure");
      make("h3", data.cases[place].name, make("figcaption", undefined, box));
      const figure = { box, holder: make("div", undefined, box), said: make("p", "", box, { class: "quiet" }), details: make("details", undefined, box) };
      make("summary", "Numbers, bindings, command", figure.details);
      make("div", undefined, figure.details);
      figure.details.addEventListener("toggle", () => fillDetails(figure));
      figures.set(name, figure);
    }
    return figures.get(name);
  };
  const drawFigure = (figure, lines) => {
    const { place, metric } = figure, [name, direction] = data.metrics[metric];
    const logY = state.scale === "log" || (state.scale === "auto" && direction !== "max" && isWide(lines));
    const title = `${data.cases[place].name}: ${name} ${state.show === "run" ? "along the run" : "over inner steps"}`;
    const hadFocus = figure.holder.contains(document.activeElement);
    figure.holder.textContent = "";
    if (lines.length) figure.holder.append(draw({ title, xLabel: state.show === "run" ? data.course : "inner step", yLabel: name, logY, lines }));
    else make("p", "Nothing that is picked was evaluated on it.", figure.holder, { class: "quiet" });
    if (hadFocus) figure.holder.querySelector("svg")?.focus();
    figure.said.textContent = `${name}${direction ? `, ${direction === "max" ? "higher" : "lower"} is better` : ""}${logY ? ", log scale" : ""}.`;
    fillDetails(figure);
  };

  const redraw = async () => {
    const turn = ++drawn, all = subjectsOf(state.subject), picked = all.slice(0, PICKS);
    const wanted = casesOf(state.case).flatMap((place) => metricsOf(state.metric, place).map((metric) => [place, metric]));
    const shown = wanted.slice(0, numCharts);
    let curves = { of: {}, grids: [] };
    if (state.show === "curves") {
      const keys = shown.flatMap(([place, metric]) => picked.filter((subject) => has(subject, place)).map((subject) => `${subject},${place},${metric}`));
      curves = await getCurves(keys);
      if (turn !== drawn || !curves) return;  // something else was picked meanwhile, or new results are on their way
    }
    const looks = new Map(), kept = new Set();
    for (const [place, metric] of shown) {
      const figure = figureOf(place, metric);
      kept.add(figure.box);
      Object.assign(figure, { place, metric, picked });
      const lines = state.show === "run" ? runLines(picked, place, metric)
        : picked.flatMap((subject, order) => curveLine(curves, subject, place, metric, style(order)) ?? []);
      for (const line of lines) looks.set(line.label, line.style);
      drawFigure(figure, lines);
      charts.append(figure.box);
    }
    for (const box of [...charts.children]) if (!kept.has(box)) box.remove();
    legend.textContent = "";
    for (const [label, look] of looks) {
      const entry = make("span", undefined, legend, { class: "entry" });
      make("span", undefined, entry, { class: `key ${look}`, "aria-hidden": "true" });
      entry.append(label);
    }
    more.hidden = shown.length === wanted.length;
    more.textContent = `Show ${Math.min(CHARTS, wanted.length - shown.length)} more of ${wanted.length} charts`;
    say(all, picked, curves, shown);
  };
  const say = (all, picked, curves, shown) => {
    const parts = [];
    if (!picked.length) parts.push("Pick a subject.");
    if (!shown.length) parts.push("Pick a case and a metric.");
    if (all.length > picked.length) parts.push(`The first ${picked.length} of ${all.length} subjects are drawn.`);
    const left = state.show === "curves" ? picked.filter((subject) => !data.subjects[subject].curves).length : 0;
    if (left) parts.push(`${left} of these have no curves in this file, which would be too long: lobench view STORE shows them.`);
    if (state.show === "run" && picked.length && !picked.some((subject) => data.subjects[subject].run !== undefined)) parts.push("No checkpoint of a run is picked.");
    const medians = state.show === "curves" && state.band === "quantiles";
    parts.push(medians ? "Lines are medians over seeds, bands go from the 10% to the 90% quantile; a seed that diverged counts as the worst."
      : `Lines are means over seeds${state.band === "none" ? "" : ", bands their 95% intervals"}; a cross marks where a seed diverged.`);
    note.textContent = parts.join(" ");
  };

  const showPicks = () => {
    for (const [name, select] of selects) select.value = state[name];
    for (const kind of KINDS) listPicks(kind);
  };
  const changed = () => { writeLink(); showPicks(); return redraw(); };
  for (const [name, select] of selects) select.addEventListener("change", () => { state[name] = select.value; changed(); });
  for (const kind of KINDS) {
    const box = byId(`pick-${kind}`);
    box.querySelector("input[type=search]").addEventListener("input", () => listPicks(kind));
    box.querySelector("button.none").addEventListener("click", () => { state[kind] = []; changed(); });
    box.querySelector("button.usual").addEventListener("click", () => { state[kind] = defaults()[kind]; changed(); });
  }
  form.addEventListener("submit", (event) => event.preventDefault());
  more.addEventListener("click", () => { numCharts += CHARTS; redraw(); });
  addEventListener("hashchange", () => { if (data && !/^#h-/.test(location.hash)) { state = readLink(); showPicks(); redraw(); } });
  const link = byId("explorer-link");
  link.addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(location.href); link.textContent = "Link copied"; } catch { link.textContent = "The address is the link"; }
  });

  // Takes what is new; what people picked stays as it is.
  lobench.explore = (found, curves) => {
    [data, getCurves] = [found, curves];
    state ??= readLink();
    form.hidden = false;
    showPicks();
    return redraw();
  };
  const own = byId("explorer-data");
  if (own) {
    const found = JSON.parse(own.textContent);
    lobench.explore(found, async () => found.curves);
  }
})();
