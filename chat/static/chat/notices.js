// What the page says beside the messages: aloud, to who cannot see it, and in the banner above.

const RETIRED = {
  "signed-out": {
    text: "You have been signed out.",
    link: "Sign in again",
    href: () => `/sign-in?${new URLSearchParams({ next: location.pathname })}`,
    unfinished: "The rest of this answer will be here when you have signed in again.",
  },
  gone: {
    text: "This chat has been deleted.",
    link: "Begin a new chat",
    href: () => "/",
    unfinished: "This answer was stopped.",
  },
};

export class Notices {
  #status = document.querySelector("#status");
  #banner = document.querySelector("#connection");
  #composer = document.querySelector("#composer");
  #isRetired = false;

  /** Tell a screen reader. */
  say(text) {
    this.#status.textContent = text;
  }

  /** Tell a screen reader that a run has ended, which left that note. */
  sayEnded(note) {
    this.say(note || "Answer complete.");
  }

  /** How a run ended, in a sentence; empty for one that went well. */
  ending(status, { detail, finish_reason: reason }) {
    const { stopped, cutOff } = this.#composer.dataset;
    if (status === "failed") return detail;
    if (status === "cancelled") return stopped;
    return reason === "length" ? cutOff : "";
  }

  constructor() {
    addEventListener("offline", () => this.lost());
  }

  /** The connection is away; the browser may know that there is none at all. */
  lost() {
    this.#show(
      navigator.onLine
        ? "The connection is lost. Reconnecting…"
        : "You are offline. What you write is kept, and the page goes on when you are back.",
    );
  }

  connected() {
    if (!this.#isRetired) this.#banner.hidden = true;
  }

  /** The page is of no more use, and says where to go. */
  retire(why) {
    const { text, link, href } = RETIRED[why];
    this.#show(text);
    this.say("");
    this.#isRetired = true;
    const anchor = this.#banner.querySelector("a");
    Object.assign(anchor, { href: href(), textContent: link, hidden: false });
  }

  /** What becomes of an answer that was being written. */
  unfinished(why) {
    return RETIRED[why].unfinished;
  }

  #show(text) {
    if (this.#isRetired) return;
    document.querySelector("#connection-text").textContent = text;
    this.#banner.hidden = false;
  }
}
