// What the page hears: its person's feed, with the events of one run merged in. All tabs share the connection.

import { Line } from "./line.js";
import { isAfter } from "./places.js";
import { Pulse } from "./pulse.js";
import { ENDINGS } from "./switchboard.js";

const REPLY_MS = 2_000; // in which a tab that lives answers another

export class Feed {
  #hear;
  #line = new Line(document.body.dataset.user, (message) => this.#heed(message));
  #isListening = false;
  #run = null;
  #lastId = "";
  #wants = 0;
  #isHeard = false; // until then what comes of the run may not be what comes next
  #seizing = 0;
  #pulse = new Pulse(() => this.#revive());

  /** `hear(name, data)` gets every event, and "open", "lost" (it comes back by itself) and "closed" (see `resume`). */
  constructor(hear) {
    this.#hear = hear;
    addEventListener("pagehide", () => this.#line.leave());
    addEventListener("pageshow", (event) => event.persisted && this.#isListening && this.#listen());
  }

  /** Listen, and to the run of that id, if any, from its beginning. */
  follow(run) {
    this.#run = run;
    this.#lastId = "";
    this.#isListening = true;
    this.#listen();
  }

  /** Go on where it was, over a new connection: this one is not to be trusted. */
  renew() {
    this.#line.renew();
    if (!this.#line.isLeading) this.#seizing ||= setTimeout(() => this.#seize(), REPLY_MS);
  }

  /** Go on where it was, after a pause that grows from failure to failure. */
  resume() {
    this.#line.resume();
  }

  close() {
    this.#isListening = false;
    this.#settle();
    this.#line.leave();
  }

  #listen() {
    this.#line.join();
    this.#ask();
  }

  #ask() {
    this.#isHeard = false;
    this.#pulse.begin();
    this.#line.want(++this.#wants, this.#run, this.#lastId);
  }

  #heed({ name, run, id, data, heard, hasGap }) {
    if (!this.#isListening) return;
    this.#settle();
    if (name === "who") return this.#ask();
    if (name === "opening") return this.#pulse.begin();
    this.#pulse.feel();
    if (name === "hb") return;
    if (name === "open") return this.#connect(heard === this.#wants, hasGap);
    if (run) return this.#hearRun(name, run, id, data);
    this.#hear(name, data ?? {});
  }

  #connect(isHeard, hasGap) {
    const isNew = isHeard && !this.#isHeard;
    this.#isHeard ||= isHeard;
    if (isNew || hasGap) this.#hear("open", {});
  }

  #hearRun(name, run, id, data) {
    if (run !== this.#run || !this.#isHeard) return;
    if (name !== "queued") {
      if (!isAfter(id, this.#lastId)) return;
      this.#lastId = id;
    }
    if (ENDINGS.includes(name)) this.#run = null;
    this.#hear(name, data);
  }

  #revive() {
    if (!this.#isListening || this.#line.isResting) return;
    this.#hear("lost", {});
    this.renew();
  }

  /** The leader gave no answer. It can wait until somebody looks. */
  #seize() {
    this.#seizing = 0;
    if (!document.hidden) this.#line.seize();
  }

  #settle() {
    clearTimeout(this.#seizing);
    this.#seizing = 0;
  }
}
