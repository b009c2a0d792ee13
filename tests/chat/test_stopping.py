"""Stop strings: what is let through depends on the text alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat.stopping import StopStrings

FEW = st.text("ab\n", max_size=12)
STOPS = st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=4)


def first_stop(text: str, stops: list[str]) -> int | None:
    """Where the first stop string stands that is whole, by looking at each beginning of the text."""
    for end in range(len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return min(starts)
    return None


@given(pieces=st.lists(FEW, max_size=8), stops=STOPS)
def test_an_answer_ends_before_the_first_stop_string_whatever_pieces_it_comes_in(
    pieces: list[str], stops: list[str]
) -> None:
    watch, text = StopStrings(stops), "".join(pieces)

    told = "".join(map(watch.push, pieces)) + watch.flush()

    assert told == text[: first_stop(text, stops)]
    assert watch.is_met == (first_stop(text, stops) is not None)


@given(pieces=st.lists(FEW, max_size=8), stops=STOPS)
def test_whoever_takes_over_in_the_middle_has_let_through_the_same(pieces: list[str], stops: list[str]) -> None:
    piecemeal, at_once = StopStrings(stops), StopStrings(stops)

    assert "".join(map(piecemeal.push, pieces)) == at_once.push("".join(pieces))
    assert piecemeal.is_met == at_once.is_met


def test_no_more_is_held_back_than_may_be_a_stop_strings_beginning() -> None:
    watch = StopStrings(["###"])
    assert [watch.push(piece) for piece in ("a#", "b##", "c")] == ["a", "#b", "##c"]


@pytest.mark.parametrize("text", ["", "anything"])
def test_without_stop_strings_all_passes(text: str) -> None:
    assert StopStrings().push(text) == text
