// What the server says of the chat on the page: the answer that is being written, and news of everything else.

import { forgetDraft } from "./draft.js";
import { Feed } from "./feed.js";
import { Mirror } from "./mirror.js";
import { Notices } from "./notices.js";
import { Run } from "./run.js";

export class Following {
  #main = document.querySelector("#main");
  #notices = new Notices();
  #feed = new Feed((name, data) => this.#hear(name, data));
  #mirror = new Mirror({
    address: () => (this.#chatId ? `/chats/${this.#chatId}` : "/"),
    state: () => `${this.#chatId} ${this.#changes}`,
    adopt: (page) => this.#adopt(page),
    retire: (why) => this.#retire(why),
  });
  #transcript;
  #composer;
  #tail;
  #adopted;
  #sidebar = null;
  #live = null;
  #isRetired = false;
  #ended = new Set();
  #changes = 0; // that this page knows of, and one fetched before may not

  /** Keeps these parts true; `adopted()` is called when the transcript has taken over what the server shows. */
  constructor({ transcript, composer, tail, adopted }) {
    this.#transcript = transcript;
    this.#composer = composer;
    this.#tail = tail;
    this.#adopted = adopted;
  }

  /** Begin to listen. */
  open(sidebar) {
    this.#sidebar = sidebar;
    const { liveRun } = this.#main.dataset;
    if (liveRun) this.begin(liveRun);
    else this.#feed.follow(null);
    this.#transcript.scroll.attach();
  }

  /** Take over what the server shows by now. */
  sync() {
    return this.#mirror.now();
  }

  /** Go on over a new connection. */
  renew() {
    this.#feed.renew();
  }

  /** The id of the run that is followed, if any. */
  get run() {
    return this.#live?.id;
  }

  get #chatId() {
    return this.#main.dataset.chatId;
  }

  /** Follow the run of that id, unless it is followed already, or over. */
  begin(id) {
    if (this.#live?.id === id || this.#ended.has(id)) return;
    this.#changes += 1;
    if (this.#live) this.#transcript.end(null);
    this.#live = new Run(id, this.#transcript.begin(), {
      restart: () => this.#feed.follow(id),
      end: (...how) => this.#end(...how),
      started: () => this.#notices.sayStarted(),
      say: (text) => this.#notices.say(text),
    });
    this.#tail.show(id);
    this.#composer.live = true;
    this.#notices.sayAsked();
    this.#feed.follow(id);
  }

  #end(status, data, isWhole) {
    const { id } = this.#live;
    this.#leave(data.message_id);
    const note = this.#notices.ending(status, data);
    this.#tail.show(id, { note, isFailed: status === "failed", isRetryable: data.retryable ?? true });
    this.#notices.sayEnded(note, status === "done" && this.#transcript.answer);
    this.#transcript.scroll.keep();
    if (!isWhole) this.sync();
  }

  /** The run is over, and its answer is the message of that id, or none. */
  #leave(messageId) {
    this.#changes += 1;
    this.#ended.add(this.#live.id);
    this.#live = null;
    this.#transcript.end(messageId);
    this.#composer.live = false;
  }

  #hear(name, data) {
    switch (name) {
      case "open":
        this.#notices.connected();
        return this.sync(); // for what was missed
      case "lost":
        return this.#notices.lost();
      case "closed":
        return this.#recover();
      case "signed_out":
        return this.#retire("signed-out");
      case "chat_deleted":
        this.#changes += 1; // a page that is on its way may have it still
        this.#sidebar.remove(data.id);
        forgetDraft(document.body.dataset.user, data.id);
        return data.id === this.#chatId ? this.#retire("gone") : undefined;
      case "run_begun":
        if (data.chat_id === this.#chatId && data.run_id !== this.run) return this.sync();
        return this.#mirror.soon();
      case "chat":
      case "run_ended":
      case "missed":
        return this.#mirror.soon();
      default:
        return this.#live?.hear(name, data);
    }
  }

  /** The connection was refused. A page says why: signed out, deleted, or a server that will be back. */
  async #recover() {
    this.#notices.lost();
    const kind = await this.sync();
    if (kind === "page" || kind === "unreachable") this.#feed.resume();
  }

  #retire(why) {
    if (this.#isRetired) return;
    this.#isRetired = true;
    if (why === "gone") this.#sidebar.remove(this.#chatId); // whose event may be on its way still
    this.#feed.close();
    this.#live?.abandon(this.#notices.unfinished(why));
    this.#live = null;
    this.#composer.retire();
    this.#tail.retire();
    this.#notices.retire(why);
  }

  #adopt(page) {
    if (this.#isRetired) return;
    this.#sidebar.adopt(page);
    for (const part of page.querySelectorAll("[data-mirrored]")) document.getElementById(part.id)?.replaceWith(part);
    this.#notices.sayOnce(document.querySelector("#answered-by").textContent);
    if (!this.#chatId) return;
    document.title = page.title;
    document.querySelector("#title").textContent = page.querySelector("#title").textContent;
    const { liveRun } = page.querySelector("#main").dataset;
    // While the run that we follow is live, nothing new can stand in the chat.
    if (!this.#live || liveRun !== this.run) this.#adoptChat(page, liveRun);
  }

  #adoptChat(page, liveRun) {
    const hasEnded = Boolean(this.#live);
    if (hasEnded) this.#leave(null);
    this.#transcript.adopt(page);
    this.#tail.adopt(page);
    this.#composer.setFull(!page.querySelector("#full").hidden, page.querySelector("#full-reason").textContent);
    if (hasEnded) this.#notices.sayEnded(this.#tail.note, !this.#tail.note && this.#transcript.answer);
    this.#adopted();
    if (liveRun) this.begin(liveRun);
  }
}
