"use strict";
// What all scripts of the page share: elements, numbers as people read them, line charts, and their values on hover.
const lobench = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const [LEFT, RIGHT, TOP, BOTTOM] = [50, 12, 8, 38];
  const LOG_FROM = 20;  // positive values that differ by more than this factor are drawn on a log axis

  const make = (name, text, parent, attributes = {}) => {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (parent) parent.append(element);
    return element;
  };
  const shape = (name, attributes, parent, text) => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    if (parent) parent.append(element);
    return element;
  };
  const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

  // As lobench.report.charts.svg.number: four digits, powers of ten for what is far from 1.
  const number = (value) => {
    if (!isNumber(value)) return "n/a";
    if (Number.isInteger(value) && Math.abs(value) < 1e6) return value.toLocaleString("en");
    const [mantissa, exponent] = value.toExponential(3).split("e").map(Number);
    if (exponent < -3 || exponent >= 6) return `${mantissa}e${exponent}`;
    return value.toLocaleString("en", { maximumSignificantDigits: 4 });
  };

  class Axis {
    constructor([low, high], log, start, end) { Object.assign(this, { low, high, log, start, end }); }
    shows(value) { return isNumber(value) && (value > 0 || !this.log); }
    at(value) {
      const { low, high, log } = this;
      const share = log ? Math.log(Math.max(value, 1e-300) / low) / Math.log(high / low) : (value - low) / (high - low);
      return this.start + Math.min(Math.max(share, 0), 1) * (this.end - this.start);
    }
    ticks(count = 5) {
      const { low, high } = this;
      if (this.log) {
        const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
        const every = Math.max(1, Math.ceil((last - first + 1) / count)), found = [];
        for (let power = first; power <= last; power += every) found.push(10 ** power);
        if (found.length > 1) return found;
        const ratio = Math.log(high / low) / 3;
        return [1, 2, 3].map((part) => Number((low * Math.exp(part * ratio)).toPrecision(1)));
      }
      const raw = (high - low) / count, magnitude = 10 ** Math.floor(Math.log10(raw));
      const step = [1, 2, 5, 10].map((factor) => factor * magnitude).find((one) => one >= raw * (1 - 1e-9));
      const found = [];
      for (let index = Math.ceil(low / step - 1e-9); index * step <= high + 1e-9 * step; index++) {
        found.push(Number((index * step).toPrecision(12)));
      }
      return found;
    }
  }

  const ends = (values) => values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
  const isWide = (lines) => {
    const [low, high] = ends(lines.flatMap((line) => line.y.filter(isNumber)));
    return low > 0 && Number.isFinite(high) && high / low > LOG_FROM;
  };
  // The lines fill the axis; a band, which may be many times as wide where there are two seeds, takes half as much more.
  const spanOf = (lines, log) => {
    const usable = (value) => isNumber(value) && (value > 0 || !log);
    let [low, high] = ends(lines.flatMap((line) => line.y.filter(usable)));
    if (low > high) return log ? [0.1, 1] : [0, 1];
    const [bottom, top] = ends(lines.flatMap((line) => [...(line.lower || []), ...(line.upper || [])].filter(usable)));
    if (log) {
      const room = Math.max(Math.sqrt(high / low), 1.05);
      [low, high] = [Math.max(Math.min(low, bottom), low / room), Math.min(Math.max(high, top), high * room)];
      return low === high ? [low / 2, high * 2] : [low / 1.04, high * 1.04];
    }
    const room = (high - low) / 2 || Math.abs(high) / 2 || 0.5;
    [low, high] = [Math.max(Math.min(low, bottom), low - room), Math.min(Math.max(high, top), high + room)];
    const pad = 0.04 * (high - low) || room;
    return [low - pad, high + pad];
  };

  // Runs of points that have a value: a gap breaks a line, and its band.
  const stretches = (points) => {
    const found = [[]];
    for (const point of points) {
      if (point) found.at(-1).push(point);
      else if (found.at(-1).length) found.push([]);
    }
    return found.filter((one) => one.length);
  };
  const path = (points) => stretches(points).map((one) => one.map(([x, y], index) => `${index ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("")).join("");

  const drawLine = (svg, line, xAxis, yAxis) => {
    const points = line.x.map((x, index) => yAxis.shows(line.y[index]) ? [xAxis.at(x), yAxis.at(line.y[index])] : null);
    if (line.lower) {
      const rows = line.x.map((x, index) => {
        const [low, high] = [line.lower[index], line.upper[index]];
        return isNumber(low) && yAxis.shows(high) ? [xAxis.at(x), yAxis.at(low), yAxis.at(high)] : null;
      });
      for (const part of stretches(rows)) {
        const corners = [...part.map(([x, , high]) => [x, high]), ...part.reverse().map(([x, low]) => [x, low])];
        if (part.length > 1) shape("polygon", { class: `band ${line.style}`, points: corners.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ") }, svg);
        else shape("line", { class: `whisker ${line.style}`, x1: corners[0][0], x2: corners[0][0], y1: corners[0][1], y2: corners[1][1] }, svg);
      }
    }
    shape("path", { class: `line ${line.style}`, d: path(points) }, svg);
    const finite = points.filter(Boolean);
    if (line.dots || finite.length === 1) for (const [x, y] of finite) shape("circle", { class: `dot ${line.style}`, cx: x, cy: y, r: 2.5 }, svg);
    if (finite.length && points.length > 1 && !points.at(-1) && !line.flat) {
      const [x, y] = finite.at(-1);
      shape("path", { class: `cross ${line.style}`, d: `M${x - 4} ${y - 4}l8 8m0-8l-8 8` }, svg);
    }
    for (const [index, text] of line.marks || []) {
      if (!points[index]) continue;
      const [x, y] = points[index];
      shape("circle", { class: `mark ${line.style}`, cx: x, cy: y, r: 5 }, svg);
      shape("text", { class: x > (xAxis.start + xAxis.end) / 2 ? "end noted" : "noted", x: x > (xAxis.start + xAxis.end) / 2 ? x - 7 : x + 7, y: Math.max(y - 7, TOP + 10) }, svg, text);
    }
  };

  // A line: label, style, x, y; lower and upper; marks [[index, text]]; flat where its value is no function of x.
  const draw = ({ title, xLabel, yLabel, logY, lines, width = 360, height = 230 }) => {
    const [low, high] = ends(lines.flatMap((line) => line.x));
    const xAxis = new Axis(low < high ? [low, high] : isNumber(low) && low === high ? [low - 0.5, high + 0.5] : [0, 1], false, LEFT, width - RIGHT);
    const yAxis = new Axis(spanOf(lines, logY), logY, height - BOTTOM, TOP);
    const said = lines.map((line) => `${line.label} ${number(line.y.findLast(isNumber))}`).join(", ");
    const svg = shape("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}. Last values: ${said}.` });
    const [right, bottom] = [width - RIGHT, height - BOTTOM];
    for (const value of yAxis.ticks()) {
      const y = yAxis.at(value);
      shape("line", { class: "grid", x1: LEFT, x2: right, y1: y, y2: y }, svg);
      shape("text", { class: "end", x: LEFT - 5, y: y + 4 }, svg, number(value));
    }
    for (const value of xAxis.ticks()) {
      const text = number(value), x = xAxis.at(value), isLong = x + 3.5 * text.length > width;
      shape("text", { class: isLong ? "end" : "mid", x: isLong ? width - 1 : x, y: bottom + 16 }, svg, text);
    }
    shape("line", { class: "axis", x1: LEFT, x2: right, y1: bottom, y2: bottom }, svg);
    shape("text", { class: "mid name", x: (LEFT + right) / 2, y: height - 5 }, svg, xLabel);
    for (const line of lines) drawLine(svg, line, xAxis, yAxis);
    const points = (line) => line.x.flatMap((x, index) => yAxis.shows(line.y[index])
      ? [[xAxis.at(x), x, line.y[index], ...(line.lower && isNumber(line.lower[index]) ? [line.lower[index], line.upper[index]] : [])]] : []);
    hover(svg, { x: xLabel, y: yLabel, lines: lines.map((line) => ({ label: line.label, flat: line.flat, points: points(line) })) });
    return svg;
  };

  const tip = document.getElementById("tip");
  const format = (names, value) => names?.[value] ?? number(value);
  const nearestOf = (points, at) => points.reduce((a, b) => Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a);

  // A pointer, a tap, or the arrow keys show the values at one place of a chart.
  const hover = (svg, chart) => {
    const cursor = document.createElementNS(SVG, "line");
    cursor.setAttribute("class", "cursor");
    const moving = chart.lines.filter((line) => !line.flat && line.points.length);
    const all = (moving.length ? moving : chart.lines).flatMap((line) => line.points);
    const places = [...new Set(all.map((point) => point[0]))].sort((a, b) => a - b);
    let place = -1;
    const hide = () => { tip.hidden = true; cursor.remove(); };
    const show = (at, clientX, clientY) => {
      const nearest = nearestOf(all, at);
      place = places.indexOf(nearest[0]);
      tip.textContent = "";
      if (moving.length) make("p", `${chart.x} ${format(chart.xNames, nearest[1])}`, tip);
      for (const line of chart.lines) {
        if (!line.points.length) continue;
        const point = nearestOf(line.points, nearest[0]);
        const band = point.length > 3 ? ` [${number(point[3])}, ${number(point[4])}]` : "";
        const where = line.flat || point[1] === nearest[1] ? "" : ` (at ${format(chart.xNames, point[1])})`;
        make("p", `${line.label}: ${format(chart.yNames, point[2])}${band}${where}`, tip);
      }
      for (const [name, value] of [["x1", nearest[0]], ["x2", nearest[0]], ["y1", TOP], ["y2", svg.viewBox.baseVal.height - BOTTOM]]) cursor.setAttribute(name, value);
      svg.append(cursor);
      tip.hidden = false;
      const left = clientX + 14 + tip.offsetWidth > innerWidth ? clientX - 14 - tip.offsetWidth : clientX + 14;
      tip.style.left = `${Math.max(4, left)}px`;
      tip.style.top = `${Math.min(Math.max(4, clientY + 14), innerHeight - tip.offsetHeight - 4)}px`;
    };
    if (!all.length) return;
    const follow = (event) => {
      const box = svg.getBoundingClientRect();
      show((event.clientX - box.left) / box.width * svg.viewBox.baseVal.width, event.clientX, event.clientY);
    };
    const step = (to) => {
      const box = svg.getBoundingClientRect(), at = places[Math.min(Math.max(to, 0), places.length - 1)];
      show(at, box.left + at / svg.viewBox.baseVal.width * box.width, box.top + box.height / 2);
      document.getElementById("said").textContent = [...tip.children].map((line) => line.textContent).join("; ");
    };
    svg.addEventListener("pointermove", follow);
    svg.addEventListener("pointerdown", follow);
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
    svg.setAttribute("tabindex", "0");
    svg.addEventListener("keydown", (event) => {
      const to = { ArrowLeft: place < 0 ? places.length - 1 : place - 1, ArrowRight: place + 1, Home: 0, End: places.length - 1 }[event.key];
      if (event.key === "Escape") hide();
      if (to === undefined) return;
      event.preventDefault();
      step(to);
    });
  };
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

  return { make, number, isNumber, isWide, draw, hover };
})();
