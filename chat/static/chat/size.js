// How large the message is that is being written, once that matters.

import { gettext, number, say } from "./words.js";

const NEAR = 0.8; // of what the server takes
const BYTES_A_UNIT = 3; // of UTF-8, at most, for each of UTF-16
const encoder = new TextEncoder();

export class Size {
  #place = document.querySelector("#size");
  #maxBytes = Number(this.#place.dataset.maxBytes);

  /** Say how large the text is where it nears the limit; returns whether it may be sent. */
  look(text) {
    const mayBeNear = text.length * BYTES_A_UNIT > NEAR * this.#maxBytes;
    const bytes = mayBeNear ? encoder.encode(text).length : 0;
    const isTooLarge = bytes > this.#maxBytes;
    this.#place.hidden = bytes < NEAR * this.#maxBytes;
    this.#place.classList.toggle("over", isTooLarge);
    const sentence = isTooLarge
      ? gettext("%(size)s of %(most)s KB: shorten it to send it")
      : gettext("%(size)s of %(most)s KB");
    this.#place.textContent = say(sentence, { size: kilobytes(bytes), most: kilobytes(this.#maxBytes) });
    return !isTooLarge;
  }
}

function kilobytes(bytes) {
  return number(bytes / 1024, { maximumFractionDigits: 1 });
}
