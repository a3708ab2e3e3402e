// The page: listens to the push, and changes what has changed. Nothing is loaded from anywhere else.
import { Chart } from "./charts.js";
import { clock, el, say, text, shown } from "./format.js";
import { draw } from "./graph.js";
import { alarms, facts, keys, partitions, results, runs, topics } from "./parts.js";

const $ = (id) => document.getElementById(id);
const COLORS = { lag_events: "--in", lag_seconds: "--late", events_in: "--in", events_out: "--out", p50: "--out", p95: "--late", p99: "--bad", commit_ms: "--in", batch_ms: "--quiet", state_bytes: "--in", state_rows: "--quiet" };
// What a tile shows large, what it draws, and what it says below.
const TILES = {
  lag: { big: "lag_events", draw: ["lag_events"], more: ["lag_seconds"] },
  throughput: { big: "events_in", draw: ["events_in", "events_out"], more: ["events_in", "events_out"] },
  latency: { big: "p99", draw: ["p50", "p99"], more: ["p50", "p95"] },
  commit: { big: "commit_ms", draw: ["commit_ms"], more: ["batch_ms"] },
  state: { big: "state_bytes", draw: ["state_bytes"], more: ["state_rows"] },
};
const state = { metrics: {}, golden: {}, chosen: null, span: 300, history: {}, tab: {}, last: null, socket: null, wait: 500, alarms: new Map() };
const tiles = {};

async function get(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  if (answer.status === 401) { ask(); throw new Error("token"); }
  if (!answer.ok) throw new Error(String(answer.status));
  return answer.json();
}

function ask() { $("login").hidden = false; $("frame").hidden = true; $("token").focus(); }

$("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const answer = await fetch("login", { method: "POST", body: $("token").value });
  if (!answer.ok) { say($("login-problem"), "This is not the token."); return; }
  $("token").value = ""; $("login").hidden = true; $("frame").hidden = false; begin();
});

function buildTiles() {
  for (const [tile, plan] of Object.entries(TILES)) {
    const parts = { state: el("span", { class: "state" }), big: el("span"), unit: el("small"), more: el("div", { class: "more" }), chart: el("div", { class: "chart", "aria-hidden": "true" }) };
    const titles = plan.big === "p99" ? `${state.golden[tile]} p99` : state.golden[tile];
    parts.root = el("section", { class: "tile unknown", "data-tile": tile, "aria-label": state.golden[tile], title: state.metrics[plan.big].help },
      el("h3", {}, el("span", {}, titles), parts.state), el("div", { class: "big" }, parts.big, parts.unit), parts.more, parts.chart);
    parts.plot = new Chart(parts.chart, plan.draw.map((name, i) => ({ color: COLORS[name], fill: i === 0 })));
    parts.moreValues = plan.more.map((name) => { const value = el("b"); parts.more.append(...(parts.more.childNodes.length ? ["  ·  "] : []), `${state.metrics[name].title} `, value); return [name, value]; });
    tiles[tile] = parts;
    $("tiles").append(parts.root);
  }
}

function worst(list, names) {
  let found = "ok";
  for (const alarm of list) if (names.includes(alarm.metric)) { if (alarm.state === "firing") return "firing"; if (alarm.state === "pending") found = "pending"; }
  return found;
}

function showTiles(detail) {
  for (const [tile, plan] of Object.entries(TILES)) {
    const parts = tiles[tile], names = Object.values(state.metrics).filter((m) => m.golden === tile).map((m) => m.name);
    const value = detail.values[plan.big], [number, unit] = shown(value, state.metrics[plan.big].unit);
    const condition = value === null && worst(detail.alarms, names) === "ok" ? "unknown" : worst(detail.alarms, names);
    if (parts.root.className !== `tile ${condition}`) parts.root.className = `tile ${condition}`;
    say(parts.state, condition === "ok" ? "" : condition === "unknown" ? "no data yet" : condition);
    say(parts.big, number); say(parts.unit, tile === "lag" && number !== "–" ? "events" : unit);
    for (const [name, node] of parts.moreValues) say(node, text(detail.values[name], state.metrics[name].unit));
    const series = state.history, times = series.times || [];
    parts.plot.show([times, ...plan.draw.map((name) => series[name] || times.map(() => null))], state.span);
  }
}

async function loadHistory() {
  const name = state.chosen, span = state.span;
  if (!name) return;
  const drawn = [...new Set(Object.values(TILES).flatMap((t) => t.draw))];
  const got = await get(`api/pipelines/${encodeURIComponent(name)}/history?span=${span}s&metrics=${drawn.join(",")}`);
  if (name !== state.chosen || span !== state.span) return;
  const times = [...new Set(Object.values(got.series).flatMap((points) => points.map((p) => p[0])))].sort((a, b) => a - b);
  const history = { times };
  for (const metric of drawn) { const by = new Map(got.series[metric] || []); history[metric] = times.map((t) => by.get(t) ?? null); }
  state.history = history;
}

function extendHistory(detail) {
  const history = state.history, now = Math.floor(detail.at);
  if (!history.times || state.span !== 300 || now <= history.times.at(-1)) return;
  history.times = [...history.times, now];
  for (const name of Object.keys(history)) if (name !== "times") history[name] = [...history[name], detail.values[name]];
  while (history.times[0] < now - state.span) for (const name of Object.keys(history)) history[name].shift();
}

function showList(summary) {
  const nav = $("pipelines"), many = summary.pipelines.length > 1;
  nav.hidden = !many; document.body.classList.toggle("with-many", many);
  const names = summary.pipelines.map((p) => p.name).join("\n");
  if (nav.dataset.names !== names) {
    nav.dataset.names = names;
    nav.replaceChildren(...summary.pipelines.map((p) => el("a", { href: `#/${encodeURIComponent(p.name)}`, "data-name": p.name }, el("span", { class: "dot", "aria-hidden": "true" }), el("span", { class: "n" }, p.name), el("span", { class: "r" }), el("span", { class: "sr" }))));
    $("pick").replaceChildren(...summary.pipelines.map((p) => el("option", { value: p.name }, p.name)));
  }
  const links = nav.children;
  summary.pipelines.forEach((p, i) => {
    const link = links[i], off = !["running", "starting"].includes(p.status);
    const condition = p.alarms.some((a) => a.state === "firing") ? "firing" : p.alarms.some((a) => a.state === "pending") ? "pending" : off ? "off" : "ok";
    if (link.className !== condition) link.className = condition;
    if (p.name === state.chosen) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
    say(link.children[2], off ? p.status : text(p.values.events_in, "events/s")); say(link.children[3], condition);
  });
  if (state.chosen && $("pick").value !== state.chosen) $("pick").value = state.chosen;
}

function showAlarmNews(summary) {
  const badge = $("alarm-count");
  badge.hidden = !(summary.firing || summary.pending);
  badge.className = `alarm-count ${summary.firing ? "firing" : ""}`;
  say(badge, [summary.firing ? `${summary.firing} firing` : "", summary.pending ? `${summary.pending} pending` : ""].filter(Boolean).join(", "));
  document.title = (summary.firing ? `(${summary.firing}) ` : "") + "Headrace";
  for (const p of summary.pipelines) for (const a of p.alarms) {
    const key = `${p.name}\n${a.alarm}`, before = state.alarms.get(key);
    if (before !== undefined && before !== a.state && (a.state === "firing" || before === "firing")) say($("news"), `${p.name}: ${a.alarm} ${a.state === "firing" ? "is firing" : "has cleared"}`);
    state.alarms.set(key, a.state);
  }
}

function showDetail(detail) {
  $("empty").hidden = true; $("pipeline").hidden = false;
  say($("name"), detail.name); say($("status"), detail.status); $("status").className = `pill ${detail.status}`;
  const since = detail.started_at ? `since ${clock(detail.started_at)}` : "";
  say($("about"), [detail.mode, since, detail.host && `${detail.host}, process ${detail.pid}`].filter(Boolean).join("  ·  "));
  extendHistory(detail); showTiles(detail);
  facts($("facts"), detail, state.metrics); draw($("graph"), detail.graph);
  results($("result-tabs"), $("results"), detail, state.tab); alarms($("alarms"), detail); partitions($("partitions"), detail);
  topics($("topics"), detail); keys($("keys"), detail); runs($("runs"), detail);
}

function choose(name) {
  if (!name || name === state.chosen) return;
  state.chosen = name; state.history = {};
  if (state.socket?.readyState === 1) state.socket.send(JSON.stringify({ pipeline: name }));
  loadHistory().catch(() => {});
}

function fromAddress() { try { return location.hash.startsWith("#/") ? decodeURIComponent(location.hash.slice(2)) : ""; } catch { return ""; } }

function take(message) {
  const summary = message.summary;
  state.last = summary;
  $("problem").hidden = !summary.problem; say($("problem"), summary.problem || "");
  if (!summary.pipelines.length) { $("empty").hidden = false; $("pipeline").hidden = true; }
  const names = summary.pipelines.map((p) => p.name), asked = fromAddress();
  if (!state.chosen || !names.includes(state.chosen)) choose(names.includes(asked) ? asked : (summary.pipelines.find((p) => p.status === "running") || summary.pipelines[0])?.name);
  showList(summary); showAlarmNews(summary);
  if (message.detail && message.detail.name === state.chosen) showDetail(message.detail);
  say($("cost"), ` · a look takes ${summary.look_ms.toFixed(0)} ms`);
}

function linked(condition, words) { $("link").className = `link ${condition}`; say($("link-text"), words); }

function connect() {
  const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`);
  state.socket = socket;
  let waiting = null;
  socket.onopen = () => { state.wait = 500; linked("live", "live"); if (state.chosen) socket.send(JSON.stringify({ pipeline: state.chosen })); };
  socket.onmessage = (event) => {
    const first = waiting === null; waiting = event.data;  // a hidden tab draws the newest only
    if (first) requestAnimationFrame(() => { const newest = waiting; waiting = null; take(JSON.parse(newest)); });
  };
  socket.onclose = () => { linked("dead", "no connection, trying again"); setTimeout(connect, state.wait); state.wait = Math.min(state.wait * 2, 10000); };
}

addEventListener("hashchange", () => choose(fromAddress()));
$("pick").addEventListener("change", (event) => { location.hash = `#/${encodeURIComponent(event.target.value)}`; });
for (const radio of document.querySelectorAll('input[name="span"]')) radio.addEventListener("change", () => { state.span = Number(radio.value); state.history = {}; loadHistory().catch(() => {}); });
setInterval(() => { if (state.span !== 300) loadHistory().catch(() => {}); }, 10000);
$("theme").addEventListener("click", () => {
  const root = document.documentElement, dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("headrace-theme", root.dataset.theme); } catch { /* only for this visit then */ }
  for (const parts of Object.values(tiles)) parts.plot.recolor();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const parts of Object.values(tiles)) parts.plot.recolor(); });

async function begin() {
  const told = await get("api/metrics");
  state.golden = told.golden;
  for (const metric of told.metrics) state.metrics[metric.name] = metric;
  if (!Object.keys(tiles).length) buildTiles();
  connect();
}
begin().catch((problem) => { if (problem.message !== "token") { linked("dead", "the dashboard does not answer"); setTimeout(() => location.reload(), 5000); } });
