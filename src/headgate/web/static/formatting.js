// Numbers, durations and instants as text.

const whole = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
const brief = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 3 });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const hour = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const NONE = "–";

export const count = (value) => whole.format(value);
export const short = (value) => (Math.abs(value) < 10_000 ? whole.format(value) : brief.format(value));

/** Three digits that matter: 0.25, 4.81, 48.1, 481. */
export function figure(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  if (size === 0) return "0";
  return size >= 1000 ? short(value) : value.toFixed(size < 1 ? 2 : size < 100 ? 1 : 0);
}

export const pace = (value) => (value === null || value === undefined ? NONE : `${figure(value)}/s`);

/** "40 ms", "1.8 s", "12 s", "4:05", "1 h 24 min", "3 d 2 h". */
export function span(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NONE;
  if (seconds < 1) return `${Math.round(1000 * Math.max(0, seconds))} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 10) return `${minutes}:${String(Math.floor(seconds % 60)).padStart(2, "0")} min`;
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** A time that runs down in whole seconds, so that it does not flicker: "14 s", "4:05 min". */
export const countdown = (seconds) => (seconds < 10 ? `${Math.ceil(Math.max(0, seconds))} s` : span(Math.ceil(seconds)));

export const timeOfDay = (at) => clock.format(1000 * at);

/** "19:24", and the day where it is not today. */
export function moment(at) {
  const date = new Date(1000 * at);
  const today = date.toDateString() === new Date().toDateString();
  return today ? hour.format(date) : `${date.toLocaleDateString("en-GB", { weekday: "short" })} ${hour.format(date)}`;
}

export const money = (value) => value.toFixed(value < 100 ? 2 : 0);
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** What a run works through: rows, pages, or the calls of a program. */
export const unitOf = (run) => ({ run: "row", crawl: "page" })[run.kind] ?? "call";

/** What is known of a run's state; `live` says whether it is known of this moment. */
export function stateOf(run, live = true) {
  if (run.state === "ended") return run.ending || "ended";
  if (run.silent) return "not answering";
  return live ? run.state : `last seen ${run.state}`;
}

/** rate_changed -> rate changed */
export const spaced = (name) => name.replaceAll("_", " ");
