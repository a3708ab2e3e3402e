// Numbers as people read them, by the units of /api/metrics.
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export function shown(value, unit) {
  if (value === null || value === undefined) return ["–", ""];
  switch (unit) {
    case "share": return [(value * 100).toFixed(value < 0.1 ? 2 : 1), "%"];
    case "bytes":
      for (const [size, name] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) if (value >= size) return [(value / size).toFixed(1), name];
      return [whole.format(value), "B"];
    case "seconds": return value < 120 ? [value.toFixed(value < 10 ? 1 : 0), "s"] : value < 7200 ? [(value / 60).toFixed(1), "min"] : [(value / 3600).toFixed(1), "h"];
    case "milliseconds": return value < 1000 ? [value.toFixed(value < 100 ? 1 : 0), "ms"] : [(value / 1000).toFixed(value < 10000 ? 2 : 1), "s"];
    case "ratio": return [value.toFixed(1), "×"];
    case "events/s": return [value < 100 ? value.toFixed(1) : value < 100000 ? whole.format(value) : short.format(value), "/s"];
    case "flag": return [value ? "yes" : "no", ""];
    default: return [value < 1e6 ? whole.format(value) : short.format(value), ""];
  }
}
export const text = (value, unit) => shown(value, unit).filter(Boolean).join(unit === "share" || unit === "ratio" ? "" : " ");
export const rate = (value) => value === null || value === undefined ? "–" : value < 10 ? value.toFixed(1) : short.format(Math.round(value));
export const clock = (time) => new Date(time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
export const day = (time) => new Date(time).toLocaleDateString([], { month: "short", day: "numeric" });

/** An element with attributes and children. Text is always text: nothing of the log is ever read as HTML. */
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") made.className = value; else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((c) => c !== null && c !== undefined));
  return made;
}
/** Changes the text only if it is another: screen readers and the layout are left in peace. */
export function say(node, value) { if (node.textContent !== value) node.textContent = value; }
