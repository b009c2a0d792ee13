// What stands above the composer while the server would not take something: why, and when it may be tried again.

import { gettext, number } from "./words.js";

const SECOND_MS = 1_000;
const LONGEST_S = 600; // a longer wait is told by the clock, in the sentence

export class Refusals {
  #place = document.querySelector("#refusal");
  #reason = document.querySelector("#refusal-reason");
  #countdown = document.querySelector("#countdown");
  #counting = 0;

  /** Say it in a sentence, and count down the seconds until another try makes sense, where there are some. */
  show(reason, waitS = 0) {
    clearInterval(this.#counting);
    this.#reason.textContent = reason;
    this.#place.hidden = false;
    this.#countdown.hidden = true;
    if (waitS > 0 && waitS <= LONGEST_S) this.#count(Date.now() + waitS * SECOND_MS);
  }

  hide() {
    clearInterval(this.#counting);
    this.#place.hidden = true;
    this.#reason.textContent = "";
  }

  #count(until) {
    const tick = () => {
      const leftS = Math.ceil((until - Date.now()) / SECOND_MS);
      if (leftS <= 0) return this.show(gettext("You can try again now."));
      this.#countdown.textContent = clock(leftS);
      this.#countdown.hidden = false;
    };
    this.#counting = setInterval(tick, SECOND_MS);
    tick();
  }
}

/** Minutes and seconds. */
function clock(seconds) {
  return `${number(Math.floor(seconds / 60))}:${number(seconds % 60, { minimumIntegerDigits: 2 })}`;
}
