// Markdown while it is being written. Elements and text are only ever appended, and what has left the screen is not laid
// out again: a token costs the same at any length.

import * as smd from "smd";

import { dressed, equip } from "./rich.js";

// Deeper than anybody writes: what goes on below stands beside. A browser gives up on thousands.
const DEEPEST = 24;
const SCHEMES = ["http:", "https:", "mailto:"];
const ELEMENTS = new Map([
  [smd.PARAGRAPH, "p"],
  [smd.BLOCKQUOTE, "blockquote"],
  [smd.LINE_BREAK, "br"],
  [smd.RULE, "hr"],
  // The page has its own headings above.
  [smd.HEADING_1, "h3"],
  [smd.HEADING_2, "h4"],
  [smd.HEADING_3, "h5"],
  [smd.HEADING_4, "h6"],
  [smd.HEADING_5, "h6"],
  [smd.HEADING_6, "h6"],
  [smd.ITALIC_AST, "em"],
  [smd.ITALIC_UND, "em"],
  [smd.STRONG_AST, "strong"],
  [smd.STRONG_UND, "strong"],
  [smd.STRIKE, "s"],
  [smd.CODE_INLINE, "code"],
  [smd.LINK, "a"],
  [smd.RAW_URL, "a"],
  [smd.IMAGE, "a"], // no answer makes a reader's browser fetch anything
  [smd.LIST_UNORDERED, "ul"],
  [smd.LIST_ORDERED, "ol"],
  [smd.LIST_ITEM, "li"],
  [smd.CHECKBOX, "span"],
  [smd.TABLE, "table"],
  [smd.TABLE_ROW, "tr"],
  [smd.CODE_BLOCK, "code"],
  [smd.CODE_FENCE, "code"],
  [smd.EQUATION_BLOCK, "span"],
  [smd.EQUATION_INLINE, "span"],
]);
// The parser takes a mark at the end of a line for the beginning of a formula, and all that follows for the formula, even
// where the mark ends one: there is text before it. Marks of lists and quotes are none.
const MARK_AT_END = /^(.*)(\$\$|\\\[)(?=\n)/gm;
const MARKERS = /^[\s>*+\-\d.)]*$/;
// So many blocks a part: of an answer only its parts are laid out anew, and of the parts only the last.
const BLOCKS_A_PART = 16;
// The direction of each of these is that of its own text, where it stands by itself.
const BLOCKS = "p, ul, ol, h3, h4, h5, h6, blockquote, table";

export class Markdown {
  #parser;
  #line = ""; // the last one so far

  /** Writes into an element. */
  constructor(place) {
    this.#parser = smd.parser({
      data: [place],
      add_token: begin,
      end_token: end,
      add_text: write,
      set_attr: set,
    });
  }

  /** Append text; what may yet become markup waits for more. */
  write(text) {
    const lines = this.#line + text;
    const told = lines.replace(MARK_AT_END, (mark, before) => (MARKERS.test(before) ? mark : `${mark} `));
    smd.parser_write(this.#parser, told.slice(this.#line.length));
    this.#line = lines.slice(lines.lastIndexOf("\n") + 1);
  }

  /** There is no more of it. */
  end() {
    smd.parser_end(this.#parser);
  }
}

/** Open an element in the innermost one of those that are open. */
function begin(open, type) {
  if (open.length > DEEPEST) return open.push(open.at(-1));
  return open.push(element(open, type));
}

function element(open, type) {
  const place = placeOf(type, open.length === 1 ? partOf(open[0]) : open.at(-1));
  const made = document.createElement(type === smd.TABLE_CELL ? cellOf(place) : ELEMENTS.get(type));
  if (open.length === 1 && made.matches(BLOCKS)) made.dir = "auto";
  switch (type) {
    case smd.CHECKBOX:
      made.textContent = "☐";
      break;
    case smd.EQUATION_BLOCK:
    case smd.EQUATION_INLINE:
      made.className = type === smd.EQUATION_BLOCK ? "math display" : "math inline";
      made.dir = "ltr";
      break;
  }
  return place.appendChild(made);
}

/** Close the innermost element; code and formulas are whole with it. */
function end(open) {
  const closed = open.pop();
  if (closed !== open.at(-1) && closed.matches("pre > code, .math")) dressed(closed);
}

function partOf(answer) {
  const last = answer.lastElementChild;
  if (last?.childElementCount < BLOCKS_A_PART) return last;
  // What was never on the screen has no size that could be remembered, and must not change it when it comes there.
  if (last) last.style.containIntrinsicBlockSize = `auto ${last.getBoundingClientRect().height}px`;
  return within(answer, "div", { className: "part" });
}

function placeOf(type, parent) {
  switch (type) {
    case smd.CODE_BLOCK:
    case smd.CODE_FENCE:
      return frame(parent);
    case smd.TABLE:
      return within(parent, "div", { className: "wide", tabIndex: 0 });
    case smd.TABLE_ROW:
      return parent.tHead ? (parent.tBodies[0] ?? parent.createTBody()) : parent.createTHead();
    default:
      return parent;
  }
}

/** A box with the code's language, a button, and room for the code: as the server makes it. */
function frame(parent) {
  const box = within(parent, "div", { className: "code" });
  within(box, "div", { className: "language" });
  equip(box);
  return within(box, "pre", { dir: "ltr", tabIndex: 0 });
}

function within(parent, name, properties) {
  return parent.appendChild(Object.assign(document.createElement(name), properties));
}

function cellOf(row) {
  return row.parentElement.matches("thead") ? "th" : "td";
}

function write(open, text) {
  const { lastChild } = open.at(-1);
  if (lastChild instanceof Text) lastChild.appendData(text);
  else open.at(-1).append(text);
}

function set(open, type, value) {
  const element = open.at(-1);
  switch (type) {
    case smd.HREF:
    case smd.SRC:
      return link(element, value);
    case smd.LANG:
      return name(element, value.split(/\s/)[0]);
    case smd.CHECKED:
      element.textContent = "☑";
      return undefined;
    case smd.START:
      element.start = Number(value);
  }
}

function name(code, language) {
  if (language) code.className = `language-${language}`;
  code.closest(".code").querySelector(".language").textContent = language;
}

/** Where it leads, if that may be followed. */
function link(element, address) {
  if (!URL.canParse(address) || !SCHEMES.includes(new URL(address).protocol)) return;
  Object.assign(element, { href: address, target: "_blank", rel: "noopener noreferrer nofollow" });
}
