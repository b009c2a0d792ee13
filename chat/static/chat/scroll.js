// Follows the newest text, unless the reader has scrolled away from it.

const NEAR_PX = 80;

export class Scroll {
  #region;
  #jump;
  #following = true;
  #top = 0; // where we last saw or put it

  constructor(region, jump) {
    this.#region = region;
    this.#jump = jump;
    region.addEventListener("scroll", () => this.#look(), { passive: true });
    jump.addEventListener("click", () => this.attach());
    new ResizeObserver(() => this.keep()).observe(region); // a keyboard slid in, the composer grew
  }

  /** To the end, and stay there. */
  attach() {
    this.#following = true;
    this.#move(this.#region.scrollHeight);
    this.#offer();
  }

  /** Call when something has grown. */
  keep() {
    this.#look(); // a reader who has just turned the wheel must not be carried back
    if (this.#following) this.#move(this.#region.scrollHeight);
    this.#offer();
  }

  /** Do `change`, which adds something above, without moving what is read. */
  hold(change) {
    const fromEnd = this.#region.scrollHeight - this.#region.scrollTop;
    change();
    this.#move(this.#region.scrollHeight - fromEnd);
  }

  /** Only a reader goes up from the end: what grows leaves the place as it is, what shrinks leaves it at the end. */
  #look() {
    const isUp = this.#region.scrollTop < this.#top;
    const isDown = this.#region.scrollTop > this.#top;
    const fromEnd = this.#fromEnd();
    if (fromEnd <= 1 || (isDown && fromEnd < NEAR_PX)) this.#following = true;
    else if (isUp) this.#following = false;
    this.#top = this.#region.scrollTop;
    this.#offer();
  }

  #move(top) {
    this.#region.scrollTop = top;
    this.#top = this.#region.scrollTop;
  }

  #offer() {
    this.#jump.hidden = this.#following || this.#fromEnd() < NEAR_PX;
  }

  #fromEnd() {
    return this.#region.scrollHeight - this.#region.scrollTop - this.#region.clientHeight;
  }
}
