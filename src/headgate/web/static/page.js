// The page: takes snapshots and events from the connection, and draws what changed, at most a few times a second.

import { changeCredential, showKey, confirmPause, confirmStop } from "./operator_actions.js";
import { drawCredentials, drawMembers, explainKeys } from "./credentials.js";
import { byId, mark, show, speak, isTyping, write } from "./dom.js";
import { drawEvents, forgetEvents, addEvents, lastEvent, toggleFreeze } from "./events.js";
import { KeyTable } from "./keys.js";
import { drawHead, drawRuns } from "./progress.js";
import { Timelines } from "./timelines.js";
import { drawDead, drawWaits } from "./waits.js";
import { Connection } from "./connection.js";
import { countdown, span, timeOfDay } from "./formatting.js";

const DRAW_EVERY = 200;
const TICK = 1000;
/** A line that is silent for so many seconds is said to be; a heartbeat comes more often. */
const SILENT = 12;

let latest = null;
let receivedAt = 0;
let chosen = new URLSearchParams(location.hash.slice(1)).get("run") ?? "";
let link = { is: "connecting", until: 0 };
let drawnAt = -Infinity;
let drawTimer = 0;

const currentRun = () => latest?.runs.find((run) => run.run === chosen && run.keys) ?? null;
const isLive = (run) => link.is === "live" && !run.silent;
const isReadOnly = (run) => Boolean(latest.read_only) || run.state === "ended";
const passed = () => (performance.now() - receivedAt) / 1000;

const timelines = new Timelines(() => connection.open(), openKey);
const table = new KeyTable({ open: openKey, pin, pinned: timelines.pinned });
const connection = new Connection(streamParameters, {
  snapshot(body) {
    const before = currentRun();
    latest = body;
    receivedAt = performance.now();
    if (before && !body.runs.some((run) => run.run === chosen)) body.runs.push({ ...before, state: "ended", silent: false, waits: [] });
    if (!body.runs.some((run) => run.run === chosen)) choose(body.runs[0]?.run ?? "");
    for (const one of body.runs) if (one.keys) explainKeys(one);
    const run = currentRun();
    if (run) timelines.choose(run);
    drawSoon();
  },
  events(body) {
    if (body.run === chosen) addEvents(body.events);
    drawSoon();
  },
  timelines(body) {
    if (body.run === chosen) timelines.add(body.timelines);
    drawSoon();
  },
  link(is, until) {
    if (link.is === "live" && is === "waiting") speak("The connection is lost; reconnecting.");
    if (link.was === "lost" && is === "live") speak("Connected again.");
    const was = is === "live" ? "good" : is === "connecting" ? link.was : "lost";
    link = { is, until, was };
    drawLink();
    drawSoon();
  },
});

function streamParameters() {
  const parameters = new URLSearchParams({ after: lastEvent() });
  if (chosen) parameters.set("run", chosen);
  for (const key of timelines.keys) parameters.append("keys", key);
  return parameters;
}

function choose(name) {
  if (name === chosen) return;
  const first = chosen === "";
  chosen = name;
  if (first) return;
  forgetEvents();
  timelines.forget();
  history.replaceState(null, "", `#${new URLSearchParams({ run: name })}`);
  connection.open();
}

// ------------------------------------------------------------------ drawing

/** Draw soon; once, however often it is called. */
function drawSoon() {
  if (drawTimer) return;
  const wait = Math.max(0, drawnAt + DRAW_EVERY - performance.now());
  drawTimer = setTimeout(() => requestAnimationFrame(draw), wait);
}

function draw() {
  drawTimer = 0;
  drawnAt = performance.now();
  drawLink();
  const run = currentRun();
  show(document.querySelector("main"), Boolean(run) || !latest);
  show(byId("nothing"), latest?.runs.length === 0);
  if (!run) {
    write(byId("state"), latest ? "no runs" : "waiting for data");
    return;
  }
  const [readOnly, live] = [isReadOnly(run), isLive(run)];
  drawRuns(latest.runs, chosen);
  drawHead(run, readOnly, live);
  drawWaits(run, passed(), live, openKey);
  drawMembers(run);
  drawCredentials(run, passed(), readOnly, live, (kind, line) => changeCredential(currentRun(), kind, line));
  timelines.draw(run, live && run.state === "running" ? run.at + Math.min(passed(), SILENT) : run.at);
  table.draw(run.keys, run.more_keys, passed());
  drawEvents();
  drawDead(run);
}

function drawLink() {
  const left = (link.until - performance.now()) / 1000;
  const silent = (performance.now() - connection.receivedAt) / 1000;
  const old = silent > SILENT ? `, silent for ${span(Math.round(silent))}` : "";
  const words = { live: `live${old}`, connecting: link.was === "lost" ? "reconnecting" : "connecting", waiting: "not connected", refused: "not allowed", closed: "closed" };
  write(byId("link-text"), words[link.is]);
  mark(byId("link"), "data-link", link.is);
  const run = currentRun();
  const lost = link.was === "lost";
  show(byId("banner"), lost || Boolean(run?.silent));
  show(byId("retry"), lost);
  mark(document.body, "data-lost", lost || Boolean(run?.silent));
  if (lost) write(byId("banner-text"), lostSentence(run, left));
  else if (run?.silent) write(byId("banner-text"), `No update from the run since ${timeOfDay(run.at)}: it may be suspended or stuck. This page shows its state at that time.`);
}

/** Nothing that cannot be known from here: a run may go on without its page, or not. */
function lostSentence(run, left) {
  if (link.is === "refused") return "This link is no longer valid. Open the link that the run printed.";
  if (connection.closedBy === "run") return "The run has ended and closed its page. This page shows its final state.";
  const seen = run?.state === "ended" ? "The run had already ended." : `The run may still be running.${run ? ` This page shows its state at ${timeOfDay(run.at)}.` : ""}`;
  if (link.is === "closed") return `The server of this page has stopped. ${seen}`;
  return `The connection is lost. ${seen} ${link.is === "connecting" ? "Reconnecting now." : `Reconnecting in ${countdown(left)}.`}`;
}

// ------------------------------------------------------------------ the operator

function openKey(key) {
  const run = currentRun();
  const line = run?.keys.find((one) => one.key === key);
  if (line) showKey(run, line, isReadOnly(run) || !isLive(run), timelines.pinned(key), pin);
}

function pin(key) {
  timelines.pin(key);
  const run = currentRun();
  timelines.choose(run);
  speak(timelines.pinned(key) ? `Pinned the timeline of ${key}.` : `Unpinned the timeline of ${key}.`);
  drawSoon();
}

const pause = () => currentRun() && !byId("pause").hidden && !byId("pause").disabled && confirmPause(currentRun());
const help = () => byId("help").showModal();
const focus = (id) => {
  const section = byId(id);
  if (id === "keys") table.focus();
  else section.focus({ preventScroll: true });
  section.scrollIntoView({ block: "start" });
};
const SHORTCUTS = {
  "?": help,
  p: pause,
  h: toggleFreeze,
  s: () => timelines.nextSpan(),
  "/": () => byId("keys-filter").focus(),
  e: () => byId("events-filter").focus(),
  ...Object.fromEntries(["waits", "credentials", "timelines", "keys", "events", "dead"].map((id, place) => [place + 1, () => focus(id)])),
};

addEventListener("keydown", (press) => {
  if (press.key === "Escape" && press.target.type === "search") {
    press.target.value = "";
    press.target.dispatchEvent(new Event("input"));
    press.target.blur();
  }
  if (press.ctrlKey || press.metaKey || press.altKey || isTyping(press.target)) return;
  const shortcut = SHORTCUTS[press.key.toLowerCase()];
  if (!shortcut) return;
  press.preventDefault();
  shortcut();
});
byId("pause").addEventListener("click", pause);
byId("stop").addEventListener("click", () => currentRun() && confirmStop(currentRun()));
byId("help-open").addEventListener("click", help);
byId("retry").addEventListener("click", () => connection.retry());
byId("run").addEventListener("change", (change) => choose(change.target.value));
setInterval(drawSoon, TICK);
connection.open();
