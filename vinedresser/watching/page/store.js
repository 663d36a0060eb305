// The page of a store: asks for news, and draws what was chosen.
import { colour, onTheme } from "./colours.js";
import { metricsShown, showCurves } from "./curves.js";
import { showDifferences } from "./differences.js";
import { showFindings } from "./findings.js";
import { groups, isGrouped, model, renew, rows, select } from "./model.js";
import { showParallel } from "./parallel.js";
import { changed, set, state } from "./state.js";
import { columnsShown, showTable } from "./table.js";
import { count, make } from "./text.js";

const part = id => document.getElementById(id);
// Milliseconds between two requests, while rows are read and afterwards; between two pictures of curves; and
// between two of the table while rows are read.
const HASTE = 100, REST = 1000, CALM = 2000, HURRY = 500;
let paused = false, listedAt = 0, drawnAt = 0, drawnRuns = "";

function draw() {
  select();
  const colours = new Map();
  if (isGrouped()) groups(model.chosen).forEach((group, at) => group.rows.forEach(row => colours.set(row.id, colour(at))));
  else model.chosen.forEach((row, at) => colours.set(row.id, colour(at)));
  part("refused").textContent = model.problem;
  showTable(colours);
  showDifferences(colours);
  // While rows are read, the order still changes.
  if (model.reading && model.listed > rows.size) return;
  const runs = model.chosen.map(row => `${row.id}.${row.revision}`).join();
  const fresh = runs !== drawnRuns && performance.now() - drawnAt > CALM;
  if (fresh) { drawnRuns = runs; drawnAt = performance.now(); }
  showCurves(fresh);
  showFindings();
  showParallel();
}

function controls() {
  const { q, x, log, smooth, band, from, to } = state;
  if (document.activeElement !== part("query")) part("query").value = q;
  part("axis").value = x; part("log").checked = log === "yes"; part("band").value = band;
  part("smooth").value = smooth || 0; part("weight").textContent = smooth || "off";
  if (document.activeElement !== part("from")) part("from").value = from;
  if (document.activeElement !== part("to")) part("to").value = to;
  part("band").parentElement.hidden = !isGrouped();
  const settings = [...model.columns.values()].filter(one => one.kind === "parameters" || one.kind === "observed").map(one => one.id);
  options(part("group"), [["", "no groups"], ["configuration", "all but seeds"], ...settings.map(id => [id, id])], state.group);
  ticks("columns", [...model.columns.values()].filter(one => one.id !== "run").map(one => one.id), columnsShown().map(one => one.id));
  ticks("charts", [...model.columns.values()].filter(one => one.kind === "results").map(one => one.id), metricsShown(), "metrics");
}

function options(list, entries, chosen) {
  const key = entries.join("\n");
  if (list.dataset.key !== key) {
    list.dataset.key = key;
    list.replaceChildren(...entries.map(([value, text]) => make("option", { value }, text)));
  }
  list.value = chosen;
}

// Boxes for a list of names in the fragment.
function ticks(name, ids, chosen, place = name + "-list") {
  const list = part(place), key = ids.join("\n");
  if (list.dataset.key !== key) {
    list.dataset.key = key;
    list.replaceChildren(...ids.map(id => make("label", {}, make("input", { type: "checkbox", value: id, change: () =>
      set({ [name]: [...list.querySelectorAll("input:checked")].map(one => one.value) }) }), id)));
  }
  for (const box of list.querySelectorAll("input")) box.checked = chosen.includes(box.value);
}

function tell(text, lost) {
  part("pulse").textContent = text;
  part("pulse").className = lost ? "pulse lost" : "pulse";
}

async function poll() {
  let wait = REST;
  if (!paused && !document.hidden) {
    try {
      const news = await renew(), running = [...rows.values()].filter(row => row.state === "running").length;
      const told = [...rows.values()].filter(row => row.findings.some(one => one.severity !== "info")).length;
      part("summary").textContent = model.reading && rows.size < model.listed ? `reading: ${rows.size.toLocaleString("en")} of ${count(model.listed, "run")}`
        : `${count(rows.size, "run")} · ${running.toLocaleString("en")} running · ${told.toLocaleString("en")} with findings`;
      document.title = `${count(rows.size, "run")} · ${part("place").textContent}`;
      part("problem").textContent = model.failed;
      const pending = drawnRuns !== model.chosen.map(row => `${row.id}.${row.revision}`).join();
      const early = model.reading && rows.size < model.listed && performance.now() - listedAt < HURRY;
      if ((news || pending) && !early) { listedAt = performance.now(); draw(); controls(); }
      if (!paused) tell("live · " + new Date().toLocaleTimeString(), false);
      if (model.reading && rows.size < model.listed) wait = HASTE;
    } catch (error) {
      tell(error instanceof TypeError || error.name === "TimeoutError" ? "vinedresser watch does not answer; has it ended?" : error.message, true);
    }
  }
  setTimeout(poll, wait);
}

const on = (id, event, change) => part(id).addEventListener(event, one => set(change(one.target)));
let typing = 0;
part("query").addEventListener("input", event => {
  clearTimeout(typing);
  typing = setTimeout(() => set({ q: event.target.value }), 200);
});
on("query", "change", box => ({ q: box.value }));
on("group", "change", list => ({ group: list.value }));
on("axis", "change", list => ({ x: list.value, from: "", to: "" }));
on("log", "change", box => ({ log: box.checked ? "yes" : "" }));
on("smooth", "input", slider => ({ smooth: Number(slider.value) ? slider.value : "" }));
on("band", "change", list => ({ band: list.value }));
for (const id of ["from", "to"]) on(id, "change", box => ({ [id]: Number.isFinite(Number(box.value)) ? box.value.trim() : "" }));
on("whole", "click", () => ({ from: "", to: "" }));
on("pick", "click", () => ({ runs: model.chosen.map(row => row.name) }));
on("unpick", "click", () => ({ runs: [] }));
part("pause").addEventListener("click", () => {
  paused = !paused;
  part("pause").setAttribute("aria-pressed", String(paused));
  part("pause").textContent = paused ? "Resume" : "Pause";
  if (paused) tell("paused", false);
});
changed(() => { draw(); controls(); });
onTheme(draw);
poll();
