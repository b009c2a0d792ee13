// Calls to the API, and its refusals in words that a person understands.

const PATIENCE_MS = 20_000;
const SENTENCES = {
  offline: () => "There is no connection to the server. Nothing was lost: try again in a moment.",
  timeout: () => "The server does not answer. Nothing was lost: look at your connection, and try again.",
  not_authenticated: () => "You are signed out. Copy your message, sign in again, and send it then.",
  csrf_failed: () => "This page is out of date. Copy your message and load the page again.",
  not_found: () => "This chat is not there any more. Copy your message and begin a new chat.",
  chat_busy: () => "This chat is still being answered. Wait for the answer to end, or stop it.",
  chat_full: () => "This chat takes no more messages. What you wrote is kept, and goes with you into a new one.",
  not_latest: () => "Another message came after this one, so it cannot be tried again.",
  too_many_runs: ({ limit }) =>
    `Your plan allows ${limit} ${limit === 1 ? "answer" : "answers"} at a time. ` +
    "Wait for one in another chat to end, or stop it, and send again.",
  too_many_requests: ({ wait }) => `That was too much at once. Try again ${wait}.`,
  budget_exhausted: ({ wait, wait_s, retry_at }) =>
    "This may take more than is left of your budget. " +
    `There will be enough ${wait_s < 90 ? wait : at(retry_at)}. Try again then.`,
  queue_full: ({ wait }) => `Too many people wait for an answer just now. It may be worth another try ${wait}.`,
  content_blank: () => "Write something first.",
  content_too_large: ({ size_bytes, max_bytes }) =>
    `The message is too long: ${kilobytes(size_bytes)} KB, and ${kilobytes(max_bytes)} KB at most. Shorten it.`,
  body_too_large: () => "The message is far too long. Shorten it.",
  prompt_too_long: () => "With all that was said before, this is more than the model can read. Shorten it, or begin a new chat.",
  prompt_exceeds_budget: () =>
    "With all that was said before, this is more than your whole budget. Shorten it, or begin a new chat.",
  message_exceeds_budget: () => "This is more than your whole budget. Shorten it.",
  message_too_long: () => "This is more than the model can read. Shorten it.",
  model_unknown: () => "This model is not open to you any more. Load the page again and pick another.",
  model_unusable: () => "This model cannot answer now. Pick another, or try again later.",
  title_blank: () => "Write a title first.",
  internal_error: () => "Something went wrong on our side. Your message is kept: try again.",
};

/** What the server would not do: `code` for programs, `message` for people, `data` as the problem has it. */
export class Refusal extends Error {
  constructor(code, data = {}) {
    super((SENTENCES[code] ?? fallback)(data));
    this.code = code;
    this.data = data;
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
  return new Refusal(problem.code, { ...problem, wait: wait(seconds), wait_s: Number(seconds) });
}

function fallback({ detail, wait: when, status }) {
  const hint = status === 429 || status === 503 ? ` Try again ${when}.` : "";
  return `${detail ?? "The server refused this."}${hint}`;
}

function wait(seconds) {
  if (!seconds) return "in a moment";
  if (seconds < 90) return `in ${seconds} ${seconds === "1" ? "second" : "seconds"}`;
  return `in ${Math.ceil(seconds / 60)} minutes`;
}

/** A moment on the reader's own clock: the minute by which it will have come. */
function at(moment) {
  const minute = new Date(Math.ceil(new Date(moment) / 60_000) * 60_000);
  const isToday = minute.toDateString() === new Date().toDateString();
  return `at ${minute.toLocaleString([], { timeStyle: "short", ...(!isToday && { dateStyle: "medium" }) })}`;
}

function kilobytes(bytes) {
  return Math.ceil(bytes / 1024);
}

function csrfToken() {
  const cookie = document.cookie.split("; ").find((pair) => pair.startsWith("csrftoken="));
  return cookie?.slice("csrftoken=".length) ?? "";
}
