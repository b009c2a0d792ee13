// What was written and is not known to have arrived: kept for this tab and this person, over reloads and signing in again.

const PREFIX = "draft:";

export class Draft {
  #mine;
  #chatId;
  #kept;

  /** Of the chat of that id, or of none yet; other people's drafts are forgotten. */
  constructor(owner, chatId) {
    this.#mine = `${PREFIX}${owner}:`;
    this.#chatId = chatId;
    forget((key) => !key.startsWith(this.#mine));
    this.#kept = JSON.parse(sessionStorage.getItem(this.#key) ?? "{}");
  }

  get text() {
    return this.#kept.text ?? "";
  }

  set text(text) {
    if (text === this.text) return;
    const { asked } = this;
    const isChanged = asked?.isGivenUp && asked.content !== text; // which makes it another question
    this.#keep({ text, asked: isChanged ? null : asked });
  }

  /** The question that was sent last, while nobody knows what became of it; `isGivenUp` when it is a draft again. */
  get asked() {
    return this.#kept.asked ?? null;
  }

  set asked(asked) {
    this.#keep({ text: this.text, asked });
  }

  /** It is that chat's from now on. */
  move(chatId) {
    const kept = this.#kept;
    this.#keep({});
    this.#chatId = chatId;
    this.#keep(kept);
  }

  get #key() {
    return this.#mine + this.#chatId;
  }

  #keep(kept) {
    this.#kept = kept;
    if (!kept.text && !kept.asked) return sessionStorage.removeItem(this.#key);
    try {
      sessionStorage.setItem(this.#key, JSON.stringify(kept));
    } catch {
      // Larger than the browser keeps, and than the server takes.
    }
  }
}

/** Forget this tab's drafts. */
export function forgetDrafts() {
  forget(() => true);
}

function forget(isUnwanted) {
  const drafts = Object.keys(sessionStorage).filter((key) => key.startsWith(PREFIX));
  for (const key of drafts.filter(isUnwanted)) sessionStorage.removeItem(key);
}
