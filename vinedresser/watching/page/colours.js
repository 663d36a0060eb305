// Colours of runs: eight that are easy to tell apart, then the golden angle; for light and dark pages.
const HUES = [158, 12, 222, 42, 285, 190, 336, 100];
const dark = matchMedia("(prefers-color-scheme: dark)");

export function colour(place, share = 1) {
  const hue = place < HUES.length ? HUES[place] : (HUES[0] + place * 137.508) % 360;
  const [saturation, light] = dark.matches ? [62, 68] : [60, 40];
  return `hsl(${hue.toFixed(0)} ${saturation}% ${light}% / ${share})`;
}

// The colour of a share from 0 to 1, from blue to orange.
export function shade(share) {
  return `hsl(${(222 - 195 * share).toFixed(0)} 62% ${dark.matches ? 66 : 44}%)`;
}

export const variable = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
export const onTheme = listener => dark.addEventListener("change", listener);
