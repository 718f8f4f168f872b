// Credentials by their labels, those in trouble first, with the time until each is back; of a fleet, its workers instead.

import { byId, updateList, make, mark, numbered, show, write } from "./dom.js";
import { count, countdown, pace, plural, span } from "./formatting.js";

const MOST_SHOWN = 60;
const ORDER = { resting: 0, retired: 1, held: 2, free: 3 };
const WORDS = { free: "free", held: "in use", resting: "resting", retired: "disabled" };
const TONES = { free: "good", held: "busy", resting: "warn", retired: "bad" };
const list = byId("credentials-list");
const sum = byId("credentials-sum");

/** A key that ends in a credential's label is its own: what keeps that away is why nothing goes out there.
 * Where the key itself is held or its circuit open, that tells more than a credential that rests for the same cause. */
export function explainKeys(run) {
  const byLabel = new Map();
  for (const line of run.credentials) {
    if (!byLabel.has(line.label)) byLabel.set(line.label, []);
    byLabel.get(line.label).push(line);
  }
  for (const line of run.keys) {
    const alike = byLabel.get(line.key.slice(line.key.lastIndexOf("/") + 1)) ?? [];
    const own = alike.filter(({ provider }) => line.key.startsWith(provider ? `${provider}/` : ""));
    const away = own.filter(({ state }) => state === "resting" || state === "retired");
    if (!own.length || away.length < own.length) continue;
    const first = away.find(({ state }) => state === "resting") ?? away[0];
    if (first.state === "resting" && (line.circuit !== "closed" || line.not_before > 0.05)) continue;
    const how = first.state === "retired" ? "is disabled" : first.rests > 0 ? `rests for ${span(first.rests)}` : "rests";
    line.away = first.state;
    line.reason = `credential ${first.label} ${how}${first.reason ? `: ${first.reason}` : ""}`;
  }
}

/** `change(kind, line)` is called when an operator wants one parked or freed. */
export function drawCredentials(run, passed, readOnly, live, change) {
  const tally = new Map();
  for (const line of run.credentials) tally.set(line.state, (tally.get(line.state) ?? 0) + 1);
  const states = Object.keys(ORDER).filter((state) => tally.has(state));
  const more = run.credentials.length - MOST_SHOWN;
  const words = states.map((state) => `${count(tally.get(state))} ${WORDS[state]}`);
  write(sum, [...words, more > 0 ? `${count(more)} not shown` : ""].filter(Boolean).join(" · "));
  mark(list, "data-empty", run.credentials.length ? null : "This run uses no credentials, or does not report them.");
  const lines = [...run.credentials].sort((a, b) => ORDER[a.state] - ORDER[b.state] || a.label.localeCompare(b.label)).slice(0, MOST_SHOWN);
  updateList(list, lines, (line) => `${line.label}/${line.mark}`, () => createLine(change), (element, line) => {
    element.line = line;
    const [label, state, reason, button] = element.children;
    write(label.firstChild, line.label);
    write(label.lastChild, [line.provider, line.group, line.mark].filter(Boolean).join(" · "));
    const resting = line.state === "resting";
    write(state, resting && line.rests > 0 ? countdown(line.rests - passed) : WORDS[line.state] ?? line.state);
    mark(state, "data-tone", TONES[line.state] ?? "quiet");
    mark(state, "title", resting ? "until it is used again" : null);
    write(reason, line.reason);
    show(reason, line.reason !== "");
    show(button, !readOnly);
    button.disabled = !live;
    write(button, resting || line.state === "retired" ? "Enable" : "Park");
    mark(button, "aria-label", `${button.textContent} ${line.label} ${line.mark}`);
  });
}

function createLine(change) {
  const button = make("button", { type: "button", class: "button small" });
  const element = make("li", {}, make("div", { class: "label" }, make("strong"), make("small")), make("span", { class: "pill" }), make("p"), button);
  button.addEventListener("click", () => change(button.textContent === "Enable" ? "free" : "park", element.line));
  return element;
}

// ------------------------------------------------------------------ the workers of a run on several machines, lost ones first

const memberPanel = byId("members");
const memberList = byId("members-list");
const memberSum = byId("members-sum");

/** A fleet has workers instead of credentials: those are known on their machines only. */
export function drawMembers(run) {
  const members = run.members ?? [];
  show(memberPanel, members.length > 0);
  show(byId("credentials"), members.length === 0);
  if (!members.length) return;
  const machines = new Set(members.map((line) => line.host)).size;
  const more = run.more_members ?? 0;
  const words = [plural(members.length + more, "worker"), `on ${plural(machines, "machine")}`];
  write(memberSum, more ? `${words.join(" ")} · ${count(more)} not shown` : words.join(" "));
  const lines = numbered(members, (line) => line.name);
  updateList(memberList, lines, (line) => line.id, createMember, (element, line) => {
    const [label, state, facts] = element.children;
    write(label.firstChild, line.name);
    const lost = line.state === "lost";
    write(state, lost ? `lost, seen ${span(line.seen_ago)} ago` : pace(line.rate));
    mark(state, "data-tone", lost ? "bad" : "good");
    const parts = [`${count(line.done)} done`, `${count(line.in_flight)} in flight`];
    if (line.failed) parts.push(`${count(line.failed)} failed`);
    if (line.refused) parts.push(`${count(line.refused)} × 429`);
    write(facts, parts.join(" · "));
  });
}

function createMember() {
  return make("li", {}, make("div", { class: "label" }, make("strong")), make("span", { class: "pill" }), make("p"));
}
