// Earlier messages: they come by themselves when the reader is near the first one, and by the link above it.

import { visit } from "./visit.js";

const AHEAD = "600px";

export class Earlier {
  #prepend;
  #near;
  #isFetching = false;
  #isPressed = false;

  /** In a region that scrolls; `prepend(turns, alsoDo)` shows those of a fetched page. */
  constructor(region, prepend) {
    this.#prepend = prepend;
    this.#near = new IntersectionObserver((seen) => this.#look(seen), { root: region, rootMargin: AHEAD });
    region.addEventListener("click", (event) => {
      if (!event.target.closest("#earlier")) return;
      event.preventDefault();
      this.#isPressed = true;
      this.#come();
    });
    this.#watch();
  }

  /** What is earlier still, as that page has it. */
  continueAs(page) {
    this.#link?.remove();
    const link = page.querySelector("#earlier");
    if (link) document.querySelector("#turns").before(link);
    this.#watch();
  }

  get #link() {
    return document.querySelector("#earlier");
  }

  #watch() {
    this.#near.disconnect();
    if (this.#link) this.#near.observe(this.#link);
  }

  #look(seen) {
    if (seen.some(({ isIntersecting }) => isIntersecting)) this.#come();
  }

  async #come() {
    const link = this.#link;
    if (this.#isFetching || !link) return;
    this.#isFetching = true;
    const { document: page } = await visit(link.href);
    const isAskedFor = this.#isPressed || document.activeElement === link;
    this.#isFetching = this.#isPressed = false;
    if (!page || !link.isConnected) return; // the link is there to be pressed, or leads elsewhere by now
    const turns = [...page.querySelectorAll("#turns > .turn")];
    this.#prepend(turns, () => this.continueAs(page));
    if (!isAskedFor) return;
    turns[0].tabIndex = -1;
    turns[0].focus({ preventScroll: true });
  }
}
