// One small chart of one or two lines, with uPlot.
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class Chart {
  constructor(place, lines) {
    this.place = place; this.lines = lines; this.data = [[], ...lines.map(() => [])]; this.plot = null; this.span = 300;
    new ResizeObserver(() => this.fit()).observe(place);
  }
  make() {
    const width = this.place.clientWidth, height = this.place.clientHeight;
    if (!width || !height) return;
    this.plot?.destroy();
    const quiet = color("--quiet");
    this.plot = new uPlot({
      width, height, padding: [6, 10, 0, 10], cursor: { show: false }, legend: { show: false }, select: { show: false },
      scales: { x: { time: true, range: () => { const last = this.data[0].at(-1) ?? Date.now() / 1000; return [last - this.span, last]; } }, y: { range: (_, low, high) => [0, Math.max(high || 0, 1e-9) * 1.1] } },
      axes: [{ show: true, size: 16, gap: 2, stroke: quiet, font: "10px system-ui", grid: { show: false }, ticks: { show: false }, space: 60,
        values: (_, ticks) => ticks.map((t) => new Date(t * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false })) },
        { show: false }],
      series: [{}, ...this.lines.map((l) => ({ stroke: color(l.color), width: 1.5, fill: l.fill ? `color-mix(in srgb, ${color(l.color)} 13%, transparent)` : undefined, points: { show: false }, spanGaps: l.gaps ?? true }))],
    }, this.data, this.place);
    this.place.querySelector("canvas")?.setAttribute("aria-hidden", "true");
  }
  fit() {
    if (!this.plot) return this.make();
    if (this.place.clientWidth) this.plot.setSize({ width: this.place.clientWidth, height: this.place.clientHeight });
  }
  show(data, span) { this.data = data; this.span = span; if (this.plot) this.plot.setData(data); else this.make(); }
  recolor() { if (this.plot) { this.plot.destroy(); this.plot = null; this.make(); } }
}
