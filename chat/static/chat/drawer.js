// On narrow screens the list of chats is a drawer over the chat.

const COLUMN = matchMedia("(width > 45rem)"); // as in sidebar.css

export class Drawer {
  #sidebar = document.querySelector("#sidebar");
  #backdrop = document.querySelector("#backdrop");
  #opener = document.querySelector("#open-drawer");
  #closer = document.querySelector("#close-drawer");

  constructor() {
    this.#opener.addEventListener("click", () => this.#open());
    this.#closer.addEventListener("click", () => this.close());
    this.#backdrop.addEventListener("click", () => this.close());
    COLUMN.addEventListener("change", () => this.#set(false)); // a column cannot be closed
  }

  /** Returns whether it was open. */
  close() {
    if (!this.#sidebar.matches(".open")) return false;
    this.#set(false);
    this.#opener.focus();
    return true;
  }

  #open() {
    this.#set(true);
    this.#closer.focus();
  }

  #set(isOpen) {
    this.#sidebar.classList.toggle("open", isOpen);
    this.#backdrop.hidden = !isOpen;
    this.#opener.setAttribute("aria-expanded", isOpen);
    document.querySelector("#main").inert = isOpen;
  }
}
