// Reading: answers are dressed when they come near the screen, and what one wants to keep is copied.

import { copyBy } from "./copying.js";
import { Rich } from "./rich.js";

export class Reading {
  #rich;

  /** In a region that scrolls. */
  constructor(region) {
    this.#rich = new Rich(region);
    region.addEventListener("click", (event) => {
      const button = event.target.closest('[data-act="copy"]');
      if (button) copyBy(button);
    });
  }

  /** See to what is new in an element. */
  dress(place) {
    this.#rich.dress(place);
  }
}
