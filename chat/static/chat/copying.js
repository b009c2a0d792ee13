// Copying: a piece of code, or a message as it was written.

import { call } from "./api.js";
import { plain } from "./rich.js";
import { gettext } from "./words.js";

const SAID_MS = 2_000;

/** Copy what the button stands by, and say so on it. */
export async function copyBy(button) {
  const box = button.closest(".code");
  const label = button.textContent;
  const isCopied = await put(box ? plain(box) : written(button.closest(".turn")));
  button.textContent = isCopied ? gettext("Copied") : gettext("Not copied");
  button.disabled = true; // until it says again what it does
  setTimeout(() => Object.assign(button, { textContent: label, disabled: false }), SAID_MS);
}

/** A message's own text: of an answer, the Markdown. */
async function written(turn) {
  if (!turn.querySelector(".markup")) return turn.querySelector(".text").textContent;
  return (await call("GET", `/api/messages/${turn.dataset.messageId}`)).content;
}

/** Put text, or what a promise will bring, on the clipboard; returns whether it is there. */
async function put(text) {
  try {
    if (!navigator.clipboard) return byCommand(await text); // which is for HTTPS and loopback only
    // Some browsers let a page write only within the click: they take the promise.
    const blob = Promise.resolve(text).then((found) => new Blob([found], { type: "text/plain" }));
    await navigator.clipboard.write([new ClipboardItem({ "text/plain": blob })]);
    return true;
  } catch {
    return false;
  }
}

function byCommand(text) {
  const { activeElement } = document;
  const field = Object.assign(document.createElement("textarea"), { value: text, className: "visually-hidden" });
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  activeElement?.focus();
  return isCopied;
}
