// The connection to a person's feed, with the runs merged in that the tabs of a browser follow.

import { isAfter } from "./places.js";

const FEED_EVENTS = ["chat", "chat_deleted", "run_begun", "run_ended", "missed", "signed_out"];
export const ENDINGS = ["done", "cancelled", "failed"];
const RUN_EVENTS = ["queued", "started", "delta", "reset", ...ENDINGS];
const RUNS_MAX = 16; // that the server brings at once; who asks later waits
const LOST_MAX_MS = 3_000;
const REFUSED_MAX_MS = 30_000;
const OPENING_MS = 15_000;

export class Switchboard {
  /** Whether there is no connection, until a pause is over. */
  isResting = false;
  #tell;
  #wants = new Map(); // by tab: which run it wants, from which place, and whether the connection brings it
  #places = new Map(); // by run: how far the connection has brought it
  #source = null;
  #former = null; // heard for news of chats until the next is open, so that there is no gap
  #isOpen = false;
  #hasGap = true;
  #openedAt = 0;
  #failures = 0;
  #reopening = 0;

  /**
   * `tell(message)` gets what all tabs are to know: `{ name, data }` of events, with `run` and `id` of a run's; "who"
   * asks what they want, and `heard` of "open" says which of their wants are met by the connection, behind a gap or not.
   */
  constructor(tell) {
    this.#tell = tell;
  }

  /** Ask who is there, and connect. */
  begin() {
    this.#tell({ name: "who" });
    this.#open();
  }

  /** What a tab says: what it wants, that it leaves, or that it hears nothing. */
  hear({ act, tab, ...want }) {
    if (act === "renew") return this.#reassure();
    this.#wants.delete(tab);
    if (act === "want") this.#wants.set(tab, want); // behind those that are met: they are not to lose their place
    this.#answer();
  }

  /** Connect anew: this connection is not to be trusted. */
  renew() {
    this.#drop();
    this.#open();
  }

  /** Connect again after a refusal, when a pause is over that grows from time to time. */
  resume() {
    if (this.isResting) this.#rest(REFUSED_MAX_MS);
  }

  close() {
    clearTimeout(this.#reopening);
    this.#drop();
  }

  #open() {
    clearTimeout(this.#reopening);
    this.isResting = false;
    this.#isOpen = false;
    this.#openedAt = Date.now();
    this.#places = this.#wanted();
    const source = new EventSource(address(this.#places));
    this.#source = source;
    source.onopen = () => this.#connected();
    source.onerror = () => this.#fail(source);
    const heed = (names, heard) => {
      for (const name of names) source.addEventListener(name, (event) => heard(name, event));
    };
    heed(["hb"], (name) => source === this.#source && this.#tell({ name }));
    heed(FEED_EVENTS, (name, event) => this.#tell({ name, data: JSON.parse(event.data) }));
    heed(RUN_EVENTS, (name, event) => source === this.#source && this.#pass(name, event));
    this.#tell({ name: "opening" });
  }

  #connected() {
    this.#isOpen = true;
    this.#failures = 0;
    this.#former?.close();
    this.#former = null;
    this.#announce([...this.#wants]);
    this.#answer();
  }

  /** Say whose wants are met. */
  #announce(wants) {
    const met = wants.filter(([, want]) => this.#isMet(want));
    for (const [, want] of met) want.isHeard = true;
    this.#tell({ name: "open", hasGap: this.#hasGap, heard: Object.fromEntries(met.map(([tab, { no }]) => [tab, no])) });
    this.#hasGap = false;
  }

  /** Meet what is wanted, over another connection where this one brings too little. */
  #answer() {
    if (!this.#isOpen) return; // it is looked at again when it is
    const unheard = [...this.#wants].filter(([, want]) => !want.isHeard && this.#isMet(want));
    if (unheard.length) this.#announce(unheard);
    const isShort = ([run, place]) => !this.#places.has(run) || isAfter(this.#places.get(run), place);
    if (![...this.#wanted()].some(isShort)) return;
    this.#former = this.#source;
    this.#open();
  }

  #isMet({ run, place }) {
    return !run || (this.#places.has(run) && !isAfter(this.#places.get(run), place));
  }

  /** The runs that are followed, each from the place of who is furthest behind. */
  #wanted() {
    const places = new Map();
    for (const { run, place, isHeard } of this.#wants.values()) {
      const from = isHeard ? this.#places.get(run) : place;
      const isFull = places.size === RUNS_MAX && !places.has(run);
      if (!run || isFull) continue;
      if (!places.has(run) || isAfter(places.get(run), from)) places.set(run, from);
    }
    return places;
  }

  #pass(name, event) {
    const { run_id: run, ...data } = JSON.parse(event.data);
    // `queued` has no id of its own: the browser repeats the last.
    if (name !== "queued") this.#places.set(run, event.lastEventId);
    if (ENDINGS.includes(name)) this.#conclude(run);
    this.#tell({ name, run, id: event.lastEventId, data });
  }

  #conclude(run) {
    for (const want of this.#wants.values()) {
      if (want.run === run && want.isHeard) want.run = null;
    }
  }

  #fail(source) {
    if (source === this.#former) {
      source.close();
      this.#hasGap = true;
    } else if (source.readyState === EventSource.CLOSED) {
      this.#refuse();
    } else {
      this.#tell({ name: "lost" });
      this.#rest(LOST_MAX_MS); // not as the browser does it, which would ask from places that are old by now
    }
  }

  /** Perhaps for the run of a tab that is not there any more: each is asked anew. */
  #refuse() {
    this.#drop();
    this.isResting = true;
    this.#wants.clear();
    this.#tell({ name: "who" });
    this.#tell({ name: "closed" });
  }

  #rest(maxMs) {
    this.#drop();
    this.isResting = true;
    clearTimeout(this.#reopening);
    const pauseMs = Math.min(maxMs, 500 * 2 ** this.#failures++);
    this.#reopening = setTimeout(() => this.#open(), pauseMs * (0.5 + Math.random() / 2));
  }

  /** A tab hears nothing. */
  #reassure() {
    this.#hasGap = true; // to that tab
    const isUnderWay = this.isResting || (!this.#isOpen && Date.now() - this.#openedAt < OPENING_MS);
    if (isUnderWay) this.#tell({ name: "opening" });
    else this.renew();
  }

  #drop() {
    this.#hasGap = true;
    this.#isOpen = false;
    this.#former?.close();
    this.#source?.close();
    this.#former = this.#source = null;
  }
}

function address(places) {
  const query = new URLSearchParams([...places].map(([run, place]) => ["run", place ? `${run}:${place}` : run]));
  return `/api/events?${query}`;
}
