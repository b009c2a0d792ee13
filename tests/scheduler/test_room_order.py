"""Who is next in a room: users by what they have had, to the token."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import cast
from uuid import UUID, uuid4

import pytest
from redis import Redis
from uuid6 import uuid7

from scheduler.room import Correction, Departure, Newcomer, Room, queue_name, room_key
from tests.rooms import of, taken

ALICE, BOB, CAROL = (UUID(int=n) for n in (1, 2, 3))


@pytest.fixture
def room(redis: Redis, name: str) -> Room:
    return Room(redis, name, "free")


def counters(redis: Redis, name: str) -> dict[UUID, float]:
    """Of users who have nothing waiting."""
    found = cast(list[tuple[bytes, float]], redis.zrange(f"counters:{name}:free", 0, -1, withscores=True))
    return {UUID(user.decode()): score for user, score in found}


def order(room: Room) -> list[UUID]:
    """Who goes next, and so on until nobody waits."""
    return taken(room.release(1000))


def ids(*runs: Newcomer) -> list[UUID]:
    return [run.run_id for run in runs]


def places(room: Room, *runs: Newcomer) -> list[int | None]:
    return [room.position(run.run_id) for run in runs]


def test_three_long_runs_of_one_do_not_delay_ten_with_a_short_one_each(room: Room) -> None:
    long = [of(ALICE, 1000) for _ in range(3)]
    room.release(0, long)
    short = [of(uuid4(), 10) for _ in range(10)]
    for run in short:
        room.release(0, [run])

    assert order(room) == ids(long[0], *short, *long[1:])


def test_who_comes_while_others_are_ahead_starts_level_and_not_before_them(room: Room) -> None:
    busy = [of(ALICE, 100) for _ in range(5)]
    room.release(0, busy)
    room.release(3)  # tags 0, 100 and 200 have gone
    late = of(BOB, 100)
    room.release(0, [late])

    assert order(room) == ids(late, *busy[3:])


def test_what_a_run_did_not_use_brings_its_user_forward(room: Room) -> None:
    alice, bob = [of(ALICE, 1000) for _ in range(3)], [of(BOB, 400) for _ in range(3)]
    room.release(0, [*alice, *bob])
    assert taken(room.release(2)) == ids(alice[0], bob[0])
    assert places(room, *alice[1:], *bob[1:]) == [3, 4, 1, 2]

    room.release(0, corrections=[Correction(ALICE, 1000, 100)])

    assert places(room, *alice[1:], *bob[1:]) == [1, 4, 2, 3]
    assert order(room) == ids(alice[1], bob[1], bob[2], alice[2])


def test_what_is_given_back_stays_with_a_user_who_has_runs_waiting(room: Room) -> None:
    alice, bob = [of(ALICE, 1000), of(ALICE, 1000), of(ALICE, 10)], [of(BOB, 700) for _ in range(4)]
    room.release(0, [*alice, *bob])
    assert taken(room.release(5)) == ids(alice[0], bob[0], bob[1], alice[1], bob[2])
    room.release(0, corrections=[Correction(ALICE, 1000, 0)] * 2)

    carol, another = of(CAROL), of(ALICE, 10)
    for run in (carol, another):
        room.release(0, [run])

    assert order(room) == ids(alice[2], another, carol, bob[3])


def test_a_user_with_nothing_waiting_keeps_the_counter_until_others_have_passed_it(
    room: Room, redis: Redis, name: str
) -> None:
    others = [of(BOB, 300) for _ in range(4)]
    room.release(0, [of(ALICE, 1000), *others])
    room.release(2)
    assert counters(redis, name) == {ALICE: 1000}

    room.release(0, corrections=[Correction(ALICE, 1000, 500)])
    assert counters(redis, name) == {ALICE: 500}

    room.release(2)  # 300 and 600
    assert counters(redis, name) == {}
    assert room.release(0, [again := of(ALICE, 10)]).taken == []
    assert order(room) == ids(again, others[3])


def test_one_whose_run_is_removed_has_its_cost_back(room: Room, redis: Redis, name: str) -> None:
    alice, bob = [of(ALICE, 1000) for _ in range(3)], [of(BOB, 1500) for _ in range(2)]
    room.release(0, [*alice, *bob])

    assert room.remove(alice[1])

    assert places(room, alice[0], alice[2], *bob) == [1, 3, 2, 4]
    assert order(room) == ids(alice[0], bob[0], alice[2], bob[1])
    assert counters(redis, name) == {ALICE: 2000, BOB: 3000}


def test_one_whose_last_run_is_removed_is_as_if_it_had_not_come(room: Room, redis: Redis, name: str) -> None:
    run, other = of(ALICE, 1000), of(BOB)
    room.release(0, [run, other])
    room.remove(run)

    assert order(room) == ids(other)
    assert ALICE not in counters(redis, name)


def test_one_whose_run_is_removed_from_the_queue_has_its_cost_back(room: Room, redis: Redis, name: str) -> None:
    alice, bob = [of(ALICE, 1000) for _ in range(2)], [of(BOB, 10) for _ in range(2)]
    room.release(0, [*alice, *bob])
    assert taken(room.release(2)) == ids(alice[0], bob[0])
    redis.lpush(queue_name(name, "free"), f'{{"id": "{alice[0].run_id}"}}')

    assert room.remove(alice[0])

    assert order(room) == ids(alice[1], bob[1])


def test_one_that_was_charged_before_goes_first_and_is_not_charged_again(room: Room, redis: Redis, name: str) -> None:
    alice, bob = [of(ALICE, 1000) for _ in range(3)], of(BOB, 10)
    room.release(0, [*alice, bob])
    assert taken(room.release(3)) == ids(alice[0], bob, alice[1])

    room.release(0, [replace(alice[0], was_charged=True)])
    room.release(0, [last := of(ALICE, 1000)])

    assert room.release(1).taken == [Departure(alice[0].run_id, 1000)]
    assert order(room) == ids(alice[2], last)
    assert counters(redis, name) == {ALICE: 4000}


def test_when_nobody_waits_all_start_anew_and_nothing_is_kept(room: Room, redis: Redis, name: str) -> None:
    room.release(9, [of(ALICE, 1000), of(ALICE, 1000), of(BOB, 10)])
    assert set(counters(redis, name)) == {ALICE}

    alice, carol = of(ALICE, 10), of(CAROL, 10)
    room.release(0, [alice, carol])

    assert order(room) == ids(alice, carol)
    assert redis.hkeys(f"owners:{name}:free") == [b"now"]


def test_a_room_that_an_earlier_release_filled_by_birth_goes_on(room: Room, redis: Redis, name: str) -> None:
    old = [uuid7() for _ in range(2)]
    redis.zadd(room_key(name, "free"), {str(run_id): run_id.int >> 80 for run_id in old})
    new = of(ALICE, 10)
    room.release(0, [new])

    assert order(room) == [*old, new.run_id]


def test_a_run_that_an_earlier_release_lets_in_by_birth_waits_for_those_before_it(
    room: Room, redis: Redis, name: str
) -> None:
    before = [of(UUID(int=n)) for n in range(3)]
    room.release(0, before)
    old = uuid7()
    redis.zadd(room_key(name, "free"), {str(old): old.int >> 80})

    gone = [taken(room.release(1, [of(UUID(int=n))]))[0] for n in range(10, 14)]

    assert old in gone


def test_a_departure_tells_what_the_run_may_cost(room: Room) -> None:
    run = of(ALICE, 321)

    assert room.release(1, [run]).taken == [Departure(run.run_id, 321)]


def test_a_release_tells_how_many_wait_in_each_tier_of_the_model(redis: Redis, room: Room, name: str) -> None:
    Room(redis, name, "pro").release(0, [of(ALICE)])

    assert room.release(1, [of(BOB), of(CAROL)]).waiting == {"free": 2, "pro": 1}
    assert Room(redis, name, "pro").release(1).waiting == {"free": 1, "pro": 1}
    assert Room(redis, name, "pro").release(0).waiting == {"free": 1, "pro": 0}


class Trace:
    """Users of whom each has two runs waiting all along, on a few slots; runs end in any order."""

    USERS, SLOTS, LARGEST = 9, 2, 1000

    def __init__(self, room: Room) -> None:
        self._room = room
        self._random = Random(11)
        self._running: list[tuple[Newcomer, int]] = []
        self._users = [UUID(int=n + 1) for n in range(self.USERS)]
        self._waiting: dict[UUID, Newcomer] = {}
        self.served = Counter[UUID](dict.fromkeys(self._users, 0))
        for user in self._users * 2:
            self._ask(user)
        self._fill(())

    def _ask(self, user: UUID) -> None:
        # Each has runs of another size, and uses another part of them.
        most = self.LARGEST if user.int % 2 else self.LARGEST // 3
        run = of(user, self._random.randint(1, most))
        self._waiting[run.run_id] = run
        self._room.release(0, [run])

    def _fill(self, corrections: tuple[Correction, ...]) -> None:
        for departure in self._room.release(self.SLOTS - len(self._running), corrections=corrections).taken:
            run = self._waiting.pop(departure.run_id)
            self._ask(run.user_id)
            part = 0.3 if run.user_id.int % 3 else 1.0
            self._running.append((run, self._random.randint(0, int(run.cost * part))))

    def step(self) -> None:
        """One run ends, the slot is taken, and its user asks for another."""
        run, charge = self._running.pop(self._random.randrange(len(self._running)))
        self.served[run.user_id] += charge
        self._fill((Correction(run.user_id, run.cost, charge),))

    def has_a_gap_between(self) -> int:
        """The most that one user has had more than another."""
        return max(self.served.values()) - min(self.served.values())


def test_two_who_always_wait_are_served_alike_within_the_bound(room: Room) -> None:
    trace = Trace(room)
    bound = (1 + trace.SLOTS) * trace.LARGEST  # from a common start; one user may have all slots

    gaps = []
    for _ in range(1500):
        trace.step()
        gaps.append(trace.has_a_gap_between())

    assert min(trace.served.values()) > 2 * bound
    assert max(gaps) <= bound
