// Where one is in a run: the id of the last event that came, `<attempt>-<seq>-<offset>`, or nothing before the first.

/** Whether the one place comes after the other. */
export function isAfter(place, other) {
  if (!place || !other) return Boolean(place);
  const [attempt, seq] = place.split("-").map(Number);
  const [otherAttempt, otherSeq] = other.split("-").map(Number);
  return attempt > otherAttempt || (attempt === otherAttempt && seq > otherSeq);
}
