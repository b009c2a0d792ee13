// The list of chats, kept as the server shows it, with the older ones that were asked for below.

import { Menus } from "./menus.js";
import { visit } from "./visit.js";

export class Sidebar {
  #list = document.querySelector("#chat-list");
  #older = document.querySelector("#older");
  #menus;
  #isExtended = false;
  #waiting = null; // a page that came while a menu was open

  /** `renamed(id)` and `deleted(id)` are called when that was done from here. */
  constructor({ renamed, deleted }) {
    this.#menus = new Menus(this.#list, {
      renamed,
      deleted: (chatId) => {
        this.remove(chatId);
        deleted(chatId);
      },
    });
    this.#older.addEventListener("click", (event) => this.#openOlder(event));
    this.#list.addEventListener("toggle", () => this.#waiting && this.adopt(this.#waiting), { capture: true });
  }

  /** Returns whether a menu was open. */
  closeMenu() {
    return this.#menus.close();
  }

  /** Show the list of a fetched page, once no menu is open; older chats that were opened stay below it. */
  adopt(page) {
    this.#waiting = this.#menus.isOpen ? page : null;
    const fresh = page.querySelector("#chat-list");
    if (this.#waiting || fresh.isEqualNode(this.#list)) return;
    this.#holdingFocus(() => this.#replace(page, [...fresh.children]));
    this.#tellEmpty();
  }

  remove(chatId) {
    this.#holdingFocus(() => this.#find(chatId)?.remove());
    this.#tellEmpty();
  }

  #replace(page, fresh) {
    const shown = [...this.#list.children];
    this.#list.replaceChildren(...fresh);
    if (this.#isExtended) this.#list.append(...shown.filter((chat) => !this.#find(chat.dataset.chatId)));
    else this.#continueAs(page);
  }

  /** Do `change`; the row that had the focus has it afterwards, or the link to a new chat where the row is gone. */
  #holdingFocus(change) {
    const focused = this.#list.contains(document.activeElement) ? document.activeElement : null;
    const chatId = focused?.closest(".chat").dataset.chatId;
    change();
    if (!focused || this.#list.contains(document.activeElement)) return;
    const same = this.#find(chatId)?.querySelector(focused.localName);
    (same ?? document.querySelector(".new-chat")).focus({ preventScroll: true });
  }

  #find(chatId) {
    return this.#list.querySelector(`[data-chat-id="${CSS.escape(chatId)}"]`);
  }

  #tellEmpty() {
    document.querySelector("#no-chats").hidden = this.#list.children.length > 0;
  }

  async #openOlder(event) {
    event.preventDefault();
    const { document: page } = await visit(this.#older.href);
    if (!page) return;
    this.#isExtended = true;
    const listed = [...page.querySelectorAll("#chat-list > .chat")];
    const older = listed.filter((chat) => !this.#find(chat.dataset.chatId));
    this.#list.append(...older);
    this.#continueAs(page);
    older[0]?.querySelector("a").focus();
  }

  /** What is older than the list, as that page has it. */
  #continueAs(page) {
    const next = page.querySelector("#older");
    this.#older.hidden = next.hidden;
    this.#older.setAttribute("href", next.getAttribute("href") ?? "");
  }
}
