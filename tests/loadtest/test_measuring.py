"""What is read off a made-up event stream, and what a step makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from loadtest.figures import Refusal, Window, figures_of
from loadtest.measuring import Answer, follow

DONE = {"status": "done", "usage": {"input_tokens": 9, "output_tokens": 5}}


class Clock:
    """Says what it is told."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


def event(kind: str, data: object) -> list[bytes]:
    return [f"event: {kind}\n".encode(), f"data: {json.dumps(data)}\n".encode(), b"\n"]


def delta(text: str) -> list[bytes]:
    return event("delta", {"text": text, "offset": 0})


def stream(clock: Clock, *events: tuple[float, list[bytes]]) -> Iterator[bytes]:
    """The lines of events, each at its time."""
    for at, lines in events:
        clock.at = at
        yield from lines


def followed(*events: tuple[float, list[bytes]]) -> Answer:
    clock = Clock()
    answer = Answer("free", 1.0)
    follow(answer, stream(clock, *events), clock)
    return answer


def test_first_words_are_the_first_delta_and_not_what_comes_before() -> None:
    answer = followed(
        (1.1, [b": hb\n", b"\n"]),
        (1.2, event("queued", {"position": 3, "eta_s": None, "tier": "free"})),
        (1.5, event("started", {"attempt": 1, "model": "m"})),
        (2.5, delta("He")),
        (2.7, delta("llo")),
        (3.0, event("done", DONE)),
    )

    assert answer.ttft_s == pytest.approx(1.5)
    assert answer.delta_at == [2.5, 2.7]
    assert (answer.tokens, answer.ended_at, answer.failure) == (5, 3.0, "")


def test_an_answer_of_no_words_has_no_first_ones() -> None:
    answer = followed((2.0, event("done", {**DONE, "usage": {"output_tokens": 0}})))

    assert answer.ttft_s is None
    assert answer.failure == ""


@pytest.mark.parametrize(
    ("last", "failure"),
    [
        (
            event("failed", {"status": "failed", "code": "queue_timeout", "usage": {"output_tokens": 0}}),
            "queue_timeout",
        ),
        (event("cancelled", {"status": "cancelled", "usage": {"output_tokens": 1}}), "cancelled"),
        (event("failed", "nonsense"), "failed"),
        ([], "stream_cut"),
        ([b"event: done\n", b"data: {}"], "stream_cut"),
    ],
)
def test_what_went_wrong_has_a_name(last: list[bytes], failure: str) -> None:
    answer = followed((2.0, delta("He")), (4.0, last or [b": hb\n"]))

    assert answer.failure == failure
    assert answer.ended_at == 4.0
    assert answer.ttft_s == 1.0


def test_what_follows_the_last_event_is_not_waited_for() -> None:
    clock = Clock()
    lines = stream(clock, (1.0, event("done", DONE)), (9.0, delta("late")))

    follow(Answer("free", 0.0), lines, clock)

    assert clock.at == 1.0


def test_carriage_returns_and_data_in_several_lines_are_read_as_the_protocol_has_it() -> None:
    answer = followed((2.0, [b"event:delta\r\n", b'data: {"text":\r\n', b'data: "Hi"}\r\n', b"\r\n"]))

    assert answer.delta_at == [2.0]


def answered(sent_at: float, first_at: float, each_s: float, deltas: int, tokens: int | None = None) -> Answer:
    times = [first_at + number * each_s for number in range(deltas)]
    ended_at = times[-1] if tokens else None
    return Answer("free", sent_at, times, tokens, ended_at)


def test_a_step_counts_what_lies_within_its_window() -> None:
    # 10 tokens/s from 5 to 15: the window from 10 to 20 sees half of it.
    figures = figures_of(3, Window(10, 20), [answered(4, 5, 0.1, 101, tokens=101)], [])

    assert figures.questions == 0
    assert figures.ttft_p95_s is None
    assert figures.speed_p50 == pytest.approx(10.0)
    assert figures.tokens_per_s == pytest.approx(5.1, abs=0.11)


def test_a_users_speed_is_the_tokens_behind_the_first_over_the_time_behind_it() -> None:
    figures = figures_of(1, Window(0, 100), [answered(1, 9, 0.25, 41, tokens=41)], [])

    assert figures.speed_p50 == pytest.approx(4.0)
    assert figures.ttft_p50_s == pytest.approx(8.0)


def test_events_that_bring_several_tokens_count_as_so_many() -> None:
    whole = answered(1, 2, 0.5, 21, tokens=42)
    goes_on = answered(1, 2, 0.5, 21)

    figures = figures_of(2, Window(0, 100), [whole, goes_on], [])

    assert figures.speed_p50 == pytest.approx(4.0)
    assert figures.tokens_per_s == pytest.approx(0.84)


def test_who_waits_for_first_words_when_the_step_ends_is_counted_if_that_is_long() -> None:
    quick = [answered(number, number + 0.5, 0.1, 10, tokens=10) for number in range(10)]
    waits = [Answer("free", 1.0), Answer("free", 19.9)]

    figures = figures_of(12, Window(0, 20), [*quick, *waits], [])

    assert figures.questions == 12
    assert figures.ttft_p50_s == pytest.approx(0.5)
    assert figures.ttft_p95_s is not None
    assert 5 < figures.ttft_p95_s < 19.1


def test_where_nobody_is_answered_any_more_the_wait_is_all_there_is() -> None:
    figures = figures_of(2, Window(0, 20), [Answer("free", 2.0), Answer("pro", 4.0)], [])

    assert figures.ttft_p50_s == pytest.approx(17.0)
    assert figures.speed_p50 is None


def test_refusals_and_failures_are_counted_by_their_names() -> None:
    failed = Answer("free", 1.0, failure="queue_timeout", ended_at=15.0)
    early = Answer("free", 1.0, failure="queue_timeout", ended_at=9.0)
    refusals = [
        Refusal(at, "free", code) for at, code in ((5, "queue_full"), (12, "queue_full"), (13, "too_many_runs"))
    ]

    figures = figures_of(2, Window(10, 20), [failed, early], refusals)

    assert figures.refusals == {"queue_full": 1, "too_many_runs": 1}
    assert figures.failures == {"queue_timeout": 1}


def test_tiers_are_told_apart() -> None:
    pro = answered(1, 2, 0.1, 50, tokens=50)
    pro.tier = "pro"

    figures = figures_of(2, Window(0, 20), [pro, answered(1, 4, 0.5, 30, tokens=30)], [])

    assert figures.tiers["pro"].ttft_p50_s == pytest.approx(1.0)
    assert figures.tiers["free"].ttft_p50_s == pytest.approx(3.0)
    assert figures.tiers["pro"].speed_p50 == pytest.approx(10.0)
