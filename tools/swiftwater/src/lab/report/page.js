"use strict";
// Shows the values of a run under the pointer, at one time in all its drawings.
const units = {
  "rate": value => (value / 1e6).toFixed(2) + " Mbit/s",
  "transfer": value => (value / 1e6).toFixed(1) + " MB",
  "window": value => Math.round(value) + " bytes of window",
  "round-trip": value => (value * 1e3).toFixed(2) + " ms",
  "queue": value => Math.round(value) + " bytes waiting",
};

// Returns the value at a time, in words: that of the first point from then on. A curve has none once it has ended, but its last
// one for as long as its last step: curves of one run end at slightly different moments.
function valueAt(points, time, unit) {
  if (points.length === 0) return "no value";
  const last = points.length - 1, end = points[last][0];
  if (time > end + (last > 0 ? end - points[last - 1][0] : 0)) return "ended";
  let low = 0, high = points.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < time) low = middle + 1; else high = middle;
  }
  return unit(points[low][1]);
}

function show(figure, run, time) {
  // A path has curves of several quantities: each name stands once, with all its values.
  const told = new Map();
  for (const curve of run.curves) {
    if (!told.has(curve.name)) told.set(curve.name, new Set());
    told.get(curve.name).add(valueAt(curve.points, time, units[curve.measure]));
  }
  const words = [...told].map(([name, values]) => name + ": " + [...values].join(", "));
  figure.querySelector("output").textContent = [time.toFixed(2) + " s", ...words].join(" · ");
  const x = run.left + time / run.end_s * run.width;
  for (const svg of figure.querySelectorAll("svg")) {
    let line = svg.querySelector(".pointer");
    if (!line) {
      line = document.createElementNS(svg.namespaceURI, "line");
      line.setAttribute("class", "pointer");
      line.setAttribute("y1", 24);
      line.setAttribute("y2", svg.viewBox.baseVal.height - 38);
      svg.append(line);
    }
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
  }
}

const figures = document.querySelectorAll("figure[data-run]");
for (const figure of figures) {
  const run = JSON.parse(figure.dataset.run);
  figure.addEventListener("pointermove", event => {
    const svg = event.target.closest("svg");
    if (!svg) return;
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    show(figure, run, Math.min(Math.max((x - run.left) / run.width, 0), 1) * run.end_s);
  });
  // The end of the run stands there before anybody points.
  show(figure, run, run.end_s);
}
document.documentElement.dataset.runs = figures.length;
