// How large the message is that is being written, once that matters.

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
    this.#place.textContent = `${kilobytes(bytes)} of ${kilobytes(this.#maxBytes)} KB${isTooLarge ? ": shorten it to send it" : ""}`;
    return !isTooLarge;
  }
}

function kilobytes(bytes) {
  return (bytes / 1024).toLocaleString(undefined, { maximumFractionDigits: 1 });
}
