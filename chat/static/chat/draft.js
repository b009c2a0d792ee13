// What was written and is not known to have arrived: kept for its chat and this person, until they sign out.

const PREFIX = "draft:";

export class Draft {
  #owner;
  #chatId;
  #text;
  #asked;
  #isOfTab = false;

  /** Of the chat of that id, or of none yet; other people's drafts are forgotten. */
  constructor(owner, chatId) {
    this.#owner = owner;
    this.#chatId = chatId;
    forget((key) => !key.startsWith(keyOf(owner, "")));
    const ofTab = JSON.parse(sessionStorage.getItem(this.#key) ?? "{}");
    this.#asked = ofTab.asked ?? null;
    this.#text = ofTab.text || localStorage.getItem(this.#key) || "";
    this.#keepText();
    this.#keepForTab();
  }

  get text() {
    return this.#text;
  }

  set text(text) {
    if (text === this.#text) return;
    const isChanged = this.#asked?.isGivenUp && this.#asked.content !== text; // which makes it another question
    if (isChanged) this.asked = null;
    const before = this.#text;
    this.#text = text;
    this.#keepText(before);
  }

  /** The question that was sent last, while nobody knows what became of it; `isGivenUp` when it is a draft again. */
  get asked() {
    return this.#asked;
  }

  set asked(asked) {
    this.#asked = asked;
    this.#keepForTab();
  }

  /** It is that chat's from now on. */
  move(chatId) {
    if (localStorage.getItem(this.#key) === this.#text) store(localStorage, this.#key, "");
    store(sessionStorage, this.#key, "");
    this.#chatId = chatId;
    this.#keepText(this.#text);
    this.#keepForTab();
  }

  /** Keep it in this tab alone, over reloads and signing in again: the person has signed out, or the chat is gone. */
  retire() {
    this.#isOfTab = true;
    store(localStorage, this.#key, "");
    this.#keepForTab();
  }

  /** There is none, nor was there. */
  forget() {
    const before = this.#text;
    this.#text = "";
    this.asked = null;
    this.#keepText(before);
  }

  get #key() {
    return keyOf(this.#owner, this.#chatId);
  }

  /** What was written last in any tab is found by the next that opens the chat; only its own tab takes it away. */
  #keepText(before) {
    if (this.#isOfTab) return this.#keepForTab();
    const isAnothers = ![null, before].includes(localStorage.getItem(this.#key));
    if (this.#text || !isAnothers) store(localStorage, this.#key, this.#text);
  }

  /** A question that is on its way is its tab's own. */
  #keepForTab() {
    const ofTab = { text: this.#isOfTab ? this.#text : "", asked: this.#asked };
    store(sessionStorage, this.#key, ofTab.text || ofTab.asked ? JSON.stringify(ofTab) : "");
  }
}

/** Forget the draft of that person's chat. */
export function forgetDraft(owner, chatId) {
  store(localStorage, keyOf(owner, chatId), "");
}

/** Forget all drafts, but for what other tabs show. */
export function forgetDrafts() {
  forget(() => true);
}

function keyOf(owner, chatId) {
  return `${PREFIX}${owner}:${chatId}`;
}

function store(storage, key, text) {
  if (!text) return storage.removeItem(key);
  try {
    storage.setItem(key, text);
  } catch {
    // Larger than the browser keeps, and than the server takes.
  }
}

function forget(isUnwanted) {
  for (const storage of [localStorage, sessionStorage]) {
    const drafts = Object.keys(storage).filter((key) => key.startsWith(PREFIX));
    for (const key of drafts.filter(isUnwanted)) storage.removeItem(key);
  }
}
