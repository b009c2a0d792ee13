// The run that the page follows: what its events do to the answer on the screen.

import { Waiting } from "./waiting.js";

export class Run {
  #answer;
  #waiting;
  #restart;
  #end;
  #say;

  /**
   * `restart()` is called when text is missing, `end(status, data, isWhole)` when the run is over, `say(text)` with
   * what somebody who cannot see the page has to know.
   */
  constructor(id, answer, { restart, end, say }) {
    this.id = id;
    this.#answer = answer;
    this.#restart = restart;
    this.#end = end;
    this.#say = say;
    this.#waiting = new Waiting({ show: (text) => answer.wait(text), say });
  }

  hear(name, data) {
    switch (name) {
      case "queued":
        return this.#waiting.hear(data);
      case "started":
        this.#say("Answering…");
        return this.#answer.wait("Waiting for the first word…");
      case "delta":
        return this.#answer.add(data.text, data.offset) ? undefined : this.#readAgain();
      case "reset":
        return this.#answer.cut(data.offset);
      default: // done, cancelled, failed
        return this.#conclude(name, data);
    }
  }

  /** The page will hear no more of it, and why. */
  abandon(why) {
    this.#answer.abandon(why);
  }

  #readAgain() {
    this.#answer.cut(0);
    this.#restart();
  }

  #conclude(status, data) {
    this.#answer.close();
    const isWhole = !data.message_id || this.#answer.points === data.chars;
    this.#end(status, data, isWhole);
  }
}
