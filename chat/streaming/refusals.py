"""What a stream's address says instead of streaming."""

from __future__ import annotations

from http import HTTPStatus

from chat.problems import Invalid, Problem


class BadEventId(Invalid):
    """Not an id that this run's stream has given out."""

    code = "bad_event_id"
    title = "Event id invalid"
    detail = "Send the id of the last event you received, unchanged, or none to begin at the beginning."


class StreamsUnavailable(Problem):
    """The streams' Redis is away, and the run has not ended, so that Postgres does not have its text yet."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    code = "streams_unavailable"
    title = "Streams unavailable"
    detail = "The run goes on, but its events cannot be read now. Try again soon."

    def __init__(self) -> None:
        super().__init__(headers={"Retry-After": "2"})
