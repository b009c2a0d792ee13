// What stands in the composer's place once the chat has all its questions: why, and the way on.

export class Full {
  #place = document.querySelector("#full");
  #reason = document.querySelector("#full-reason");

  /** `goOn()` is called for who wants to; without scripts the form does it. */
  constructor(goOn) {
    const button = this.#place.querySelector("button");
    this.#place.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (button.disabled) return;
      button.disabled = true;
      await goOn();
      button.disabled = false;
    });
  }

  get isShown() {
    return !this.#place.hidden;
  }

  set isShown(isShown) {
    this.#place.hidden = !isShown;
  }

  /** The reason, as the server puts it. */
  set reason(reason) {
    this.#reason.textContent = reason;
  }
}
