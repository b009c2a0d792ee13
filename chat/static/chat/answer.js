// One answer while it is being written: it only ever grows, once a frame.

import { Markdown } from "./markdown.js";
import { gettext } from "./words.js";

export class Answer {
  #place;
  #markdown;
  #written = "";
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
    this.#place = turn.querySelector(".text");
    this.#place.classList.add("markup");
    this.#begin("");
    this.wait(gettext("Thinking…"));
  }

  /** What is said while there is no text yet. */
  wait(why) {
    this.#note.textContent = why;
    this.#note.hidden = this.points > 0;
  }

  /** What is said below the text that there is, until there is more. */
  stall(why) {
    this.#note.textContent = why;
    this.#note.hidden = false;
    this.#grown();
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
    const kept = [...this.#written].slice(0, offset);
    this.#begin(kept.join(""));
    this.points = kept.length;
  }

  /** There will be no more of it. */
  close() {
    this.flush();
    this.#markdown.end();
  }

  /** There will be no more of it here, and why. */
  abandon(why) {
    this.close();
    this.turn.classList.remove("live");
    this.#note.textContent = why;
    this.#note.hidden = false;
  }

  /** Show what waits for the next frame. A tab in the background has none. */
  flush() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#markdown.write(this.#pending);
    this.#written += this.#pending;
    this.#pending = "";
    this.#note.hidden = this.points > 0;
    this.#grown();
  }

  #begin(text) {
    // Parts are measured while they are written: meanwhile the answer must not be so short that the reader's place goes.
    this.#place.style.minBlockSize = `${this.#place.offsetHeight}px`;
    this.#place.replaceChildren();
    this.#markdown = new Markdown(this.#place);
    this.#markdown.write(text);
    this.#place.style.minBlockSize = "";
    this.#written = text;
  }
}
