// All keys in one table: sorted, filtered, and only those rows in the document that can be seen.

import { byId, make, mark, write, writeName } from "./dom.js";
import { count, countdown, figure, plural, short, span, spaced } from "./formatting.js";

const ROW = 32;
const SPARE_ROWS = 6;
/** Rows keep their places for so long, so that a row does not run away from the pointer. */
const SORT_EVERY = 2000;
const COLUMNS = [
  { name: "key", title: "Key", first: "up" },
  { name: "state", title: "State", value: (line) => stateOf(line).order },
  { name: "waiting", title: "Waiting", number: true, show: (line) => count(line.waiting) },
  { name: "in_flight", title: "In flight", number: true, show: (line) => count(line.in_flight) },
  { name: "rate", title: "Learned /s", number: true, show: (line) => figure(line.rate) },
  { name: "said", title: "Stated /s", number: true, value: (line) => line.said ?? -1, show: (line) => figure(line.said) },
  { name: "limit", title: "Your limit", number: true, value: (line) => line.limit ?? -1, show: (line) => figure(line.limit) },
  { name: "sent", title: "Sent", number: true, show: (line) => short(line.sent) },
  { name: "refused", title: "429", number: true, show: (line) => short(line.refused) },
  { name: "failed", title: "Failed", number: true, show: (line) => short(line.failed) },
  { name: "latency", title: "Latency", number: true, show: (line) => span(line.latency) },
  { name: "p95", title: "p95", number: true, show: (line) => span(line.p95) },
  { name: "reason", title: "Why a call would wait now", value: (line) => line.reason },
];
const away = (line) => (line.away === "retired" ? "disabled" : line.away);
const valueOf = (column) => column.value ?? ((line) => line[column.name]);

/** A countdown that fits into its column. */
const shortly = (seconds) => (seconds < 36_000 ? countdown(seconds) : `${Math.ceil(seconds / 3600)} h`);

/** What a key is doing: a word, its tone, and a place in the order of trouble. */
export function stateOf(line, passed = 0) {
  if (line.away) return { word: away(line), tone: line.away === "retired" ? "bad" : "warn", order: 3 };
  if (line.waits_for === "paused") return { word: "paused", tone: "warn", order: 3 };
  if (line.circuit === "open") return { word: "circuit open", tone: "bad", order: 5 };
  if (line.circuit === "half_open") return { word: "probing", tone: "warn", order: 4 };
  if (line.not_before > 0.05) return { word: `held ${shortly(line.not_before - passed)}`, tone: "warn", order: 3 };
  if (line.returning < 0.995) return { word: `ramp ${Math.round(100 * line.returning)} %`, tone: "busy", order: 2 };
  return line.waiting > 0 ? { word: "paced", tone: "quiet", order: 1 } : { word: "running", tone: "good", order: 0 };
}

export class KeyTable {
  /** `open(key)` shows one, `pin(key)` keeps its time line in sight, `pinned(key)` tells whether it is. */
  constructor({ open, pin, pinned }) {
    Object.assign(this, { open, pin, pinned, lines: [], shown: [], rows: [], chosen: null, passed: 0, sortedAt: 0, longest: 0 });
    this.sort = { column: COLUMNS[2], down: true };
    [this.scroll, this.head, this.body, this.filter, this.sum, this.none] = ["keys-scroll", "keys-head", "keys-body", "keys-filter", "keys-sum", "keys-none"].map(byId);
    this.table = this.scroll.querySelector("table");
    this.above = make("tr", { "aria-hidden": "true", class: "spacer" });
    this.below = make("tr", { "aria-hidden": "true", class: "spacer" });
    this.body.append(this.above, this.below);
    for (const column of COLUMNS) this.head.append(this.createHeading(column));
    this.scroll.addEventListener("scroll", () => this.place(), { passive: true });
    this.filter.addEventListener("input", () => this.arrange(true));
    this.filter.addEventListener("keydown", (press) => press.key === "Enter" && this.shown[0] && this.open(this.shown[0].key));
    this.body.addEventListener("click", (click) => this.click(click));
    this.table.addEventListener("keydown", (press) => this.press(press));
    new ResizeObserver(() => this.place()).observe(this.scroll);
    this.markSort();
  }

  createHeading(column) {
    const button = make("button", { type: "button" }, column.title);
    button.addEventListener("click", () => {
      const again = this.sort.column === column;
      this.sort = { column, down: again ? !this.sort.down : column.first !== "up" };
      this.markSort();
      this.arrange(true);
    });
    return make("th", { scope: "col", "data-column": column.name, class: column.number ? "number" : null }, button);
  }

  markSort() {
    COLUMNS.forEach((column, place) => {
      mark(this.head.children[place], "aria-sort", column === this.sort.column ? (this.sort.down ? "descending" : "ascending") : null);
    });
  }

  draw(lines, more, passed) {
    this.lines = lines;
    this.passed = passed;
    this.more = more;
    this.widen();
    this.arrange(false);
  }

  /** The names' column has room for the longest, as far as the window has; it never becomes narrower while it is looked at. */
  widen() {
    const longest = this.lines.reduce((most, line) => Math.max(most, line.key.length), this.longest);
    if (longest === this.longest) return;
    this.longest = longest;
    this.table.style.setProperty("--longest", longest);
  }

  /** Choose and sort what is shown; without `now`, rows that are looked at keep their places for a while. */
  arrange(now) {
    const words = this.filter.value.trim().toLowerCase();
    const fits = (line) => !words || `${line.key} ${stateOf(line).word} ${line.reason}`.toLowerCase().includes(words);
    const chosen = this.lines.filter(fits);
    const busy = this.body.matches(":hover") || this.table.matches(":focus") || performance.now() - this.sortedAt < SORT_EVERY;
    if (!now && busy && this.shown.length) {
      const order = new Map(this.shown.map((line, place) => [line.key, place]));
      const placeOf = (line) => order.get(line.key) ?? order.size;
      chosen.sort((a, b) => placeOf(a) - placeOf(b));
    } else {
      const value = valueOf(this.sort.column);
      const sign = this.sort.down ? -1 : 1;
      const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
      chosen.sort((a, b) => sign * compare(value(a), value(b)) || b.waiting - a.waiting || compare(a.key, b.key));
      this.sortedAt = performance.now();
    }
    this.shown = chosen;
    const all = this.lines.length + this.more;
    write(this.sum, words ? `${count(chosen.length)} of ${plural(all, "key")}` : plural(all, "key") + (this.more ? `, the ${count(this.lines.length)} busiest shown` : ""));
    write(this.none, chosen.length ? "" : words ? "No key matches." : "No calls yet.");
    mark(this.table, "aria-rowcount", chosen.length + 1);
    this.place();
  }

  /** Put the rows that can be seen into the document, and only those. */
  place() {
    const room = Math.ceil(this.scroll.clientHeight / ROW) + 2 * SPARE_ROWS;
    const first = Math.max(0, Math.min(Math.floor(this.scroll.scrollTop / ROW) - SPARE_ROWS, this.shown.length - room));
    const lines = this.shown.slice(first, first + room);
    while (this.rows.length < lines.length) this.rows.push(this.createRow(this.rows.length));
    this.rows.forEach((row, place) => {
      if (place >= lines.length) row.remove();
      else {
        if (!row.isConnected) this.body.insertBefore(row, this.below);
        this.fill(row, lines[place], first + place);
      }
    });
    for (const [spacer, rows] of [[this.above, first], [this.below, this.shown.length - first - lines.length]]) {
      const height = `${rows * ROW}px`;
      if (spacer.style.height !== height) spacer.style.height = height;
    }
    const active = this.rows.find((row) => row.isConnected && row.key === this.chosen);
    mark(this.table, "aria-activedescendant", active ? active.id : null);
  }

  createRow(number) {
    const row = make("tr", { id: `key-row-${number}` });
    for (const column of COLUMNS) row.append(make("td", { "data-column": column.name, class: column.number ? "number" : null }));
    const pin = make("button", { type: "button", class: "pin", tabindex: "-1", title: "Pin its timeline (T)" });
    row.children[0].append(make("div", {}, pin, make("span", { class: "name cut" })));
    row.children[1].append(make("span", { class: "pill" }));
    row.lastChild.append(make("div", { class: "two-lines" }));
    return row;
  }

  fill(row, line, place) {
    row.key = line.key;
    const [key, state] = row.children;
    const [pin, name] = key.firstChild.children;
    writeName(name, line.key);
    mark(key, "title", line.key);
    mark(pin, "aria-pressed", this.pinned(line.key));
    mark(pin, "aria-label", `Timeline of ${line.key}`);
    const doing = stateOf(line, this.passed);
    write(state.firstChild, doing.word);
    mark(state.firstChild, "data-tone", doing.tone);
    for (let column = 2; column < COLUMNS.length - 1; column += 1) write(row.children[column], COLUMNS[column].show(line));
    write(row.lastChild.firstChild, line.reason);
    mark(row.lastChild, "title", line.reason || null);
    mark(row, "aria-rowindex", place + 2);
    mark(row, "aria-selected", line.key === this.chosen);
  }

  click(click) {
    const row = click.target.closest("tr");
    if (!row?.key) return;
    this.choose(row.key);
    if (click.target.closest(".pin")) this.pin(row.key);
    else this.open(row.key);
  }

  press(press) {
    if (press.target !== this.table || press.ctrlKey || press.metaKey || press.altKey) return;
    const now = this.shown.findIndex((line) => line.key === this.chosen);
    const page = Math.max(1, Math.floor(this.scroll.clientHeight / ROW) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (press.key in steps && this.shown.length) {
      const next = Math.max(0, Math.min(this.shown.length - 1, now + steps[press.key]));
      this.choose(this.shown[next].key);
      this.reveal(next);
    } else if (press.key === "Enter" && now >= 0) this.open(this.chosen);
    else if (press.key.toLowerCase() === "t" && now >= 0) this.pin(this.chosen);
    else return;
    press.preventDefault();
    press.stopPropagation();
  }

  /** The first of those shown is chosen, if none is, so that Enter and the arrows have something to begin with. */
  focus() {
    this.table.focus({ preventScroll: true });
    const now = this.shown.findIndex((line) => line.key === this.chosen);
    if (!this.shown.length) return;
    this.choose(this.shown[Math.max(0, now)].key);
    this.reveal(Math.max(0, now));
  }

  choose(key) {
    this.chosen = key;
    this.place();
  }

  reveal(place) {
    const head = this.head.parentElement.offsetHeight;
    const room = this.scroll.clientHeight - head - ROW;
    const top = place * ROW;
    if (top < this.scroll.scrollTop) this.scroll.scrollTop = top;
    else if (top > this.scroll.scrollTop + room) this.scroll.scrollTop = top - room;
    this.place();
  }
}

/** All that is known of a key, for the dialog. */
export function keyFacts(line) {
  const circuit = line.circuit === "closed" ? null : ["Circuit", spaced(line.circuit)];
  return [
    ["State", stateOf(line).word],
    ["Learned", `${figure(line.rate)} calls/s`],
    ["Server states", line.said === null ? "nothing" : `${figure(line.said)} calls/s`],
    ["Known limit", line.known_limits?.length ? line.known_limits.join(", ") : "none"],
    ["Your limit", line.limit === null ? "none" : `${figure(line.limit)} calls/s`],
    ["Waiting", count(line.waiting)],
    ["In flight", count(line.in_flight)],
    ["Sent", count(line.sent)],
    ["Refused, failed", `${count(line.refused)}, ${count(line.failed)}`],
    ["Latency, p95", `${span(line.latency)}, ${span(line.p95)}`],
    line.shared_by ? ["Shared by", plural(line.shared_by, "process", "processes")] : null,
    circuit,
    line.away ? ["Credential", away(line)] : null,
  ].filter(Boolean);
}
