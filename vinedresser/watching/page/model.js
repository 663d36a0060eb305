// The runs of the store, which the server sends once and again when they change; columns; what is chosen.
import { parse } from "./filter.js";
import { state } from "./state.js";
import { cell, duration, numeric } from "./text.js";

export const rows = new Map();
export const model = {
  revision: 0, goal: null, columns: new Map(), filtered: [], chosen: [], problem: "", listed: -1, reading: true, failed: "",
};
const most = Number(document.querySelector("main").dataset.most);

const BASIC = [
  ["run", row => row.name], ["status", row => row.words], ["verdict", row => row.kind], ["why", row => row.reason],
  ["rule", row => row.rule || undefined], ["cause", row => row.cause || undefined],
  ["rules", row => row.findings.map(one => one.rule).join(" ") || undefined],
  ["tag", row => Object.values(row.tags).join(" ") || undefined],
  ["owner", row => [own(row.environment, "user"), own(row.environment, "host")].filter(Boolean).join("@") || undefined],
  ["steps", row => row.steps], ["state", row => row.state],
  ["started", row => row.created ?? undefined, value => new Date(value * 1000).toLocaleString()],
  ["duration", row => row.seconds ?? undefined, duration],
];

function findColumns() {
  const found = new Map();
  const add = (id, kind, get, words = cell) => {
    const free = found.has(id) ? kind + "." + id : id;
    if (!found.has(free)) found.set(free, { id: free, kind, get, words });
  };
  for (const [id, get, words] of BASIC) add(id, "run", get, words);
  for (const kind of ["results", "parameters", "observed", "environment"]) {
    const names = new Map();
    for (const row of rows.values())
      for (const name of Object.keys(row[kind])) names.set(name, (names.get(name) ?? 0) + 1);
    for (const [name] of [...names].sort((a, b) => b[1] - a[1]))
      add(name, kind, kind === "results" ? row => numeric(own(row[kind], name)) : row => own(row[kind], name));
  }
  return found;
}

// A name may be anything, such as constructor.
const own = (table, name) => Object.hasOwn(table, name) ? table[name] : undefined;

// Columns whose values differ between runs, such as parameters; in the order of the columns. What the hook
// has seen is left out if a parameter has the same values, as optimizer.lr beside lr.
export function differing(some, kinds) {
  const known = new Set();
  return [...model.columns.values()].filter(column => {
    if (!kinds.includes(column.kind)) return false;
    const first = some.length ? column.get(some[0]) : undefined;
    if (some.every(row => column.get(row) === first)) return false;
    const values = JSON.stringify(some.map(row => column.get(row) ?? null));
    if (column.kind === "observed" && known.has(values)) return false;
    known.add(values);
    return true;
  });
}

const SEED = /(^|[._-])(seeds?|random_?(state|seed))([._-]|$)/i;
export const isSeed = column => SEED.test(column.id);

export function sorting() {
  const text = state.sort, id = text.replace(/^-/, "");
  if (model.columns.has(id)) return { column: model.columns.get(id), falling: text.startsWith("-") };
  const { metric, direction } = model.goal ?? {};
  if (model.columns.has(metric)) return { column: model.columns.get(metric), falling: direction === "maximize" };
  return { column: model.columns.get("run"), falling: false };
}

// Numbers before text; rows without a value, or with NaN, last in both directions.
function ordered(some) {
  const { column, falling } = sorting(), sign = falling ? -1 : 1;
  const keyed = some.map(row => {
    const value = column.get(row), found = numeric(value);
    const missing = value === undefined || Number.isNaN(found);
    return { row, value: found ?? String(value), rank: missing ? 2 : found === undefined ? 1 : 0 };
  });
  const compare = (a, b) => typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
  keyed.sort((a, b) => a.rank - b.rank || (a.rank < 2 ? sign * compare(a.value, b.value) : 0) || a.row.id - b.row.id);
  return keyed.map(one => one.row);
}

// What passes the filter, and what is drawn: the runs that were picked, or else all of these.
export function select() {
  const { test, problem } = parse(state.q, model.columns);
  model.problem = model.columns.size ? problem : "";
  model.filtered = ordered([...rows.values()].filter(test));
  const picked = new Set(state.runs);
  const wanted = picked.size ? ordered([...rows.values()].filter(row => picked.has(row.name))) : model.filtered;
  model.wanted = wanted.length;
  model.chosen = wanted.slice(0, most);
}

export const isGrouped = () => state.group === "configuration" || model.columns.has(state.group);

// Runs by the value of the column that groups them, or by configuration: those differ by their seeds only.
export function groups(some) {
  const found = new Map(), column = state.group === "configuration" ? null : model.columns.get(state.group);
  for (const row of some) {
    const key = column ? column.get(row) ?? "" : row.configuration;
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(row);
  }
  const firsts = [...found.values()].map(members => members[0]);
  const settings = column ? [column] : differing(firsts, ["parameters", "observed"]).filter(one => !isSeed(one)).slice(0, 3);
  return [...found.values()].map(members => ({
    rows: members,
    name: settings.filter(one => column || one.get(members[0]) !== undefined)
      .map(one => `${one.id} = ${cell(one.get(members[0])) || "none"}`).join(", ") || members[0].name,
  }));
}

export async function renew() {
  const answer = await fetch("/runs?since=" + model.revision, { signal: AbortSignal.timeout(20000) });
  if (answer.status === 403) throw new Error("the key is no longer valid: open the printed address again");
  if (!answer.ok) throw new Error(await answer.text());
  const now = await answer.json();
  for (const id of now.removed) rows.delete(id);
  for (const row of now.rows) {
    row.text = [row.name, row.words, row.kind, row.reason, row.cause, ...row.findings.map(one => one.rule)].join("\n").toLowerCase();
    row.revision = now.revision;
    rows.set(row.id, row);
  }
  const news = now.revision !== model.revision || now.listed !== model.listed || now.reading !== model.reading;
  Object.assign(model, { revision: now.revision, goal: now.goal, listed: now.listed, reading: now.reading, failed: now.problem });
  document.getElementById("place").textContent = now.location;
  if (news) model.columns = findColumns();
  return news;
}

// Numbers of runs for a request, such as 0-3,7.
export function numbers(some) {
  const ids = some.map(row => row.id).sort((a, b) => a - b), parts = [];
  for (let i = 0; i < ids.length;) {
    let j = i;
    while (ids[j + 1] === ids[j] + 1) j++;
    parts.push(i === j ? ids[i] : `${ids[i]}-${ids[j]}`);
    i = j + 1;
  }
  return parts.join(",");
}
