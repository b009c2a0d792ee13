// What makes an answer more than its text: colours in code, formulas that are set, buttons to copy. Each is done once,
// when it comes near the screen, by libraries that are loaded when there is something for them to do.

import { gettext } from "./words.js";

// As the import map names them; written within `import()`, Django would take them for files beside this one.
const HIGHLIGHTER = "highlight";
const FORMULAS = "katex";
const NEAR = "800px"; // more than a screen ahead
const MOST_CODE = 50_000; // a longer piece stays plain: colouring it would hold the page up
const MOST_TEX = 4_000;
// No formula may load, link or grow without bound.
const FORMULA = { output: "mathml", trust: false, maxExpand: 200, maxSize: 20, strict: "ignore" };

export class Rich {
  #near;

  /** For what stands in a region that scrolls. */
  constructor(region) {
    this.#near = new IntersectionObserver((seen) => this.#come(seen), { root: region, rootMargin: NEAR });
  }

  /** Dress what is whole within an element, when it comes near the screen. */
  dress(place) {
    for (const box of place.querySelectorAll(".code")) equip(box);
    for (const part of place.querySelectorAll(".code code, .math")) if (!part.dataset.plain) this.#near.observe(part);
  }

  #come(seen) {
    for (const { target, isIntersecting } of seen) {
      if (!isIntersecting) continue;
      this.#near.unobserve(target);
      dressed(target);
    }
  }
}

/** Dress a piece of code or a formula that has just been closed. */
export async function dressed(part) {
  if (part.dataset.plain) return;
  part.dataset.plain = part.textContent;
  await (part.matches(".math") ? set(part) : colour(part));
}

/** What was dressed in an element goes on in another, which is to take its place: nothing is done twice, or flickers. */
export function handOver(old, fresh) {
  const before = [...old.querySelectorAll(".code, .math")];
  for (const part of fresh.querySelectorAll(".code, .math")) {
    const place = before.findIndex((each) => each.className === part.className && plain(each) === plain(part));
    if (place < 0) continue;
    part.replaceWith(...before.splice(0, place + 1).slice(-1));
  }
}

/** Give a piece of code its button. */
export function equip(box) {
  if (box.querySelector("button")) return;
  const button = document.createElement("button");
  Object.assign(button, { type: "button", className: "copy", textContent: gettext("Copy") });
  button.dataset.act = "copy";
  box.querySelector(".language").after(button);
}

/** The text of a piece of code or a formula, as it was before it was dressed; without the end of its last line. */
export function plain(part) {
  const within = part.querySelector("code") ?? part;
  return (within.dataset.plain ?? within.textContent).replace(/\n$/, "");
}

async function colour(code) {
  const language = /language-(\S+)/.exec(code.className)?.[1];
  if (!language || code.textContent.length > MOST_CODE) return;
  const { default: highlighter } = await import(HIGHLIGHTER);
  if (!highlighter.getLanguage(language)) return;
  await letGo(code);
  code.innerHTML = highlighter.highlight(code.textContent, { language, ignoreIllegals: true }).value;
}

async function set(formula) {
  const tex = formula.textContent;
  if (tex.length > MOST_TEX) return;
  await import(FORMULAS); // which knows no modules, and makes itself a global
  await letGo(formula);
  try {
    const made = globalThis.katex.renderToString(tex, { ...FORMULA, displayMode: formula.matches(".display") });
    // The page's policy forbids styles in markup, not those that scripts give.
    formula.innerHTML = made.replaceAll(' style="', ' data-style="');
  } catch (error) {
    if (!(error instanceof globalThis.katex.ParseError)) throw error; // else it stays as it was written
  }
  for (const part of formula.querySelectorAll("[data-style]")) part.style.cssText = part.dataset.style;
}

/** Resolves when nobody has selected anything in an element: what is selected stays. */
export async function letGo(place) {
  while (isSelected(place)) {
    await new Promise((resolve) => document.addEventListener("selectionchange", resolve, { once: true }));
  }
}

/** Whether somebody has selected something in an element. */
export function isSelected(place) {
  const selection = getSelection();
  return !selection.isCollapsed && selection.containsNode(place, true);
}
