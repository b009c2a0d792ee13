// A run's wait for a worker, in words.

import { gettext, isEnglish, say } from "./words.js";

const SAY_AGAIN_MS = 30_000; // the words change every two seconds, and a screen reader would read out each change
const ENDINGS = { one: "st", two: "nd", few: "rd", other: "th" }; // of English ordinals
const ordinals = new Intl.PluralRules("en", { type: "ordinal" });

export class Waiting {
  #show;
  #say;
  #saidAt = -Infinity;

  /** `show(text)` gets the words each time, `say(text)`, for who cannot see them, now and then. */
  constructor({ show, say }) {
    this.#show = show;
    this.#say = say;
  }

  /** There is news of the wait: what a `queued` event says. */
  hear({ position, eta_s: etaS }) {
    const text = position ? inLine(position, etaS) : gettext("Waiting in the queue.");
    this.#show(text);
    if (performance.now() - this.#saidAt < SAY_AGAIN_MS) return;
    this.#saidAt = performance.now();
    this.#say(text);
  }
}

function inLine(position, etaS) {
  const place = ordinal(position);
  if (etaS === null) return say(gettext("Waiting: %(place)s in line."), { place });
  return say(gettext("Waiting: %(place)s in line, about %(span)s."), { place, span: span(etaS) });
}

function ordinal(position) {
  return isEnglish ? `${position}${ENDINGS[ordinals.select(position)]}` : position;
}

function span(seconds) {
  if (seconds < 90) return say(gettext("%(count)s s"), { count: seconds });
  const minutes = Math.round(seconds / 60);
  if (minutes < 90) return say(gettext("%(count)s min"), { count: minutes });
  return say(gettext("%(count)s h"), { count: Math.round(minutes / 60) });
}
