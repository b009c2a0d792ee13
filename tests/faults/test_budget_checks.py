"""The checker finds each wrong charge that is sown into clean accounts, and none in the clean ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from redis import Redis

from launcher.valkey import Valkey
from scheduler.budgets import Reservation, TokenBuckets
from scheduler.dispensable import DispensableRedis
from scheduler.errors import BudgetExhausted
from scheduler.limits import Limits
from tests.faults import bucket_log
from tests.faults.accounts import UNITS, Accounts, Bill, Bucket, Emptied, GivenBack, Held, Operation, Purse, Sums
from tests.faults.budget_checks import BUDGET_CHECKS, known_to_the_token, witnessed
from tests.faults.checker import violations
from tests.faults.parts import Server
from tests.faults.records import Gauges, Records

BORN = datetime(2026, 1, 1, 23, 59, 58, tzinfo=UTC)
ALICE, BOB = uuid4(), uuid4()
DONE, DELETED, LATE, OF_BOB, NEVER_STORED = uuid4(), uuid4(), uuid4(), uuid4(), uuid4()
FULL = 1000
T0 = 1_767_000_000_000
PAGE = (ALICE, date(2026, 1, 1), "default")


def bill(run_id: UUID, user: UUID, took_s: float | None, **figures: object) -> Bill:
    """A run of ten tokens of input and at most fifty of output, that a worker took after a second."""
    ended = None if took_s is None else BORN + timedelta(seconds=took_s)
    started = None if ended is None else BORN + timedelta(seconds=1)
    plain = Bill(run_id, user, "free", "default", 1 if ended else 0, "", 10, 0, 0, 0, 50, BORN, started, ended)
    return replace(plain, **figures)  # type: ignore[arg-type]


LATE_BILL = bill(LATE, ALICE, 9, attempt=0, started_at=None, error_code="queue_timeout")
DONE_BILL = bill(DONE, ALICE, 1.5, cached_tokens=5, output_tokens=20, charged_tokens=27)
DELETED_BILL = bill(DELETED, ALICE, 3, output_tokens=3, charged_tokens=13)
BOBS_BILL = bill(OF_BOB, BOB, 1, output_tokens=1, charged_tokens=11)


def clean() -> Accounts:
    """Alice: a run that is done, one that was deleted, one whose deadline passed; Bob: one, then all was lost."""
    held_bobs = Held(BOB, OF_BOB, 60, 60 * UNITS, T0)
    return Accounts(
        bills=[
            bill(DONE, ALICE, None),
            bill(OF_BOB, BOB, None),
            DONE_BILL,
            BOBS_BILL,
            bill(DELETED, ALICE, None),
            bill(LATE, ALICE, None),
            DELETED_BILL,
            LATE_BILL,
        ],
        ledger={
            PAGE: Sums(1, 10, 5, 20, 27),
            (ALICE, date(2026, 1, 2), "default"): Sums(1, 10, 0, 3, 13),
            (BOB, date(2026, 1, 1), "default"): Sums(1, 10, 0, 1, 11),
        },
        purses={ALICE: Purse(FULL, 1), BOB: Purse(FULL, 3600)},
        cached_token_percents={"default": 25},
        deadlines_s={"free": 9},
        buckets={ALICE: Bucket(40 * UNITS - 9000, T0 + 9000)},
        operations=[
            held_bobs,
            Emptied(),
            Held(ALICE, DONE, 60, 60 * UNITS, T0),
            GivenBack(ALICE, DONE, 33 * UNITS),
            Held(ALICE, NEVER_STORED, 70, 97 * UNITS - 4000, T0 + 4000),
            Held(ALICE, DELETED, 60, 157 * UNITS - 4000, T0 + 4000),
            GivenBack(ALICE, NEVER_STORED, 70 * UNITS),
            GivenBack(ALICE, DELETED, 47 * UNITS),
            Held(ALICE, LATE, 60, 100 * UNITS - 9000, T0 + 9000),
            GivenBack(ALICE, LATE, 60 * UNITS),
        ],
    )


Sow = Callable[[Accounts], Accounts]


def change_bill(old: Bill, **figures: object) -> Sow:
    """A run came out otherwise."""

    def sow(accounts: Accounts) -> Accounts:
        return replace(accounts, bills=[replace(old, **figures) if it is old else it for it in accounts.bills])  # type: ignore[arg-type]

    return sow


def add_bill(late: Bill) -> Sow:
    """A run changed behind its end."""
    return lambda accounts: replace(accounts, bills=[*accounts.bills, late])


def change_ledger(sums: Sums | None) -> Sow:
    """The first page of Alice's is otherwise, or gone."""

    def sow(accounts: Accounts) -> Accounts:
        others = {page: kept for page, kept in accounts.ledger.items() if page != PAGE}
        return replace(accounts, ledger=others if sums is None else others | {PAGE: sums})

    return sow


def change_log(at: int | slice, *operations: Operation) -> Sow:
    """These stand in the log instead."""

    def sow(accounts: Accounts) -> Accounts:
        log = list(accounts.operations)
        log[at if isinstance(at, slice) else slice(at, at + 1)] = operations
        return replace(accounts, operations=log)

    return sow


def change_bucket(tokens: int = 0, held: dict[UUID, int] | None = None) -> Sow:
    """Alice's bucket holds so much more."""

    def sow(accounts: Accounts) -> Accounts:
        bucket = accounts.buckets[ALICE]
        other = Bucket(bucket.missing - tokens * UNITS, bucket.at_ms, held or {})
        return replace(accounts, buckets={ALICE: other})

    return sow


def lose_log(tokens: int) -> Sow:
    """Redis shortened its log, and Alice's bucket is wrong."""
    return lambda accounts: replace(change_bucket(tokens)(accounts), is_log_whole=False, operations=[])


CLEAN_LOG = clean().operations
SOWN: dict[str, tuple[str, Sow]] = {
    "a charge that is too high": ("a run is charged what it used", change_bill(DONE_BILL, charged_tokens=28)),
    "cached tokens rounded down": ("a run is charged what it used", change_bill(DONE_BILL, charged_tokens=26)),
    "a deleted run that was not charged": (
        "a run is charged what it used",
        change_bill(DELETED_BILL, charged_tokens=0),
    ),
    "a charge for a run that nobody took": ("a run is charged what it used", change_bill(LATE_BILL, charged_tokens=10)),
    "a charge beyond the cost": (
        "no run is charged more than its cost",
        change_bill(DONE_BILL, output_tokens=54, charged_tokens=61),
    ),
    "a charge that changed behind the end": ("a charge is final", add_bill(replace(DONE_BILL, charged_tokens=54))),
    "a run entered twice": ("the ledger is the sum of its runs", change_ledger(Sums(2, 20, 10, 40, 54))),
    "a page that is lost": ("the ledger is the sum of its runs", change_ledger(None)),
    "a run that nobody took, entered": ("the ledger is the sum of its runs", change_ledger(Sums(2, 20, 5, 20, 27))),
    "a double charge in a bucket": ("what was not used comes back", change_log(3, GivenBack(ALICE, DONE, 6 * UNITS))),
    "a refund of all": ("what was not used comes back", change_log(3, GivenBack(ALICE, DONE, 60 * UNITS))),
    "a question that was never stored, charged": (
        "what was not used comes back",
        change_log(6, GivenBack(ALICE, NEVER_STORED, 60 * UNITS)),
    ),
    "a refund that came twice": ("a reservation ends once", change_log(slice(4, 4), CLEAN_LOG[3])),
    "a refund of what was lost with Redis": (
        "a reservation ends once",
        change_log(slice(2, 2), GivenBack(BOB, OF_BOB, 49 * UNITS)),
    ),
    "a reservation made anew": (
        "a run's cost is reserved once",
        change_log(slice(10, 10), Held(ALICE, DONE, 60, 0, T0 + 9000)),
    ),
    "a reservation of too little": ("a run's cost is reserved", change_log(0, Held(BOB, OF_BOB, 10, 0, T0))),
    "a reservation beyond the capacity": (
        "a bucket misses what was taken",
        change_log(2, Held(ALICE, DONE, 60, 59 * UNITS, T0)),
    ),
    "a missing refund": ("a bucket holds what is left", lambda found: change_log(3)(change_bucket(-33)(found))),
    "a bucket charged twice": ("a bucket holds what is left", change_bucket(-27)),
    "a bucket with a token too many": ("a bucket holds what is left", change_bucket(1)),
    "a bucket that is gone": ("a bucket holds what is left", lambda found: replace(found, buckets={})),
    "a bucket that bounds alone exclude": ("a bucket holds what is left", lose_log(-1)),
    "a leaked reservation": ("no reservation is left", change_bucket(-60, {uuid4(): 60})),
    "a run given up that was begun": ("who waited too long was never begun", change_bill(LATE_BILL, attempt=1)),
    "a run given up too early": (
        "nobody is given up too early",
        change_bill(LATE_BILL, finished_at=BORN + timedelta(seconds=8.9)),
    ),
}


def found_in(accounts: Accounts) -> Sequence[str]:
    return [found.invariant for found in violations(Records(accounts=accounts))]


def test_clean_accounts_have_no_violations() -> None:
    assert violations(Records(accounts=clean())) == []


@pytest.mark.parametrize("name", SOWN)
def test_a_sown_wrong_is_found(name: str) -> None:
    invariant, sow = SOWN[name]

    assert invariant in found_in(sow(clean()))


def test_every_check_has_something_sown_for_it() -> None:
    finders = {check.__name__ for _, sow in SOWN.values() for check in BUDGET_CHECKS if any(check(sow(clean())))}

    assert finders == {check.__name__ for check in BUDGET_CHECKS}


def test_a_reservation_in_the_index_alone_is_found() -> None:
    records = Records(accounts=clean(), gauges=Gauges(reservations=[f"{ALICE}:{DONE}"]))

    assert [found.invariant for found in violations(records)] == ["counts return to zero"]


def test_a_violation_names_run_user_and_figures() -> None:
    [found] = violations(Records(accounts=change_log(3, GivenBack(ALICE, DONE, 6 * UNITS))(clean())))[:1]

    assert (found.about, found.what) == (f"run {DONE}", f"6.0 of 60 tokens, where 27 were charged; user {ALICE}")


def test_what_was_refilled_while_tokens_were_held_may_come_on_top() -> None:
    accounts, later = clean(), T0 + 3_600_000
    refilled: list[Operation] = [
        Held(ALICE, DONE, 60, 60 * UNITS, T0),
        Held(ALICE, DELETED, 60, 60 * UNITS, later),
        GivenBack(ALICE, DONE, 33 * UNITS),
        GivenBack(ALICE, DELETED, 47 * UNITS),
    ]
    bucket = Bucket(-20 * UNITS, later)
    fast = {**accounts.purses, ALICE: Purse(FULL, FULL)}

    assert (
        violations(Records(accounts=replace(accounts, purses=fast, operations=refilled, buckets={ALICE: bucket}))) == []
    )


def test_without_the_whole_log_only_bounds_are_known() -> None:
    shortened = replace(clean(), is_log_whole=False, operations=[])

    assert violations(Records(accounts=shortened)) == []
    assert witnessed(shortened) == {ALICE}
    assert (known_to_the_token(clean()), known_to_the_token(shortened)) == ({ALICE}, set())


def test_what_a_redis_logged_of_its_buckets_is_read_back(tmp_path: Path) -> None:
    """Through a kill, FLUSHALL and the loss of all data."""
    server = Server("streams", [], {}, tmp_path)
    server.place.mkdir()
    limits = Limits(FULL, 1, 1, 1)
    runs = [Reservation(ALICE, uuid4()) for _ in range(4)]
    for number, run in enumerate(runs):
        child = (valkey := Valkey(server.place, "secret", tmp_path / "log")).start()
        buckets = TokenBuckets(DispensableRedis(valkey.url(0)))
        buckets.reserve(run, 600, limits)
        with pytest.raises(BudgetExhausted):
            buckets.reserve(Reservation(ALICE, uuid4()), 600, limits)
        assert buckets.settle(run, number)
        assert not buckets.settle(run, number)
        if number == 1:
            buckets.reserve(runs[0], 10, limits)
            with Redis.from_url(valkey.url(0)) as redis:
                redis.flushall()
        with Redis.from_url(valkey.url(0)) as redis:
            # A busy disk holds up the log's writing for seconds, and a kill would lose it.
            redis.execute_command("WAITAOF", 1, 0, 30_000)
        child.kill()
        if number == 2:
            bucket_log.put_away(server)
    told = [
        type(operation).__name__ + (f" {operation.units / UNITS:.0f}" if isinstance(operation, GivenBack) else "")
        for operation in bucket_log.operations(server)
    ]

    assert told == [
        *("Held", "GivenBack 600", "Held", "GivenBack 599", "Held", "Emptied"),
        *("Held", "GivenBack 598", "Emptied"),
        *("Held", "GivenBack 597"),
    ]
    assert bucket_log.is_whole(server)
