// A chat's name is changed where it stands: its row in the list becomes an input for as long as that takes.

import { call, Refusal } from "./api.js";

const TEMPLATE = document.querySelector("#renaming-template");

export class Renaming {
  #list;
  #renamed;
  #over;

  /** Of chats in `list`; `renamed(id)` is called for each that was, `over()` when a row is as it was before. */
  constructor(list, { renamed, over }) {
    this.#list = list;
    this.#renamed = renamed;
    this.#over = over;
  }

  get isUnderWay() {
    return Boolean(this.#list.querySelector(".renaming"));
  }

  begin(row) {
    const place = TEMPLATE.content.firstElementChild.cloneNode(true);
    const input = place.querySelector("input");
    input.value = row.querySelector(".label").textContent;
    input.addEventListener("keydown", (event) => this.#press(event, row));
    input.addEventListener("blur", () => {
      const isWindowLeft = document.activeElement === input;
      if (!isWindowLeft && row.isConnected) this.#save(row, input);
    });
    row.classList.add("renamed");
    row.prepend(place);
    input.focus();
    input.select();
  }

  /** Leave the name as it was; returns whether there was one to be changed. */
  giveUp() {
    const row = this.#list.querySelector(".chat:has(.renaming :focus)") ?? this.#list.querySelector(".chat.renamed");
    if (row) this.#end(row);
    return Boolean(row);
  }

  #press(event, row) {
    // Enter that ends a word in an input method saves nothing; Safari tells by the key code only.
    if (event.key !== "Enter" || event.isComposing || event.keyCode === 229) return;
    event.preventDefault();
    this.#save(row, event.target);
  }

  async #save(row, input) {
    const label = row.querySelector(".label");
    const title = input.value.trim();
    if (!row.contains(input) || input.readOnly) return; // it was given up, or is on its way
    if (title === label.textContent) return this.#end(row);
    input.readOnly = true;
    refuse(row, "");
    try {
      const { chatId } = row.dataset;
      const chat = await call("PATCH", `/api/chats/${chatId}`, { title });
      label.textContent = chat.title;
      this.#renamed(chatId);
      this.#end(row);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      refuse(row, error.message);
    } finally {
      input.readOnly = false;
    }
  }

  #end(row) {
    const place = row.querySelector(".renaming");
    if (!place) return;
    const hadFocus = place.contains(document.activeElement);
    place.querySelector("input").readOnly = true; // what it loses the focus by is no wish to save
    row.classList.remove("renamed");
    if (hadFocus) row.querySelector("summary").focus();
    place.remove();
    this.#over();
  }
}

function refuse(row, reason) {
  const refusal = row.querySelector(".renaming .refusal");
  if (!refusal) return;
  refusal.textContent = reason;
  refusal.hidden = !reason;
}
