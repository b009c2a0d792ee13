// A run's wait for a worker, in words.

const SAY_AGAIN_MS = 30_000; // the words change every two seconds, and a screen reader would read out each change
const ENDINGS = { one: "st", two: "nd", few: "rd", other: "th" };
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
    const text = position ? inLine(position, etaS) : "Waiting in the queue.";
    this.#show(text);
    if (performance.now() - this.#saidAt < SAY_AGAIN_MS) return;
    this.#saidAt = performance.now();
    this.#say(text);
  }
}

function inLine(position, etaS) {
  const place = `Waiting: ${position}${ENDINGS[ordinals.select(position)]} in line`;
  return etaS === null ? `${place}.` : `${place}, about ${span(etaS)}.`;
}

function span(seconds) {
  if (seconds < 90) return `${seconds} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? `${minutes} min` : `${Math.round(minutes / 60)} h`;
}
