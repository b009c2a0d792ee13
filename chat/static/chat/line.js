// What the tabs of a browser share: one of them holds the connection, and passes on what it brings.

import { Election } from "./election.js";
import { newKey } from "./once.js";
import { Switchboard } from "./switchboard.js";

export class Line {
  #tab = newKey();
  #name;
  #hear;
  #election;
  #others = null;
  #switchboard = null;
  #leader = ""; // whose word counts: one that was deposed in its sleep may not know it yet

  /** Of that person's tabs. `hear(message)` gets what the leader tells all: see `Switchboard`. */
  constructor(person, hear) {
    this.#name = `feed:${person}`;
    this.#hear = hear;
    this.#election = new Election(this.#name, { elected: () => this.#lead(), deposed: () => this.#yield() });
  }

  /** Be one of them, and lead if nobody does. */
  join() {
    if (this.#others || this.#switchboard) return;
    if (Election.isPossible) {
      this.#others = new BroadcastChannel(this.#name);
      this.#others.onmessage = ({ data }) => this.#heed(data);
    }
    this.#election.stand();
  }

  leave() {
    if (!this.#switchboard) this.#say({ act: "leave" });
    this.#switchboard?.close();
    this.#switchboard = null;
    this.#election.withdraw();
    this.#others?.close();
    this.#others = null;
    this.#leader = "";
  }

  /** Have a run's events from a place on, or news alone; "open" names that number when they come. */
  want(no, run, place) {
    this.#say({ act: "want", no, run, place });
  }

  /** Whether this tab holds the connection. */
  get isLeading() {
    return Boolean(this.#switchboard);
  }

  /** Whether there is no connection, and one will be made by itself. */
  get isResting() {
    return this.#switchboard?.isResting ?? false;
  }

  /** Go on over a new connection; who leads may know that one is being made. */
  renew() {
    if (this.#switchboard) this.#switchboard.renew();
    else this.#say({ act: "renew" });
  }

  /** After a refusal: go on when a pause is over. */
  resume() {
    this.#switchboard?.resume();
  }

  /** Lead in place of a tab that does not answer. */
  seize() {
    this.#election.seize();
  }

  #lead() {
    this.#leader = this.#tab;
    this.#switchboard = new Switchboard((message) => this.#tell(message));
    this.#switchboard.begin();
  }

  #yield() {
    this.#switchboard?.close();
    this.#switchboard = null;
    this.#hear({ name: "who" }); // the new leader may have asked already
  }

  #say(message) {
    const said = { ...message, tab: this.#tab };
    if (this.#switchboard) this.#switchboard.hear(said);
    else this.#others?.postMessage(said);
  }

  #tell(message) {
    this.#others?.postMessage({ ...message, leader: this.#tab });
    this.#hear({ ...message, heard: message.heard?.[this.#tab] });
  }

  #heed(message) {
    if (message.act) return this.#switchboard?.hear(message);
    if (message.name === "who" || !this.#leader) this.#leader = message.leader;
    if (message.leader === this.#leader) this.#hear({ ...message, heard: message.heard?.[this.#tab] });
  }
}
