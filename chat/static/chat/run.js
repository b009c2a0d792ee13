// The run that the page follows: what its events do to the answer on the screen.

import { Waiting } from "./waiting.js";
import { gettext } from "./words.js";

const STALL_MS = 6_000; // longer than a busy engine takes for a step

export class Run {
  #stalling = 0;
  #answer;
  #waiting;
  #restart;
  #started;
  #end;

  /**
   * `restart()` is called when text is missing, `started()` when a worker has it, `end(status, data, isWhole)` when it is
   * over, `say(text)` with what somebody who cannot see the page has to know of its wait.
   */
  constructor(id, answer, { restart, started, end, say }) {
    this.id = id;
    this.#answer = answer;
    this.#restart = restart;
    this.#started = started;
    this.#end = end;
    this.#waiting = new Waiting({ show: (text) => answer.wait(text), say });
  }

  hear(name, data) {
    switch (name) {
      case "queued":
        return this.#waiting.hear(data);
      case "started":
        this.#started();
        this.#expect();
        return this.#answer.wait(gettext("Thinking…"));
      case "delta":
        this.#expect();
        return this.#answer.add(data.text, data.offset) ? undefined : this.#readAgain();
      case "reset":
        this.#expect();
        return this.#answer.cut(data.offset);
      default: // done, cancelled, failed
        return this.#conclude(name, data);
    }
  }

  /** The page will hear no more of it, and why. */
  abandon(why) {
    clearTimeout(this.#stalling);
    this.#answer.abandon(why);
  }

  /** There should be more before long; where a worker dies, its lease runs out first. */
  #expect() {
    clearTimeout(this.#stalling);
    this.#stalling = setTimeout(() => {
      this.#answer.stall(gettext("No words for a while. Should the worker be gone, another goes on from here."));
    }, STALL_MS);
  }

  #readAgain() {
    this.#answer.cut(0);
    this.#restart();
  }

  #conclude(status, data) {
    clearTimeout(this.#stalling);
    this.#answer.close();
    const isWhole = !data.message_id || this.#answer.points === data.chars;
    this.#end(status, data, isWhole);
  }
}
