// Chats that are about to be deleted: gone from the list at once, from the server when nobody can want them back.

import { call, Refusal } from "./api.js";
import { Toast } from "./toast.js";

const PREFIX = "deletion:";

export class Deletions {
  #owner;
  #list;
  #pending = null; // { id, title, toast, from }
  #withheld = new Map(); // the rows that pages from before may still have, by id

  /** In `list`, which can `take(id)` out and `putBack(row)`, and has a `current` chat on the page; of that user. */
  constructor(owner, list) {
    this.#owner = owner;
    this.#list = list;
    // The last moments to say it in. A browser that dies before then has deleted nothing: the chat is simply still there.
    addEventListener("pagehide", () => this.settle());
    document.querySelector("#sign-out").addEventListener("submit", () => this.settle());
    this.#takeOver();
  }

  /** Delete a chat, unless that is taken back in time; by keyboard, what takes it back gets the focus. */
  begin(row, { isByKeyboard }) {
    this.settle();
    const { chatId: id } = row.dataset;
    const chat = { id, title: row.querySelector(".label").textContent, isByKeyboard };
    if (id === this.#list.current) return this.#handOver(chat);
    this.#withhold(row);
    this.#offer(chat);
  }

  /** Those of the rows that are not about to be deleted. */
  without(rows) {
    const withheld = rows.filter((row) => this.#withheld.has(row.dataset.chatId));
    for (const row of withheld) this.#withheld.set(row.dataset.chatId, row);
    return rows.filter((row) => !withheld.includes(row));
  }

  /** It was deleted elsewhere. */
  forget(id) {
    if (this.#pending?.id === id) this.#conclude();
  }

  /** Delete now what can still be taken back, if that has the focus; returns whether it had. */
  dismiss() {
    const isAsked = Boolean(this.#pending?.toast.hasFocus);
    if (isAsked) this.settle();
    return isAsked;
  }

  /** Delete now what can still be taken back. */
  async settle() {
    if (!this.#pending) return;
    const { id, title } = this.#conclude();
    try {
      await call("DELETE", `/api/chats/${id}`, {}, {}, { keepalive: true });
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      if (error.code !== "not_found") this.#keep(id, title, error.message);
    }
  }

  /** The page goes, since its chat does; the next one offers to take it back. */
  #handOver({ id, title, isByKeyboard }) {
    sessionStorage.setItem(PREFIX + this.#owner, JSON.stringify({ id, title, isByKeyboard, from: location.pathname }));
    location.replace("/");
  }

  #takeOver() {
    const left = Object.keys(sessionStorage).filter((key) => key.startsWith(PREFIX));
    const chat = JSON.parse(sessionStorage.getItem(PREFIX + this.#owner) ?? "null");
    for (const key of left) sessionStorage.removeItem(key); // somebody else's too
    if (!chat || chat.id === this.#list.current) return; // who is back at it wants it
    this.#withheld.set(chat.id, null);
    this.#withhold(this.#list.row(chat.id));
    this.#offer(chat);
  }

  #offer({ id, title, isByKeyboard, from }) {
    const toast = new Toast("#deleted-template", {
      fill: (item) => {
        item.querySelector(".name").textContent = title;
        item.querySelector("button").addEventListener("click", () => this.#undo());
      },
      over: () => this.settle(),
    });
    this.#pending = { id, title, toast, from };
    if (isByKeyboard) toast.focus();
  }

  #undo() {
    const { id, from, toast } = this.#pending;
    this.#pending = null;
    if (from) return location.assign(from);
    const row = this.#release(id);
    toast.close(row?.querySelector("summary"));
  }

  /** Nothing can be taken back any more. */
  #conclude() {
    const pending = this.#pending;
    this.#pending = null;
    pending.toast.close();
    return pending;
  }

  /** It could not be deleted. */
  #keep(id, title, reason) {
    this.#release(id);
    new Toast("#kept-template", {
      fill: (item) => {
        item.querySelector(".name").textContent = title;
        item.querySelector(".reason").textContent = reason;
      },
    });
  }

  #withhold(row) {
    if (!row) return;
    this.#withheld.set(row.dataset.chatId, row);
    this.#list.take(row.dataset.chatId);
  }

  #release(id) {
    const row = this.#withheld.get(id);
    this.#withheld.delete(id);
    if (row) this.#list.putBack(row);
    return row;
  }
}
