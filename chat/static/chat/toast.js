// A word at the foot of the list that goes by itself, but not while somebody is at it.

const STAYS_MS = 8_000;
const LOOK_AGAIN_MS = 1_000;

export class Toast {
  #item = document.createElement("div");
  #timer;

  /** Show what is in the template of that selector; `fill(item)` completes it, `over()` is called when it goes by itself. */
  constructor(template, { fill, over = () => {} }) {
    this.#item.className = "toast";
    this.#item.append(document.querySelector(template).content.cloneNode(true));
    fill(this.#item);
    document.querySelector("#toast").append(this.#item);
    this.#wait(STAYS_MS, over);
  }

  get hasFocus() {
    return this.#item.contains(document.activeElement);
  }

  focus() {
    this.#item.querySelector("button").focus({ preventScroll: true });
  }

  /** Take it away; the focus, if it was there, goes to `heir`. */
  close(heir = document.querySelector(".new-chat")) {
    clearTimeout(this.#timer);
    const { hasFocus } = this;
    this.#item.remove();
    if (hasFocus) heir.focus({ preventScroll: true });
  }

  #wait(ms, over) {
    this.#timer = setTimeout(() => {
      if (this.#item.matches(":hover, :focus-within")) return this.#wait(LOOK_AGAIN_MS, over);
      this.close();
      over();
    }, ms);
  }
}
