// The table of runs: sorted by a column, with the columns that were chosen; groups as a table of their own.
import { differing, groups, isGrouped, model, rows, sorting } from "./model.js";
import { set, state } from "./state.js";
import { count, make, number } from "./text.js";

const PAGE = 100, MOST_SETTINGS = 4;
let extent = PAGE, known = new Map();
const place = document.getElementById("table"), grouped = document.getElementById("groups");

export function columnsShown() {
  const chosen = state.columns.map(id => model.columns.get(id)).filter(Boolean);
  if (chosen.length) return chosen;
  const settings = differing([...rows.values()], ["parameters"]).slice(0, MOST_SETTINGS).map(one => one.id);
  // Whose a run is matters in a store of several people or machines.
  const owner = model.columns.get("owner"), owners = owner ? new Set([...rows.values()].map(owner.get)) : new Set();
  const ids = ["status", "steps", model.goal?.metric, "train/loss", ...settings, owners.size > 1 && "owner", "why"];
  return [...new Set(ids)].map(id => model.columns.get(id)).filter(Boolean);
}

export function showTable(colours) {
  const columns = columnsShown(), { column: by, falling } = sorting(), picked = new Set(state.runs);
  const signature = columns.map(one => one.id).join("\n");
  const head = make("tr", {}, make("th", { class: "pick", scope: "col" }, hidden("Drawn")),
    ...[model.columns.get("run"), ...columns].filter(Boolean).map(column => header(column, by, falling)));
  const before = known;
  known = new Map();
  const lines = model.filtered.slice(0, extent).map(row => {
    const key = row.revision + signature, old = before.get(row.id);
    const line = old?.key === key ? old : { key, tr: tableRow(row, columns) };
    known.set(row.id, line);
    const box = line.tr.querySelector("input"), colour = colours.get(row.id);
    box.checked = picked.has(row.name);
    line.tr.querySelector(".swatch").style.background = colour ?? "transparent";
    line.tr.classList.toggle("drawn", colour !== undefined);
    return line.tr;
  });
  const again = focused();
  const table = place.querySelector("table");
  table.tHead.replaceChildren(head);
  const body = table.tBodies[0], same = body.children.length === lines.length && lines.every((one, at) => body.children[at] === one);
  if (!same) body.replaceChildren(...lines);
  if (again && !place.contains(document.activeElement)) place.querySelector(again)?.focus({ preventScroll: true });
  const left = model.filtered.length - lines.length, more = document.getElementById("more");
  more.hidden = left <= 0;
  more.textContent = `Show ${Math.min(left, 5 * PAGE).toLocaleString("en")} more of ${left.toLocaleString("en")}`;
  place.hidden = rows.size === 0;
  document.getElementById("none").hidden = rows.size > 0 || model.reading;
  const drawn = model.chosen.length, wanted = model.wanted;
  document.getElementById("shown").textContent = `${model.filtered.length.toLocaleString("en")} of ${count(rows.size, "run")} shown · ` +
    (wanted > drawn ? `the first ${drawn} of ${picked.size ? "the " + wanted.toLocaleString("en") + " picked" : "these"} drawn, in this order`
      : `${picked.size ? "the picked ones" : "all of these"} drawn (${drawn})`);
  showGroups(colours);
}

document.getElementById("more").addEventListener("click", () => { extent += 5 * PAGE; set({}); });

const swatch = (background = "transparent") => make("span", { class: "swatch", style: { background } });
const hidden = text => make("span", { class: "hidden" }, text);

// The element of the table that has the focus, which it loses when its row is moved or made anew.
function focused() {
  const own = document.activeElement, column = own?.closest("#table th[data-column]"), line = own?.closest("#table tr[data-run]");
  if (column) return `th[data-column="${CSS.escape(column.dataset.column)}"] button`;
  return line && `tr[data-run="${CSS.escape(line.dataset.run)}"] ${own.localName}`;
}

function header(column, by, falling) {
  const active = column === by;
  const order = active ? (falling ? "descending" : "ascending") : undefined;
  const sign = active ? make("span", { "aria-hidden": "true" }, falling ? " ↓" : " ↑") : "";
  const press = () => set({ sort: active && !falling ? "-" + column.id : column.id });
  return make("th", { scope: "col", "aria-sort": order, "data-column": column.id },
    make("button", { type: "button", click: press, title: "Sort by " + column.id }, column.id, sign));
}

function tableRow(row, columns) {
  const pick = make("input", { type: "checkbox", "aria-label": "Pick " + row.name, change: event => {
    const names = new Set(state.runs);
    event.target.checked ? names.add(row.name) : names.delete(row.name);
    set({ runs: [...names] });
  } });
  return make("tr", { class: `${row.state} tone-${row.tone}`, "data-run": row.name },
    make("td", { class: "pick" }, swatch(), pick),
    make("th", { class: "name", scope: "row" }, make("a", { href: row.link }, row.name)),
    ...columns.map(column => field(column, row)));
}

function field(column, row) {
  if (column.id === "status") return make("td", { class: "state" }, make("span", { class: "dot" }), row.words);
  if (column.id === "steps") return steps(row);
  if (column.id === "why") {
    const worst = row.findings.find(one => one.severity !== "info");
    const chip = worst ? make("span", { class: "chip " + worst.severity, title: count(row.findings.length, "rule") + " fired" }, String(row.findings.length)) : "";
    return make("td", { class: "why" }, make("div", { class: "brief", title: row.reason }, chip, row.reason));
  }
  const value = column.get(row);
  const text = value === undefined ? "" : column.words(value);
  return make("td", { class: typeof value === "number" ? "number" : text.length > 40 ? "why" : "" }, text);
}

function steps(row) {
  const total = row.total ? make("small", {}, " of " + row.total.toLocaleString("en")) : "";
  const share = row.total ? Math.min(1, row.steps / row.total) : 0;
  const bar = row.total ? make("div", { class: "bar" }, make("i", { style: { width: (100 * share).toFixed(1) + "%" } })) : "";
  return make("td", { class: "steps" }, row.steps.toLocaleString("en"), total, bar);
}

// Of each group: how many of its runs finished, and the last value of the metric over these.
function showGroups(colours) {
  grouped.hidden = !isGrouped() || !model.goal;
  if (grouped.hidden) return;
  const metric = model.columns.get(model.goal.metric), sign = model.goal.direction === "maximize" ? -1 : 1;
  const found = groups(model.filtered).map(group => {
    const values = group.rows.filter(row => row.state === "finished").map(row => metric.get(row)).filter(Number.isFinite);
    const mean = values.reduce((sum, one) => sum + one, 0) / values.length;
    const spread = Math.sqrt(values.reduce((sum, one) => sum + (one - mean) ** 2, 0) / (values.length - 1));
    return { ...group, values, mean, spread };
  });
  found.sort((a, b) => !a.values.length - !b.values.length || sign * (a.mean - b.mean) || 0);
  const body = found.slice(0, extent).map(group => make("tr", {},
    make("th", { scope: "row", class: "name" }, swatch(colours.get(group.rows[0].id)), group.name),
    ...[`${group.values.length} of ${group.rows.length}`, group.values.length ? number(group.mean) : "",
      group.values.length > 1 ? number(group.spread) : "",
      group.values.length ? `${number(Math.min(...group.values))} to ${number(Math.max(...group.values))}` : ""].map(text => make("td", {}, text))));
  const head = ["group", "finished", "mean " + metric.id, "standard deviation", "range"];
  grouped.querySelector("thead").replaceChildren(make("tr", {}, ...head.map(text => make("th", { scope: "col" }, text))));
  grouped.querySelector("tbody").replaceChildren(...body);
}
