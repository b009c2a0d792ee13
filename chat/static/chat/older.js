// Older chats: they come by themselves when the end of the list is near, and by the link there.

import { visit } from "./visit.js";

const AHEAD = "200px";
// Where a reader was in the list who opens a chat from it, which comes as a page of its own.
const PLACE = "place-in-list";
const MOST_PAGES = 10;

export class Older {
  #link = document.querySelector("#older");
  #append;
  #fetching = null;
  #pages = 0; // behind the first
  #region = document.querySelector("#chats");
  #end = new IntersectionObserver((seen) => seen.at(-1).isIntersecting && this.#comeByThemselves(), {
    root: this.#region,
    rootMargin: AHEAD,
  });

  /** `append(page)` lists the chats of a fetched page that are not listed yet, and returns their rows. */
  constructor(append) {
    this.#append = append;
    this.#link.addEventListener("click", (event) => this.#comeAsAsked(event));
    this.#region.addEventListener("click", (event) => event.target.closest(".chat > a") && this.#leave());
    this.#comeBack().finally(() => this.#end.observe(this.#link));
  }

  /** Whether the list is longer than the server's first page. */
  get isExtended() {
    return this.#pages > 0;
  }

  /** The list ends where that page's does. */
  continueAs(page) {
    const next = page.querySelector("#older");
    this.#link.hidden = next.hidden;
    this.#link.setAttribute("href", next.getAttribute("href") ?? "");
  }

  #leave() {
    sessionStorage.setItem(PLACE, JSON.stringify({ pages: this.#pages, top: this.#region.scrollTop }));
  }

  async #comeBack() {
    const { pages, top } = JSON.parse(sessionStorage.getItem(PLACE) ?? "{}");
    sessionStorage.removeItem(PLACE);
    if (!top) return;
    while (this.#pages < Math.min(pages, MOST_PAGES) && !this.#link.hidden) {
      if (!(await this.#fetch()).length) break;
    }
    this.#region.scrollTop = top;
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
    this.#pages += 1;
    const rows = this.#append(page);
    this.continueAs(page);
    return rows;
  }
}
