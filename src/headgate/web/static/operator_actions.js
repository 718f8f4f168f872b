// What an operator may do: a dialog to confirm it, the request, and the answer of the run as a toast.

import { byId, make, show, write } from "./dom.js";
import { keyFacts } from "./keys.js";
import { act } from "./connection.js";

const [dialog, form, title, text, facts, field, label, input, unit, error, choices] = [
  "ask", "ask-form", "ask-title", "ask-text", "ask-facts", "ask-field", "ask-label", "ask-value", "ask-unit", "ask-error", "ask-choices",
].map(byId);
const SEEN_FOR = 7000;
const MOST_TOASTS = 4;

function toast(sentence, tone) {
  const toasts = byId("toasts");
  const close = make("button", { type: "button", class: "button icon-button", "aria-label": "Dismiss" }, "×");
  const element = make("div", { class: "toast", "data-tone": tone }, make("p", {}, sentence), close);
  close.addEventListener("click", () => element.remove());
  toasts.append(element);
  while (toasts.children.length > MOST_TOASTS) toasts.firstChild.remove();
  setTimeout(() => element.remove(), tone === "bad" ? 2 * SEEN_FOR : SEEN_FOR);
}

async function perform(run, kind, target, value) {
  const answer = await act(run.run, kind, target, value);
  toast(answer.sentence, answer.done ? "good" : "bad");
  return answer.done;
}

/** Ask one question. Gives {choice, value}, or null if it was put aside. `wants.field.choice` is the choice that needs the value. */
function ask(wants) {
  write(title, wants.title);
  write(text, wants.text ?? "");
  show(text, Boolean(wants.text));
  show(facts, Boolean(wants.facts));
  facts.replaceChildren(...(wants.facts ?? []).map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  show(field, Boolean(wants.field));
  show(error, false);
  input.value = wants.field?.value ?? "";
  write(label, wants.field?.label ?? "");
  write(unit, wants.field?.unit ?? "");
  choices.replaceChildren(
    ...wants.choices.map(({ name, words, tone }) => make("button", { class: "button", type: name === "cancel" ? "button" : "submit", value: name, "data-tone": tone }, words)),
  );
  dialog.showModal();
  (wants.field?.focus ? input : (choices.querySelector("[data-tone]") ?? choices.lastChild)).focus();
  return new Promise((resolve) => {
    const finish = (answer) => {
      form.onsubmit = dialog.onclose = null;
      if (dialog.open) dialog.close();
      resolve(answer);
    };
    choices.querySelector('[value="cancel"]')?.addEventListener("click", () => finish(null));
    dialog.onclose = () => dialog.open || finish(null); // the last question's close may be told when this one is open
    dialog.onclick = (click) => {
      if (click.target === dialog) finish(null);
    };
    form.onsubmit = (submit) => {
      submit.preventDefault();
      const choice = submit.submitter?.value ?? wants.choices[0].name;
      if (choice !== wants.field?.choice) return finish({ choice, value: null });
      const value = Number(input.value.trim().replace(",", "."));
      if (input.value.trim() !== "" && Number.isFinite(value) && value > 0) return finish({ choice, value });
      write(error, `${wants.field.label}: enter a number above 0.`);
      show(error, true);
      return input.focus();
    };
  });
}

const CANCEL = { name: "cancel", words: "Cancel" };

export async function confirmPause(run) {
  if (run.state === "paused") return perform(run, "resume");
  const name = run.title || run.run;
  const text = "Calls in flight finish; no new call starts until you resume. Nothing is lost.";
  const answer = await ask({ title: `Pause ${name}?`, text, choices: [{ name: "pause", words: "Pause", tone: "main" }, CANCEL] });
  return answer && perform(run, "pause");
}

export async function confirmStop(run) {
  const name = run.title || run.run;
  const workers = run.members?.length ? "Every worker finishes its calls in flight" : "Calls in flight finish";
  const text = `${workers} and starts nothing new. Start the same run again to go on; nothing is lost.`;
  const answer = await ask({ title: `Stop ${name}?`, text, choices: [{ name: "stop", words: "Stop", tone: "main" }, CANCEL] });
  return answer && perform(run, "stop");
}

export async function changeCredential(run, kind, line) {
  const target = `${line.label}/${line.mark}`;
  if (kind === "free" && line.state === "resting") return perform(run, "free", target);
  const free = kind === "free";
  const answer = await ask({
    title: free ? `Enable ${line.label}?` : `Park ${line.label}?`,
    text: free ? `It is disabled: ${line.reason || "reason unknown"}. Once enabled, it is used again.` : "It rests and gets no new calls for this long. Other credentials take over if there are any.",
    field: free ? null : { label: "Park for", unit: "minutes", value: "60", focus: true, choice: "park" },
    choices: [{ name: kind, words: free ? "Enable" : "Park", tone: "main" }, CANCEL],
  });
  return answer && perform(run, kind, target, free ? null : 60 * answer.value);
}

/** Everything about a key, with its limit and its time line. */
export async function showKey(run, line, readOnly, pinned, pin) {
  const choices = [{ name: "pin", words: pinned ? "Unpin the timeline" : "Pin the timeline" }, { name: "close", words: "Close" }];
  if (!readOnly && line.limit !== null) choices.unshift({ name: "unlimit", words: "Remove the limit" });
  if (!readOnly) choices.unshift({ name: "limit", words: "Set the limit", tone: "main" });
  const answer = await ask({
    title: line.key,
    text: run.state === "ended" ? "" : line.reason ? `A call would wait now: ${line.reason}.` : "A call would start now.",
    facts: keyFacts(line),
    field: readOnly ? null : { label: "At most", unit: "calls/s", value: line.limit ?? "", choice: "limit", focus: true },
    choices,
  });
  if (answer?.choice === "pin") pin(line.key);
  if (answer?.choice === "limit") await perform(run, "limit", line.key, answer.value);
  if (answer?.choice === "unlimit") await perform(run, "limit", line.key, null);
}
