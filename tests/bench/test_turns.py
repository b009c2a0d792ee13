"""What turns at real vLLM come to."""

from __future__ import annotations

import pytest

from bench.serving.figures import Figure
from bench.serving.meter import Noise
from bench.serving.turns import BARE, JUDGED, LOADS, OURS, SHORT, Load, Turn, Turns, figures

PEER = "a peer"


def turn(load: Load, seconds: float, outside_s: float) -> Turn:
    """Of an engine that takes a hundredth of a second for a token."""
    tokens = load.at_once * load.tokens
    shares = {"web": outside_s / 4, "worker": 3 * outside_s / 4}
    return Turn(tokens, seconds, 100.0, tokens / 100, shares, Noise(0.0))


def found(turns: Turns) -> dict[str, Figure]:
    return {figure.what: figure for figure in figures(turns, {}, 3)}


def cost_s(load: Load, request_s: float, token_s: float) -> float:
    return load.at_once * (request_s + load.tokens * token_s)


@pytest.fixture
def turns() -> Turns:
    """A bare engine's, ours with 20 ms a request and 0.5 ms a token, and a peer's that was not asked at every load."""
    return {
        BARE: {load: [turn(load, seconds, cost_s(load, 0, 0.0001)) for seconds in (10, 20, 40)] for load in LOADS},
        OURS: {load: [turn(load, seconds, cost_s(load, 0.02, 0.0005)) for seconds in (20, 20, 50)] for load in LOADS},
        PEER: {load: [turn(load, 10, cost_s(load, 0, 0.0002))] * 3 for load in (JUDGED, SHORT)},
    }


def test_a_ratio_is_the_median_of_pairs_not_of_all_turns(turns: Turns) -> None:
    ratio = found(turns)[f"tokens/s over bare AsyncLLM's, median of 3 pairs, {JUDGED}"]

    assert ratio.ours == pytest.approx(0.8)
    assert ratio.is_met is False


def test_a_request_and_a_further_token_are_told_apart(turns: Turns) -> None:
    token = found(turns)[f"CPU of a further token outside EngineCore, {JUDGED}"]
    request = found(turns)["CPU of a request outside EngineCore, its tokens apart"]

    assert token.ours == pytest.approx(500)
    assert token.parts == pytest.approx(100)
    assert token.details == {"web": pytest.approx(125), "worker": pytest.approx(375)}
    assert request.ours == pytest.approx(20)
    assert request.parts == pytest.approx(0)


def test_a_load_that_a_peer_was_not_asked_at_has_no_figure_of_it(turns: Turns) -> None:
    asked, not_asked = (found(turns)[f"real vLLM: tokens/s, {load}"] for load in (JUDGED, LOADS[0]))

    assert PEER in asked.peers
    assert PEER not in not_asked.peers
