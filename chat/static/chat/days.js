// Headings between the chats of the list, by the reader's own days, which the server does not know.

import { gettext } from "./words.js";

const DAY_MS = 86_400_000;
const MONTH = new Intl.DateTimeFormat(document.documentElement.lang, { month: "long", year: "numeric" });

export class Days {
  #list;

  /** Of the chats in `list`, the newest first; until they change, it keeps the headings true over midnight. */
  constructor(list) {
    this.#list = list;
    this.#turn();
    // Timers stand still while a computer sleeps.
    addEventListener("visibilitychange", () => document.visibilityState === "visible" && this.put());
  }

  /** Put the headings where they belong by now. */
  put() {
    for (const heading of this.#list.querySelectorAll(".day")) heading.remove();
    const now = new Date();
    let last = null;
    for (const chat of this.#list.querySelectorAll(".chat")) {
      const name = nameOf(new Date(chat.dataset.activeAt), now);
      if (name !== last) chat.before(heading(name));
      last = name;
    }
  }

  #turn() {
    this.put();
    const now = new Date();
    const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate() + 1);
    setTimeout(() => this.#turn(), midnight - now + 1);
  }
}

function nameOf(moment, now) {
  const ago = dayNumber(now) - dayNumber(moment);
  if (ago < 1) return gettext("Today"); // of the future too: clocks differ
  if (ago === 1) return gettext("Yesterday");
  if (ago <= 7) return gettext("Previous 7 days");
  if (ago <= 30) return gettext("Previous 30 days");
  return MONTH.format(moment);
}

/** Days of the calendar are counted, some of which have 23 hours. */
function dayNumber(moment) {
  return Date.UTC(moment.getFullYear(), moment.getMonth(), moment.getDate()) / DAY_MS;
}

function heading(name) {
  const item = document.createElement("li");
  item.className = "day";
  item.append(document.createElement("h2"));
  item.firstChild.textContent = name;
  return item;
}
