// Keeps the figures of the load page fresh while somebody can see them, and says so when they are not.

const PAUSE_MS = 2_500;
const PATIENCE_MS = 8_000;
const STALE_MS = 2 * PAUSE_MS + 1_000;

const figures = document.querySelector("#load");
const state = document.querySelector("#load-state");
let fresh = Date.now();
let wake = () => {};

async function refresh() {
  const answer = await fetch("?figures", { signal: AbortSignal.timeout(PATIENCE_MS), cache: "no-store" });
  // Signed out, or no operator any more: the page itself says so.
  if (answer.redirected || answer.status === 403) return location.reload();
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  show(await answer.text());
  fresh = Date.now();
}

function show(html) {
  const focused = figures.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  figures.innerHTML = html; // our own page's, escaped by the server
  if (focused) figures.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

function tell() {
  const isStale = Date.now() - fresh > STALE_MS;
  figures.classList.toggle("stale", isStale);
  state.hidden = !isStale;
  const words = `No answer from the server since ${new Date(fresh).toLocaleTimeString()}: these figures are old.`;
  if (isStale && state.textContent !== words) state.textContent = words; // said once to who cannot see the page
}

async function live() {
  for (;;) {
    if (!document.hidden) await refresh().catch(() => {});
    tell();
    await new Promise((done) => {
      wake = done;
      setTimeout(done, PAUSE_MS);
    });
  }
}

document.addEventListener("visibilitychange", () => document.hidden || wake());
setTimeout(live, PAUSE_MS);
