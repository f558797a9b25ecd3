"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const el = (id) => document.getElementById(id);
const STYLES = {
  "tcp": ["--tcp", ""], "tcp-artificial": ["--tcp-artificial", "6 4"], "tcp-batched": ["--tcp-batched", ""],
  "sctp-message": ["--sctp-message", ""], "sctp-stream": ["--sctp-stream", ""], "sctp-nocsum": ["--sctp-nocsum", "6 4"],
  "udp-limit": ["--udp-limit", "2 4"], "2007 tcp, XTI over sockets": ["--old-a", "8 3"],
  "2007 sctp, STREAMS XTI": ["--old-b", "8 3"], "2007 tcp, sockets": ["--old-c", "8 3"],
  "2007 tcp, sockets, artificial": ["--old-d", "4 3"],
};
const WIDTH = 560, HEIGHT = 330, LEFT = 62, RIGHT = 14, TOP = 26, BOTTOM = 40;
const off = new Set();

const styleOf = (curve) => {
  const [name, dash] = STYLES[curve.label] || ["--tcp", ""];
  return { stroke: `var(${name})`, dash };
};
const group = (n) => Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, ",");
const compact = (n) => {
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (n >= size) return +(n / size).toPrecision(3) + unit;
  }
  return String(+n.toPrecision(3));
};
const bytesText = (n) => (n >= 1024 ? n / 1024 + "K" : String(n));

function options(select, values, text) {
  select.replaceChildren(...values.map((value) => new Option(text(value), value)));
  select.closest("label").hidden = values.length < 2;
}
const ours = data.curves.filter((curve) => curve.machine === null);
const distinct = (key) => [...new Set(ours.map((curve) => curve[key]))].filter((value) => value > 0).sort((a, b) => b - a);
options(el("cpus"), distinct("cpus"), (n) => (n == 1 ? "both ends on one" : n == 2 ? "two, one for each end" : n + ", half for each end"));
options(el("packets"), distinct("packet_bytes"), (n) => (n == data.conditions.loopback_packet_bytes ? "the loopback's, " : "") + group(n) + " bytes");
options(el("parallel"), distinct("parallel").reverse(), (n) => String(n));
options(el("machine"), ["", ...data.machines], (name) => name || "none");

/* The curves that the selections leave; a series that obeys no packet size belongs to all. */
function chosen() {
  const is = (value, select) => !el(select).value || value === Number(el(select).value);
  const ourShare = ours.filter((c) => is(c.cpus, "cpus") && is(c.parallel, "parallel") && (c.packet_bytes === 0 || is(c.packet_bytes, "packets")));
  return ourShare.concat(data.curves.filter((c) => c.machine !== null && c.machine === el("machine").value));
}

function svg(name, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}
function linear(low, high, from, to) { return (v) => from + ((v - low) / (high - low)) * (to - from); }
function log(low, high, from, to) { return (v) => from + (Math.log(v / low) / Math.log(high / low)) * (to - from); }
function niceStep(span, count) {
  const raw = span / count, power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 2.5, 5, 10].map((m) => m * power).find((step) => step >= raw * 0.999);
}
function linearTicks(high, count) {
  const step = niceStep(high, count), ticks = [];
  for (let i = 0; i * step <= high * 1.0001; i++) ticks.push(+(i * step).toPrecision(10));
  return ticks;
}
function powers(low, high, base) {
  const ticks = [];
  for (let p = Math.floor(Math.log(low) / Math.log(base) + 1e-9); base ** p <= high * 1.0001; p++) {
    if (base ** p >= low * 0.9999) ticks.push(base ** p);
  }
  return ticks;
}
function thin(ticks, count) {
  const every = Math.ceil(ticks.length / count);
  return ticks.filter((_, index) => index % every === 0);
}

/* What each figure shows: its value, and its scales with their ticks. */
const sizesOf = (curves) => curves.flatMap((c) => c.points.map((p) => p.message_bytes));
const valuesOf = (curves, value) => curves.flatMap((c) => c.points.map(value)).filter((v) => v > 0);
function sizeAxis(curves) {
  const sizes = sizesOf(curves), low = Math.min(...sizes), high = Math.max(...sizes, low * 2);
  const fourth = powers(low, high, 4);
  return { scale: log(low, high, LEFT, WIDTH - RIGHT), ticks: fourth.length > 2 ? fourth : powers(low, high, 2), text: bytesText, name: "bytes of a message" };
}
function decades(values) {
  const low = 10 ** Math.floor(Math.log10(Math.min(...values))), high = Math.max(...values) * 1.3;
  const tens = powers(low, high, 10);
  const ticks = tens.length > 3 ? tens : tens.flatMap((ten) => [ten, 2 * ten, 5 * ten]).filter((tick) => tick <= high);
  return { scale: log(low, high, HEIGHT - BOTTOM, TOP), ticks, text: compact };
}
/* The limit of UDP has no messages of its own: it is shown where bytes and time count, not messages. */
const FIGURES = {
  performance: {
    value: (p) => p.messages_per_s, axis: sizeAxis, name: "messages/s", y: decades, limit: false,
  },
  delay: {
    value: (p) => (p.message_bytes <= 16384 ? p.delay_us : null), name: "µs", fit: true, limit: true,
    axis: (curves) => { const high = Math.min(16384, Math.max(...sizesOf(curves))); return { scale: linear(0, high, LEFT, WIDTH - RIGHT), ticks: high === 16384 ? [0, 4096, 8192, 12288, 16384] : linearTicks(high, 4), text: bytesText, name: "bytes of a message" }; },
    y: (values) => { const high = Math.max(...values) * 1.04; return { scale: linear(0, high, HEIGHT - BOTTOM, TOP), ticks: linearTicks(high, 5), text: compact }; },
  },
  throughput: {
    value: (p) => p.bits_per_s, axis: sizeAxis, name: "bit/s", y: decades, limit: true,
  },
  improvement: {
    value: (p) => p.ratio_to_tcp, axis: sizeAxis, name: "times tcp", one: true, limit: false,
    y: (values) => { const low = Math.min(0.5, 2 ** Math.floor(Math.log2(Math.min(...values)))), high = Math.max(2, Math.max(...values) * 1.08); return { scale: log(low, high, HEIGHT - BOTTOM, TOP), ticks: thin(powers(low, high, 2), 9), text: (v) => v + "×", more: (v) => (v >= 1 ? "+" : "−") + group(Math.abs(v - 1) * 100) + " %" }; },
  },
};

function drawAxes(chart, x, y, figure) {
  for (const tick of x.ticks) {
    chart.append(svg("text", { x: x.scale(tick), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" }, x.text(tick)));
  }
  for (const tick of y.ticks) {
    const at = y.scale(tick);
    chart.append(svg("line", { class: figure.one && tick === 1 ? "one" : "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: at, y2: at }));
    chart.append(svg("text", { x: LEFT - 8, y: at + 4, "text-anchor": "end" }, y.text(tick)));
  }
  chart.append(svg("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM }));
  chart.append(svg("text", { x: WIDTH - RIGHT, y: HEIGHT - 6, "text-anchor": "end" }, x.name));
  chart.append(svg("text", { x: 0, y: 11 }, figure.name));
}

function drawFit(chart, curve, x, y, high) {
  const at = (bytes) => curve.us_per_message + (curve.ns_per_byte * bytes) / 1e3;
  const from = Math.max(at(0), 0), to = at(high);
  if (to < 0) return;
  const { stroke } = styleOf(curve);
  chart.append(svg("line", { class: "fit", x1: x.scale(0), y1: y.scale(from), x2: x.scale(high), y2: y.scale(to), stroke }));
}

function drawCurve(chart, curve, x, y, figure, dots) {
  const { stroke, dash } = styleOf(curve);
  const points = curve.points.filter((p) => figure.value(p) > 0);
  const path = points.map((p, i) => `${i ? "L" : "M"}${x.scale(p.message_bytes).toFixed(1)},${y.scale(figure.value(p)).toFixed(1)}`).join("");
  chart.append(svg("path", { class: "curve", d: path, stroke, "stroke-dasharray": dash }));
  for (const point of points) {
    const cx = x.scale(point.message_bytes), cy = y.scale(figure.value(point));
    const look = curve.machine === null ? { class: "dot", fill: stroke } : { class: "hollow", stroke };
    chart.append(svg("circle", { cx, cy, r: 3, ...look }));
    dots.push({ cx, cy, point, curve });
  }
}

function drawFigure(name, all) {
  const figure = FIGURES[name], holder = el(name);
  const curves = all.filter((curve) => figure.limit || curve.label !== "udp-limit");
  holder.querySelectorAll("svg, ul").forEach((old) => old.remove());
  const values = valuesOf(curves, figure.value);
  if (values.length === 0) return;
  const x = figure.axis(curves), y = figure.y(values), dots = [];
  const chart = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": holder.querySelector("h2").textContent });
  drawAxes(chart, x, y, figure);
  if (figure.fit) curves.forEach((c) => c.us_per_message !== null && drawFit(chart, c, x, y, x.ticks.at(-1)));
  curves.forEach((curve) => drawCurve(chart, curve, x, y, figure, dots));
  chart.addEventListener("pointermove", (event) => showTip(event, chart, dots, y));
  chart.addEventListener("pointerleave", () => { el("tip").hidden = true; });
  holder.append(chart);
  if (figure.fit) holder.append(costs(curves));
}

function swatch(curve) {
  const { stroke, dash } = styleOf(curve);
  return svg("svg", { viewBox: "0 0 22 8", "aria-hidden": "true" }, svg("line", { x1: 0, x2: 22, y1: 4, y2: 4, stroke, "stroke-width": 2.5, "stroke-dasharray": dash }));
}

function element(name, text, ...children) {
  const node = document.createElement(name);
  node.append(...(text === null ? [] : [text]), ...children);
  return node;
}

function costs(curves) {
  const list = element("ul", null);
  list.className = "costs";
  for (const curve of curves) {
    if (curve.us_per_message === null) continue;
    const us = curve.us_per_message;
    const message = Math.abs(us) < 1 ? `${(us * 1e3).toFixed(0)} ns` : `${us.toPrecision(3)} µs`;
    const cost = `${message} + ${curve.ns_per_byte.toPrecision(3)} ns/byte`;
    list.append(element("li", null, swatch(curve), element("b", curve.label), element("span", cost)));
  }
  return list;
}

function showTip(event, chart, dots, y) {
  const box = chart.getBoundingClientRect(), scale = WIDTH / box.width;
  const px = (event.clientX - box.left) * scale, py = (event.clientY - box.top) * scale;
  const near = dots.map((dot) => ({ dot, d: Math.hypot(dot.cx - px, dot.cy - py) })).sort((a, b) => a.d - b.d)[0];
  const tip = el("tip");
  tip.hidden = !near || near.d > 40;
  if (tip.hidden) return;
  const { point, curve } = near.dot;
  const ratio = point.ratio_to_tcp;
  const lines = [
    `${curve.label}, ${group(point.message_bytes)} bytes`,
    `${group(point.messages_per_s)} messages/s, ${group(point.bits_per_s / 1e6)} Mbit/s`,
    `${point.delay_us.toPrecision(3)} µs a message`,
    ...(ratio === null ? [] : [`${ratio.toPrecision(3)}× tcp${y.more ? " (" + y.more(ratio) + ")" : ""}`]),
  ];
  tip.replaceChildren(...lines.map((line) => element("div", line)));
  const left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
  tip.style.left = left + "px";
  tip.style.top = Math.max(8, event.clientY - tip.offsetHeight - 12) + "px";
}

function drawLegend(curves) {
  el("legend").replaceChildren(...curves.map((curve) => {
    const button = element("button", null, swatch(curve), element("span", curve.label));
    button.type = "button";
    if (curve.note) button.append(element("small", curve.note));
    button.setAttribute("aria-pressed", String(!off.has(curve.label)));
    button.addEventListener("click", () => {
      if (!off.delete(curve.label)) off.add(curve.label);
      draw();
    });
    return button;
  }));
}

function draw() {
  const curves = chosen();
  drawLegend(curves);
  const shown = curves.filter((curve) => !off.has(curve.label));
  Object.keys(FIGURES).forEach((name) => drawFigure(name, shown));
}

const system = window.matchMedia("(prefers-color-scheme: dark)");
function applyTheme() {
  document.documentElement.dataset.theme = el("theme").value || (system.matches ? "dark" : "light");
}
system.addEventListener("change", applyTheme);

/* The selections live in the address, so that a view can be sent to somebody. */
const CONTROLS = ["cpus", "packets", "parallel", "machine", "theme"];
function readAddress() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  for (const name of CONTROLS) {
    const value = wanted.get(name);
    if (value !== null && [...el(name).options].some((option) => option.value === value)) el(name).value = value;
  }
}
function writeAddress() {
  const chosen = CONTROLS.filter((name) => el(name).value !== el(name).options[0]?.value && el(name).value !== "");
  history.replaceState(null, "", "#" + new URLSearchParams(chosen.map((name) => [name, el(name).value])));
}
el("controls").addEventListener("change", () => { writeAddress(); applyTheme(); draw(); });
window.addEventListener("hashchange", () => { readAddress(); applyTheme(); draw(); });
readAddress();
applyTheme();
draw();
