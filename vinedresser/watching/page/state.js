// What is chosen on the page: the fragment of its address has it, so that a link shows the same.
const DEFAULTS = {
  q: "", sort: "", columns: [], runs: [], charts: [], x: "step", log: "", smooth: "", group: "",
  band: "std", from: "", to: "",
};
export const state = { ...DEFAULTS };
const listeners = [];

export const changed = listener => listeners.push(listener);

function read() {
  const fields = new URLSearchParams(location.hash.slice(1));
  for (const [name, value] of Object.entries(DEFAULTS))
    state[name] = Array.isArray(value) ? fields.getAll(name) : fields.get(name) ?? value;
}

export function set(changes) {
  Object.assign(state, changes);
  const fields = new URLSearchParams();
  for (const [name, value] of Object.entries(DEFAULTS)) {
    if (Array.isArray(value)) for (const one of state[name]) fields.append(name, one);
    else if (state[name] !== value) fields.set(name, state[name]);
  }
  const hash = fields.toString();
  history.replaceState(null, "", location.pathname + (hash ? "#" + hash : ""));
  tell();
}

function tell() {
  for (const listener of listeners) listener();
}

addEventListener("hashchange", () => { read(); tell(); });
read();
