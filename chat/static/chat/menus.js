// The menu of each chat in the list: rename, keep as a file, delete.

export class Menus {
  #list;
  #acts;

  /** Of the chats in `list`; `rename(row)` and `delete(row, { isByKeyboard })` are called for what was chosen. */
  constructor(list, acts) {
    this.#list = list;
    this.#acts = acts;
    list.addEventListener("click", (event) => this.#choose(event));
    addEventListener("click", (event) => this.#fold(event.target.closest?.("details")));
  }

  get isOpen() {
    return this.#open.length > 0;
  }

  /** Returns whether one was open. */
  close() {
    const [menu] = this.#open;
    this.#fold(null);
    menu?.querySelector("summary").focus();
    return Boolean(menu);
  }

  get #open() {
    return [...this.#list.querySelectorAll("details[open]")];
  }

  /** Close every menu but one. */
  #fold(kept) {
    for (const menu of this.#open) if (menu !== kept) menu.open = false;
  }

  #choose(event) {
    if (event.target.closest(".menu a")) return this.close(); // a file is on its way
    const act = event.target.closest("[data-act]")?.dataset.act;
    if (!act) return;
    this.#fold(null);
    this.#acts[act](event.target.closest(".chat"), { isByKeyboard: event.detail === 0 });
  }
}
