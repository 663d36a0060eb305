// What differs between the chosen runs; on request, which is best and since when the others part from it.
import { differing, model, numbers } from "./model.js";
import { cell, count, make } from "./text.js";

const MOST_COLUMNS = 8, MOST_VALUES = 6;
const table = document.getElementById("settings"), note = document.getElementById("differing");
const parted = document.getElementById("parted"), winner = document.getElementById("winner");
let compared = "";

export function showDifferences(colours) {
  const runs = model.chosen, kinds = ["parameters", "observed", "environment"];
  const found = differing(runs, kinds);
  const few = runs.length <= MOST_COLUMNS;
  note.textContent = runs.length < 2 ? "choose two runs or more" : found.length ? `${count(found.length, "setting")} of ${count(runs.length, "run")}`
    : `none of the settings in the table differs between ${count(runs.length, "run")}`;
  table.hidden = !found.length;
  const mark = row => make("span", { class: "swatch", style: { background: colours.get(row.id) ?? "transparent" } });
  const head = few ? runs.map(row => make("th", { scope: "col" }, mark(row), row.name)) : [make("th", { scope: "col" }, "values")];
  table.querySelector("thead").replaceChildren(make("tr", {}, make("th", {}, ""), ...head));
  table.querySelector("tbody").replaceChildren(...found.map(column => make("tr", { "data-setting": column.id },
    make("th", { scope: "row" }, column.id),
    ...(few ? runs.map(row => make("td", {}, cell(column.get(row)))) : [make("td", {}, summary(runs, column))]))));
  const now = numbers(runs), page = document.getElementById("export");
  page.href = "/compare.html?runs=" + now;
  page.hidden = runs.length < 2;
  if (compared !== now) { compared = ""; parted.hidden = true; winner.textContent = ""; }
}

function summary(runs, column) {
  const found = new Map();
  for (const row of runs) found.set(cell(column.get(row)), (found.get(cell(column.get(row))) ?? 0) + 1);
  const words = [...found].sort((a, b) => b[1] - a[1]).map(([value, times]) => `${value || "none"} (${times})`);
  const more = words.length - MOST_VALUES;
  return words.slice(0, MOST_VALUES).join(", ") + (more > 0 ? `, and ${more} more` : "");
}

document.getElementById("part").addEventListener("click", async event => {
  const asked = numbers(model.chosen), runs = model.chosen.length, button = event.target;
  button.disabled = true;
  winner.textContent = "comparing …";
  try {
    const answer = await fetch("/differences?runs=" + asked, { signal: AbortSignal.timeout(120000) });
    if (!answer.ok) { winner.textContent = await answer.text(); return; }
    const found = await answer.json();
    if (asked !== numbers(model.chosen)) { winner.textContent = ""; return; }
    compared = asked;
    winner.textContent = [found.winner, ...found.problems].join(" ");
    parted.querySelector("tbody").replaceChildren(...found.partings.map(row => make("tr", {}, ...row.map(text => make("td", {}, text)))));
    parted.querySelector("caption").textContent = found.drawn < runs
      ? `The best of ${count(runs, "run")} and ${found.drawn - 1} others: the next best, and the best with a stop finding of each rule` : "The best of them and each other";
    parted.hidden = false;
  } catch (error) { winner.textContent = "vinedresser watch does not answer"; } finally { button.disabled = false; }
});
