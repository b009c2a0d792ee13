"""What an entry means to a reader at some place, without any server."""

from __future__ import annotations

import random

import pytest

from chat.streaming.place import Gap, Place, conclude, step
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
    place, told = step(Place(EntryId(1, 1), 6), at(2, 1, Delta("abc", 0)))

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


def test_an_end_without_a_message_ends_whatever_the_reader_has() -> None:
    failed = Ended("failed", {"message_id": None, "chars": 0})

    assert step(Place(EntryId(1, 1), 4), at(1, TERMINAL_SEQ, failed))[1] == failed


def test_a_reader_of_the_same_attempt_gets_the_rest_and_the_end() -> None:
    told = conclude(Place(EntryId(1, 3), 2), 1, "ab🙂de", DONE)

    assert [event for _, event in told] == [Delta("🙂de", 2), DONE]
    assert str(told[-1][0]) == f"1-{TERMINAL_SEQ}-5"


@pytest.mark.parametrize("place", [Place(EntryId(1, 3), 2), Place(EntryId(2, 0), 2), Place(EntryId(2, 5), 6)])
def test_a_reader_whose_text_may_be_void_is_taken_back_first(place: Place) -> None:
    told = conclude(place, 2, "abcde", DONE)

    assert [event for _, event in told] == [Reset(0), Delta("abcde", 0), DONE]


def test_a_run_that_left_no_message_leaves_the_readers_text_alone() -> None:
    assert [event for _, event in conclude(Place(EntryId(1, 3), 2), 1, None, DONE)] == [DONE]


@pytest.mark.parametrize("seed", range(20))
def test_ids_grow_and_any_of_them_resumes_a_conclusion(seed: int) -> None:
    dice = random.Random(seed)
    text = "".join(dice.choice("aé世🙂") for _ in range(dice.randrange(8)))
    attempt = dice.randrange(1, 4)
    start = Place(EntryId(dice.randint(1, attempt), dice.randrange(4)), dice.randrange(10))
    whole = conclude(start, attempt, text, DONE)

    ids = [place.entry for place, _ in whole]
    assert ids == sorted(ids, key=lambda entry: entry or EntryId(0, 0))
    assert start.entry is None or ids[0] > start.entry  # type: ignore[operator]
    for index, (place, _) in enumerate(whole[:-1]):
        again = conclude(Place.parse(str(place)), attempt, text, DONE)
        assert [event for _, event in again] == [event for _, event in whole[index + 1 :]]


def test_a_start_takes_nothing_from_the_reader() -> None:
    assert step(Place(EntryId(1, 4), 7), at(2, 0, Started(2, "m"))) == (Place(EntryId(2, 0), 7), Started(2, "m"))
