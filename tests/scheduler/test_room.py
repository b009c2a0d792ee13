"""Where runs wait: the order, the places, and what is let go."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from redis import Redis
from uuid6 import uuid7

from scheduler.room import Room, queue_name, room_key
from tests.rooms import of, strangers, taken


@pytest.fixture
def room(redis: Redis, name: str) -> Room:
    return Room(redis, name, "free")


def in_order(count: int) -> list[UUID]:
    return [uuid7() for _ in range(count)]


def at(milliseconds: int, rest: int) -> UUID:
    """An id of that birth."""
    return UUID(int=(milliseconds << 80) | (7 << 76) | (2 << 62) | rest)


def queue(redis: Redis, name: str, *messages: str) -> None:
    """Put messages into the queue as kombu does."""
    for message in messages:
        redis.lpush(queue_name(name, "free"), message)


def test_who_comes_first_is_let_go_first(room: Room) -> None:
    first, second, third = in_order(3)
    for run_id in (third, first, second):
        room.release(0, strangers([run_id]))

    assert taken(room.release(2)) == [first, second]
    assert taken(room.release(2)) == [third]
    assert taken(room.release(2)) == []


def test_runs_of_one_millisecond_stand_in_the_order_of_their_ids(room: Room) -> None:
    runs = [at(1_000_000, rest) for rest in range(5)]
    room.release(0, strangers(reversed(runs)))

    assert taken(room.release(5)) == runs


def test_a_birth_in_an_earlier_millisecond_outranks_the_rest_of_the_id(room: Room) -> None:
    early, late = at(1_000, 99), at(1_001, 1)
    room.release(0, strangers([late, early]))

    assert taken(room.release(2)) == [early, late]


def test_letting_in_twice_is_letting_in_once(room: Room) -> None:
    run_id, other = in_order(2)
    room.release(0, strangers([run_id, other]))
    room.release(0, strangers([run_id]))

    assert taken(room.release(9)) == [run_id, other]


def test_only_as_many_go_as_the_queue_is_short_of(room: Room, redis: Redis, name: str) -> None:
    queue(redis, name, "one", "two")
    runs = in_order(4)

    assert taken(room.release(3, strangers(runs))) == runs[:1]
    assert taken(room.release(2)) == []
    assert taken(room.release(1)) == []


def test_places_count_the_queue_and_then_the_room(room: Room, redis: Redis, name: str) -> None:
    sent = [uuid7(), uuid7()]
    queue(redis, name, *(f'{{"id": "{run_id}"}}' for run_id in sent))
    waiting = in_order(3)
    room.release(0, strangers(waiting))

    assert [room.position(run_id) for run_id in sent + waiting] == [1, 2, 3, 4, 5]


def test_who_does_not_wait_has_no_place(room: Room) -> None:
    assert room.position(uuid7()) is None


def test_who_is_removed_is_neither_placed_nor_let_go(room: Room) -> None:
    gone, stays = strangers(in_order(2))
    room.release(0, [gone, stays])

    assert room.remove(gone)
    assert not room.remove(gone)

    assert (room.position(gone.run_id), room.position(stays.run_id)) == (None, 1)
    assert taken(room.release(9)) == [stays.run_id]


def test_who_is_removed_after_release_leaves_the_queue_and_nobody_else_does(
    room: Room, redis: Redis, name: str
) -> None:
    first, gone, last = in_order(3)
    queue(redis, name, *(f'{{"id": "{run_id}", "args": "{run_id}"}}' for run_id in (first, gone, last)))

    removed = of(uuid4())
    assert room.remove(replace(removed, run_id=gone))
    assert not room.remove(replace(removed, run_id=gone))

    assert [room.position(run_id) for run_id in (first, gone, last)] == [1, None, 2]


def test_removing_who_was_never_there_changes_nothing(room: Room, redis: Redis, name: str) -> None:
    queue(redis, name, "one")

    assert not room.remove(of(uuid4()))
    assert redis.llen(queue_name(name, "free")) == 1


def test_rooms_of_other_tiers_and_models_are_other_rooms(room: Room, redis: Redis, name: str) -> None:
    room.release(0, strangers(in_order(1)))

    assert taken(Room(redis, name, "pro").release(9)) == []
    assert redis.zcard(room_key(name, "free")) == 1
