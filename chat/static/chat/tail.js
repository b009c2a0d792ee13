// What stands below the last message: how its run ended, and Retry.

export class Tail {
  #place = document.querySelector("#tail");
  #note = document.querySelector("#tail-note");
  #retry = document.querySelector("#retry");
  #anew = document.querySelector("#anew");

  /** `retry()` is called for the chat's latest run. */
  constructor(retry) {
    this.#retry.addEventListener("click", async () => {
      this.#retry.disabled = true;
      await retry();
      this.#retry.disabled = false;
    });
  }

  /** The chat's latest run. */
  get run() {
    return this.#place.dataset.run;
  }

  get note() {
    return this.#note.textContent;
  }

  show(run, { note = "", isFailed = false, isRetryable = false } = {}) {
    this.#place.dataset.run = run ?? "";
    this.#note.textContent = note;
    this.#note.classList.toggle("failed", isFailed);
    this.#retry.hidden = !isRetryable;
    this.#anew.hidden = isRetryable || !isFailed;
  }

  /** Nothing can be tried from here any more. */
  retire() {
    this.#retry.hidden = true;
  }

  /** Show what a fetched page shows. */
  adopt(page) {
    const note = page.querySelector("#tail-note");
    this.show(page.querySelector("#tail").dataset.run, {
      note: note.textContent,
      isFailed: note.matches(".failed"),
      isRetryable: !page.querySelector("#retry").hidden,
    });
  }
}
