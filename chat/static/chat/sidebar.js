// The list of chats, kept as the server shows it, with the older ones that were asked for below.

import { Days } from "./days.js";
import { Deletions } from "./deletions.js";
import { Menus } from "./menus.js";
import { Older } from "./older.js";
import { Renaming } from "./renaming.js";

export class Sidebar {
  #list = document.querySelector("#chat-list");
  #days = new Days(this.#list);
  #older = new Older((page) => this.#extend(page));
  #renaming;
  #deletions;
  #menus;
  #waiting = null; // a page that came while a row was in use

  /** Of that user's chats; `renamed(id)` is called when that was done from here. */
  constructor(owner, { renamed }) {
    this.#renaming = new Renaming(this.#list, {
      renamed: (chatId) => {
        this.#waiting = null; // it has the old name
        renamed(chatId);
      },
      over: () => this.#catchUp(),
    });
    this.#deletions = new Deletions(owner, this);
    this.#menus = new Menus(this.#list, {
      rename: (row) => this.#renaming.begin(row),
      delete: (row, how) => this.#deletions.begin(row, how),
    });
    this.#list.addEventListener("toggle", () => this.#catchUp(), { capture: true });
  }

  /** Close what is open on top of the list; returns whether something was. */
  close() {
    return this.#renaming.giveUp() || this.#menus.close() || this.#deletions.dismiss();
  }

  /** Show the list of a fetched page, once no row is in use; older chats that were opened stay below it. */
  adopt(page) {
    const isInUse = this.#menus.isOpen || this.#renaming.isUnderWay;
    this.#waiting = isInUse ? page : null;
    if (isInUse) return;
    const fresh = rowsOf(page);
    const wanted = [...this.#deletions.without(fresh).map((row) => this.#twin(row) ?? row), ...this.#behind(page, fresh)];
    if (!this.#older.isExtended) this.#older.continueAs(page);
    if (!isSame(wanted, this.#rows)) this.#change(() => this.#list.replaceChildren(...wanted));
  }

  /** The chat of that id is no more. */
  remove(chatId) {
    this.#deletions.forget(chatId);
    this.take(chatId);
  }

  /** Take its row out of the list. */
  take(chatId) {
    this.#change(() => this.row(chatId)?.remove());
    this.#catchUp();
  }

  /** List a row again that was taken out, where it belongs by now. */
  putBack(row) {
    const next = this.#rows.find((each) => activeAt(each) < activeAt(row));
    this.#change(() => this.#list.insertBefore(row, next ?? null));
  }

  row(chatId) {
    return this.#list.querySelector(`[data-chat-id="${CSS.escape(chatId)}"]`);
  }

  /** The id of the chat on the page; empty for one that has not begun. */
  get current() {
    return document.querySelector("#main").dataset.chatId;
  }

  get #rows() {
    return rowsOf(document);
  }

  #catchUp() {
    if (this.#waiting) this.adopt(this.#waiting);
  }

  #change(change) {
    this.#holdingFocus(change);
    this.#days.put();
    document.querySelector("#no-chats").hidden = this.#rows.length > 0;
  }

  /** Do `change`; the row that had the focus has it afterwards, or the link to a new chat where the row is gone. */
  #holdingFocus(change) {
    const focused = this.#list.contains(document.activeElement) ? document.activeElement : null;
    const chatId = focused?.closest(".chat").dataset.chatId;
    change();
    if (!focused || this.#list.contains(document.activeElement)) return;
    const same = this.row(chatId)?.querySelector(focused.localName);
    (same ?? document.querySelector(".new-chat")).focus({ preventScroll: true });
  }

  /** The same row, as it is listed: kept, so that whoever is at it can stay. */
  #twin(row) {
    const listed = this.row(row.dataset.chatId);
    return listed?.isEqualNode(row) ? listed : null;
  }

  /** The older chats that are listed and not on that page: what is as new as those there, and is not, is gone. */
  #behind(page, fresh) {
    if (!this.#older.isExtended || page.querySelector("#older").hidden) return [];
    const met = new Set(fresh.map((row) => row.dataset.chatId));
    const end = activeAt(fresh.at(-1));
    return this.#rows.filter((row) => !met.has(row.dataset.chatId) && activeAt(row) <= end);
  }

  #extend(page) {
    const older = this.#deletions.without(rowsOf(page)).filter((row) => !this.row(row.dataset.chatId));
    this.#change(() => this.#list.append(...older));
    // They come from a page with another chat on it, or none.
    this.row(this.current)?.querySelector("a").setAttribute("aria-current", "page");
    return older;
  }
}

function rowsOf(page) {
  return [...page.querySelectorAll("#chat-list > .chat")];
}

function activeAt(row) {
  return Date.parse(row.dataset.activeAt);
}

function isSame(rows, others) {
  return rows.length === others.length && rows.every((row, place) => row === others[place]);
}
