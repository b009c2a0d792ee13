// Pages of this site, fetched again: the server's own markup is how anything but a running answer gets on the screen.

const PATIENCE_MS = 20_000;

/**
 * Fetch a page: `{ kind: "page", document }`, or what stands in the way: "signed-out", "gone", "unreachable".
 */
export async function visit(path) {
  try {
    const answer = await fetch(path, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(PATIENCE_MS) });
    if (answer.redirected && new URL(answer.url).pathname === "/sign-in") return { kind: "signed-out" };
    if (answer.status === 404) return { kind: "gone" };
    if (!answer.ok) return { kind: "unreachable" };
    // A parsed document is inert: nothing in it runs or loads.
    return { kind: "page", document: new DOMParser().parseFromString(await answer.text(), "text/html") };
  } catch {
    return { kind: "unreachable" };
  }
}
