// Which tab of a browser leads: one at a time, and another as soon as it goes.

export class Election {
  #office;
  #elected;
  #deposed;
  #standing = null;
  #resign = null;

  /** Of tabs that name the same office. `elected()` is called when this one leads, `deposed()` when another took over. */
  constructor(office, { elected, deposed }) {
    this.#office = office;
    this.#elected = elected;
    this.#deposed = deposed;
  }

  /** Whether tabs can find each other: on HTTPS and loopback. Elsewhere each leads itself. */
  static get isPossible() {
    return Boolean(navigator.locks && window.BroadcastChannel);
  }

  /** Lead when nobody else does. */
  stand() {
    if (!Election.isPossible) return this.#elected();
    const standing = new AbortController();
    this.#request(standing, { signal: standing.signal });
  }

  /** Lead now: the tab that does is silent. */
  seize() {
    this.withdraw();
    this.#request(new AbortController(), { steal: true });
  }

  /** Lead no more, nor wait for it. */
  withdraw() {
    this.#standing?.abort();
    this.#standing = null;
    this.#resign?.();
    this.#resign = null;
  }

  async #request(standing, options) {
    this.#standing = standing;
    try {
      await navigator.locks.request(this.#office, options, () => this.#hold(standing));
    } catch {
      if (standing.signal.aborted) return;
      this.stand();
      this.#deposed();
    }
  }

  /** Keeps the lock for as long as what it returns is pending. */
  #hold(standing) {
    if (standing.signal.aborted) return null;
    const isOver = new Promise((resolve) => (this.#resign = resolve));
    this.#elected();
    return isOver;
  }
}
