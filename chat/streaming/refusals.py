"""What a stream's address says instead of streaming."""

from __future__ import annotations

from http import HTTPStatus

from chat.problems import Invalid, Problem


class BadEventId(Invalid):
    """Not an id that this run's stream has given out."""

    code = "bad_event_id"
    title = "Event id invalid"
    detail = "Send the id of the last event you received, unchanged, or none to begin at the beginning."


class TooManyNamed(Invalid):
    """More runs than one feed brings."""

    code = "too_many_named"
    title = "Too many runs named"

    def __init__(self, limit: int) -> None:
        super().__init__(f"A feed brings the events of {limit} runs at most. Name fewer.", limit=limit)


class StreamsUnavailable(Problem):
    """The streams' Redis is away, and the run has not ended, so that Postgres does not have its text yet."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    code = "streams_unavailable"
    title = "Streams unavailable"
    detail = "The run goes on, but its events cannot be read now. Try again soon."
    retry_after_s = 2


class TooManyStreams(Problem):
    """The user has as many streams open here as one may."""

    status = HTTPStatus.TOO_MANY_REQUESTS
    code = "too_many_streams"
    title = "Too many streams"

    def __init__(self, limit: int) -> None:
        detail = f"You have {limit} streams open. Close one, such as a page in another tab, and try again."
        super().__init__(detail, headers={"Retry-After": "5"}, limit=limit)


class StreamsFull(Problem):
    """The process has as many streams open as it may."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    code = "streams_full"
    title = "Streams full"
    detail = "Too many people are reading here now. Try again soon."
    retry_after_s = 5
