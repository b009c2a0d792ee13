// Calls to the API, and its refusals in words that a person understands.

import { gettext, isEnglish, ngettext, say } from "./words.js";

const PATIENCE_MS = 20_000;
const SOON_S = 90; // a longer wait is told in minutes, or by the clock
// By code, in the page's language; `chat/sentences.py` has them.
const SENTENCES = JSON.parse(document.querySelector("#sentences").textContent);

/** What the server would not do: `code` for programs, `message` for people, `data` as the problem has it. */
export class Refusal extends Error {
  constructor(code, data = {}) {
    super(code in SENTENCES ? say(SENTENCES[code], told(data)) : fallback(data));
    this.code = code;
    this.data = data;
  }

  /** Seconds until another try makes sense; none where that hangs on something else than time. */
  get waitS() {
    return this.code === "too_many_runs" ? 0 : (this.data.wait_s ?? 0);
  }
}

/** Call the API, as `fetch` does with those options, and return its JSON, or null where there is none. Throws `Refusal`. */
export async function call(method, path, body = {}, headers = {}, options = {}) {
  try {
    const answer = await fetch(path, {
      ...options,
      method,
      headers: { "Content-Type": "application/json", "X-CSRFToken": csrfToken(), ...headers },
      body: method === "GET" ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    if (!answer.ok) throw await refusal(answer);
    return answer.status === 204 ? null : await answer.json();
  } catch (error) {
    if (error instanceof Refusal) throw error;
    throw new Refusal(error.name === "TimeoutError" ? "timeout" : "offline");
  }
}

/** Whether a call's fate is unknown: its answer was lost, or it never came to the server. */
export function isUnsure(error) {
  return ["offline", "timeout"].includes(error.code);
}

async function refusal(answer) {
  if ([502, 504].includes(answer.status)) return new Refusal("offline"); // a proxy's, which had no answer from us
  const problem = await answer.json().catch(() => ({ code: "internal_error" })); // a proxy's page, say
  const seconds = answer.headers.get("Retry-After");
  return new Refusal(problem.code, { ...problem, wait_s: Number(seconds) });
}

/** What stands in the sentences, of a problem's data. */
function told({ limit, size_bytes: size, max_bytes: most, wait_s: seconds, retry_at: moment }) {
  const wait = waitOf(seconds);
  const when = moment && seconds >= SOON_S ? at(moment) : wait;
  return { limit, size: kilobytes(size), most: kilobytes(most), wait, when };
}

/** For what has no sentence: what programs are told. */
function fallback({ detail, wait_s: seconds, status }) {
  const again = say(gettext("Try again %(wait)s."), { wait: waitOf(seconds) });
  return [detail ?? gettext("The server refused this."), status === 429 || status === 503 ? again : ""].join(" ").trim();
}

function waitOf(seconds) {
  if (!seconds) return gettext("in a moment");
  if (seconds < SOON_S) {
    return say(ngettext("in %(count)s second", "in %(count)s seconds", seconds), { count: seconds });
  }
  const count = Math.ceil(seconds / 60);
  return say(ngettext("in %(count)s minute", "in %(count)s minutes", count), { count });
}

/** A moment on the reader's own clock: the minute by which it will have come. */
function at(moment) {
  const minute = new Date(Math.ceil(new Date(moment) / 60_000) * 60_000);
  const isToday = minute.toDateString() === new Date().toDateString();
  const time = minute.toLocaleString(isEnglish ? [] : document.documentElement.lang, {
    timeStyle: "short",
    ...(!isToday && { dateStyle: "medium" }),
  });
  return say(gettext("at %(time)s"), { time });
}

function kilobytes(bytes) {
  return Math.ceil(bytes / 1024);
}

function csrfToken() {
  const cookie = document.cookie.split("; ").find((pair) => pair.startsWith("csrftoken="));
  return cookie?.slice("csrftoken=".length) ?? "";
}
