// Keeps the page in step with the server, by fetching it again when there may be news.

import { visit } from "./visit.js";

const PAUSE_MS = 500; // hints come in bunches

export class Mirror {
  #address;
  #state;
  #adopt;
  #retire;
  #isWanted = false;
  #fetching = null;
  #timer = 0;

  /**
   * `adopt(page)` gets what stands at `address()`, unless `state()` changed while it was fetched: then it is again.
   * `retire(kind)` is called when there will never be one: "signed-out" or "gone".
   */
  constructor({ address, state, adopt, retire }) {
    this.#address = address;
    this.#state = state;
    this.#adopt = adopt;
    this.#retire = retire;
  }

  /** Fetch before long, once for all who ask meanwhile. */
  soon() {
    this.#timer ||= setTimeout(() => {
      this.#timer = 0;
      this.now();
    }, PAUSE_MS);
  }

  /** Fetch now, and once more if that is under way: it may be from before the news. Resolves to the last visit's kind. */
  now() {
    this.#isWanted = true;
    this.#fetching ??= this.#fetchWanted().finally(() => (this.#fetching = null));
    return this.#fetching;
  }

  async #fetchWanted() {
    let kind;
    while (this.#isWanted) {
      this.#isWanted = false;
      kind = await this.#fetch();
    }
    return kind;
  }

  async #fetch() {
    const before = this.#state();
    const { kind, document: page } = await visit(this.#address());
    if (this.#state() !== before) this.#isWanted = true;
    else if (page) this.#adopt(page);
    else if (kind !== "unreachable") this.#retire(kind);
    return kind;
  }
}
