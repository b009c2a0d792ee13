// Where a person writes. What was written stays theirs until the server has taken it.

import { Refusal } from "./api.js";
import { Full } from "./full.js";
import { Refusals } from "./refusals.js";
import { Size } from "./size.js";
import { gettext } from "./words.js";

const TOUCH = matchMedia("(hover: none) and (pointer: coarse)");
const ROWS_MAX = 10;

export class Composer {
  #form = document.querySelector("#composer");
  #content = document.querySelector("#content");
  #model = document.querySelector("#model");
  #send = document.querySelector("#send");
  #stop = document.querySelector("#stop");
  #refusals = new Refusals();
  #size = new Size();
  #full = new Full(() => this.#trying(this.#acts.goOn));
  #draft;
  #acts;
  #isFull = this.#full.isShown;
  #isLive = false;
  #isRetired = false;

  /** `send(content, model)`, `stop()` and `goOn()` are called for what they say; all may throw `Refusal`. */
  constructor(draft, acts) {
    this.#draft = draft;
    this.#acts = acts;
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.#content.addEventListener("keydown", (event) => this.#press(event));
    this.#content.addEventListener("input", () => this.#keep());
    this.#stop.addEventListener("click", () => this.#halt());
    this.#write(this.#content.value || draft.text);
    this.#send.disabled = !this.#model; // browsers may bring back how it was before a reload
    this.#showFull();
    this.focus();
  }

  /** Whether there is an answer to be stopped. */
  set live(isLive) {
    this.#isLive = isLive;
    this.#send.hidden = isLive;
    this.#stop.hidden = !isLive;
    this.#stop.disabled = false;
    this.#stop.textContent = gettext("Stop");
    if (!isLive) this.refuse("");
    this.#showFull();
  }

  /** Whether the chat has all its questions; `reason` says so. The last one's answer can still be stopped. */
  setFull(isFull, reason) {
    this.#isFull = isFull;
    this.#full.reason = reason;
    this.#showFull();
  }

  /** Be ready for the next words; on a phone it would call the keyboard. */
  focus() {
    if (matchMedia("(hover: hover)").matches) this.#content.focus();
  }

  /** Say why something was not done, and how long to wait with the next try; no reason takes the last one away. */
  refuse(reason, waitS) {
    if (reason) this.#refusals.show(reason, waitS);
    else this.#refusals.hide();
  }

  /** Send a question: it comes back to be written where it is refused. */
  async send(content, model) {
    this.refuse("");
    this.#send.disabled = true;
    this.focus();
    const isTaken = await this.#trying(() => this.#acts.send(content, model));
    if (!isTaken) this.#write([content, this.#content.value].filter(Boolean).join("\n"));
    this.#send.disabled = this.#isRetired;
  }

  /** What was refused for want of an answer has arrived after all. */
  arrived(content) {
    if (this.#content.value === content) this.#write("");
    this.refuse("");
  }

  /** Stop, as the button does; returns whether there was something to stop. */
  interrupt() {
    const canStop = this.#isLive && !this.#stop.disabled;
    if (canStop) this.#halt();
    return canStop;
  }

  /** Nothing can be sent from here any more; what was written can still be copied. */
  retire() {
    this.#isRetired = true;
    this.#draft.retire();
    this.#send.disabled = true;
    this.#stop.hidden = true;
    this.#send.hidden = false;
  }

  #submit() {
    const content = this.#content.value;
    if (this.#send.disabled || this.#full.isShown || !content.trim()) return;
    if (!this.#size.look(content)) return; // it says so
    if (this.#isLive) return this.refuse(new Refusal("chat_busy").message);
    this.send(content, this.#model.value);
    this.#write(""); // it is on the page by now, and kept as a question
  }

  /** What was written for a full chat can still be copied, and goes along into the next. */
  #showFull() {
    this.#full.isShown = this.#isFull && !this.#isLive;
    this.#content.readOnly = this.#full.isShown;
    this.#form.classList.toggle("full", this.#full.isShown);
  }

  async #halt() {
    this.#stop.disabled = true;
    this.#stop.textContent = gettext("Stopping…");
    this.focus();
    const isTaken = await this.#trying(this.#acts.stop);
    if (!isTaken && !this.#isRetired) this.live = this.#isLive;
  }

  async #trying(act) {
    try {
      await act();
      return true;
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      this.refuse(error.message, error.waitS);
      return false;
    }
  }

  #press(event) {
    // Enter that ends a word in an input method sends nothing; Safari tells by the key code only.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
    if (TOUCH.matches) return; // there is no Shift+Enter: Enter breaks the line, the button sends
    event.preventDefault();
    this.#form.requestSubmit();
  }

  #write(text) {
    this.#content.value = text;
    this.#keep();
  }

  #keep() {
    this.#draft.text = this.#content.value;
    this.#size.look(this.#content.value);
    this.#fit();
  }

  #fit() {
    if (CSS.supports("field-sizing", "content")) return;
    this.#content.rows = Math.min(ROWS_MAX, this.#content.value.split("\n").length);
  }
}
