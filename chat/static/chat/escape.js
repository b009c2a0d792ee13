// Escape closes what lies on top, and nothing that lies below it.

/** `layers`, topmost first, each close something and return true, or do nothing where there is nothing to close. */
export function onEscape(layers) {
  addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.isComposing) return;
    layers.some((close) => close());
  });
}
