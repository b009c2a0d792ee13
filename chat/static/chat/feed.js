// The page's one connection: the user's feed, with the events of one run merged in.

import { Pulse } from "./pulse.js";

const FEED_EVENTS = ["chat", "chat_deleted", "run_begun", "run_ended", "missed", "signed_out"];
const RUN_EVENTS = ["queued", "started", "delta", "reset", "done", "cancelled", "failed"];
const PAUSE_MAX_MS = 30_000;

export class Feed {
  #hear;
  #source = null;
  #run = null;
  #lastId = "";
  #failures = 0;
  #reopening = 0;
  #pulse = new Pulse(() => this.#revive());

  /** `hear(name, data)` gets every event, and "open", "lost" (it comes back by itself) and "closed" (see `resume`). */
  constructor(hear) {
    this.#hear = hear;
    addEventListener("pagehide", () => this.close());
    addEventListener("pageshow", (event) => event.persisted && this.#open());
  }

  /** Listen, and to the run of that id, if any, from its beginning. */
  follow(run) {
    this.#run = run;
    this.#lastId = "";
    this.#open();
  }

  /** Go on where it was, over a new connection: this one is not to be trusted. */
  renew() {
    this.#open();
  }

  /** Go on where it was, after a pause that grows from failure to failure. */
  resume() {
    clearTimeout(this.#reopening);
    const pauseMs = Math.min(PAUSE_MAX_MS, 500 * 2 ** this.#failures++);
    this.#reopening = setTimeout(() => this.#open(), pauseMs * (0.5 + Math.random() / 2));
  }

  close() {
    clearTimeout(this.#reopening);
    this.#source?.close();
    this.#source = null;
  }

  #open() {
    this.close();
    this.#pulse.begin();
    const source = new EventSource(this.#address());
    this.#source = source;
    source.onopen = () => {
      this.#pulse.feel();
      this.#failures = 0;
      this.#hear("open", {});
    };
    source.onerror = () => this.#hear(source.readyState === EventSource.CLOSED ? "closed" : "lost", {});
    const heed = (names, hear) => {
      for (const name of names) {
        source.addEventListener(name, (event) => {
          this.#pulse.feel();
          hear(name, event);
        });
      }
    };
    heed(["hb"], () => {});
    heed(FEED_EVENTS, (name, event) => this.#hear(name, JSON.parse(event.data)));
    heed(RUN_EVENTS, (name, event) => this.#hearRun(name, event));
  }

  #revive() {
    if (!this.#source) return; // nothing is wanted, or `resume` is about to
    this.#hear("lost", {});
    this.renew();
  }

  #address() {
    const query = new URLSearchParams();
    if (this.#run) query.set("run", this.#run);
    if (this.#run && this.#lastId) query.set("lastEventId", this.#lastId);
    return `/api/events?${query}`;
  }

  #hearRun(name, event) {
    // `queued` has no id of its own: the browser repeats the last.
    if (name !== "queued") {
      if (!isBehind(event.lastEventId, this.#lastId)) return;
      this.#lastId = event.lastEventId;
    }
    this.#hear(name, JSON.parse(event.data));
  }
}

/** Whether the event of one id comes after that of the other: `<attempt>-<seq>-<offset>`. */
function isBehind(id, last) {
  const [attempt, seq] = id.split("-").map(Number);
  const [lastAttempt, lastSeq] = (last || "0-0-0").split("-").map(Number);
  return !last || attempt > lastAttempt || (attempt === lastAttempt && seq > lastSeq);
}
