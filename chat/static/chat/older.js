// Older chats: they come by themselves when the end of the list is near, and by the link there.

import { visit } from "./visit.js";

const AHEAD = "200px";

export class Older {
  #link = document.querySelector("#older");
  #append;
  #fetching = null;
  #isExtended = false;
  #end = new IntersectionObserver((seen) => seen.at(-1).isIntersecting && this.#comeByThemselves(), {
    root: document.querySelector("#chats"),
    rootMargin: AHEAD,
  });

  /** `append(page)` lists the chats of a fetched page that are not listed yet, and returns their rows. */
  constructor(append) {
    this.#append = append;
    this.#link.addEventListener("click", (event) => this.#comeAsAsked(event));
    this.#end.observe(this.#link);
  }

  /** Whether the list is longer than the server's first page. */
  get isExtended() {
    return this.#isExtended;
  }

  /** The list ends where that page's does. */
  continueAs(page) {
    const next = page.querySelector("#older");
    this.#link.hidden = next.hidden;
    this.#link.setAttribute("href", next.getAttribute("href") ?? "");
  }

  async #comeAsAsked(event) {
    event.preventDefault();
    const [first] = await this.#fetch();
    first?.querySelector("a").focus();
  }

  async #comeByThemselves() {
    const { activeElement: focused } = document;
    const [first] = await this.#fetch();
    if (!first) return; // the link is there to be pressed
    if (this.#link.hidden && focused === this.#link) first.querySelector("a").focus({ preventScroll: true });
    // An observer tells of changes only, and the end may be as near as before.
    this.#end.unobserve(this.#link);
    this.#end.observe(this.#link);
  }

  /** One page at a time, whoever asks. */
  #fetch() {
    this.#fetching ??= this.#fetchNext().finally(() => (this.#fetching = null));
    return this.#fetching;
  }

  async #fetchNext() {
    const { document: page } = await visit(this.#link.href);
    if (!page) return [];
    this.#isExtended = true;
    const rows = this.#append(page);
    this.continueAs(page);
    return rows;
  }
}
