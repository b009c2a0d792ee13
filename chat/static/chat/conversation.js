// What a person does in the chat on the page: asks, stops, tries again.

import { call, isUnsure, Refusal } from "./api.js";
import { Composer } from "./composer.js";
import { Draft } from "./draft.js";
import { Following } from "./following.js";
import { newKey, once } from "./once.js";
import { Tail } from "./tail.js";
import { Transcript } from "./transcript.js";
import { ngettext, say } from "./words.js";

const STOP_PATIENCE_MS = 10_000;
// What is too much of a whole chat, where there is one message in it.
const OF_ONE_MESSAGE = { prompt_too_long: "message_too_long", prompt_exceeds_budget: "message_exceeds_budget" };

export class Conversation {
  #main = document.querySelector("#main");
  #transcript = new Transcript();
  #draft = new Draft(document.body.dataset.user, this.#chatId);
  #composer = new Composer(this.#draft, {
    send: (content, model) => this.#send(content, model),
    stop: () => this.#stop(),
    goOn: () => this.#goOn(),
  });
  #tail = new Tail(() => this.#retry());
  #following = new Following({
    transcript: this.#transcript,
    composer: this.#composer,
    tail: this.#tail,
    adopted: () => this.#lookForAsked(),
  });

  /** Begin to listen. */
  open(sidebar) {
    this.#following.open(sidebar);
    this.#lookForAsked();
    const { asked } = this.#draft;
    if (asked && !asked.isGivenUp) this.#composer.send(asked.content, asked.model); // the page was left meanwhile
  }

  /** Take over what the server shows by now. */
  sync() {
    return this.#following.sync();
  }

  /** Stop the answer; returns whether there is one. */
  interrupt() {
    return this.#composer.interrupt();
  }

  /** Forget what was written. */
  forget() {
    this.#draft.forget();
  }

  get #chatId() {
    return this.#main.dataset.chatId;
  }

  async #send(content, model) {
    const asked = this.#question(content, model);
    this.#draft.asked = asked;
    this.#transcript.propose(content);
    try {
      await this.#deliver(asked);
    } catch (error) {
      if (this.#draft.asked !== asked) return; // it has arrived all the same
      this.#transcript.withdraw();
      this.#draft.asked = isUnsure(error) ? { ...asked, isGivenUp: true } : null;
      if (isUnsure(error)) this.sync();
      throw error;
    }
  }

  /** What is about to be asked: under the same key as before while nobody knows what became of it. */
  #question(content, model) {
    const { asked } = this.#draft;
    if (asked?.content === content && asked.model === model) return { ...asked, isGivenUp: false };
    return { content, model, key: newKey(), after: this.#transcript.question?.id };
  }

  async #deliver({ content, model, key }) {
    if (!this.#chatId) await this.#openChat(key);
    const taken = await this.#call(key, `/api/chats/${this.#chatId}/messages`, { content, model });
    this.#draft.asked = null;
    if (this.#tail.run === taken.run_id) return this.#transcript.withdraw(); // the page has both by now
    this.#transcript.annotate(this.#tail.note);
    this.#transcript.settle(taken.message_id);
    this.#following.begin(taken.run_id);
  }

  async #openChat(key) {
    this.#main.dataset.chatId = (await once(`${key}.chat`, "/api/chats")).id;
    this.#draft.move(this.#chatId);
    history.replaceState(null, "", `/chats/${this.#chatId}`);
  }

  /** A question whose fate is not known may stand in the chat by now. */
  #lookForAsked() {
    const { id, text } = this.#transcript.question ?? {};
    const { asked } = this.#draft;
    if (!asked || text !== asked.content || id === asked.after) return;
    this.#draft.asked = null;
    this.#transcript.withdraw();
    this.#composer.arrived(text);
  }

  /** Go on in a new chat, which gets what is written here and was not sent. */
  async #goOn() {
    const { id } = await once(newKey(), "/api/chats", { continues: this.#chatId });
    this.#draft.move(id);
    location.assign(`/chats/${id}`);
  }

  async #stop() {
    const run = await call("POST", `/api/runs/${this.#following.run}/cancel`);
    if (run.finished_at) this.sync(); // it ended by itself; its last event is on the way, or was missed
    setTimeout(() => this.#following.run === run.id && this.#stopAgain(), STOP_PATIENCE_MS);
  }

  /** It should be over by now: perhaps it is, and nothing comes through; else it can be asked for once more. */
  #stopAgain() {
    this.#following.renew();
    this.#composer.live = true;
  }

  async #retry() {
    this.#composer.refuse("");
    this.#composer.focus();
    try {
      const { run } = this.#tail;
      const retried = await this.#call(`${run}.retry`, `/api/runs/${run}/retry`); // whichever tab asks for it
      this.#transcript.scroll.attach();
      this.#following.begin(retried.run_id);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      if (error.code === "chat_busy" && this.#following.run) return; // another tab was first; here it is
      this.#composer.refuse(error.message);
    }
  }

  /** Call for a run; where another tab was first, the page is brought up to date before the refusal. */
  async #call(key, path, body) {
    try {
      return await once(key, path, body);
    } catch (error) {
      if (["chat_busy", "not_latest"].includes(error.code)) await this.sync();
      if (error.code === "chat_full") this.#composer.setFull(true, fullAt(error.data.limit));
      const ofOne = this.#transcript.question ? undefined : OF_ONE_MESSAGE[error.code];
      throw ofOne ? new Refusal(ofOne) : error;
    }
  }
}

/** Why a chat takes no more questions, as its page will say when it is loaded again. */
function fullAt(limit) {
  const sentence = ngettext(
    "This chat has its %(limit)s question. Begin a new one: it goes on from this chat's summary.",
    "This chat has its %(limit)s questions. Begin a new one: it goes on from this chat's summary.",
    limit,
  );
  return say(sentence, { limit });
}
