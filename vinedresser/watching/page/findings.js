// Findings as a matrix of dots: rules by chosen runs; the sentence of a dot on hover, focus and arrow keys.
import { model } from "./model.js";
import { count, drawn, make } from "./text.js";

const CELL = 14, NAMES = 190, HEAD = 6;
const place = document.getElementById("dots"), told = document.getElementById("told");
let before = "";

export function showFindings() {
  const runs = model.chosen, rules = new Map();
  for (const [at, row] of runs.entries())
    for (const found of row.findings) {
      if (!rules.has(found.rule)) rules.set(found.rule, []);
      rules.get(found.rule).push({ at, row, found });
    }
  const now = runs.map(row => `${row.id}.${row.revision}`).join();
  if (now === before) return;
  before = now;
  const lines = [...rules].sort((a, b) => b[1].length - a[1].length);
  if (!lines.length) { place.replaceChildren(make("p", { class: "note" }, runs.length ? `No findings in ${count(runs.length, "run")}.` : "No runs are drawn.")); told.textContent = ""; return; }
  const { run, rule } = document.activeElement?.dataset ?? {}, focused = place.contains(document.activeElement);
  const width = NAMES + runs.length * CELL + CELL, height = HEAD + lines.length * CELL + HEAD;
  const dots = lines.flatMap(([rule, found], line) => found.map(one => dot(rule, one, line)));
  const again = focused ? dots.find(one => one.dataset.run === run && one.dataset.rule === rule) : undefined;
  (again ?? dots[0]).setAttribute("tabindex", "0");
  const names = lines.map(([rule, found], line) => drawn("text", { x: 4, y: HEAD + line * CELL + CELL / 2 + 4, class: "rule" }, `${rule} (${found.length})`));
  place.replaceChildren(drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Findings by rule and run", keydown: walk }, ...names, ...dots));
  told.textContent = "point at a dot, or use the arrow keys";
  again?.focus({ preventScroll: true });
}

function dot(rule, { at, row, found }, line) {
  const say = () => { told.textContent = `${row.name}: ${rule} (${found.severity}) since step ${found.since.toLocaleString("en")}: ${found.seen}`; };
  const shape = { cx: NAMES + at * CELL + CELL / 2, cy: HEAD + line * CELL + CELL / 2, r: found.severity === "info" ? 3.5 : 5 };
  return drawn("circle", { ...shape, class: "dot " + found.severity, tabindex: "-1", role: "img", "data-run": row.name, "data-rule": rule,
    "aria-label": `${row.name}: ${rule}, ${found.severity}`, pointerenter: say, focus: say, click: say });
}

function walk(event) {
  const from = event.target, [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [];
  if (dx === undefined || from.tagName !== "circle") return;
  event.preventDefault();
  const where = one => [Number(one.getAttribute("cx")), Number(one.getAttribute("cy"))], [x, y] = where(from);
  const ahead = [...place.querySelectorAll("circle")].map(one => ({ one, to: where(one) }))
    .filter(({ to }) => dx ? to[1] === y && (to[0] - x) * dx > 0 : (to[1] - y) * dy > 0)
    .sort((a, b) => Math.abs(a.to[1] - y) - Math.abs(b.to[1] - y) || Math.abs(a.to[0] - x) - Math.abs(b.to[0] - x));
  if (!ahead.length) return;
  from.setAttribute("tabindex", "-1");
  ahead[0].one.setAttribute("tabindex", "0");
  ahead[0].one.focus();
}
