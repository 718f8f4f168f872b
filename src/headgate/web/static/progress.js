// The head of the page: which run, in what state, how far, how fast, how long.

import { byId, make, mark, show, speak, setWidth, write } from "./dom.js";
import { count, moment, money, pace, plural, short, span, stateOf, unitOf } from "./formatting.js";

const TONES = { running: "good", paused: "warn", stopping: "warn", done: "good", stopped: "warn", failed: "bad", lost: "bad", "not answering": "bad" };
const at = Object.fromEntries(
  ["title", "state", "facts", "share", "share-of", "rate", "eta", "in-flight", "parked", "dead-count", "tokens", "cost", "bar", "pause", "stop", "run"].map(
    (id) => [id, byId(id)],
  ),
);
const parts = Object.fromEntries([...at.bar.children].map((part) => [part.dataset.part, part]));
const figures = document.querySelectorAll("[data-when]");
let lastState = "";

/** `live`: what is shown is so at this moment, and the run can be told something. */
export function drawHead(run, readOnly, live) {
  const state = stateOf(run, live);
  write(at.title, run.title || run.run);
  write(at.state, state);
  mark(at.state, "data-tone", TONES[state] ?? "quiet");
  const facts = [run.kind, run.pid ? `${run.host}, process ${run.pid}` : "", `for ${span(run.at - run.started_at)}`, run.store];
  write(at.facts, facts.filter(Boolean).join(" · "));
  show(at.pause, !readOnly && run.state !== "stopping");
  at.pause.disabled = !live;
  write(at.pause, run.state === "paused" ? "Resume" : "Pause");
  mark(at.pause, "data-tone", run.state === "paused" ? "main" : null);
  show(at.stop, !readOnly && run.state !== "stopping" && run.kind !== "program" && run.kind !== "demo");
  at.stop.disabled = !live;
  if (lastState && lastState !== state) speak(`The run is ${state}.`);
  lastState = state;
  drawProgress(run.progress, run, state);
}

function drawProgress(progress, run, state) {
  const seen = progress.total ?? progress.done + progress.dead + progress.open;
  const finished = progress.done + progress.dead;
  const share = seen > 0 ? finished / seen : 0;
  const percent = share >= 1 ? "100" : (100 * share).toFixed(1);
  const sent = run.keys.reduce((total, line) => total + line.sent, 0);
  write(at.share, seen > 0 ? `${percent} %` : count(sent));
  const of = progress.total === null ? `${count(finished)} of ${count(seen)} found so far` : `${count(finished)} of ${plural(seen, unitOf(run))}`;
  write(at["share-of"], seen > 0 ? of : "calls sent");
  show(at.bar, seen > 0);
  write(at.rate, pace(progress.rate));
  write(at.eta, eta(progress, run, state));
  write(at["in-flight"], count(progress.in_flight));
  write(at.parked, count(progress.parked));
  write(at["dead-count"], count(progress.dead));
  write(at.tokens, short(progress.tokens));
  write(at.cost, money(progress.cost));
  for (const figure of figures) show(figure, { seen, ...progress }[figure.dataset.when] > 0);
  setWidth(parts.done, progress.done / seen);
  setWidth(parts.dead, progress.dead / seen);
  setWidth(parts["in-flight"], progress.in_flight / seen);
  setWidth(parts.parked, progress.parked / seen);
  mark(at.bar, "aria-valuenow", Math.floor(100 * share));
  mark(at.bar, "aria-valuetext", `${percent} percent, ${of}`);
  const prefix = state === "running" ? (seen > 0 ? `${percent} %` : pace(progress.rate)) : state;
  const title = `${prefix} · ${run.title || run.run} · Headgate`;
  if (document.title !== title) document.title = title;
}

function eta(progress, run, state) {
  if (run.state === "ended") return "none";
  if (progress.eta === null || state !== run.state) return "–";
  return progress.eta < 3600 ? span(progress.eta) : `${span(progress.eta)}, at ${moment(run.at + progress.eta)}`;
}

/** Let a person choose among several runs. */
export function drawRuns(runs, chosen) {
  show(at.run.parentElement, runs.length > 1);
  at.title.classList.toggle("unseen", runs.length > 1);
  const names = runs.map((run) => run.run).join("\n");
  if (at.run.dataset.names !== names) {
    at.run.dataset.names = names;
    at.run.replaceChildren(...runs.map((run) => make("option", { value: run.run }, `${run.title || run.run} (${run.kind}, ${run.pid})`)));
  }
  if (at.run.value !== chosen) at.run.value = chosen;
}
