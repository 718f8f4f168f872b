// What happened, the newest first. However many come, a bounded number is kept and fewer are drawn.

import { byId, make, mark, write, writeName } from "./dom.js";
import { count, pace, plural, short, spaced, timeOfDay } from "./formatting.js";

const MOST_KEPT = 2000;
const MOST_DRAWN = 120;
const MOST_KINDS = 40;
const TONES = {
  refused: "bad", circuit_changed: "bad", circuit_open: "bad", circuit_state_change: "bad", cannot_learn: "bad", item_dead: "bad", item_lost: "bad", failed: "bad",
  credential_retired: "bad", store_failed: "bad", store_lost: "bad", request_failure: "bad", budget_exceeded: "bad", caps_reached: "bad", all_providers_circuit_open: "bad",
  held: "warn", credential_rested: "warn", rate_limit_wait: "warn", credential_wait: "warn", credential_pool_exhausted: "warn", retry_attempt: "warn", item_parked: "warn", item_failed: "warn", put_off: "warn",
  rate_changed: "busy", item_done: "good", page: "good", request_success: "good", credential_back: "good",
};
/** What happens all the time. */
const ROUTINE = new Set(["rate_changed", "refused", "key_evicted", "item_done", "item_parked", "item_failed", "call", "page", "sent_on", "put_off", "robots", "sitemap", "rate_limit_wait", "credential_wait", "credential_pool_exhausted", "retry_attempt", "request_success"]);
const WORTH_A_LOOK = "*";
const [list, sum, kindChoice, filter, hold] = ["events-list", "events-sum", "events-kind", "events-filter", "events-hold"].map(byId);
const kinds = new Set();
const rows = [];
let kept = [];
let last = 0;
let stale = true;

export const lastEvent = () => last;

export function forgetEvents() {
  kept = [];
  last = 0;
  stale = true;
  for (const row of rows) row.number = 0;
}

export function addEvents(events) {
  for (const event of events) {
    if (event.number <= last) continue;
    kept.push({ ...event, missed: last ? event.number - last - 1 : 0 });
    last = event.number;
    if (!kinds.has(event.kind) && kinds.size < MOST_KINDS) {
      kinds.add(event.kind);
      kindChoice.append(make("option", { value: event.kind }, spaced(event.kind)));
    }
  }
  if (kept.length > 1.25 * MOST_KEPT) trim();
  stale = true;
}

/** Rows that are done must not push out the circuit that opened an hour ago: it has half of the places. */
function trim() {
  const rare = kept.filter((event) => !ROUTINE.has(event.kind)).slice(-MOST_KEPT / 2);
  const stays = new Set([...rare, ...kept.slice(rare.length - MOST_KEPT)]);
  kept = kept.filter((event) => stays.has(event));
}

const isFrozen = () => hold.getAttribute("aria-pressed") === "true";

export function toggleFreeze() {
  mark(hold, "aria-pressed", !isFrozen());
  write(hold, isFrozen() ? "Frozen" : "Freeze");
  stale = true;
}

hold.addEventListener("click", toggleFreeze);
for (const input of [filter, kindChoice]) input.addEventListener("input", () => drawEvents((stale = true)));

export function drawEvents(filtered = false) {
  if (!stale || (isFrozen() && !filtered)) return;
  stale = false;
  const words = filter.value.trim().toLowerCase();
  const kind = kindChoice.value;
  const chosen = [];
  for (let place = kept.length - 1; place >= 0 && chosen.length < MOST_DRAWN; place -= 1) {
    const event = kept[place];
    if (kind === WORTH_A_LOOK ? ROUTINE.has(event.kind) : kind && event.kind !== kind) continue;
    if (words && !`${spaced(event.kind)} ${event.kind} ${event.key} ${event.reason}`.toLowerCase().includes(words)) continue;
    chosen.push(event);
  }
  while (rows.length < chosen.length) rows.push(createRow());
  chosen.forEach((event, place) => fill(rows[place], event));
  while (list.children.length > chosen.length) list.lastChild.remove();
  for (let place = list.children.length; place < chosen.length; place += 1) list.append(rows[place]);
  mark(list, "data-empty", chosen.length ? null : words || kind ? "No event matches." : "Nothing has happened yet.");
  write(sum, rateSentence());
}

/** "10,000/s, 1 in 48 shown" */
function rateSentence() {
  const recent = kept.slice(-400);
  if (recent.length < 2) return plural(last, "event");
  const [first, newest] = [recent[0], recent.at(-1)];
  const seconds = newest.at - first.at;
  const passed = newest.number - first.number;
  const sample = passed / (recent.length - 1);
  const speed = seconds > 0.5 ? pace(passed / seconds) : count(last);
  return sample > 1.2 ? `${speed}, about 1 in ${short(Math.round(sample))} shown` : `${speed}, ${count(last)} total`;
}

function createRow() {
  return make("li", {}, make("time"), make("span", { class: "kind" }), make("span", { class: "key cut" }), make("span", { class: "reason" }));
}

function fill(row, event) {
  if (row.number === event.number) return;
  row.number = event.number;
  const [time, kind, key, reason] = row.children;
  write(time, timeOfDay(event.at));
  write(kind, spaced(event.kind));
  mark(row, "data-tone", TONES[event.kind] ?? "quiet");
  writeName(key, event.key);
  mark(key, "title", event.key || null);
  mark(reason, "title", event.reason || null);
  write(reason, event.reason);
  mark(row, "title", event.missed ? `${plural(event.missed, "event")} before this one not shown` : null);
}
