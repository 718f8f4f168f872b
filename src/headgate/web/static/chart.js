// One key on one time line:
//
//      50 |  - - - - what the server says
//         |  ~~~~~~~ learned, over what got done (filled)      bands: circuit open, held, coming back
//       0 |_____________
//         |   |||   |         429s
//   0.4 s |  latency
//         '-------------

import { figure, moment, span, timeOfDay } from "./formatting.js";

const uPlot = globalThis.uPlot;
const HEIGHT = 196;
/** How the height is shared: rates above, then a strip for 429s, then latency. */
const RATES = 0.64;
const LATENCY = 0.22;
const BANDS = ["circuit", "held", "ramp"];
const FONT = '11px Inter, ui-sans-serif, system-ui, "Segoe UI", sans-serif';

const ink = {};
function readInk() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["learned", "said", "done", "refused", "latency", "circuit", "held", "ramp", "pale", "rule"]) {
    ink[name] = style.getPropertyValue(`--${name}`).trim();
    ink[`${name}-band`] = style.getPropertyValue(`--${name}-band`).trim();
  }
}

function niceCeiling(value) {
  const unit = 10 ** Math.floor(Math.log10(Math.max(value, 1e-6)));
  return unit * [1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10].find((step) => step * unit >= value * 0.9999);
}

export class KeyChart {
  constructor(element, onRead) {
    Object.assign(this, { element, onRead, line: null, from: 0, to: 1, top: 1, slowest: 1 });
    if (!ink.learned) readInk();
    this.plot = new uPlot(this.options(element.clientWidth || 400), [[], [], [], [], []], element);
    this.sized = new ResizeObserver(() => {
      const width = element.clientWidth;
      if (width && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
    });
    this.sized.observe(element);
    element.addEventListener("keydown", (press) => this.press(press));
    element.addEventListener("blur", () => this.plot.setCursor({ left: -10, top: -10 }));
  }

  options(width) {
    const axis = { font: FONT, stroke: () => ink.pale, ticks: { show: false }, gap: 6 };
    const line = { points: { show: false }, width: 1.75 };
    return {
      width,
      height: HEIGHT,
      padding: [8, 0, 0, 0],
      legend: { show: false },
      cursor: {
        y: false,
        drag: { x: false, y: false },
        sync: { key: "keys", setSeries: false },
        points: { size: 6 },
        dataIdx: (plot, series, nearest) => nearest,
      },
      scales: {
        x: { time: true, range: () => [this.from, this.to] },
        rate: { range: () => [-this.top * (1 / RATES - 1), this.top] },
        latency: { range: () => [0, this.slowest / LATENCY] },
      },
      axes: [
        { ...axis, size: 24, space: 72, grid: { show: false }, values: (plot, splits, axis, space, step) => splits.map(step < 60 ? timeOfDay : moment), incrs: [5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200] },
        { ...axis, scale: "rate", size: 38, splits: () => [0, this.top / 2, this.top], values: (plot, splits) => splits.map((one) => figure(one).replace(/\.0$/, "")), grid: { stroke: () => ink.rule, width: 1 } },
        { ...axis, scale: "latency", side: 1, size: 52, splits: () => [0, this.slowest], values: (plot, splits) => splits.map((one) => (one ? span(one) : "")), grid: { show: false } },
      ],
      series: [
        {},
        { ...line, scale: "rate", stroke: null, width: 0, fill: () => ink["done-band"], paths: uPlot.paths.linear() },
        { ...line, scale: "rate", stroke: () => ink.said, dash: [5, 4], width: 1.5, paths: uPlot.paths.stepped({ align: 1 }) },
        { ...line, scale: "rate", stroke: () => ink.learned, width: 2 },
        { ...line, scale: "latency", stroke: () => ink.latency, width: 1.25 },
      ],
      hooks: { drawClear: [() => this.drawBands()], draw: [() => this.drawRefused()], setCursor: [() => this.onRead(this.reading())] },
    };
  }

  draw(line, from, to) {
    this.line = line;
    Object.assign(this, { from, to });
    const first = line.at.findIndex((at) => at >= from);
    let top = 0;
    let slowest = 0;
    for (let place = Math.max(0, first); place < line.at.length; place += 1) {
      top = Math.max(top, line.rate[place], line.said[place] ?? 0, line.done[place]);
      slowest = Math.max(slowest, line.latency[place]);
    }
    this.top = niceCeiling(1.04 * (top || 1));
    this.slowest = niceCeiling(slowest || 1);
    this.plot.setData([line.at, line.done, line.said, line.rate, line.latency]);
  }

  drawBands() {
    if (!this.line) return;
    const { ctx, bbox } = this.plot;
    const { at, state } = this.line;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (let first = 0; first < at.length; ) {
      let next = first + 1;
      while (next < at.length && state[next] === state[first]) next += 1;
      if (BANDS.includes(state[first])) {
        const left = this.plot.valToPos(at[first], "x", true);
        const right = this.plot.valToPos(next < at.length ? at[next] : this.to, "x", true);
        ctx.fillStyle = ink[`${state[first]}-band`];
        ctx.fillRect(left, bbox.top, right - left, bbox.height);
        ctx.fillStyle = ink[state[first]];
        ctx.fillRect(left, bbox.top, right - left, 3 * ratio);
      }
      first = next;
    }
    ctx.strokeStyle = ink.rule;
    ctx.lineWidth = ratio;
    for (const share of [RATES, 1 - LATENCY]) {
      const y = Math.round(bbox.top + bbox.height * share) + 0.5;
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
    }
    ctx.restore();
  }

  drawRefused() {
    if (!this.line) return;
    const { ctx, bbox } = this.plot;
    const { at, refused } = this.line;
    const strip = bbox.height * (1 - RATES - LATENCY);
    const bottom = bbox.top + bbox.height * (1 - LATENCY);
    const width = Math.max(1.5, Math.min(4, bbox.width / devicePixelRatio / 300)) * devicePixelRatio;
    ctx.fillStyle = ink.refused;
    for (let place = 0; place < at.length; place += 1) {
      if (refused[place] > 0 && at[place] >= this.from) {
        const height = strip * Math.min(0.9, 0.4 + 0.2 * Math.log2(1 + refused[place]));
        ctx.fillRect(this.plot.valToPos(at[place], "x", true) - width / 2, bottom - height - 1, width, height);
      }
    }
  }

  /** What the line says where the cursor is; null where there is none. */
  reading() {
    const place = this.plot.cursor.idx;
    const line = this.line;
    if (!line || place === null || place === undefined || this.plot.cursor.left < 0 || place >= line.at.length) return null;
    return Object.fromEntries(Object.entries(line).map(([name, values]) => [name, Array.isArray(values) ? values[place] : values]));
  }

  press(press) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[press.key];
    if (!step || !this.line?.at.length) return;
    press.preventDefault();
    const last = this.line.at.length - 1;
    const now = this.reading() ? this.plot.cursor.idx : last + 1;
    const next = Math.max(0, Math.min(last, now + step));
    this.plot.setCursor({ left: this.plot.valToPos(this.line.at[next], "x"), top: 20 });
  }

  close() {
    this.sized.disconnect();
    this.plot.destroy();
  }

  repaint() {
    readInk();
    this.plot.redraw();
  }
}
