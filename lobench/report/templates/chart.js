"use strict";
// What all scripts of the page share: elements, numbers as people read them, and charts, which uPlot draws.
const lobench = (() => {
  const LOG_FROM = 20;  // positive values that differ by more than this factor are drawn on a log axis
  const MOST_SAID = 10;  // lines of a tooltip
  const DASHES = { dashed: [6, 4], dotted: [2, 3] };

  const make = (name, text, parent, attributes = {}) => {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (parent) parent.append(element);
    return element;
  };
  const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

  // As lobench.drawing.svg.format_number: four digits, powers of ten for what is far from 1.
  const number = (value) => {
    if (!isNumber(value)) return "n/a";
    if (Number.isInteger(value) && Math.abs(value) < 1e6) return value.toLocaleString("en");
    const [mantissa, exponent] = value.toExponential(3).split("e").map(Number);
    if (exponent < -3 || exponent >= 6) return `${mantissa}e${exponent}`;
    return value.toLocaleString("en", { maximumSignificantDigits: 4 });
  };

  const ends = (values) => values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
  const isWide = (lines) => {
    const [low, high] = ends(lines.flatMap((line) => line.y.filter(isNumber)));
    return low > 0 && Number.isFinite(high) && high / low > LOG_FROM;
  };
  // The lines fill the axis; a band, which may be many times as wide where there are two seeds, takes half as much more.
  const spanOf = (lines, log, from, to) => {
    const inside = (line, values) => (values || []).filter((value, index) => isNumber(value) && (value > 0 || !log) && line.x[index] >= from && line.x[index] <= to);
    let [low, high] = ends(lines.flatMap((line) => inside(line, line.y)));
    if (low > high) return log ? [0.1, 1] : [0, 1];
    const [bottom, top] = ends(lines.flatMap((line) => [...inside(line, line.lower), ...inside(line, line.upper)]));
    if (log) {
      const room = Math.max(Math.sqrt(high / low), 1.05);
      [low, high] = [Math.max(Math.min(low, bottom), low / room), Math.min(Math.max(high, top), high * room)];
      const pad = Math.max(1.04, (high / low) ** 0.03);
      return low === high ? [low / 2, high * 2] : [low / pad, high * pad];
    }
    const room = (high - low) / 2 || Math.abs(high) / 2 || 0.5;
    [low, high] = [Math.max(Math.min(low, bottom), low - room), Math.min(Math.max(high, top), high + room)];
    const pad = 0.04 * (high - low) || room;
    return [low - pad, high + pad];
  };

  // Places of the lines of a logarithmic axis. uPlot's own never end if the axis begins just below a power of ten, or
  // is far from 1.
  const logSplits = (low, high) => {
    if (!(low > 0 && high > low)) return [];
    const last = Math.floor(Math.log10(high)), count = last - Math.floor(Math.log10(low)) + 1, every = count > 4 ? Math.ceil(count / 7) : 1;
    const first = every * Math.floor(Math.log10(low) / every), digits = count > 4 ? [1] : [1, 2, 3, 4, 5, 6, 7, 8, 9];
    const inside = Array.from({ length: Math.floor((last - first) / every) + 1 }, (_, index) => first + every * index)
      .flatMap((power) => digits.map((digit) => Number(`${digit}e${power}`))).filter((value) => value >= low && value <= high);
    if (inside.length > 2) return inside;
    const ten = 10 ** Math.floor(Math.log10((high - low) / 2)), parts = (high - low) / ten, step = ten * (parts > 10 ? 5 : parts > 5 ? 2 : 1), start = Math.ceil(low / step);
    return Array.from({ length: Math.floor(high / step) - start + 1 }, (_, index) => Number(((start + index) * step).toPrecision(12)));
  };

  // Points that stand alone may share an x: they are told apart by less than a pixel.
  const spread = (line) => {
    if (!line.alone || line.x.every((x, index) => !index || x > line.x[index - 1])) return line;
    const places = line.x.map((_, index) => index).filter((index) => isNumber(line.x[index])).sort((a, b) => line.x[a] - line.x[b]);
    const x = places.map((index) => line.x[index]), least = 1e-6 * (Math.abs(x.at(-1) - x[0]) || 1);
    for (let index = 1; index < x.length; index++) if (x[index] <= x[index - 1]) x[index] = x[index - 1] + Math.min(least, 1e-6 * Math.abs(x[index - 1]) || least);
    return { ...line, x, y: places.map((index) => line.y[index]) };
  };

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (style) => css(`--c${style.match(/s(\d)/)[1]}`);

  // What uPlot draws: a column of values a line and a bound, all over one x.
  const columnsOf = (lines, log) => {
    const xs = [...new Set(lines.flatMap((line) => line.x))].filter(isNumber).sort((a, b) => a - b), at = new Map(xs.map((x, index) => [x, index]));
    const column = (line, values, bound) => {
      const found = new Array(xs.length).fill(undefined);  // undefined: no point of this line; null: a gap in it
      line.x.forEach((x, index) => { if (at.has(x)) found[at.get(x)] = !isNumber(values[index]) ? null : !log || values[index] > 0 ? values[index] : bound ? 1e-30 : null; });
      return found;
    };
    const data = [xs], series = [{}], bands = [], owners = [null];
    for (const line of lines) {
      const ink = colour(line.style), faint = line.style.includes("faint"), dots = line.dots || line.alone || line.y.filter(isNumber).length === 1;
      owners.push(line);
      data.push(column(line, line.y));
      series.push({
        label: line.label, stroke: faint ? `${ink}73` : ink, width: faint ? 1 : 2, dash: Object.entries(DASHES).find(([name]) => line.style.includes(name))?.[1],
        points: { show: Boolean(dots), size: 6, fill: ink }, ...(line.alone ? { paths: () => null } : line.steps ? { paths: uPlot.paths.stepped({ align: 1 }) } : {}),
      });
      if (!line.lower) continue;
      for (const values of [line.upper, line.lower]) {
        owners.push(line);
        data.push(column(line, values, true));
        series.push({ label: line.label, width: 0, points: { show: false } });
      }
      bands.push({ series: [data.length - 2, data.length - 1], fill: `${ink}2e` });
    }
    return { data, series, bands, owners };
  };

  // Crosses where a seed diverged, rings and words at marks [[index, text]], and whiskers of bands at a single point.
  const drawMarks = (plot) => {
    const { u, lines } = plot, { ctx } = u, dpr = devicePixelRatio;
    const place = (line, index, values = line.y) => [u.valToPos(line.x[index], "x", true), u.valToPos(values[index], "y", true)];
    ctx.save();
    ctx.beginPath(); ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height); ctx.clip();
    ctx.font = `${12 * dpr}px system-ui, sans-serif`;
    for (const line of lines) {
      if (plot.hidden.has(line.label)) continue;
      const shown = line.y.flatMap((value, index) => isNumber(value) && (value > 0 || !plot.log) ? [index] : []);
      ctx.strokeStyle = colour(line.style); ctx.lineWidth = 2 * dpr; ctx.fillStyle = css("--ink");
      if (shown.length && line.y.length > 1 && shown.at(-1) < line.y.length - 1 && !line.flat && !line.alone) {
        const [x, y] = place(line, shown.at(-1)), arm = 4 * dpr;
        ctx.beginPath(); ctx.moveTo(x - arm, y - arm); ctx.lineTo(x + arm, y + arm); ctx.moveTo(x - arm, y + arm); ctx.lineTo(x + arm, y - arm); ctx.stroke();
      }
      if (line.lower && shown.length === 1 && isNumber(line.lower[shown[0]])) {
        const [x, top] = place(line, shown[0], line.upper), [, bottom] = place(line, shown[0], line.lower.map((value) => plot.log ? Math.max(value, 1e-30) : value));
        ctx.globalAlpha = 0.5; ctx.beginPath(); ctx.moveTo(x, top); ctx.lineTo(x, bottom); ctx.stroke(); ctx.globalAlpha = 1;
      }
      let above = null;  // the word before, which the next one does not cover
      for (const [index, text] of line.marks || []) {
        if (!shown.includes(index)) continue;
        const [x, y] = place(line, index), isRight = x > u.bbox.left + u.bbox.width / 2;
        ctx.beginPath(); ctx.arc(x, y, 5 * dpr, 0, 7); ctx.stroke();
        ctx.textAlign = isRight ? "end" : "start";
        let word = Math.max(y - 7 * dpr, u.bbox.top + 12 * dpr);
        if (above && Math.abs(above.x - x) < 36 * dpr && Math.abs(above.word - word) < 13 * dpr) word = above.word - 13 * dpr;
        ctx.fillText(text, x + (isRight ? -7 : 7) * dpr, word);
        above = { x, word };
      }
    }
    ctx.restore();
  };

  const tip = document.getElementById("tip");
  const nearest = (values, value) => values.reduce((best, one, index) => Math.abs(one - value) < Math.abs(values[best] - value) ? index : best, 0);

  // What there is at one place: sorted by value, and of many lines those that are nearest to the pointer.
  const saidAt = (plot, index, height) => {
    const { spec, u } = plot, x = u.data[0][index], lines = plot.lines.filter((line) => !plot.hidden.has(line.label) && line.x.length);
    if (spec.yNames) {
      const row = Math.min(Math.max(Math.round(u.posToVal(height, "y")), 0), spec.yNames.length - 1), own = lines.filter((line) => line.y.includes(row));
      const at = own.flatMap((line) => line.alone ? line.x.filter((_, place) => line.y[place] === row) : []), [low, high] = ends(own.filter((line) => !line.alone && !line.steps).flatMap((line) => line.x));
      return [`${spec.yNames[row]}: ${spec.x} ${at.slice(0, 3).map(number).join(", ")}${at.length > 3 ? " ..." : ""}${low < high ? ` [${number(low)}, ${number(high)}]` : ""}`];
    }
    const found = lines.flatMap((line) => {
      const place = nearest(line.x, x), value = line.y[place];
      if (!isNumber(value)) return [];
      const band = isNumber(line.lower?.[place]) ? ` [${number(line.lower[place])}, ${number(line.upper[place])}]` : "";
      const where = line.flat || Math.abs(line.x[place] - x) <= 1e-5 * Math.abs(x) ? "" : ` (at ${number(line.x[place])})`;
      return [{ value, text: `${line.label || spec.y}: ${number(value)}${band}${where}`, far: Math.abs(u.valToPos(value, "y") - height) }];
    });
    const kept = found.sort((a, b) => a.far - b.far).slice(0, MOST_SAID).sort((a, b) => b.value - a.value).map((one) => one.text);
    return [`${spec.x} ${spec.xNames?.[Math.round(x)] ?? number(Number(x.toPrecision(6)))}`, ...kept, ...(found.length > MOST_SAID ? [`and ${found.length - MOST_SAID} more lines`] : [])];
  };
  // Beside the pointer; where there is no room on either side, below or above the whole chart.
  const showTip = (plot) => {
    const { u } = plot, { left, top, idx } = u.cursor;
    if (idx === null || idx === undefined || left < 0) { tip.hidden = true; return; }
    plot.place = idx;
    tip.textContent = "";
    for (const line of saidAt(plot, idx, top)) make("p", line, tip);
    tip.hidden = false;
    const box = u.over.getBoundingClientRect(), x = box.left + u.valToPos(u.data[0][idx], "x"), pointer = box.left + left;
    const [from, to] = [Math.min(x, pointer) - 14, Math.max(x, pointer) + 14];
    let [tipLeft, tipTop] = [to, box.top + top + 14];
    if (to + tip.offsetWidth > innerWidth - 4) {
      if (from - tip.offsetWidth >= 4) tipLeft = from - tip.offsetWidth;
      else {
        tipLeft = Math.max(4, Math.min(to, innerWidth - tip.offsetWidth - 4));
        tipTop = box.bottom + tip.offsetHeight + 4 <= innerHeight ? box.bottom + 4 : box.top - tip.offsetHeight - 4;
      }
    }
    tip.style.left = `${tipLeft}px`;
    tip.style.top = `${Math.min(Math.max(4, tipTop), Math.max(4, innerHeight - tip.offsetHeight - 4))}px`;
  };

  // What is shown of x: as uPlot has it before its scales are set.
  const windowOf = (u) => { const [xs, { idxs }] = [u.data[0], u.series[0]]; return [xs[idxs?.[0]] ?? -Infinity, xs[idxs?.[1]] ?? Infinity]; };

  const build = (plot) => {
    const { holder, spec } = plot, { data, series, bands, owners } = columnsOf(plot.lines, plot.log), width = Math.max(holder.clientWidth, 160);
    plot.u?.destroy();
    const text = { stroke: css("--quiet"), font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", labelSize: 18, ticks: { show: false } };
    // A long name keeps its end too, in which the settings of one optimizer differ.
    const short = (name, most) => name.length > most ? `${name.slice(0, most >> 1)}…${name.slice(name.length - (most >> 1) + 1)}` : name;
    const named = (names, most) => ({ splits: () => names.map((_, index) => index), values: () => names.map((name) => short(name, most)) });
    const plain = { values: (_, values) => values.map((value) => value === null ? "" : number(value)) };
    // Of a logarithmic axis 1, 2 and 5 have names, and all have where these are too few.
    const isPlain = (value) => value !== null && ["1", "2", "5"].includes(Number(value.toExponential(3).split("e")[0]).toString());
    // uPlot leaves an axis out for which it finds no increment, though its places do not depend on one.
    const decades = { incrs: (u, axis, low, high) => [Math.max(5, high - low)], splits: (_, axis, low, high) => logSplits(low, high), filter: (_, values) => values.filter(isPlain).length < 2 ? values : values.map((value) => isPlain(value) ? value : null) };
    const whole = data[0].every(Number.isInteger) ? { incrs: [1, 10, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8].flatMap((ten) => [ten, 2 * ten, 5 * ten]) } : {};
    const room = spec.yNames ? Math.min(0.42 * width, 12 + 7 * Math.max(...spec.yNames.map((name) => Math.min(name.length, 28)))) : 52;
    const pad = plot.lines.some((line) => line.dots || line.alone) && !spec.logX ? 0.02 : 0;
    const xRange = (_, low, high) => spec.xNames ? [-0.5, spec.xNames.length - 0.5] : low === high ? [low - 0.5, high + 0.5] : [low - pad * (high - low), high + pad * (high - low)];
    const yRange = (u) => spec.yNames ? [-0.5, spec.yNames.length - 0.5] : spec.yRange ?? spanOf(plot.lines.filter((line) => !plot.hidden.has(line.label)), plot.log, ...windowOf(u));
    plot.owners = owners;
    plot.u = new uPlot({
      width, height: Math.round((spec.height || 250) * (spec.yNames ? 1 : Math.min(1.25, Math.max(0.9, width / 400)))), legend: { show: false }, series, bands,
      cursor: { drag: { x: true, y: false, dist: 5 }, focus: { prox: -1 }, points: { size: 7 } }, focus: { alpha: 0.2 },
      scales: { x: { time: false, distr: spec.logX ? 3 : 1, range: xRange }, y: { distr: plot.log ? 3 : 1, range: yRange } },
      axes: [
        { ...text, label: spec.x, grid: { show: false }, size: 26, ...whole, ...(spec.xNames ? named(spec.xNames, 28) : plain), ...(spec.logX ? decades : {}) },
        { ...text, ...(spec.yNames ? {} : { label: spec.y + (plot.log ? ", log" : "") }), grid: { stroke: css("--rule"), width: 1 }, size: room, ...(spec.yNames ? named(spec.yNames, Math.floor((room - 12) / 7)) : plain), ...(plot.log ? decades : {}) },
      ],
      hooks: {
        setCursor: [() => showTip(plot)], draw: [() => drawMarks(plot)],
        setScale: [(u, key) => { if (key === "x") plot.reset.hidden = !isZoomed(u); }],
      },
    }, data, holder);
    for (const label of plot.hidden) setShown(plot, label, false);
  };
  const isZoomed = (u) => { const xs = u.data[0]; return xs.length > 1 && (u.scales.x.min > xs[0] || u.scales.x.max < xs.at(-1)); };
  const unzoom = ({ u }) => u.setData(u.data, true);
  const setShown = (plot, label, show) => plot.owners.forEach((line, index) => { if (line?.label === label) plot.u.setSeries(index, { show }); });
  const setFocus = (plot, label) => {
    const place = plot.owners.findIndex((line) => line && line.label === label);
    plot.u.setSeries(place > 0 && label !== null ? place : null, { focus: true });
  };

  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) if (target.plot && target.clientWidth && Math.abs(target.plot.u.width - target.clientWidth) > 1) build(target.plot);
  });
  const onKey = (plot) => (event) => {
    const { u } = plot, xs = u.data[0], place = plot.place, last = xs.length - 1, { min, max } = u.scales.x;
    const to = { ArrowLeft: place === undefined ? last : place - 1, ArrowRight: place === undefined ? 0 : place + 1, Home: 0, End: last }[event.key];
    if (event.key === "Escape") u.setCursor({ left: -10, top: -10 });
    else if (event.key === "0") unzoom(plot);
    else if (event.key === "+") { const middle = xs[place ?? last >> 1], half = (max - min) / 4; u.setScale("x", { min: middle - half, max: middle + half }); }
    else if (to !== undefined) {
      const index = Math.min(Math.max(to, 0), last), value = plot.lines.map((line) => line.y[line.x.indexOf(xs[index])]).find(isNumber);
      u.setCursor({ left: u.valToPos(xs[index], "x"), top: value === undefined ? u.over.clientHeight / 2 : u.valToPos(value, "y") });
      document.getElementById("said").textContent = [...tip.children].map((line) => line.textContent).join("; ");
    } else return;
    event.preventDefault();
  };

  // Draws a chart into an element: label, style, x, y of each line; lower and upper; dots, steps, alone, marks, flat.
  const draw = (holder, spec, said) => {
    const lines = spec.lines.map(spread).filter((line) => line.x.length), old = holder.plot;
    const plot = Object.assign(old ?? { holder, hidden: new Set(), log: Boolean(spec.logY) }, { spec, lines });
    if (!old || old.wasLog !== Boolean(spec.logY)) plot.log = plot.wasLog = Boolean(spec.logY);
    holder.plot = plot;
    holder.classList.add("plot");
    const last = lines.slice(0, MOST_SAID).map((line) => `${line.label} ${number(line.y.findLast(isNumber))}`).join(", ");
    holder.setAttribute("aria-label", said ?? `${spec.title}. Last values: ${last}.`);
    if (!old) {
      holder.setAttribute("role", "img");
      holder.setAttribute("tabindex", "0");
      const tools = make("p", undefined, undefined, { class: "tools" });
      holder.after(tools);
      plot.reset = make("button", "Reset zoom", tools, { type: "button" });
      plot.reset.hidden = true;
      plot.reset.addEventListener("click", () => { unzoom(plot); holder.focus(); });
      plot.scale = make("button", "", tools, { type: "button" });
      plot.scale.addEventListener("click", () => { plot.log = !plot.log; build(plot); name(); });
      holder.addEventListener("keydown", onKey(plot));
      holder.addEventListener("blur", () => { plot.u.setCursor({ left: -10, top: -10 }); });
      resized.observe(holder);
    }
    const name = () => { plot.scale.textContent = plot.log ? "Linear" : "Log"; };
    plot.scale.hidden = Boolean(spec.yNames || spec.yRange) || !plot.lines.some((line) => line.y.some((value) => value > 0));
    name();
    build(plot);
    return plot;
  };

  // A legend is of the charts of its figure, or else of its section.
  const ofLegend = (entry) => [...(entry.closest("figure") ?? entry.closest("section")).querySelectorAll(".plot")].map((one) => one.plot);
  const entryOf = (event) => event.target.closest?.("button.entry");
  document.addEventListener("click", (event) => {
    const entry = entryOf(event);
    if (!entry) return;
    const show = entry.getAttribute("aria-pressed") !== "true", label = entry.textContent;
    entry.setAttribute("aria-pressed", show);
    for (const plot of ofLegend(entry)) {
      if (show) plot.hidden.delete(label); else plot.hidden.add(label);
      setShown(plot, label, show);
      plot.u.setScale("x", { min: plot.u.scales.x.min, max: plot.u.scales.x.max });
    }
  });
  for (const [kind, on] of [["pointerover", true], ["pointerout", false], ["focusin", true], ["focusout", false]]) {
    document.addEventListener(kind, (event) => { const entry = entryOf(event); if (entry) for (const plot of ofLegend(entry)) setFocus(plot, on ? entry.textContent : null); });
  }
  const rebuild = () => { for (const holder of document.querySelectorAll(".plot")) if (holder.clientWidth) build(holder.plot); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", rebuild);
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

  // Charts that came as drawings become alive when they are near to what is seen.
  const near = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      const holder = make("div"), said = target.getAttribute("aria-label");
      target.replaceWith(holder);
      draw(holder, JSON.parse(target.dataset.chart), said);
    }
  }, { rootMargin: "300px" });

  return { make, number, isNumber, isWide, draw, near };
})();
