// Curves of the chosen runs, one chart per metric, by uPlot; zoom, hover, keys and marks of rules.
import { colour, onTheme, variable } from "./colours.js";
import { groups, isGrouped, model, numbers } from "./model.js";
import { set, state } from "./state.js";
import { count, duration, make, number, power, shown } from "./text.js";

const MOST_CHARTS = 4, MOST_POINTS = 120000, NEAR = 24, SIGN = 5;
const place = document.getElementById("charts"), charts = new Map();

export function metricsShown() {
  const frequent = [...model.columns.values()].filter(one => one.kind === "results").map(one => one.id);
  const chosen = state.charts.filter(id => frequent.includes(id));
  if (chosen.length) return chosen;
  return [...new Set([model.goal?.metric, "train/loss", "eval/loss", ...frequent])]
    .filter(id => frequent.includes(id) && !id.endsWith("/epoch")).slice(0, MOST_CHARTS);
}

// Draws what was chosen; charts whose request is the same are asked for again only if `fresh`.
export function showCurves(fresh) {
  const wanted = model.chosen.length ? metricsShown() : [];
  for (const [id, chart] of charts) if (!wanted.includes(id)) { chart.leave(); charts.delete(id); }
  for (const id of wanted) {
    if (!charts.has(id)) charts.set(id, new Chart(id));
    charts.get(id).show(fresh);
  }
  const figures = wanted.map(id => charts.get(id).figure);
  // Elements that are moved lose the focus of the keyboard.
  if (figures.length !== place.children.length || figures.some((one, at) => place.children[at] !== one)) place.replaceChildren(...figures);
}

class Chart {
  constructor(metric) {
    this.metric = metric;
    this.asked = "";
    this.note = make("span", { class: "note" });
    this.readout = make("output", { class: "readout" });
    this.plot = make("div", { class: "plot", tabindex: "0", role: "application", "aria-label":
      `Curves of ${shown(metric)}: left and right move, up and down choose a run, + and - zoom, Escape shows all`,
      keydown: event => this.key(event) });
    this.figure = make("figure", { class: "panel curve", "data-metric": metric },
      make("figcaption", {}, make("b", {}, shown(metric)), this.note), this.readout, this.plot);
    this.resized = new ResizeObserver(() => this.u?.setSize({ width: this.width(), height: this.height() }));
    this.resized.observe(this.plot);
  }

  width() { return Math.max(this.plot.clientWidth, 200); }
  height() { return innerWidth < 620 ? 210 : 260; }

  leave() {
    this.pending?.abort();
    this.resized.disconnect();
    this.u?.destroy();
  }

  async show(fresh) {
    this.sets = isGrouped() ? groups(model.chosen) : null;
    const runs = this.sets ? this.sets.map(one => numbers(one.rows)).join(";") : numbers(model.chosen);
    const bins = Math.max(100, Math.min(Math.round((this.plot.clientWidth || 450) * 0.8), Math.floor(MOST_POINTS / 2 / model.chosen.length)));
    const fields = { metric: this.metric, runs, x: state.x, first: state.from, last: state.to, smooth: state.smooth, band: state.band };
    const asked = "/curves?" + new URLSearchParams({ ...fields, means: this.sets ? "yes" : "no", bins: Math.min(bins, 1000) });
    const look = [asked, state.log].join();
    if (look === this.look && !fresh) return;
    this.look = look;
    this.pending?.abort();
    this.pending = new AbortController();
    const rows = model.chosen, sets = this.sets;
    try {
      const answer = await fetch(asked, { signal: this.pending.signal });
      if (!answer.ok) { this.note.textContent = await answer.text(); this.look = ""; return; }
      this.draw(await answer.json(), rows, sets);
    } catch (error) {
      if (error.name !== "AbortError") { this.note.textContent = "vinedresser watch does not answer"; this.look = ""; }
    }
  }

  draw(answer, rows, sets) {
    Object.assign(this, { answer, rows, drawnSets: sets });
    const names = new Map(rows.map((row, at) => [row.id, { name: row.name, at }]));
    const log = state.log === "yes";
    let omitted = 0;
    const values = list => list.map(one => {
      if (one === null) return undefined;
      if (one === "" || !log || one > 0) return one === "" ? null : one;
      omitted++;
      return null;
    });
    const series = [{}], data = [answer.places], bands = [];
    this.lines = [null];
    const add = (list, options, line) => { data.push(list); series.push({ points: { size: 5 }, ...options }); this.lines.push(line); };
    for (const group of answer.groups ?? []) {
      const { name, rows: members } = sets[group.place];
      const stroke = colour(group.place), edge = { stroke: "transparent", width: 0, points: { show: false } };
      bands.push({ series: [series.length, series.length + 1], fill: colour(group.place, 0.16) });
      add(values(group.high), edge, null);
      add(values(group.low), edge, null);
      add(values(group.mean), { stroke, width: 2 }, { name, count: group.count, of: members.length });
    }
    for (const curve of answer.curves ?? []) {
      const { name, at } = names.get(curve.id), stroke = colour(at);
      const raw = values(curve.values);
      add(raw, { stroke: curve.smooth ? colour(at, 0.22) : stroke, width: curve.smooth ? 1 : 1.6 }, curve.smooth ? null : { name, id: curve.id });
      if (curve.smooth) add(values(curve.smooth), { stroke, width: 2, points: { show: false } }, { name, id: curve.id, raw });
    }
    this.notes(omitted);
    this.u?.destroy();
    this.u = null;
    this.plot.replaceChildren();
    if (series.length === 1) {
      this.plot.append(make("p", { class: "note" }, this.missing()));
      return;
    }
    this.u = new uPlot(this.options(series, bands, log), data, this.plot);
    this.plot.uplot = this.u;
  }

  missing() {
    const { without, unplaced } = this.answer;
    const some = unplaced ? `${count(unplaced, "run")} saved no number of the epoch as the metric "epoch"` : "";
    return [without ? `${count(without, "run")} without ${shown(this.metric)}` : "", some].filter(Boolean).join("; ");
  }

  notes(omitted) {
    const { limit, groups: means } = this.answer;
    const texts = [this.missing()];
    const part = model.wanted > this.rows.length ? ` over the first ${this.rows.length} of ${count(model.wanted, "run")}` : "";
    if (means?.length) texts.push("mean" + (Number(state.smooth) ? " of smoothed values" : "") + part +
      (state.band === "range" ? ", band: minimum to maximum" : ", band: ± one standard deviation"));
    if (omitted) texts.push("values of 0 and below are not on a log axis");
    else if (limit !== null && state.log !== "yes" && this.beyond(limit)) texts.push(`some runs leave the chart: beyond ±${number(limit)}`);
    this.note.textContent = texts.filter(Boolean).join(" · ");
  }

  beyond(limit) {
    const lists = [...(this.answer.curves ?? []).map(one => one.values), ...(this.answer.groups ?? []).flatMap(one => [one.low, one.high])];
    return lists.some(list => list.some(one => typeof one === "number" && Math.abs(one) > limit));
  }

  // The range of the runs that stay within the limit: one that diverges does not flatten the others.
  usual(u, limit) {
    const [first, last] = this.answer.shown, inside = u.data[0].map(at => at >= first && at <= last);
    let [low, high] = [Infinity, -Infinity];
    for (const list of u.data.slice(1)) {
      const values = list.filter((one, at) => inside[at] && Number.isFinite(one));
      if (values.some(one => Math.abs(one) > limit)) continue;
      for (const one of values) { low = Math.min(low, one); high = Math.max(high, one); }
    }
    return low <= high ? [low, high] : [-limit, limit];
  }

  options(series, bands, log) {
    const ink = variable("muted"), line = variable("grid"), limit = this.answer.limit;
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1, size: 4 }, font: "12px system-ui, sans-serif" };
    const range = (u, low, high) => {
      if (low === null || low === undefined) return log ? [0.1, 1] : [0, 1];
      if (log) return uPlot.rangeLog(low, high, 10, true);
      if (limit !== null && this.beyond(limit)) [low, high] = this.usual(u, limit);
      return low === high ? [low - (Math.abs(low) || 1) / 10, high + (Math.abs(high) || 1) / 10] : uPlot.rangeNum(low, high, 0.06, true);
    };
    const [first, last] = this.answer.shown;
    const bounds = first === last ? [first - 0.5, last + 0.5] : [first, last];
    return {
      width: this.width(), height: this.height(), series, bands, padding: [8, 20, 0, 0], legend: { show: false }, focus: { alpha: 0.25 },
      cursor: {
        drag: { x: true, y: false, setScale: false }, focus: { prox: NEAR }, points: { one: true, size: 8 },
        sync: { key: "runs", setSeries: false }, bind: { dblclick: () => () => set({ from: "", to: "" }) },
        dataIdx: (u, at, found) => this.nearest(u, at, found),
      },
      scales: { x: { time: false, range: () => bounds }, y: { distr: log ? 3 : 1, range } },
      axes: [
        { ...axis, size: 34, space: 60, values: (u, ticks) => ticks.map(one => state.x === "time" ? clock(one) : number(one)) },
        { ...axis, size: 58, splits: log ? (u, at, low, high) => powers(low, high) : undefined, filter: (u, ticks) => ticks, values: (u, ticks) => ticks.map(tick) },
      ],
      hooks: {
        draw: [u => this.marks(u)], setCursor: [u => this.read(u)], setSeries: [(u, at) => { this.focused = at; this.read(u); }],
        setSelect: [u => this.zoom(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"), u.select.width)],
      },
    };
  }

  // The nearest place where a series has a value, within NEAR pixels.
  nearest(u, at, found) {
    if (at === 0 || found === null || u.data[at][found] !== undefined) return found;
    const list = u.data[at], here = u.valToPos(u.data[0][found], "x");
    for (let apart = 1; apart < list.length; apart++) {
      const both = [found - apart, found + apart].filter(one => one >= 0 && one < list.length && Math.abs(u.valToPos(u.data[0][one], "x") - here) <= NEAR);
      if (!both.length) return found;
      const hit = both.find(one => list[one] !== undefined);
      if (hit !== undefined) return hit;
    }
    return found;
  }

  zoom(first, last, width) {
    if (width < 4) return;
    // To a thousandth of the range, also far from zero.
    const digits = Math.min(Math.max(3 - Math.floor(Math.log10(last - first)), 0), 100), text = value => String(Number(value.toFixed(digits)));
    set({ from: text(first), to: text(last) });
  }

  read(u) {
    const { left, top } = u.cursor;
    if (left < 0) { this.readout.textContent = ""; return; }
    const mark = this.signs?.find(one => Math.hypot(one.x - left, one.y - top) <= SIGN + 4);
    if (mark) { this.readout.textContent = mark.text; return; }
    const at = this.focused, line = at ? this.lines[at] : null;
    const index = line ? u.cursor.idxs[at] : u.cursor.idx;
    if (index === null || index === undefined) return;
    const where = spot(u.data[0][index]);
    const value = line && u.data[at][index];
    if (!line || value === undefined || value === null) { this.readout.textContent = where; return; }
    const raw = line.raw?.[index];
    const more = line.count ? ` (${line.count[index]} of ${count(line.of, "run")})` : raw !== undefined && raw !== null ? ` (${number(raw)} unsmoothed)` : "";
    this.readout.textContent = `${where} · ${line.name}: ${number(value)}${more}`;
  }

  key(event) {
    const u = this.u, [low, high] = this.answer?.shown ?? [];
    if (!u || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key], turn = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    const [{ places }, width] = [this.answer, high - low];
    const inside = at => places[at] >= low && places[at] <= high;
    if (step) {
      let at = u.cursor.idx ?? (step > 0 ? places.findIndex(one => one >= low) - 1 : places.length);
      do at += step; while (at >= 0 && at < places.length && !inside(at));
      if (inside(at)) this.move(at);
    } else if (turn) {
      this.turn(turn);
    } else if (event.key === "+" || event.key === "-") {
      const middle = u.cursor.idx === null || u.cursor.idx === undefined ? (low + high) / 2 : places[u.cursor.idx];
      const half = width * (event.key === "+" ? 0.25 : 1);
      const [begin, end] = this.answer.extent;
      const [from, to] = [Math.max(begin, middle - half), Math.min(end, middle + half)];
      if (from === begin && to === end) set({ from: "", to: "" });
      else this.zoom(from, to, 9);
    } else if (event.key === "Escape") {
      set({ from: "", to: "" });
    } else return;
    event.preventDefault();
  }

  // Put the cursor on the run that is focused at a place, or on the first that has a value there.
  move(at) {
    const u = this.u, value = line => this.lines[line] ? u.data[line][this.nearest(u, line, at)] : undefined;
    const own = this.held && Number.isFinite(value(this.held)) ? this.held : this.lines.findIndex((one, line) => one && Number.isFinite(value(line)));
    this.held = own > 0 ? own : 0;
    const top = own > 0 ? u.valToPos(value(own), "y") : u.bbox.height / devicePixelRatio / 2;
    u.setCursor({ left: u.valToPos(u.data[0][at], "x"), top: Math.min(Math.max(top, 0), u.bbox.height / devicePixelRatio) });
    if (own > 0) u.setSeries(own, { focus: true });
  }

  turn(by) {
    const own = this.lines.map((one, at) => one ? at : 0).filter(Boolean);
    const next = (own.indexOf(this.held) + by + own.length) % own.length;
    this.held = own[next];
    const at = this.u.cursor.idx ?? this.answer.places.length - 1;
    this.move(at);
  }

  // Strokes for values that are not finite, and a sign where a rule found a root cause.
  marks(u) {
    const { ctx } = u, ratio = devicePixelRatio, bottom = u.bbox.top + u.bbox.height;
    this.signs = [];
    ctx.save();
    ctx.beginPath();
    ctx.rect(u.bbox.left - SIGN * ratio, u.bbox.top - SIGN * ratio, u.bbox.width + 2 * SIGN * ratio, u.bbox.height + 2 * SIGN * ratio);
    ctx.clip();
    for (const curve of this.answer.curves ?? []) {
      ctx.strokeStyle = variable("bad");
      ctx.lineWidth = ratio;
      for (const at of curve.broken) {
        const x = u.valToPos(at, "x", true);
        ctx.beginPath();
        ctx.moveTo(x, bottom - 8 * ratio);
        ctx.lineTo(x, bottom);
        ctx.stroke();
      }
      for (const mark of curve.marks) this.sign(u, curve, mark);
    }
    ctx.restore();
  }

  sign(u, curve, mark) {
    const [first, last] = this.answer.shown;
    if (mark.at < first || mark.at > last) return;
    const { ctx } = u, ratio = devicePixelRatio, size = SIGN * ratio;
    const line = this.lines.findIndex(one => one?.id === curve.id), list = u.data[line];
    let at = u.valToIdx(mark.at);
    while (at > 0 && !Number.isFinite(list[at])) at--;
    const x = u.valToPos(mark.at, "x", true);
    const height = Number.isFinite(list[at]) ? u.valToPos(list[at], "y", true) : u.bbox.top;
    const y = Math.min(Math.max(height, u.bbox.top), u.bbox.top + u.bbox.height);
    ctx.fillStyle = variable(mark.severity);
    ctx.strokeStyle = variable("surface");
    ctx.lineWidth = ratio;
    ctx.beginPath();
    if (mark.severity === "stop") ctx.rect(x - size, y - size, 2 * size, 2 * size);
    else if (mark.severity === "warning") { ctx.moveTo(x, y - size); ctx.lineTo(x + size, y + size); ctx.lineTo(x - size, y + size); ctx.closePath(); }
    else ctx.arc(x, y, size, 0, 2 * Math.PI);
    ctx.fill();
    ctx.stroke();
    const text = `${this.lines[line].name}: ${mark.rule} at step ${mark.step.toLocaleString("en")}: ${mark.seen}`;
    this.signs.push({ x: (x - u.bbox.left) / ratio, y: (y - u.bbox.top) / ratio, text });
  }
}

// Powers of ten, or of a range of few also twice and five times these.
function powers(low, high) {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const apart = Math.ceil((last - first) / 8), found = [];
  for (let power = first; power <= last; power += apart)
    for (const factor of last - first <= 2 ? [1, 2, 5] : [1]) found.push(Number(`${factor}e${power}`));
  return found.filter(one => one >= low && one <= high);
}

// A place on the axis; of a part of the width, whose values have several steps, about where it is.
function spot(place) {
  if (state.x === "time") return "after " + duration(place);
  if (state.x === "epoch") return "epoch " + number(place);
  return (Number.isInteger(place) ? "step " : "near step ") + Math.round(place).toLocaleString("en");
}

const tick = value => Math.abs(value) >= 1e5 ? power(value) : number(value);
const clock = seconds => seconds < 60 ? number(seconds) + " s" : duration(seconds);

onTheme(() => { for (const chart of charts.values()) if (chart.answer) chart.draw(chart.answer, chart.rows, chart.drawnSets); });
