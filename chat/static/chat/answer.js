// One answer while it is being written. Text is only ever appended, once a frame, as text.

export class Answer {
  #text = document.createTextNode("");
  #note;
  #pending = "";
  #frame = 0;
  #grown;

  /** Writes into a turn's element; `grown()` is called when there is more to see. */
  constructor(turn, grown) {
    this.turn = turn;
    this.points = 0; // Unicode code points so far, as the server counts
    this.#grown = grown;
    this.#note = turn.querySelector(".note");
    turn.querySelector(".text").replaceChildren(this.#text);
    this.wait("Waiting for the first word…");
  }

  /** What is said while there is no text yet. */
  wait(why) {
    this.#note.textContent = why;
    this.#note.hidden = this.points > 0;
  }

  /** Append text that begins `offset` code points into the answer; false where that is not where we are. */
  add(text, offset) {
    if (offset !== this.points) return false;
    this.points += [...text].length;
    this.#pending += text;
    this.#frame ||= requestAnimationFrame(() => this.flush());
    return true;
  }

  /** Take back what comes after `offset` code points. */
  cut(offset) {
    this.flush();
    const kept = [...this.#text.data].slice(0, offset);
    this.#text.data = kept.join("");
    this.points = kept.length;
  }

  /** There will be no more of it here, and why. */
  abandon(why) {
    this.flush();
    this.turn.classList.remove("live");
    this.#note.textContent = why;
    this.#note.hidden = false;
  }

  /** Show what waits for the next frame. A tab in the background has none. */
  flush() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#text.appendData(this.#pending);
    this.#pending = "";
    this.#note.hidden = this.points > 0;
    this.#grown();
  }
}
