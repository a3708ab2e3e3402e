// The pipeline as a graph: topics in, operators, topics out, with the rate on every edge.
import { rate } from "./format.js";
const NS = "http://www.w3.org/2000/svg";
const ROUTES = { result: "results", late: "late", duplicate: "duplicates", quarantined: "quarantined", dead_letter: "dead letters" };

function svg(name, attributes, ...children) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
function fitted(text, width, size = 7) {
  const most = Math.max(6, Math.floor(width / size));
  return text.length <= most ? text : text.slice(0, most - 1) + "…";
}
function box(x, y, w, h, node, sub) {
  const group = svg("g", { class: node.kind }, svg("title", {}, node.label), svg("rect", { x, y, width: w, height: h, rx: 8 }));
  const title = svg("text", { x: x + 10, y: y + (sub ? 17 : h / 2 + 4) });
  title.textContent = fitted(node.label, w - 16);
  group.append(title);
  if (sub) { const line = svg("text", { x: x + 10, y: y + 33, class: "sub" }); line.textContent = fitted(sub, w - 16, 6.2); group.append(line); }
  return group;
}
const width_of = (perSecond) => 1.5 + Math.min(5, Math.log10(1 + (perSecond || 0)) * 1.6);

function edge(d, route, perSecond) {
  const parts = [svg("path", { d, class: `base ${route}`, "stroke-width": width_of(perSecond) })];
  if (perSecond > 0) parts.push(svg("path", { d, class: `flowing ${route}`, "stroke-width": width_of(perSecond) }));
  return parts;
}
function label(x, y, text, anchor = "middle") {
  const made = svg("text", { x, y, class: "rate", "text-anchor": anchor }); made.textContent = text; return made;
}

export function draw(place, graph) {
  const width = place.clientWidth;
  if (!width) return;
  const topics = graph.nodes.filter((n) => n.kind === "topic"), queries = graph.nodes.filter((n) => n.kind === "query");
  const sources = topics.filter((n) => graph.edges.some((e) => e.from === n.id));
  const outputs = topics.filter((n) => !sources.includes(n));
  const shape = width < 640 ? narrow(width, graph, sources, queries, outputs) : broad(width, graph, sources, queries, outputs);
  const words = graph.edges.map((e) => `${e.from.replace(/^\w+:/, "")} to ${e.to.replace(/^\w+:/, "")}: ${rate(e.per_second)} per second`).join("; ");
  const drawn = svg("svg", { viewBox: `0 0 ${width} ${shape.height}`, height: shape.height, role: "img", "aria-label": `Flow. ${words}` }, ...shape.parts);
  for (const e of graph.edges) {  // what tests and scripts look for
    drawn.append(svg("desc", { "data-edge": `${e.from}>${e.to}`, "data-route": e.route, "data-rate": String(e.per_second ?? "") }));
  }
  place.replaceChildren(drawn);
}

function steps(node) { return [node.role, ...(node.steps || [])].filter(Boolean).join(" · "); }

function broad(width, graph, sources, queries, outputs) {
  const boxH = 42, gap = 12, w = Math.min(250, width * 0.24), middle = Math.min(360, width * 0.3);
  const rows = Math.max(sources.length, queries.length, outputs.length);
  const height = Math.max(rows * (boxH + gap), 70);
  const at = {}, parts = [];
  const column = (nodes, x, boxW) => nodes.forEach((n, i) => { at[n.id] = { x, w: boxW, y: (height / nodes.length) * (i + 0.5) - boxH / 2 }; });
  column(sources, 1, w); column(queries, (width - middle) / 2, middle); column(outputs, width - w - 1, w);
  const fan = {};
  for (const e of graph.edges) {
    const a = at[e.from], b = at[e.to];
    if (!a || !b) continue;
    const many = graph.edges.filter((o) => o.from === e.from).length, nth = (fan[e.from] = (fan[e.from] ?? -1) + 1);
    const back = b.x < a.x;  // an output that is read again
    const x1 = a.x + (back ? 0 : a.w), y1 = a.y + boxH / 2 + (many > 1 ? (nth - (many - 1) / 2) * Math.min(7, 34 / many) : 0), x2 = b.x + (back ? b.w : 0), y2 = b.y + boxH / 2;
    const mid = (x1 + x2) / 2;
    parts.push(...edge(`M${x1} ${y1} C${mid} ${y1} ${mid} ${y2} ${x2 - (back ? -3 : 3)} ${y2}`, e.route, e.per_second));
    const text = rate(e.per_second) + (ROUTES[e.route] && e.route !== "result" ? ` ${ROUTES[e.route]}` : "");
    parts.push(label(e.route === "in" ? mid : x2 - 10, y2 - 7, text, e.route === "in" ? "middle" : "end"));
  }
  for (const n of [...sources, ...outputs]) parts.push(box(at[n.id].x, at[n.id].y, at[n.id].w, boxH, n));
  for (const n of queries) parts.push(box(at[n.id].x, at[n.id].y, at[n.id].w, boxH, n, steps(n)));
  return { parts, height };
}

function narrow(width, graph, sources, queries, outputs) {
  const boxH = 42, parts = [], at = {}; let y = 2;
  for (const n of sources) { at[n.id] = y; parts.push(box(1, y, width - 2, 34, n)); y += 40; }
  for (const q of queries) {
    y += 16;
    for (const e of graph.edges.filter((e) => e.to === q.id)) {
      const from = (at[e.from] ?? 0) + 34;
      parts.push(...edge(`M${width / 2} ${from} V${y}`, "in", e.per_second), label(width / 2 + 12, y - 6, rate(e.per_second), "start"));
    }
    parts.push(box(1, y, width - 2, boxH, q, steps(q)));
    let low = y + boxH; y = low + 10;
    for (const e of graph.edges.filter((e) => e.from === q.id)) {
      const target = outputs.find((n) => n.id === e.to);
      if (!target) continue;
      parts.push(...edge(`M14 ${low} V${y + 11} Q14 ${y + 17} 20 ${y + 17} H30`, e.route, e.per_second));
      parts.push(box(32, y, width - 34, 34, { ...target, label: fitted(target.label, width - 130) }), label(width - 12, y + 22, rate(e.per_second), "end"));
      y += 40;
    }
  }
  return { parts, height: y + 4 };
}
