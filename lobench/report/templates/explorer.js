"use strict";
// Curves that people pick: what is picked stands behind the # of the address, so that a link holds the view.
(() => {
  const { make, number, isNumber, isWide, draw } = lobench;
  const form = document.getElementById("explorer");
  if (!form) return;
  const [PICKS, CHARTS, OPTIONS] = [16, 60, 200];
  // What an inner step is in the units of an axis, and how that is called.
  const AXES = { steps: "inner step", seconds: "seconds of training", gradients: "gradient evaluations, by time" };
  const byId = (id) => document.getElementById(id);
  const [charts, note, legend, more] = ["explorer-charts", "explorer-note", "explorer-legend", "explorer-more"].map(byId);
  const selects = ["show", "band", "scale", "x", "smooth"].map((name) => [name, form.elements[name]]);
  const KINDS = ["subject", "case", "metric"];
  let data = null, getCurves = null, state = null, route = null, numCharts = CHARTS, drawn = 0;
  const figures = new Map();  // by case and metric, so that what is zoomed stays zoomed

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
      show: "curves", band: "quantiles", scale: "auto", x: "steps", smooth: "0",
      subject: [...marked, ...alone.slice(0, 6 - marked.length).map((one) => one.key)],
      case: data.cases.length > 6 ? data.cases.slice(0, 6).map((one) => one.name) : ["*all"],
      metric: ["*primary"], ...route.forced,
    };
  };
  const readLink = () => {
    const found = defaults(), given = new URLSearchParams(route.query);
    for (const [name, select] of selects) {
      if ([...select.options].some((one) => one.value === given.get(name))) found[name] = given.get(name);
    }
    for (const kind of KINDS) if (given.has(kind) && !(kind in route.forced)) found[kind] = given.getAll(kind).filter(Boolean);
    return found;
  };
  const writeLink = () => {
    const usual = defaults(), said = new URLSearchParams();
    for (const [name] of selects) if (state[name] !== usual[name]) said.set(name, state[name]);
    for (const kind of KINDS) {
      if (state[kind].join("\n") === usual[kind].join("\n")) continue;
      for (const key of state[kind].length ? state[kind] : [""]) said.append(kind, key);
    }
    route.query = said.toString();
    const hash = `#${route.path}${route.query && "?"}${route.query}`;
    if (hash !== location.hash) history.replaceState(null, "", hash);
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
    box.hidden = kind in route.forced;
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

  const cell = (subject, place) => subject * data.cases.length + place;
  const has = (subject, place) => data.cells[3 * cell(subject, place)] >= 0;
  const final = (subject, place, metric) => data.finals[metric].slice(3 * cell(subject, place), 3 * cell(subject, place) + 3);
  // A subject keeps its look through all charts; of many whose looks are alike a later one takes one that is free.
  const looksOf = (picked) => {
    const found = new Map(), taken = new Set();
    for (const subject of picked) {
      const own = data.subjects[subject].style, look = taken.has(own) ? data.styles.find((one) => !taken.has(one)) ?? own : own;
      taken.add(look);
      found.set(subject, look);
    }
    return found;
  };

  // The exponential mean of TensorBoard: what began at 0 is corrected for it.
  const smoothed = (values, weight) => {
    let sum = 0, part = 0;
    return values.map((value) => {
      if (!isNumber(value)) return value;
      [sum, part] = [weight * sum + (1 - weight) * value, weight * part + 1 - weight];
      return sum / part;
    });
  };
  const smooth = (line) => {
    const weight = Number(state.smooth), rows = ["y", "lower", "upper"].filter((row) => line[row]);
    return weight && !line.flat ? { ...line, ...Object.fromEntries(rows.map((row) => [row, smoothed(line[row], weight)])) } : line;
  };
  const curveLine = (curves, subject, place, metric, style) => {
    const found = curves.of[`${subject},${place},${metric}`], pace = state.x === "steps" ? 1 : data[state.x][cell(subject, place)];
    if (!found || !pace) return null;
    const [grid, mean, lower, upper, tenth, median, ninetieth] = found;
    const line = { label: data.subjects[subject].label, style, x: curves.grids[grid].map((step) => step * pace), y: mean };
    if (state.band === "interval" && lower) return { ...line, lower, upper };
    if (state.band === "quantiles" && median) return { ...line, y: median, lower: tenth, upper: ninetieth };
    return line;
  };
  // A run is one line; an optimizer, which stands at no outer step, goes straight across.
  const runLines = (picked, place, metric, looks) => {
    const runs = [...new Set(picked.flatMap((subject) => data.subjects[subject].run ?? []))];
    const lines = runs.map((run) => {
      const members = data.subjects.flatMap((one, subject) => one.run === run && has(subject, place) ? [subject] : []).sort((a, b) => data.subjects[a].step - data.subjects[b].step);
      const values = members.map((subject) => final(subject, place, metric));
      const marks = members.flatMap((subject, at) => {
        const { best, last } = data.subjects[subject];
        return best || last ? [[at, best && last ? "best, last" : best ? "best" : "last"]] : picked.includes(subject) ? [[at, ""]] : [];
      });
      const own = picked.find((subject) => data.subjects[subject].run === run);
      return {
        label: data.runs[run], style: looks.get(own), x: members.map((subject) => data.subjects[subject].step), marks, dots: members.length <= 60,
        y: values.map((one) => one[0]), ...(state.band === "none" ? {} : { lower: values.map((one) => one[1]), upper: values.map((one) => one[2]) }),
      };
    }).filter((line) => line.x.length);
    const [low, high] = [Math.min(...lines.flatMap((line) => line.x)), Math.max(...lines.flatMap((line) => line.x))];
    const straight = picked.filter((subject) => data.subjects[subject].run === undefined && has(subject, place)).map((subject) => {
      const [mean, lower, upper] = final(subject, place, metric), ends = low < high ? [low, high] : [0, 1];
      const band = state.band === "none" ? {} : { lower: [lower, lower], upper: [upper, upper] };
      return { label: data.subjects[subject].label, style: `${looks.get(subject).split(" ")[0]} dashed`, x: ends, y: [mean, mean], flat: true, ...band };
    });
    return [...lines, ...straight];
  };

  const figureOf = (place, metric) => {
    const name = `${data.cases[place].name}\n${data.metrics[metric][0]}`;
    if (!figures.has(name)) {
      const box = make("figure"), title = make("h3", undefined, make("figcaption", undefined, box));
      make("a", data.cases[place].name, title, { href: lobench.linkTo("case", data.cases[place].name) });
      figures.set(name, { box, holder: make("div", undefined, box), said: make("p", "", box, { class: "quiet" }) });
    }
    return figures.get(name);
  };
  const drawFigure = (figure, place, metric, lines) => {
    const [name, direction] = data.metrics[metric], isRun = state.show === "run";
    const logY = state.scale === "log" || (state.scale === "auto" && direction !== "max" && isWide(lines));
    const how = Number(state.smooth) ? `, smoothed ${state.smooth}` : "", x = isRun ? data.course : AXES[state.x];
    draw(figure.holder, { title: `${data.cases[place].name}: ${name} over ${x}${how}`, x, y: name + how, logY, lines: lines.map(smooth) });
    const why = lines.length ? "" : state.x !== "steps" && !isRun ? " Nobody measured the times of what is picked." : " Nothing that is picked was evaluated on it.";
    figure.said.textContent = `${name}${direction ? `, ${direction === "max" ? "higher" : "lower"} is better` : ""}${how ? `${how}: an exponential mean` : ""}.${why}`;
  };

  const redraw = async () => {
    const turn = ++drawn, all = subjectsOf(state.subject), picked = all.slice(0, PICKS), looks = looksOf(picked);
    const wanted = casesOf(state.case).flatMap((place) => metricsOf(state.metric, place).map((metric) => [place, metric]));
    const shown = wanted.slice(0, numCharts);
    let curves = { of: {}, grids: [] };
    if (state.show === "curves") {
      const keys = shown.flatMap(([place, metric]) => picked.filter((subject) => has(subject, place)).map((subject) => `${subject},${place},${metric}`));
      curves = await getCurves(keys);
      if (turn !== drawn || !curves) return;  // something else was picked meanwhile, or new results are on their way
    }
    const named = new Map(), kept = new Set(), size = shown.length < 2 ? "large" : shown.length < 4 ? "wide" : "small";
    charts.className = `charts ${size}`;
    for (const [place, metric] of shown) {
      const figure = figureOf(place, metric);
      kept.add(figure.box);
      if (figure.box.parentNode !== charts) charts.append(figure.box);
      const lines = state.show === "run" ? runLines(picked, place, metric, looks)
        : picked.flatMap((subject) => curveLine(curves, subject, place, metric, looks.get(subject)) ?? []);
      for (const line of lines) named.set(line.label, line.style);
      drawFigure(figure, place, metric, lines);
    }
    for (const box of [...charts.children]) if (!kept.has(box)) box.remove();
    const off = new Set([...legend.querySelectorAll("[aria-pressed=false]")].map((entry) => entry.textContent));
    legend.textContent = "";
    for (const [label, look] of named) {
      const entry = make("button", undefined, legend, { type: "button", class: "entry", "aria-pressed": !off.has(label) });
      make("span", undefined, entry, { class: `key ${look}`, "aria-hidden": "true" });
      entry.append(label);
    }
    more.hidden = shown.length === wanted.length;
    more.textContent = `Show ${Math.min(CHARTS, wanted.length - shown.length)} more of ${wanted.length} charts`;
    say(all, picked, shown);
  };
  const say = (all, picked, shown) => {
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
  const link = byId("explorer-link");
  link.addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(location.href); link.textContent = "Link copied"; } catch { link.textContent = "The address is the link"; }
  });

  // Takes what is new; what people picked stays as it is.
  Object.assign(lobench, {
    explore: (found, curves) => { [data, getCurves] = [found, curves]; form.hidden = false; },
    // A route: its path, its query, and what it has picked itself, such as the case of a case's page.
    showCurves: (asked) => { route = asked; state = readLink(); showPicks(); return redraw(); },
    cellOf: (subject, place) => ({ texts: [0, 1, 2].map((part) => data.texts[data.cells[3 * cell(subject, place) + part]] ?? ""), final: (metric) => final(subject, place, metric), has: has(subject, place) }),
  });
})();
