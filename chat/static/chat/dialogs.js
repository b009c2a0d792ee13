// Questions that stand in front of the page until they are answered.

import { Refusal } from "./api.js";

/**
 * Ask by the dialog of that selector, about what has that `name`.
 *
 * `act(answer)` is done on yes, and may throw `Refusal`; `closed()` is called when the dialog is.
 */
export function ask(selector, { name, act, closed }) {
  const dialog = document.querySelector(selector);
  const input = dialog.querySelector("input");
  if (input) input.value = name;
  else dialog.querySelector(".name").textContent = name;
  dialog.querySelector('[data-act="dismiss"]').onclick = () => dialog.close();
  dialog.querySelector("form").onsubmit = (event) => {
    event.preventDefault();
    answer(dialog, () => act(input?.value.trim()));
  };
  dialog.onclose = closed;
  show(dialog);
  input?.select();
}

function show(dialog) {
  dialog.querySelector(".refusal").hidden = true;
  dialog.showModal();
}

/** Do it once, however often the button is pressed; a dialog that was dismissed meanwhile asks something else. */
async function answer(dialog, act) {
  const submit = dialog.querySelector('[type="submit"]');
  const { onsubmit } = submit.form;
  if (submit.disabled) return;
  submit.disabled = true;
  try {
    await act();
    if (submit.form.onsubmit === onsubmit) dialog.close();
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    if (submit.form.onsubmit === onsubmit) refuse(dialog, error.message);
  } finally {
    submit.disabled = false;
  }
}

function refuse(dialog, reason) {
  const refusal = dialog.querySelector(".refusal");
  refusal.textContent = reason;
  refusal.hidden = false;
}
