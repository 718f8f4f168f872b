// The connection to the server: one event stream that reconnects by itself, and operator actions the other way.
//
//     connecting --open--> live --error or silence--> waiting --time is up--> connecting
//                                 |                     '--401, 403--> refused (asks again, but seldom)
//                                 '--the server says that it ends--> closed (until a stream opens again)

const FIRST_WAIT = 0.5;
const LONGEST_WAIT = 8;
const SELDOM = 30;
const SILENCE = 20;
/** A link that holds for so many seconds was a good one: the next failure starts from the shortest wait again. */
const GOOD = 5;

export class Connection {
  /** `parameters()` gives those of the stream; `handlers` has a function for each kind of message, and `link`. */
  constructor(parameters, handlers) {
    Object.assign(this, { parameters, handlers, wait: FIRST_WAIT, stream: null, timer: 0, openedAt: 0, receivedAt: 0, closedBy: "" });
    setInterval(() => this.checkSilence(), 2000);
    addEventListener("online", () => this.retry());
    addEventListener("pagehide", () => this.stream?.close());
  }

  open() {
    this.stream?.close();
    clearTimeout(this.timer);
    this.setLink("connecting");
    const stream = new EventSource(`api/stream?${this.parameters()}`);
    this.stream = stream;
    this.receivedAt = performance.now();
    stream.onopen = () => {
      this.openedAt = this.receivedAt = performance.now();
      this.closedBy = "";
      this.setLink("live");
    };
    stream.onerror = () => stream === this.stream && this.lost();
    for (const kind of ["snapshot", "events", "timelines", "heartbeat"]) {
      stream.addEventListener(kind, (message) => {
        this.receivedAt = performance.now();
        if (stream === this.stream) this.handlers[kind]?.(JSON.parse(message.data));
      });
    }
    stream.addEventListener("closing", (message) => {
      if (stream !== this.stream) return;
      this.closedBy = JSON.parse(message.data).by;
      this.reopenLater("closed", LONGEST_WAIT);
    });
  }

  retry() {
    this.wait = FIRST_WAIT;
    this.open();
  }

  checkSilence() {
    const silent = (performance.now() - this.receivedAt) / 1000 > SILENCE;
    if (silent && this.stream && this.stream.readyState === EventSource.OPEN) this.lost();
  }

  async lost() {
    if (this.openedAt && performance.now() - this.openedAt > 1000 * GOOD) this.wait = FIRST_WAIT;
    this.openedAt = 0;
    this.reopenLater("waiting", this.closedBy ? LONGEST_WAIT : this.wait * (0.75 + 0.5 * Math.random()));
    this.wait = Math.min(LONGEST_WAIT, 2 * this.wait);
    const status = await statusNow();
    if ((status === 401 || status === 403) && this.stream === null) this.reopenLater("refused", SELDOM);
  }

  reopenLater(link, wait) {
    this.stream?.close();
    this.stream = null;
    clearTimeout(this.timer);
    this.setLink(link, wait);
    this.timer = setTimeout(() => this.open(), 1000 * wait);
  }

  setLink(link, wait = 0) {
    const closed = this.closedBy && (link === "connecting" || link === "waiting");
    this.handlers.link(closed ? "closed" : link, performance.now() + 1000 * wait);
  }
}

/** A stream does not say why it failed; a plain request does. */
async function statusNow() {
  try {
    const answer = await fetch("api/snapshot", { method: "HEAD", cache: "no-store" });
    return answer.status;
  } catch {
    return 0;
  }
}

/** Ask for something to be done. Gives {done, sentence}, whatever happens. */
export async function act(run, kind, target = "", value = null) {
  try {
    const answer = await fetch("api/act", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ run, kind, target, value }),
    });
    const said = await answer.json().catch(() => ({}));
    const fallback = answer.ok ? "Done." : `The request was refused (${answer.status}).`;
    return { done: answer.ok, sentence: said.said ?? said.error ?? fallback };
  } catch {
    return { done: false, sentence: "No response; check the result once the page is live again." };
  }
}
