"""What an entry means to a reader at some place, without any server."""

from __future__ import annotations

import random

import pytest

from chat.streaming.place import Gap, Place, bridge, conclude, step
from chat.streaming.written import Piece, Written, fold
from inference.streams import TERMINAL_SEQ, Delta, Ended, Entry, EntryId, Event, MalformedId, Reset, Started

MANGLED = (
    "", "1", "1-2", "1-2-", "-1-2-3", "1-2-3-4", "a-b-c", "1-2-3x", " 1-2-3", "1--2", "١-٢-٣", "1-2-1e3", "error",
    "run-5:7", "1-4294967296-0", "1-2-99999999999",
)  # fmt: skip
DONE = Ended("done", {"message_id": "x", "chars": 5})


def at(attempt: int, seq: int, event: Event) -> Entry:
    return Entry(EntryId(attempt, seq), event)


@pytest.mark.parametrize("text", ["1-0-0", "3-17-250", f"2-{TERMINAL_SEQ}-9999999999"])
def test_a_place_reads_back_what_it_wrote(text: str) -> None:
    assert str(Place.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    MANGLED,
)
def test_a_mangled_place_is_refused(text: str) -> None:
    with pytest.raises(MalformedId):
        Place.parse(text)


def test_a_delta_that_overlaps_is_trimmed_to_what_is_new() -> None:
    place, told = step(Place(EntryId(1, 1), 3), at(1, 2, Delta("cd𝄞f", 2)))

    assert told == Delta("d𝄞f", 3)
    assert place == Place(EntryId(1, 2), 6)


def test_a_delta_that_is_known_is_not_told_again() -> None:
    place, told = step(Place(EntryId(2, 0), 6), at(2, 1, Delta("abc", 0)))

    assert told is None
    assert place == Place(EntryId(2, 1), 6)


def test_a_delta_beyond_the_reader_is_a_gap() -> None:
    with pytest.raises(Gap):
        step(Place(EntryId(1, 1), 3), at(1, 5, Delta("x", 4)))


def test_a_reset_takes_the_reader_back_and_is_silent_where_there_is_nothing_to_take_back() -> None:
    assert step(Place(EntryId(2, 0), 9), at(2, 1, Reset(4))) == (Place(EntryId(2, 1), 4), Reset(4))
    assert step(Place(EntryId(2, 0), 4), at(2, 1, Reset(4))) == (Place(EntryId(2, 1), 4), None)


def test_an_end_with_more_text_than_the_reader_has_is_a_gap() -> None:
    with pytest.raises(Gap):
        step(Place(EntryId(1, 1), 4), at(1, TERMINAL_SEQ, DONE))


def test_an_end_without_a_message_is_the_end_of_no_text() -> None:
    failed = Ended("failed", {"message_id": None, "chars": 0})

    assert step(Place(EntryId(1, 0), 0), at(1, TERMINAL_SEQ, failed))[1] == failed
    with pytest.raises(Gap):
        step(Place(EntryId(1, 1), 4), at(1, TERMINAL_SEQ, failed))


@pytest.mark.parametrize(
    ("place", "entry"),
    [
        (Place(EntryId(1, 4), 7), at(2, 3, Delta("xy", 7))),
        (Place(EntryId(2, 0), 7), at(2, 3, Delta("xy", 7))),
        (Place(EntryId(2, 1), 7), at(2, 3, Delta("xy", 7))),
        (Place(EntryId(1, 4), 7), at(3, 0, Started(3, "m"))),
        (Place(EntryId(2, 0), 7), at(3, 0, Started(3, "m"))),
        (Place(EntryId(1, 4), 7), at(3, 1, Reset(5))),
        (Place(EntryId(1, 4), 5), at(2, TERMINAL_SEQ, DONE)),
    ],
)
def test_what_may_follow_a_lost_reset_is_a_gap(place: Place, entry: Entry) -> None:
    with pytest.raises(Gap):
        step(place, entry)


def test_who_has_no_text_can_have_lost_none() -> None:
    assert step(Place(EntryId(1, 0), 0), at(3, 0, Started(3, "m")))[0] == Place(EntryId(3, 0), 0)
    assert step(Place(), at(2, 4, Delta("xy", 0)))[0] == Place(EntryId(2, 4), 2)


def test_what_precedes_a_reset_and_what_follows_it_join_on() -> None:
    filling, _ = step(Place(EntryId(2, 0), 5), at(2, 1, Delta("fg", 5)))
    reset, told = step(filling, at(2, 2, Reset(7)))
    assert (reset, told) == (Place(EntryId(2, 2), 7), None)

    at_once, _ = step(Place(EntryId(2, 0), 5), at(2, 1, Reset(5)))
    assert step(at_once, at(2, 2, Delta("xy", 5)))[0] == Place(EntryId(2, 2), 7)


def written(attempt: int, text: str, resumed_at: dict[int, int] | None = None) -> Written:
    return Written(attempt, text, resumed_at or {})


def test_a_reader_of_the_same_attempt_gets_the_rest_and_the_end() -> None:
    told = conclude(Place(EntryId(1, 3), 2), written(1, "ab🙂de"), DONE)

    assert [event for _, event in told] == [Delta("🙂de", 2), DONE]
    assert str(told[-1][0]) == f"1-{TERMINAL_SEQ}-5"


@pytest.mark.parametrize("place", [Place(EntryId(1, 3), 4), Place(EntryId(2, 0), 4), Place(EntryId(2, 1), 4)])
def test_a_reader_who_has_not_heard_a_reset_is_taken_back_to_what_stands(place: Place) -> None:
    told = conclude(place, written(3, "abcde", {2: 3, 3: 4}), DONE)

    assert [event for _, event in told] == [Reset(3), Delta("de", 3), DONE]


def test_attempts_that_told_nothing_void_nothing() -> None:
    assert [event for _, event in conclude(Place(EntryId(1, 3), 4), written(3, "abcde"), DONE)] == [Delta("e", 4), DONE]


def test_who_has_more_than_an_ended_run_keeps_what_agrees() -> None:
    assert conclude(Place(EntryId(1, 3), 7), written(2, "abcde"), DONE)[0][1] == Reset(5)
    assert conclude(Place(EntryId(1, 3), 7), written(2, "abcde", {2: 4}), DONE)[0][1] == Reset(4)
    assert conclude(Place(EntryId(2, 5), 7), written(2, "abcde", {2: 4}), DONE)[0][1] == Reset(0)


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_run_that_left_no_message_leaves_no_text(attempt: int) -> None:
    told = conclude(Place(EntryId(1, 3), 2), written(attempt, "", {2: 0} if attempt == 2 else {}), DONE)

    assert [event for _, event in told] == [Reset(0), DONE]


@pytest.mark.parametrize("seed", range(20))
def test_ids_grow_and_any_of_them_resumes_a_conclusion(seed: int) -> None:
    dice = random.Random(seed)
    text = "".join(dice.choice("aé世🙂") for _ in range(dice.randrange(8)))
    attempt = dice.randrange(1, 4)
    ended = written(attempt, text, {n: dice.randrange(8) for n in range(2, attempt + 1)})
    start = Place(EntryId(dice.randint(1, attempt), dice.randrange(4)), dice.randrange(10))
    whole = conclude(start, ended, DONE)

    ids = [place.entry for place, _ in whole]
    assert ids == sorted(ids, key=lambda entry: entry or EntryId(0, 0))
    assert start.entry is None or ids[0] > start.entry  # type: ignore[operator]
    for index, (place, _) in enumerate(whole[:-1]):
        again = conclude(Place.parse(str(place)), ended, DONE)
        assert [event for _, event in again] == [event for _, event in whole[index + 1 :]]


@pytest.mark.parametrize(
    ("place", "so_far", "told", "mark"),
    [
        # The same attempt goes on behind what was put by.
        (Place(EntryId(1, 3), 2), written(1, "abcde"), [Delta("cde", 2)], "1-3-5"),
        (Place(EntryId(1, 3), 7), written(1, "abcde"), [], "1-3-7"),
        (Place(), written(1, "abcde"), [Delta("abcde", 0)], "1-0-5"),
        (Place(), written(1, ""), [], ""),
        # The next has told that it went on from the third character: its reset, and a zombie's entries, are passed.
        (Place(EntryId(1, 3), 4), written(2, "abcxy", {2: 3}), [Reset(3), Delta("xy", 3)], "2-2-5"),
        (Place(EntryId(2, 0), 4), written(2, "abcxy", {2: 3}), [Reset(3), Delta("xy", 3)], "2-2-5"),
        (Place(EntryId(2, 1), 4), written(2, "abc", {2: 3}), [Reset(3)], "2-2-3"),
        (Place(EntryId(1, 3), 4), written(2, "abc", {2: 3}), [Reset(3)], "2-1-3"),
        (Place(EntryId(1, 3), 2), written(2, "ab", {2: 3}), [], "2-0-2"),
        # It has told nothing yet: what it will void is not known.
        (Place(EntryId(1, 3), 4), written(2, "abcde"), [Delta("e", 4)], "2-0-5"),
        # Two attempts, of which neither has reached the reader.
        (Place(EntryId(1, 3), 4), written(3, "axyz", {2: 1, 3: 3}), [Reset(1), Delta("xyz", 1)], "3-2-4"),
        # Postgres answered before the reader read on.
        (Place(EntryId(2, 4), 4), written(1, "abcdef"), None, "2-4-4"),
        (Place(EntryId(2, 4), 4), written(2, "abcdef"), None, "2-4-4"),
    ],
)
def test_a_bridge_tells_what_was_put_by_and_says_where_the_stream_joins_on(
    place: Place, so_far: Written, told: list[Event] | None, mark: str
) -> None:
    crossed = bridge(place, so_far)

    assert [event for _, event in crossed if event] == (told or [])
    assert str(crossed[-1][0] if crossed else place) == mark
    assert bool(crossed) == (told is not None)


def test_checkpoints_fold_in_order_and_end_where_a_later_attempt_went_on() -> None:
    pieces = [Piece(1, 0, "abc"), Piece(1, 3, "de"), Piece(2, 4, "xy")]

    assert fold(pieces, {2: 4}) == "abcdxy"
    assert fold(pieces[:2], {}) == "abcde"
    assert fold(pieces[:2], {2: 4}) == "abcd"
    assert fold([], {2: 4}) == ""


def test_a_start_takes_nothing_from_the_reader() -> None:
    assert step(Place(EntryId(1, 4), 7), at(2, 0, Started(2, "m"))) == (Place(EntryId(2, 0), 7), Started(2, "m"))
