// Text for people, and elements: everything from runs becomes text, never markup.
const DIGITS = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const NOT_FINITE = new Map([["NaN", NaN], ["Infinity", Infinity], ["-Infinity", -Infinity]]);
const SUPER = "⁰¹²³⁴⁵⁶⁷⁸⁹";

// Control and format characters, which hide or reverse text, become visible.
export const shown = text => String(text).replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu,
  letter => "\\u" + letter.codePointAt(0).toString(16).padStart(4, "0"));

// The number of a value, which may be text such as "0.1", "NaN" or "Infinity"; undefined if it is none.
export function numeric(value) {
  if (typeof value === "number") return value;
  if (typeof value !== "string") return undefined;
  if (/^\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*$/i.test(value)) return Number(value);
  return NOT_FINITE.get(value);
}

export function number(value) {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size && (size < 1e-4 || size >= 1e15)) return power(value);
  return Number.isInteger(value) ? value.toLocaleString("en") : DIGITS.format(value);
}

// A number as a power of ten.
export function power(value) {
  const [mantissa, exponent] = value.toExponential(3).split("e");
  const raised = "10" + [...String(Number(exponent))].map(one => one === "-" ? "⁻" : SUPER[one]).join("");
  return Number(mantissa) === 1 ? raised : `${Number(mantissa)} × ${raised}`;
}

export function cell(value) {
  if (value === undefined || value === null) return "";
  if (typeof value === "boolean") return value ? "yes" : "no";
  const found = numeric(value);
  return found === undefined ? shown(value) : number(found);
}

export const count = (amount, noun) => `${amount.toLocaleString("en")} ${noun}${amount === 1 ? "" : "s"}`;

export function duration(seconds) {
  if (seconds < 10) return seconds.toFixed(1) + " s";
  const whole = Math.round(seconds);
  if (whole < 60) return whole + " s";
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor(whole % 3600 / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor(whole % 86400 / 3600)} h`;
}

// An element: attributes by name, listeners as functions, children as text or elements.
export function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function drawn(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
