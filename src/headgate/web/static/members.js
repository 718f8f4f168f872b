// The workers of a run on several machines, lost ones first.

import { byId, listed, make, mark, show, write } from "./dom.js";
import { count, pace, plural, span } from "./formatting.js";

const panel = byId("members");
const list = byId("members-list");
const sum = byId("members-sum");

/** A fleet has workers instead of credentials: those are known on their machines only. */
export function drawMembers(run) {
  const members = run.members ?? [];
  show(panel, members.length > 0);
  show(byId("credentials"), members.length === 0);
  if (!members.length) return;
  const machines = new Set(members.map((line) => line.host)).size;
  const more = run.more_members ?? 0;
  const words = [plural(members.length + more, "worker"), `on ${plural(machines, "machine")}`];
  write(sum, more ? `${words.join(" ")} · ${count(more)} not shown` : words.join(" "));
  const seen = new Map();
  const lines = members.map((line) => {
    const nth = (seen.get(line.name) ?? 0) + 1;
    seen.set(line.name, nth);
    return { ...line, id: `${line.name} ${nth}` };
  });
  listed(list, lines, (line) => line.id, createLine, (element, line) => {
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

function createLine() {
  return make("li", {}, make("div", { class: "label" }, make("strong")), make("span", { class: "pill" }), make("p"));
}
