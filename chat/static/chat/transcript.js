// The messages on the page. What people and models wrote is put there as text; as markup only what the server made of it.

import { Answer } from "./answer.js";
import { Earlier } from "./earlier.js";
import { Reading } from "./reading.js";
import { handOver, isSelected } from "./rich.js";
import { Scroll } from "./scroll.js";
import { gettext } from "./words.js";

const BLOCKS = "p, li, h3, h4, h5, h6, blockquote, td, th, pre, .language, .math.display";
const NAMES = { user: gettext("You"), assistant: "Palaver" };

export class Transcript {
  #turns = document.querySelector("#turns");
  #template = document.querySelector("#turn-template");
  #welcome = document.querySelector("#welcome");
  #live = null;
  #pending = null;
  #reading;
  #earlier;

  constructor() {
    const region = document.querySelector("#scroll");
    this.scroll = new Scroll(region, document.querySelector("#jump"));
    this.#reading = new Reading(region);
    this.#reading.dress(this.#turns);
    this.#earlier = new Earlier(region, (turns, alsoDo) => this.#prepend(turns, alsoDo));
  }

  /** The newest question that the server has: its id and text, or undefined. */
  get question() {
    const turn = [...this.#turns.querySelectorAll(".turn.user:not(.pending)")].at(-1);
    return turn && { id: turn.dataset.messageId, text: turn.querySelector(".text").textContent };
  }

  /** The newest answer, as it is read out. */
  get answer() {
    const text = this.#turns.querySelector(".turn.assistant:last-child .text")?.cloneNode(true);
    if (!text) return "";
    // A formula's source stands beside it, and a block's text would run into the next one's.
    for (const unread of text.querySelectorAll("button, annotation")) unread.remove();
    for (const block of text.querySelectorAll(BLOCKS)) block.append(" ");
    return text.textContent.trim();
  }

  /** Show a question that is on its way to the server. */
  propose(content) {
    this.#pending = this.#new("user", "");
    this.#pending.classList.add("pending");
    this.#pending.querySelector(".text").textContent = content;
    this.scroll.attach();
  }

  /** The question was taken, as the message of that id. */
  settle(messageId) {
    if (!this.#pending || this.#find(messageId)) return this.withdraw();
    this.#pending.classList.remove("pending");
    this.#pending.dataset.messageId = messageId;
    this.#pending = null;
  }

  /** The question is not on its way any more. */
  withdraw() {
    this.#pending?.remove();
    this.#pending = null;
    this.#greet();
  }

  /** Room for an answer that begins now; an older answer to the same question is hidden meanwhile. */
  begin() {
    const older = [...this.#turns.children].reverse();
    for (const turn of older.slice(0, older.findIndex((each) => each.matches(".user")))) {
      turn.classList.add("superseded");
    }
    const turn = this.#new("assistant", "");
    turn.classList.add("live");
    this.#live = turn;
    this.scroll.keep();
    return new Answer(turn, () => this.scroll.keep());
  }

  /** The live answer is over: it stays as the message of that id, or goes, where it left none. */
  end(messageId) {
    if (messageId) this.#find(messageId)?.remove();
    for (const turn of this.#turns.querySelectorAll(".superseded")) {
      if (messageId) turn.remove();
      else turn.classList.remove("superseded");
    }
    this.#live.classList.remove("live");
    this.#live.dataset.messageId = messageId ?? "";
    if (!messageId) this.#live.remove();
    this.#live = null;
    this.scroll.keep();
  }

  /** Say something below the last message that the server has. */
  annotate(text) {
    const note = [...this.#turns.querySelectorAll(".turn:not(.pending)")].at(-1)?.querySelector(".note");
    if (!note || !text) return;
    note.textContent = text;
    note.hidden = false;
  }

  /** Show what a fetched page shows; what is there already, and earlier messages, are left alone. */
  adopt(page) {
    const fresh = [...page.querySelectorAll("#turns > .turn")].map((turn) => this.#twin(turn) ?? turn);
    const shown = [...this.#turns.children].filter((turn) => turn !== this.#pending);
    const begins = shown.findIndex((turn) => turn.dataset.messageId === fresh[0]?.dataset.messageId);
    const wanted = [...shown.slice(0, Math.max(0, begins)), ...fresh];
    if (begins < 0) this.#earlier.continueAs(page);
    this.#arrange(shown, wanted);
    this.#reading.dress(this.#turns);
    this.#greet();
    this.scroll.keep();
  }

  #new(role, messageId) {
    const turn = this.#template.content.firstElementChild.cloneNode(true);
    turn.className = `turn ${role}`;
    turn.dataset.messageId = messageId;
    turn.querySelector("h2").textContent = NAMES[role];
    this.#turns.append(turn);
    this.#greet();
    return turn;
  }

  #greet() {
    this.#welcome.hidden = this.#turns.children.length > 0;
  }

  #find(messageId) {
    return this.#turns.querySelector(`[data-message-id="${CSS.escape(messageId)}"]`);
  }

  /** The same message, as it is on this page: kept where it is no other, and while somebody selects in it. */
  #twin(turn) {
    const here = this.#find(turn.dataset.messageId);
    if (!here) return null;
    const same = (part) => here.querySelector(part).textContent.trim() === turn.querySelector(part).textContent.trim();
    // A message's text never changes: its markup may, and what stands below it.
    const isSame = here.dataset.markup === turn.dataset.markup && same(".note") && same(".answered-by") && same(".facts");
    const isBetter = here.querySelector(".markup") && !turn.querySelector(".markup"); // the server had no time to set it
    return isSame || isBetter || isSelected(here) ? here : null;
  }

  /** Make of the turns that are shown those that are wanted; what stays is not touched: nor is a selection in it. */
  #arrange(shown, wanted) {
    for (const old of shown.filter((turn) => !wanted.includes(turn))) {
      const fresh = wanted.find((turn) => turn.dataset.messageId === old.dataset.messageId);
      if (fresh) handOver(old, fresh);
      if (fresh) old.replaceWith(fresh);
      else old.remove();
    }
    let next = this.#turns.firstElementChild;
    for (const turn of wanted) {
      if (turn === next) next = next.nextElementSibling;
      else this.#turns.insertBefore(turn, next);
    }
  }

  #prepend(turns, alsoDo) {
    this.scroll.hold(() => {
      this.#turns.prepend(...turns.filter((turn) => !this.#find(turn.dataset.messageId)));
      this.#reading.dress(this.#turns);
      alsoDo();
    });
  }
}
