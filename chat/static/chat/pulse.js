// Notices that a connection has died without a word, as they do when a network changes or a laptop sleeps.

const BEAT_MS = 15_000; // the server's, when it has nothing else to say
const LOOK_MS = 5_000;

export class Pulse {
  #felt = Date.now(); // not performance.now(), which stands still while some computers sleep
  #isOpen = false;
  #dead;

  /** `dead()` is called when too little was felt, again and again until there is a new connection. */
  constructor(dead) {
    this.#dead = dead;
    setInterval(() => this.#look(this.#isOpen ? 2 * BEAT_MS + LOOK_MS : BEAT_MS), LOOK_MS);
    document.addEventListener("visibilitychange", () => document.hidden || this.#look(BEAT_MS + LOOK_MS));
    addEventListener("online", () => this.#look(0)); // whatever was felt came over another network
  }

  /** A connection is being made. */
  begin() {
    this.#isOpen = false;
    this.#felt = Date.now();
  }

  /** There was a sign of life. */
  feel() {
    this.#isOpen = true;
    this.#felt = Date.now();
  }

  #look(patienceMs) {
    if (Date.now() - this.#felt >= patienceMs) this.#dead();
  }
}
