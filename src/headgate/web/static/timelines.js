// The time lines in sight: those that were pinned, else the keys with the most going on.

import { KeyChart } from "./chart.js";
import { byId, make, mark, write } from "./dom.js";
import { stateOf } from "./keys.js";
import { figure, pace, plural, span, timeOfDay } from "./formatting.js";

const SHOWN = 3;
const MOST_PINNED = 6;
const MOST_INSTANTS = 1200;
/** The busiest are chosen again after so many milliseconds; a chart that changes its key all the time cannot be read. */
const CHOOSE_EVERY = 10_000;
const NO_HISTORY = "No history of this key yet.";
const FIELDS = ["at", "rate", "said", "done", "refused", "latency", "waiting", "state"];

export class Timelines {
  /** `changed()` is called when other keys are in sight. */
  constructor(changed, open) {
    Object.assign(this, { changed, open, pins: [], keys: [], lines: new Map(), cards: new Map(), chosenAt: -Infinity, span: 600 });
    this.charts = byId("charts");
    this.buttons = [...document.querySelectorAll("[data-span]")];
    for (const button of this.buttons) button.addEventListener("click", () => this.setSpan(Number(button.dataset.span)));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.cards.forEach((card) => card.chart?.repaint()));
  }

  setSpan(seconds) {
    this.span = seconds;
    for (const button of this.buttons) mark(button, "aria-checked", Number(button.dataset.span) === seconds);
    this.draw();
  }

  nextSpan() {
    const spans = this.buttons.map((button) => Number(button.dataset.span));
    this.setSpan(spans[(spans.indexOf(this.span) + 1) % spans.length]);
  }

  pinned = (key) => this.pins.includes(key);

  pin(key) {
    this.pins = this.pinned(key) ? this.pins.filter((one) => one !== key) : [...this.pins, key].slice(-MOST_PINNED);
    this.chosenAt = -Infinity;
  }

  forget() {
    this.lines.clear();
    for (const key of [...this.cards.keys()]) this.drop(key);
    Object.assign(this, { pins: [], keys: [], chosenAt: -Infinity });
  }

  /** Choose what is in sight from the keys of a run: what was pinned, else of those that have a time line already. */
  choose(run) {
    const lines = run.keys;
    const now = performance.now();
    const known = new Set(lines.map((line) => line.key));
    const gone = this.keys.some((key) => !known.has(key));
    if (!gone && this.keys.length && now - this.chosenAt < CHOOSE_EVERY) return;
    this.chosenAt = now;
    const pins = this.pins.filter((key) => known.has(key));
    const stays = new Set(this.keys);
    const busy = (line) => 1000 * Math.max(0, stateOf(line).order - 1) + line.waiting + line.in_flight + line.rate;
    const weight = (line) => busy(line) * (stays.has(line.key) ? 1.5 : 1);
    const charted = lines.filter((line) => run.charted?.includes(line.key));
    const busiest = pins.length ? [] : (charted.length ? charted : [...lines]).sort((a, b) => weight(b) - weight(a)).slice(0, SHOWN).map((line) => line.key);
    const keys = pins.length ? pins : [...this.keys.filter((key) => busiest.includes(key)), ...busiest.filter((key) => !stays.has(key))];
    if (keys.join("\n") === this.keys.join("\n")) return;
    this.keys = keys;
    for (const key of this.lines.keys()) if (!keys.includes(key)) this.lines.delete(key);
    this.changed();
  }

  /** Add what is new of these timelines. */
  add(timelines) {
    for (const piece of timelines) {
      if (!this.keys.includes(piece.key)) continue;
      const line = this.lines.get(piece.key) ?? { key: piece.key, ...Object.fromEntries(FIELDS.map((field) => [field, []])) };
      this.lines.set(piece.key, line);
      const last = line.at.at(-1) ?? -Infinity;
      const first = piece.at.findIndex((at) => at > last);
      if (first < 0) continue;
      for (const field of FIELDS) line[field].push(...piece[field].slice(first));
      if (line.at.length > MOST_INSTANTS) thin(line);
    }
  }

  draw(run = this.run, now = this.now) {
    if (!run) return;
    Object.assign(this, { run, now });
    for (const key of [...this.cards.keys()]) if (!this.keys.includes(key)) this.drop(key);
    const facts = new Map(run.keys.map((line) => [line.key, line]));
    mark(this.charts, "data-empty", this.keys.length ? null : "No learned rates yet: no calls were made.");
    mark(this.charts, "data-cards", this.keys.length);
    for (const key of this.keys) {
      if (!this.cards.has(key)) this.cards.set(key, this.createCard(key));
      this.drawCard(this.cards.get(key), facts.get(key), this.lines.get(key), now);
    }
  }

  drop(key) {
    const card = this.cards.get(key);
    card.chart?.close();
    card.element.remove();
    this.cards.delete(key);
  }

  drawCard(card, facts, line, now) {
    if (facts) {
      const state = stateOf(facts);
      write(card.state, state.word);
      mark(card.state, "data-tone", state.tone);
      card.facts = facts;
      if (!card.read) write(card.readout, present(facts));
      write(card.why, facts.reason || (facts.waiting ? `${plural(facts.waiting, "call")} waiting, sent at this rate` : "Nothing waits here."));
    }
    mark(card.canvas, "data-empty", line?.at.length ? null : NO_HISTORY);
    if (!line?.at.length) {
      mark(card.canvas, "aria-label", NO_HISTORY);
      return;
    }
    card.chart ??= new KeyChart(card.canvas, (reading) => {
      card.read = Boolean(reading);
      mark(card.readout, "data-past", card.read || null);
      write(card.readout, reading ? past(reading) : card.facts ? present(card.facts) : "");
    });
    const oldest = Math.min(...this.keys.map((key) => this.lines.get(key)?.at[0] ?? Infinity));
    const to = Math.max(now, line.at.at(-1));
    const from = Math.max(this.span ? to - this.span : -Infinity, Math.min(oldest, to - 30));
    card.chart.draw(line, from, to);
    const learned = facts ? present(facts) : "";
    mark(card.canvas, "aria-label", `${line.key}: ${learned}, ${plural(line.refused.filter(Boolean).length, "moment")} with refusals`);
  }

  createCard(key) {
    const open = make("button", { type: "button", class: "name", title: `Open ${key}` }, make("bdi", { dir: "ltr" }, key));
    open.addEventListener("click", () => this.open(key));
    const card = { state: make("span", { class: "pill" }), readout: make("p", { class: "readout" }), why: make("p", { class: "why" }), read: false };
    card.canvas = make("div", { class: "chart", tabindex: "0", role: "img" });
    card.element = make("article", { class: "card" }, make("header", {}, make("h3", {}, open), card.state), card.readout, card.canvas, card.why);
    this.charts.append(card.element);
    return card;
  }
}

function present(facts) {
  const says = facts.said === null ? "the server states none" : `the server states ${pace(facts.said)}`;
  const limit = facts.limit === null ? "" : `, your limit is ${pace(facts.limit)}`;
  return `learned ${pace(facts.rate)}, ${says}${limit}`;
}

function past(reading) {
  const parts = [timeOfDay(reading.at), `learned ${figure(reading.rate)}`, `done ${figure(reading.done)}/s`];
  if (reading.said !== null) parts.splice(2, 0, `stated ${figure(reading.said)}`);
  if (reading.refused > 0) parts.push(`429s ${figure(reading.refused)}/s`);
  return [...parts, span(reading.latency)].join(" · ");
}

/** Keep every other instant of the older half, and every one that has a refusal in it. */
function thin(line) {
  const half = line.at.length >> 1;
  const keep = line.at.map((at, place) => place >= half || place % 2 === 0 || line.refused[place] > 0);
  for (const field of FIELDS) line[field] = line[field].filter((value, place) => keep[place]);
  if (line.at.length > MOST_INSTANTS) for (const field of FIELDS) line[field] = line[field].slice(-MOST_INSTANTS);
}
