// The cards below the tiles: each draws itself anew when its data is another.
import { clock, day, el, rate, say, text } from "./format.js";

function fresh(place, data) {
  const key = JSON.stringify(data);
  if (place.dataset.key === key) return false;
  place.dataset.key = key;
  return true;
}
function table(place, heads, rows, none) {
  const kept = place.scrollTop;
  if (!rows.length) { place.replaceChildren(el("p", { class: "quiet" }, none)); return; }
  place.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, ...heads.map(([name, kind]) => el("th", { class: kind, scope: "col" }, name)))),
    el("tbody", {}, ...rows.map((row) => el("tr", { class: row.class }, ...row.cells.map((cell, i) => el("td", { class: heads[i][1] }, cell)))))));
  place.scrollTop = kept;
}
const FACTS = ["watermark_seconds", "late_rate", "duplicate_rate", "quarantined_rate", "dead_letter_rate", "hot_key_share", "skew", "idle_seconds", "heap_share"];

export function facts(place, detail, metrics) {
  if (!place.children.length) for (const name of FACTS) place.append(el("div", { class: "fact", "data-fact": name, title: metrics[name].help }, el("span", {}, metrics[name].title), el("b")));
  FACTS.forEach((name, i) => {
    const alarm = detail.alarms.find((a) => a.metric === name && a.state !== "ok"), node = place.children[i];
    const wanted = `fact ${alarm ? alarm.state : ""}`;
    if (node.className !== wanted) node.className = wanted;
    say(node.children[1], text(detail.values[name], metrics[name].unit));
  });
}

export function alarms(place, detail) {
  if (!fresh(place, detail.alarms)) return;
  table(place, [["state"], ["condition", "wrap"], ["now", "n"], ["since", "n"]],
    detail.alarms.map((a) => ({ class: a.state, cells: [a.state, a.alarm, a.shown, a.since && a.state !== "ok" ? clock(a.since * 1000) : ""] })), "No alarms are declared.");
}

export function partitions(place, detail) {
  if (!fresh(place, detail.partitions)) return;
  table(place, [["topic"], ["partition", "n"], ["read up to", "n"], ["end", "n"], ["lag", "n"], ["seconds", "n"], ["per s", "n"]],
    detail.partitions.map((p) => ({ cells: [p.topic, String(p.partition), text(p.position, "events"), text(p.end, "events"), text(p.lag_events, "events"), p.lag_seconds === null ? "–" : p.lag_seconds.toFixed(1), rate(p.per_second)] })), "Nothing has been read yet.");
  if (detail.partition_count > detail.partitions.length) place.append(el("p", { class: "quiet" }, `${detail.partitions.length} of ${detail.partition_count} partitions: those that are furthest behind.`));
}

export function topics(place, detail) {
  if (!fresh(place, detail.topics)) return;
  table(place, [["topic"], ["role"], ["partitions", "n"], ["per s", "n"], ["end", "n"], ["lag", "n"]],
    detail.topics.map((t) => ({ cells: [t.topic, t.role.replace("_", " "), String(t.partitions), rate(t.per_second), text(t.end, "events"), t.role === "source" ? text(t.lag_events, "events") : ""] })), "No topics yet.");
}

export function keys(place, detail) {
  if (!fresh(place, detail.hot_keys)) return;
  if (!detail.hot_keys.length) { place.replaceChildren(el("p", { class: "quiet" }, "No key stands out.")); return; }
  place.replaceChildren(el("div", { class: "bars" }, ...detail.hot_keys.map((k) => {
    const meter = el("meter", { min: 0, max: Math.max(0.01, detail.hot_keys[0].share), "aria-label": `share of ${k.key}` }); meter.value = k.share;
    return el("div", {}, el("span", { class: "k", title: k.key }, k.key), meter, el("span", { class: "v" }, `${(k.share * 100).toFixed(1)}%`));
  })));
}

export function runs(place, detail) {
  if (!fresh(place, detail.runs)) return;
  table(place, [["when"], ["what"], ["mode"], ["", "wrap"]],
    detail.runs.slice(0, 60).map((r) => ({ class: ["failed", "lost"].includes(r.event) ? "firing" : "", cells: [`${day(r.at)} ${clock(r.at)}`, r.event, r.mode, [r.query !== detail.name ? r.query : "", r.message].filter(Boolean).join(": ").slice(0, 160)] })), "No runs yet.");
}

/** The rarest output first: of decisions and alerts, people look for the alerts. */
export function results(tabs, place, detail, chosen) {
  const rates = Object.fromEntries(detail.topics.map((t) => [t.topic, t.per_second ?? 0]));
  const names = [...Object.keys(detail.results), ...Object.keys(detail.sides)];
  if (fresh(tabs, [detail.name, names])) {
    const rarest = Object.keys(detail.results).sort((a, b) => (rates[a] - rates[b]) || a.length - b.length)[0];
    if (!names.includes(chosen[detail.name])) chosen[detail.name] = Object.keys(detail.results).find((n) => /alert/.test(n)) || rarest;
    tabs.replaceChildren(...names.map((name) => {
      const button = el("button", { type: "button", role: "tab", "aria-selected": String(name === chosen[detail.name]), "data-topic": name }, name);
      button.addEventListener("click", () => { chosen[detail.name] = name; for (const other of tabs.children) other.setAttribute("aria-selected", String(other === button)); place.dataset.key = ""; results(tabs, place, detail, chosen); });
      return button;
    }));
  }
  const topic = chosen[detail.name], list = detail.results[topic] || detail.sides[topic] || [];
  if (!fresh(place, [topic, list])) return;
  const named = (r) => (r.value && typeof r.value === "object" && !Array.isArray(r.value) ? Object.keys(r.value) : []);
  // A list of words in a result says why it is there: shown first, as tags.
  const tags = list.flatMap(named).find((c) => list.some((r) => Array.isArray(r.value?.[c]) && r.value[c].some((t) => typeof t === "string")));
  const columns = [...new Set(list.flatMap(named))].filter((c) => c !== tags && !/_at$/.test(c)).slice(0, 5);
  const why = list.some((r) => r.reason);
  const tagged = (r) => el("span", {}, ...[].concat(r.value?.[tags] ?? []).map((t) => el("span", { class: "tag" }, String(t).replaceAll("_", " "))));
  table(place, [["time"], ...(tags ? [[tags.replaceAll("_", " ")]] : []), ...(why ? [["why", "wrap"]] : []), ["latency", "n"], ...(columns.length ? columns.map((c) => [c.replaceAll("_", " ")]) : [["value", "wrap"]])],
    list.map((r) => ({ cells: [clock(r.at), ...(tags ? [tagged(r)] : []), ...(why ? [r.reason] : []), r.latency_ms === null ? "" : text(r.latency_ms, "milliseconds"), ...(columns.length ? columns.map((c) => value(r.value?.[c])) : [value(r.value)])] })), "Nothing yet.");
}
function value(v) {
  if (v === null || v === undefined) return "";
  return (typeof v === "object" ? JSON.stringify(v) : String(v)).slice(0, 80);
}
