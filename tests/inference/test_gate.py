"""Who may go into an engine, who waits, and how many runs a worker may hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager

import pytest

from inference.gate import Gate, Visit
from inference.scripted_engine import Script, ScriptedEngine
from inference.tokens import Tokenizer
from tests.real_model import model_folder

SLOTS, BLOCKS, BLOCK_TOKENS, WINDOW = 8, 10, 16, 128  # a window takes 8 of the 10 blocks
SMALL = Script(slots=SLOTS, kv_blocks=BLOCKS, block_tokens=BLOCK_TOKENS, context_window=WINDOW)


class Dismissed(Exception):
    """Why one of them goes."""


class Crowd:
    """Runs that came to a gate, in the order in which they went in."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.inside: list[str] = []
        self._hands = ExitStack()
        self._visits: dict[str, Visit] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._may_go: dict[str, asyncio.Event] = {}

    def expect(self, *names: str) -> None:
        """They are in hand, of a size nobody knows."""
        for name in names:
            self._visits[name] = self._hands.enter_context(self.gate.expecting())

    async def comes(self, name: str, blocks: int, *, is_patient: bool = False) -> None:
        """It comes to the gate."""
        if name not in self._visits:
            self.expect(name)
        self._may_go[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._pass(name, blocks * BLOCK_TOKENS, is_patient))
        await turns()

    async def _pass(self, name: str, tokens: int, is_patient: bool) -> None:
        async with self._visits[name].inside(tokens, is_patient=is_patient):
            self.inside.append(name)
            await self._may_go[name].wait()
            self.inside.remove(name)

    async def ends(self, name: str) -> None:
        """It is done with the engine."""
        self.let_go(name)
        await self._tasks[name]
        await turns()

    def let_go(self, name: str) -> None:
        """It ends in the loop's next turn."""
        self._may_go[name].set()

    def dismiss(self, name: str) -> None:
        """It is told to go."""
        self._visits[name].dismiss(Dismissed())

    def task(self, name: str) -> asyncio.Task[None]:
        """What waits for it."""
        return self._tasks[name]

    async def disperse(self) -> None:
        """All go."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._hands.close()


async def turns() -> None:
    """Let every task go as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


@asynccontextmanager
async def crowd_at(script: Script, on_room: Callable[[], None] = lambda: None) -> AsyncIterator[Crowd]:
    crowd = Crowd(Gate(ScriptedEngine(script, Tokenizer.load(model_folder())), on_room))
    yield crowd
    await crowd.disperse()
    assert crowd.gate.report()["kv_blocks_free"] == script.kv_blocks


@pytest.fixture
async def crowd() -> AsyncIterator[Crowd]:
    async with crowd_at(SMALL) as crowd:
        yield crowd


async def test_those_go_in_whose_worst_cases_fit_together_and_the_others_when_one_ends(crowd: Crowd) -> None:
    for name in "abc":
        await crowd.comes(name, blocks=4)
    assert crowd.inside == ["a", "b"]
    assert crowd.gate.report() == {"kv_blocks": BLOCKS, "kv_blocks_free": 2, "kv_waiting": 1, "kv_waits": 1}

    await crowd.ends("a")

    assert crowd.inside == ["b", "c"]


async def test_a_part_of_a_block_is_a_block(crowd: Crowd) -> None:
    with crowd.gate.expecting() as visit:
        async with visit.inside(BLOCK_TOKENS + 1):
            assert crowd.gate.report()["kv_blocks_free"] == BLOCKS - 2


async def test_a_small_one_does_not_pass_a_large_one_that_came_before(crowd: Crowd) -> None:
    await crowd.comes("first", blocks=6)
    await crowd.comes("large", blocks=5)
    await crowd.comes("small", blocks=1)
    assert crowd.inside == ["first"]

    await crowd.ends("first")

    assert crowd.inside == ["large", "small"]


async def test_the_next_goes_in_at_once_when_the_one_before_it_is_dismissed(crowd: Crowd) -> None:
    await crowd.comes("first", blocks=6)
    await crowd.comes("large", blocks=5)
    await crowd.comes("small", blocks=1)

    crowd.dismiss("large")
    with pytest.raises(Dismissed):
        await crowd.task("large")

    assert crowd.inside == ["first", "small"]


async def test_the_next_goes_in_when_the_task_before_it_is_cancelled(crowd: Crowd) -> None:
    await crowd.comes("first", blocks=6)
    await crowd.comes("large", blocks=5)
    await crowd.comes("small", blocks=1)

    crowd.task("large").cancel()
    await turns()

    assert crowd.inside == ["first", "small"]


async def test_one_that_is_cancelled_in_the_moment_of_its_turn_leaves_its_blocks_to_the_next(crowd: Crowd) -> None:
    await crowd.comes("first", blocks=8)
    await crowd.comes("second", blocks=8)
    await crowd.comes("third", blocks=8)

    crowd.let_go("first")
    await asyncio.sleep(0)
    assert crowd.gate.report()["kv_waiting"] == 1
    crowd.task("second").cancel()
    await turns()

    assert crowd.inside == ["third"]


async def test_one_cancelled_just_before_its_turn_leaves_it_to_the_next(crowd: Crowd) -> None:
    await crowd.comes("first", blocks=8)
    await crowd.comes("second", blocks=8)
    await crowd.comes("third", blocks=8)

    crowd.let_go("first")
    crowd.task("second").cancel()  # which it hears behind the first one's end
    await crowd.task("first")
    await turns()

    assert crowd.inside == ["third"]


async def test_to_dismiss_one_that_is_inside_or_did_not_come_yet_changes_nothing(crowd: Crowd) -> None:
    await crowd.comes("inside", blocks=8)
    crowd.expect("coming")

    crowd.dismiss("inside")
    crowd.dismiss("coming")
    await turns()

    assert crowd.inside == ["inside"]
    await crowd.ends("inside")
    await crowd.comes("coming", blocks=8)
    assert crowd.inside == ["coming"]


async def test_to_dismiss_one_whose_task_was_cancelled_a_moment_ago_changes_nothing(crowd: Crowd) -> None:
    await crowd.comes("inside", blocks=8)
    await crowd.comes("waiting", blocks=8)

    crowd.task("waiting").cancel()
    crowd.dismiss("waiting")
    await turns()

    assert crowd.task("waiting").cancelled()


async def test_one_that_no_cache_would_hold_goes_in_alone() -> None:
    async with crowd_at(Script(slots=SLOTS, kv_blocks=BLOCKS, context_window=10_000)) as crowd:
        await crowd.comes("small", blocks=1)
        await crowd.comes("huge", blocks=BLOCKS + 1)
        await crowd.comes("next", blocks=1)
        assert crowd.inside == ["small"]

        await crowd.ends("small")
        assert crowd.inside == ["huge"]

        await crowd.ends("huge")
        assert crowd.inside == ["next"]


async def test_nobody_takes_more_than_a_window(crowd: Crowd) -> None:
    await crowd.comes("a", blocks=1000)

    assert crowd.gate.report()["kv_blocks_free"] == BLOCKS - WINDOW // BLOCK_TOKENS


async def test_with_a_cache_for_a_window_in_each_slot_the_limit_is_the_slots_whatever_comes() -> None:
    async with crowd_at(Script(slots=3, kv_blocks=24, block_tokens=16, context_window=WINDOW)) as crowd:
        limits = [crowd.gate.limit]
        for name in "abc":
            crowd.expect(name)
            limits.append(crowd.gate.limit)
            await crowd.comes(name, blocks=8)
            limits.append(crowd.gate.limit)
        assert limits == [3] * 7


async def test_one_more_is_taken_in_than_surely_fits_and_no_other_before_its_size_is_known(crowd: Crowd) -> None:
    assert crowd.gate.limit == 1
    crowd.expect("a")
    assert crowd.gate.limit == 1

    await crowd.comes("a", blocks=3)
    assert crowd.gate.limit == 2  # 7 blocks are left, and a window takes 8

    crowd.expect("b")
    assert crowd.gate.limit == 2


async def test_nobody_is_taken_in_while_somebody_waits(crowd: Crowd) -> None:
    await crowd.comes("a", blocks=6)
    await crowd.comes("b", blocks=5)
    assert crowd.gate.limit == 2

    await crowd.ends("a")

    assert crowd.inside == ["b"]
    assert crowd.gate.limit == 3  # those two are in hand still, and one more may come


async def test_the_limit_is_never_above_the_slots(crowd: Crowd) -> None:
    for number in range(SLOTS):
        await crowd.comes(str(number), blocks=1)

    assert len(crowd.inside) == crowd.gate.limit == SLOTS


async def test_each_rise_of_the_limit_is_told() -> None:
    told: list[int] = []
    async with crowd_at(SMALL, on_room=lambda: told.append(a_crowd.gate.limit)) as a_crowd:
        await a_crowd.comes("a", blocks=2)
        assert told == [2]
        await a_crowd.comes("b", blocks=2)
        assert told == [2, 3]
        await a_crowd.comes("c", blocks=8)
        assert told == [2, 3]
        a_crowd.dismiss("c")
        await turns()
        assert told == [2, 3, 4]


async def test_who_is_patient_waits_behind_all_others_and_holds_up_nobody(crowd: Crowd) -> None:
    await crowd.comes("first", 8)
    await crowd.comes("patient", 8, is_patient=True)
    assert crowd.gate.limit == 3  # nobody stands in the others' way
    await crowd.comes("second", 2)
    assert crowd.inside == ["first", "second"]

    await crowd.ends("first")

    assert crowd.inside == ["second", "patient"]


async def test_who_is_patient_can_be_dismissed(crowd: Crowd) -> None:
    await crowd.comes("first", 8)
    await crowd.comes("patient", 8, is_patient=True)

    crowd.dismiss("patient")

    with pytest.raises(Dismissed):
        await crowd.task("patient")
    assert crowd.gate.report()["kv_waiting"] == 0
