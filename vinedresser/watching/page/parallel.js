// Parallel coordinates of the settings that differ and a metric; dragging along an axis filters the table.
import { shade } from "./colours.js";
import { differing, isSeed, model } from "./model.js";
import { set, state } from "./state.js";
import { cell, count, drawn, make, number, numeric } from "./text.js";

const HEIGHT = 250, TOP = 52, BOTTOM = 22, GAP = 150, WIDEST = 260, SIDE = 60, MOST_AXES = 9, FEWEST = 10, MOST_WORDS = 12;
const place = document.getElementById("parallel"), note = document.getElementById("importance");

export function showParallel() {
  const goal = model.goal && model.columns.get(model.goal.metric), runs = model.filtered;
  const settings = goal ? differing(runs, ["parameters", "observed"]).filter(one => !isSeed(one)) : [];
  if (!settings.length) {
    note.textContent = "";
    place.replaceChildren(make("p", { class: "note" }, goal ? "No parameter differs between the runs shown." : "No metric or loss is known to be better in one direction."));
    return;
  }
  const finished = runs.filter(row => row.state === "finished" && Number.isFinite(goal.get(row)));
  const weighed = settings.map(column => ({ column, weight: importance(finished, column, goal) }));
  weighed.sort((a, b) => (b.weight ?? -1) - (a.weight ?? -1));
  const axes = weighed.slice(0, MOST_AXES - 1).map(({ column, weight }) => new Axis(column, runs, weight));
  axes.push(new Axis(goal, runs));
  const more = settings.length - axes.length + 1;
  note.textContent = (finished.length < FEWEST
    ? `too few runs to tell what matters: ${finished.length} of at least ${FEWEST} finished with ${goal.id}`
    : `rank correlation with ${goal.id} over ${count(finished.length, "finished run")}, of each setting alone`) +
    (more > 0 ? ` · ${count(more, "setting")} more not drawn` : "");
  draw(axes, runs);
}

function draw(axes, runs) {
  const gap = Math.min(WIDEST, Math.max(GAP, (place.clientWidth - 3 * SIDE) / (axes.length - 1)));
  const width = SIDE * 2 + gap * (axes.length - 1), goal = axes.at(-1);
  axes.forEach((axis, at) => { axis.x = SIDE + at * gap; });
  const better = model.goal.direction === "maximize" ? share => share : share => 1 - share;
  const lines = runs.map(row => {
    const points = axes.map(axis => ({ x: axis.x, y: axis.y(row) }));
    let path = "", pen = false;
    for (const { x, y } of points) {
      if (y === undefined) { pen = false; continue; }
      path += `${pen ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
      pen = true;
    }
    const height = goal.y(row), share = height === undefined ? undefined : (TOP + HEIGHT - height) / HEIGHT;
    const stroke = share === undefined ? "var(--muted)" : shade(better(share));
    return drawn("path", { d: path, class: "way", "data-run": row.name, style: { stroke } }, drawn("title", {}, `${row.name}: ${goal.column.id} ${cell(goal.column.get(row)) || "none"}`));
  });
  const height = TOP + HEIGHT + BOTTOM;
  place.replaceChildren(drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Settings and ${goal.column.id} of ${count(runs.length, "run")}` },
    drawn("g", {}, ...lines), ...axes.map(axis => axis.draw())));
}

class Axis {
  constructor(column, runs, weight) {
    this.column = column;
    this.weight = weight;
    const values = runs.map(row => column.get(row)).filter(one => one !== undefined), figures = values.map(numeric);
    const finite = figures.filter(Number.isFinite);
    this.words = figures.every(one => one !== undefined) && finite.length ? null : [...new Set(values.map(cell))].sort().slice(0, MOST_WORDS);
    if (this.words) return;
    this.low = finite.reduce((a, b) => Math.min(a, b));
    this.high = finite.reduce((a, b) => Math.max(a, b));
    this.log = this.low > 0 && this.high / this.low > 50;
  }

  scale(value) { return this.log ? Math.log(value) : value; }

  y(row) {
    const value = this.column.get(row);
    if (value === undefined) return undefined;
    let share;
    if (this.words) {
      const at = this.words.indexOf(cell(value));
      if (at < 0) return undefined;
      share = (at + 0.5) / this.words.length;
    } else {
      const found = numeric(value);
      if (!Number.isFinite(found)) return undefined;
      share = this.low === this.high ? 0.5 : (this.scale(found) - this.scale(this.low)) / (this.scale(this.high) - this.scale(this.low));
    }
    return TOP + HEIGHT * (1 - share);
  }

  value(y) {
    const share = Math.min(Math.max((TOP + HEIGHT - y) / HEIGHT, 0), 1);
    if (this.words) return this.words[Math.min(Math.floor(share * this.words.length), this.words.length - 1)];
    const scaled = this.scale(this.low) + share * (this.scale(this.high) - this.scale(this.low));
    return this.log ? Math.exp(scaled) : scaled;
  }

  draw() {
    const { x, column } = this, anchor = { x, "text-anchor": "middle" };
    const name = column.id.length > 20 ? "…" + column.id.slice(-19) : column.id;
    const parts = [drawn("text", { ...anchor, y: 14, class: "name" }, name, drawn("title", {}, column.id)),
      drawn("text", { ...anchor, y: 30, class: "weight" }, this.weight === undefined ? (this.log ? "log" : "") : `${this.weight.toFixed(2)}${this.log ? " · log" : ""}`),
      drawn("line", { x1: x, x2: x, y1: TOP, y2: TOP + HEIGHT, class: "axis" })];
    if (this.words) this.words.forEach((word, at) => parts.push(drawn("text", { x: x + 5, y: TOP + HEIGHT * (1 - (at + 0.5) / this.words.length) + 4, class: "word" }, word.length > 16 ? word.slice(0, 15) + "…" : word || "none")));
    else parts.push(drawn("text", { ...anchor, y: TOP - 4, class: "word" }, number(this.high)), drawn("text", { ...anchor, y: TOP + HEIGHT + 14, class: "word" }, number(this.low)));
    const brush = drawn("rect", { x: x - 9, width: 18, y: TOP, height: 0, class: "brush" });
    const grip = drawn("rect", { x: x - 12, width: 24, y: TOP, height: HEIGHT, class: "grip", "data-axis": column.id, pointerdown: event => this.drag(event, brush) });
    return drawn("g", { class: "coordinate" }, ...parts, brush, grip);
  }

  drag(event, brush) {
    const grip = event.currentTarget, box = grip.ownerSVGElement.getBoundingClientRect();
    const at = one => Math.min(Math.max(one.clientY - box.top, TOP), TOP + HEIGHT), start = at(event);
    grip.setPointerCapture(event.pointerId);
    grip.onpointermove = one => {
      brush.setAttribute("y", Math.min(start, at(one)));
      brush.setAttribute("height", Math.abs(start - at(one)));
    };
    grip.onpointerup = one => {
      grip.onpointermove = grip.onpointerup = null;
      this.filter(Math.min(start, at(one)), Math.max(start, at(one)));
    };
  }

  // The filter gets terms of the part of the axis; those that it had of this column go.
  filter(top, bottom) {
    const key = /[\s:<>=!"]/.test(this.column.id) ? `"${this.column.id}"` : this.column.id;
    const escaped = key.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    const rest = state.q.replace(new RegExp(`(^|\\s)${escaped}\\s*(>=|<=|=|:)\\s*("[^"]*"|\\S+)`, "g"), "").trim();
    let terms = "";
    if (this.words) terms = `${key}="${this.value((top + bottom) / 2)}"`;
    else if (bottom - top >= 3) {
      // Rounding must not leave out the runs at the ends of the axis.
      const low = bottom < TOP + HEIGHT ? Number(this.value(bottom).toPrecision(4)) : this.low;
      const high = top > TOP ? Number(this.value(top).toPrecision(4)) : this.high;
      terms = `${key}>=${low} ${key}<=${high}`;
    }
    set({ q: [rest, terms].filter(Boolean).join(" ") });
  }
}

// How far a setting alone orders the metric, from 0 to 1: Spearman's correlation of ranks, or of words the
// correlation ratio of ranks (Pearson's eta); undefined if there are too few runs.
function importance(runs, column, goal) {
  const known = runs.filter(row => column.get(row) !== undefined);
  if (known.length < FEWEST) return undefined;
  const results = ranks(known.map(row => goal.get(row))), figures = known.map(row => numeric(column.get(row)));
  if (figures.every(Number.isFinite)) return Math.abs(correlation(ranks(figures), results));
  const groups = new Map();
  known.forEach((row, at) => { const key = cell(column.get(row)); groups.set(key, [...(groups.get(key) ?? []), results[at]]); });
  const mean = list => list.reduce((a, b) => a + b, 0) / list.length, middle = mean(results);
  const total = results.reduce((sum, one) => sum + (one - middle) ** 2, 0);
  if (!total || groups.size > known.length / 2) return undefined;
  return Math.sqrt([...groups.values()].reduce((sum, list) => sum + list.length * (mean(list) - middle) ** 2, 0) / total);
}

function ranks(values) {
  const order = values.map((value, at) => [value, at]).sort((a, b) => a[0] - b[0]), found = Array(values.length);
  for (let i = 0; i < order.length;) {
    let j = i;
    while (j + 1 < order.length && order[j + 1][0] === order[i][0]) j++;
    for (let k = i; k <= j; k++) found[order[k][1]] = (i + j) / 2;
    i = j + 1;
  }
  return found;
}

function correlation(one, two) {
  const mean = list => list.reduce((a, b) => a + b, 0) / list.length, [a, b] = [mean(one), mean(two)];
  let [both, first, second] = [0, 0, 0];
  one.forEach((value, at) => { both += (value - a) * (two[at] - b); first += (value - a) ** 2; second += (two[at] - b) ** 2; });
  return first && second ? both / Math.sqrt(first * second) : 0;
}
