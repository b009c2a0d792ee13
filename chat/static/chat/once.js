// Acts that are done once, however often they have to be sent: the server knows them again by their key.

import { call, isUnsure } from "./api.js";

const PAUSES_MS = [500, 1500, 4000];
const PATIENCE_MS = 30_000; // with a server that takes calls and answers none

/** A key that was never used before. */
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16)); // randomUUID() is for HTTPS and loopback only
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** POST under that key, a few times where nobody knows what became of it. Throws `Refusal`. */
export async function once(key, path, body) {
  const pauses = [...PAUSES_MS];
  const giveUpAt = Date.now() + PATIENCE_MS;
  while (true) {
    try {
      return await call("POST", path, body, { "Idempotency-Key": key });
    } catch (error) {
      const isInFlight = error.code === "idempotency_in_flight"; // which ends, whatever becomes of the first
      const mayTryAgain = isInFlight || (isUnsure(error) && pauses.length > 0 && Date.now() < giveUpAt);
      if (!mayTryAgain) throw error;
      await pass(isInFlight ? error.data.wait_s * 1000 : pauses.shift());
    }
  }
}

function pass(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
