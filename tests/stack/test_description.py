"""The product does what the API's description says: with requests drawn from it, alone and along its links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyStrategyDefinition
from schemathesis import GenerationMode

from tests.long_form import times
from tests.stack.drawing import Case, Drawn, Link, drawn_from, names_possible_ids
from tests.stack.stack import Stack

pytestmark = pytest.mark.timeout(times(300, 900))

ALONE, BOUNDARIES, WALKS, STEPS = times(4, 160), times(4, 1000), times(6, 300), 8
DRAWING = settings(
    deadline=None, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck), print_blob=True
)


@pytest.fixture(scope="module")
def drawn(scripted_stack: Stack) -> Drawn:
    return drawn_from(scripted_stack)


@pytest.fixture(autouse=True)
def _figures(drawn: Drawn, figures: Callable[[str], None], request: pytest.FixtureRequest) -> Iterator[None]:
    drawn.arrive()
    drawn.failures.clear()
    before = drawn.answers.copy()
    yield
    told = drawn.answers - before
    figures(f"{request.node.name}: {told.total()} requests, {_by_status(told)}")


def test_the_links_lead_through_the_life_of_a_chat(drawn: Drawn) -> None:
    chat = drawn.go(Link("openChat"), {})
    asked = drawn.go(chat.to("ask"), {"content": "Hello"})
    statuses = [drawn.go(asked.to(name)).answer.status_code for name in ("readRun", "followRun", "readMessage")]
    stopped = drawn.go(asked.to("cancelRun"))
    # It stops within moments.
    while (retried := drawn.go(asked.to("retryRun"))).answer.status_code == 409:
        assert retried.answer.json()["code"] == "chat_busy"

    assert (chat.answer.status_code, asked.answer.status_code, statuses) == (201, 202, [200, 200, 200])
    assert stopped.answer.status_code in {200, 202}
    assert drawn.go(retried.to("followRun")).answer.status_code == 200
    assert drawn.go(chat.to("deleteChat")).answer.status_code == 204
    assert drawn.go(chat.to("readChat")).answer.status_code == 404


def test_each_operation_answers_as_described_whatever_it_is_sent(drawn: Drawn) -> None:
    for operation in operations(drawn):
        drawn.arrive()
        try_out(drawn, operation)


def test_each_operation_answers_as_described_at_its_bounds(drawn: Drawn) -> None:
    for operation in operations(drawn):
        drawn.arrive()
        place = placing(drawn, operation)
        cases = list(drawn.boundaries(operation))
        for case in cases[:: -(-len(cases) // BOUNDARIES)]:
            drawn.try_out(place(case))


def test_what_follows_the_links_is_answered_as_described(drawn: Drawn) -> None:
    walker = drawn.walker()
    enough = drawn.answers.total() + WALKS * STEPS // 2
    while drawn.answers.total() < enough:
        try:
            walker.run(settings=settings(DRAWING, max_examples=WALKS, stateful_step_count=STEPS))
        except FlakyStrategyDefinition:
            # A run has ended, or has not: the same steps lead elsewhere, which Hypothesis takes for a fault of theirs.
            assert drawn.failures == []


def operations(drawn: Drawn) -> list[Any]:
    """All that are described."""
    return [found.ok() for found in drawn.schema.get_all_operations()]


def try_out(drawn: Drawn, operation: Any) -> None:
    """Requests for one operation, as they are drawn."""
    place = placing(drawn, operation)

    @settings(DRAWING, max_examples=ALONE)
    @given(case=st.one_of(*requests_for(operation)))
    def draw(case: Case) -> None:
        drawn.try_out(place(case))

    draw()


def placing(drawn: Drawn, operation: Any) -> Callable[[Case], Case]:
    """Has requests be of something that there is, where they name something that there could be.

    What changes it gets another each time: a chat that is answered, deleted or full takes no other request.
    """
    found: dict[str, str] = {}

    def place(case: Case) -> Case:
        if names_possible_ids(case):
            if not found or operation.method != "get":
                drawn.arrive()
                found.update(drawn.belongings())
            case.path_parameters = {name: found[name] for name in case.path_parameters}
        return case

    return place


def requests_for(operation: Any) -> Iterator[st.SearchStrategy[Case]]:
    """Valid ones, and invalid ones where anything can be wrong."""
    yield operation.as_strategy(GenerationMode.POSITIVE)
    if list(operation.iter_parameters()) or operation.body:
        yield operation.as_strategy(GenerationMode.NEGATIVE)


def _by_status(answers: Counter[tuple[str, int]]) -> str:
    found = Counter[int]()
    for (_, status), count in answers.items():
        found[status] += count
    return ", ".join(f"{count} × {status}" for status, count in sorted(found.items()))
