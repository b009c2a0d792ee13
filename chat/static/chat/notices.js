// What the page says beside the messages: aloud, to who cannot see it, and in the banner above.

import { gettext } from "./words.js";

const FAILURES = JSON.parse(document.querySelector("#failures").textContent);
const RETIRED = {
  "signed-out": {
    text: gettext("You have been signed out."),
    link: gettext("Sign in again"),
    href: () => `/sign-in?${new URLSearchParams({ next: location.pathname })}`,
    unfinished: gettext("The rest of this answer will be here when you have signed in again."),
  },
  gone: {
    text: gettext("This chat has been deleted."),
    link: gettext("Begin a new chat"),
    href: () => "/",
    unfinished: gettext("This answer was stopped."),
  },
};

export class Notices {
  #status = document.querySelector("#status");
  #banner = document.querySelector("#connection");
  #composer = document.querySelector("#composer");
  #isRetired = false;
  #saidOnce = "";

  /** Tell a screen reader. */
  say(text) {
    this.#status.textContent = text;
  }

  /** Tell a screen reader what stands on the page, and not again while it does. */
  sayOnce(text) {
    if (text && text !== this.#saidOnce) this.say(text);
    this.#saidOnce = text;
  }

  /** Tell a screen reader that a run was asked for: who answers it is not known. */
  sayAsked() {
    this.#saidOnce = "";
    this.say(gettext("Answering…"));
  }

  /** Tell a screen reader that words will come, and once more who answers: what was said just now may go unread. */
  sayStarted() {
    this.say([gettext("Answering…"), this.#saidOnce].filter(Boolean).join(" "));
  }

  /** Tell a screen reader that a run has ended: how, and the whole answer, once. */
  sayEnded(note, answer) {
    this.say([note || gettext("Answer complete."), answer].filter(Boolean).join(" "));
  }

  /** How a run ended, in a sentence; empty for one that went well. */
  ending(status, { code, detail, finish_reason: reason }) {
    const { stopped, cutOff } = this.#composer.dataset;
    if (status === "failed") return FAILURES[code] ?? detail;
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
        ? gettext("The connection is lost. Reconnecting…")
        : gettext("You are offline. What you write is kept, and the page goes on when you are back."),
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
