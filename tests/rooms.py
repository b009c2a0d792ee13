"""Runs that come to a room."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID, uuid4

from uuid6 import uuid7

from scheduler.room import Newcomer, Release

A_COST = 100


def strangers(runs: Iterable[UUID]) -> list[Newcomer]:
    """Each of another user, who has no other."""
    return [Newcomer(run_id, uuid4(), A_COST) for run_id in runs]


def of(user_id: UUID, cost: int = A_COST) -> Newcomer:
    """A new run of that user."""
    return Newcomer(uuid7(), user_id, cost)


def somebody(count: int) -> list[UUID]:
    """So many runs of which nothing else is known."""
    return [uuid7() for _ in range(count)]


def taken(release: Release) -> list[UUID]:
    """Who was let go, first come first."""
    return [departure.run_id for departure in release.taken]
