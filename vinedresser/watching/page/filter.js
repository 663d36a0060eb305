// The filter: terms such as  lr > 0.01  verdict:problem  -seed=3  "some words", all of which must hold.
import { cell, numeric } from "./text.js";

const TERM = /\s*(-?)(?:("[^"]*"|[^\s:<>=!"]+)\s*(>=|<=|!=|=|>|<|:)\s*("[^"]*"|[^\s"]+)|("[^"]*"|[^\s"]+))/y;
const ORDERS = {
  ">": (a, b) => a > b, "<": (a, b) => a < b, ">=": (a, b) => a >= b, "<=": (a, b) => a <= b,
};
const bare = text => text.startsWith('"') ? text.slice(1, -1) : text;

// Returns {test, problem}: whether a row passes, and what is wrong with the text, "" if nothing.
export function parse(text, columns) {
  const tests = [];
  TERM.lastIndex = 0;
  while (text.slice(TERM.lastIndex).trim()) {
    const at = TERM.lastIndex, found = TERM.exec(text);
    if (!found) return refusal(`${text.slice(at).trim()}: a quotation mark is missing`);
    const [, not, key, order, value, word] = found;
    if (word && /^[^"]*[:<>=]/.test(word)) return refusal(`${word}: a comparison needs a column and a value, as in lr > 0.01`);
    const term = word === undefined ? comparison(bare(key), order, bare(value), columns) : { test: hasWord(bare(word)) };
    if (term.problem) return refusal(term.problem);
    tests.push(not ? row => !term.test(row) : term.test);
  }
  return { test: row => tests.every(test => test(row)), problem: "" };
}

const refusal = problem => ({ test: () => true, problem });

function hasWord(word) {
  const sought = word.toLowerCase();
  return row => row.text.includes(sought);
}

function comparison(key, order, value, columns) {
  const { column, problem } = named(key, columns);
  if (problem) return { problem };
  if (order in ORDERS) {
    const limit = numeric(value);
    if (limit === undefined) return { problem: `${key} ${order} ${value}: ${value} is not a number` };
    return { test: row => { const own = numeric(column.get(row)); return own !== undefined && ORDERS[order](own, limit); } };
  }
  if (order === ":") {
    const sought = value.toLowerCase();
    return { test: row => texts(column.get(row)).some(text => text.includes(sought)) };
  }
  const equal = row => {
    const own = column.get(row), [a, b] = [numeric(own), numeric(value)];
    if (own === undefined) return false;
    if (a !== undefined && b !== undefined) return Object.is(a, b) || a === b;
    return texts(own).includes(value.toLowerCase());
  };
  return { test: order === "=" ? equal : row => !equal(row) };
}

// A value in lower case, as it is and as the table shows it: true is yes there.
const texts = own => own === undefined ? [] : [String(own).toLowerCase(), cell(own).toLowerCase()];

// The column of a name: as it is, or the last part of one, such as accuracy for eval/accuracy.
export function named(key, columns) {
  const sought = key.toLowerCase(), all = [...columns.values()];
  const exact = columns.get(key) ?? all.find(one => one.id.toLowerCase() === sought);
  if (exact) return { column: exact };
  const ending = all.filter(one => /[./]/.test(one.id) && one.id.toLowerCase().split(/[./]/).pop() === sought);
  if (ending.length === 1) return { column: ending[0] };
  if (ending.length) return { problem: `${key}: which one, ${ending.slice(0, 4).map(one => one.id).join(" or ")}?` };
  const near = all.map(one => one.id).sort((a, b) => distance(sought, a.toLowerCase()) - distance(sought, b.toLowerCase()))[0];
  const hint = near && distance(sought, near.toLowerCase()) <= Math.max(2, key.length / 3) ? `; did you mean ${near}?` : "";
  return { problem: `${key}: no run has such a column${hint}` };
}

// Number of letters to change, add or leave out (Levenshtein).
function distance(one, two) {
  let before = [...Array(two.length + 1).keys()];
  for (let i = 1; i <= one.length; i++) {
    const now = [i];
    for (let j = 1; j <= two.length; j++)
      now.push(Math.min(before[j] + 1, now[j - 1] + 1, before[j - 1] + (one[i - 1] !== two[j - 1])));
    before = now;
  }
  return before[two.length];
}
