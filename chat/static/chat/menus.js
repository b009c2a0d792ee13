// The menu of each chat in the list: rename, keep as a file, delete.

import { ask } from "./dialogs.js";
import { call } from "./api.js";

export class Menus {
  #list;
  #renamed;
  #deleted;

  /** Of the chats in `list`; `renamed(id)` and `deleted(id)` are called when it is done. */
  constructor(list, { renamed, deleted }) {
    this.#list = list;
    this.#renamed = renamed;
    this.#deleted = deleted;
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
    const chat = event.target.closest(".chat");
    const { chatId } = chat.dataset;
    const name = chat.querySelector(".label").textContent;
    this.#fold(null);
    const acts = { rename: (title) => this.#rename(chatId, title), delete: () => this.#delete(chatId) };
    ask(`#${act}`, { name, act: acts[act], closed: () => this.#rest(chatId) });
  }

  async #rename(chatId, title) {
    await call("PATCH", `/api/chats/${chatId}`, { title });
    const label = this.#find(chatId)?.querySelector(".label"); // the list may be another by now
    if (label) label.textContent = title;
    this.#renamed(chatId);
  }

  async #delete(chatId) {
    await call("DELETE", `/api/chats/${chatId}`);
    this.#deleted(chatId);
  }

  /** Put the focus back where the question came from. */
  #rest(chatId) {
    (this.#find(chatId)?.querySelector("summary") ?? document.querySelector(".new-chat")).focus();
  }

  #find(chatId) {
    return this.#list.querySelector(`[data-chat-id="${CSS.escape(chatId)}"]`);
  }
}
