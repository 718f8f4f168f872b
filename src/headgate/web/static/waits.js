// Why it waits: one sentence for each thing that holds rows back, the largest crowd first; and the rows that died.

import { byId, updateList, make, mark, numbered, show, setWidth, write } from "./dom.js";
import { count, countdown, plural, short, spaced, unitOf } from "./formatting.js";

const list = byId("waits-list");
const sum = byId("waits-sum");

export function drawWaits(run, passed, live, openKey) {
  const keys = new Map(run.keys.map((line) => [line.key, line]));
  const crowd = Math.max(1, ...run.waits.map((line) => line.behind));
  const lines = numbered(run.waits, (line) => line.scope);
  const unit = unitOf(run);
  const causes = lines.filter((line) => line.behind).length;
  write(sum, causes ? `${plural(run.blocked, unit)} behind ${plural(causes, "cause")}` : "");
  mark(list, "data-empty", lines.length ? null : emptySentence(run, live));
  updateList(list, lines, (line) => line.id, () => createWait(openKey), (element, line) => {
    const [number, words, left] = element.children;
    setWidth(number.lastChild, line.behind / crowd);
    write(number.firstChild, line.behind ? short(line.behind) : "–");
    write(number.children[1], line.behind ? (line.behind === 1 ? unit : `${unit}s`) : "");
    write(words.firstChild, sentenceOf(line));
    const scope = words.lastChild;
    write(scope, line.scope);
    const key = keys.get(line.key || line.scope);
    scope.key = key?.key;
    scope.disabled = !key;
    mark(element, "data-state", stateOf(key, run));
    show(left, line.seconds !== null);
    if (line.seconds !== null) write(left, countdown(line.seconds - passed));
  });
}

/** The scope stands below the sentence, so it need not begin it too. */
function sentenceOf({ sentence, clause, said }) {
  const words = clause || sentence;
  return words.charAt(0).toUpperCase() + words.slice(1) + (said ? ` (${said})` : "");
}

const ENDINGS = {
  done: "The run has finished.",
  stopped: "The run was stopped before it finished.",
  failed: "The run failed with an error.",
  lost: "The run's process is gone; it may have been killed. This page shows its last report.",
};

function emptySentence(run, live) {
  if (run.state === "ended") return ENDINGS[run.ending] ?? "The run is gone; how it ended is unknown.";
  return live ? "Nothing waits: every call can start now." : "Nothing waited at the last update.";
}

function stateOf(key, run) {
  if (run.state === "paused") return "held";
  if (!key) return "other";
  return key.circuit !== "closed" ? "circuit" : key.not_before > 0 ? "held" : key.returning < 1 ? "ramp" : "paced";
}

function createWait(openKey) {
  const scope = make("button", { type: "button", class: "scope" });
  scope.addEventListener("click", () => openKey(scope.key));
  return make(
    "li",
    {},
    make("span", { class: "behind" }, make("strong"), make("small"), make("i", { class: "crowd", "aria-hidden": "true" })),
    make("div", { class: "because" }, make("p"), scope),
    make("span", { class: "left" }),
  );
}

// ------------------------------------------------------------------ dead rows

const deadList = byId("dead-list");
const deadSum = byId("dead-sum");
const counters = byId("counters");

const REMEDIES = {
  check_address: "check the URL of the requests",
  check_request: "correct the rows",
  check_key: "use a valid key",
  check_account: "check the account's billing, or use another key",
  check_network: "check the URL and the network",
  make_smaller: "make the rows smaller",
  more_time: "raise the timeout",
  wait: "try again later",
};

export function drawDead(run) {
  const most = Math.max(1, ...run.dead.map((line) => line.count));
  write(deadSum, run.progress.dead ? plural(run.progress.dead, unitOf(run)) : "");
  mark(deadList, "data-empty", run.dead.length ? null : "No failed rows.");
  updateList(deadList, run.dead, (line) => line.reason, createDead, (element, line) => {
    const [number, reason, example] = element.children;
    setWidth(number.lastChild, line.count / most);
    write(number.firstChild, count(line.count));
    write(reason, line.reason);
    write(example, [line.example && `such as ${line.example}`, REMEDIES[line.remedy]].filter(Boolean).join("; "));
  });
  const named = Object.entries(run.counters);
  updateList(counters, named, ([name]) => name, ([name]) => make("div", {}, make("dt", {}, spaced(name)), make("dd")), (element, [, value]) => {
    write(element.lastChild, short(value));
  });
}

const createDead = () => make("li", {}, make("span", { class: "behind" }, make("strong"), make("i", { class: "crowd", "aria-hidden": "true" })), make("p"), make("small"));
