"""Says of a world's accounts which invariants do not hold: tokens are charged once, and given back once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from math import ceil
from typing import Any
from uuid import UUID

from tests.faults.accounts import UNITS, Accounts, Bill, Bucket, Emptied, GivenBack, Held, Operation, Page, Purse, Sums
from tests.faults.records import Violation

QUEUE_TIMEOUT = "queue_timeout"


def charges_are_what_runs_cost(accounts: Accounts) -> Iterator[Violation]:
    """A run that a worker took costs what it used, unless it failed without a word; never more than was reserved."""
    for bill in accounts.last_bills.values():
        if bill.finished_at is None:
            continue
        price = _price(bill, accounts.cached_token_percents[bill.model_id]) if bill.started_at else 0
        if bill.charged_tokens != price:
            yield _of(bill, "a run is charged what it used", f"charged {bill.charged_tokens}, not {price}")
        if bill.charged_tokens > bill.cost:
            yield _of(bill, "no run is charged more than its cost", f"charged {bill.charged_tokens} of {bill.cost}")


def bills_stay_as_they_are(accounts: Accounts) -> Iterator[Violation]:
    """No figure of a run changes after its end."""
    ended: dict[UUID, Bill] = {}
    for bill in accounts.bills:
        first = ended.get(bill.run_id)
        if first is not None and bill != first:
            yield _of(bill, "a charge is final", f"charged {first.charged_tokens} at its end, then this", first)
        if bill.finished_at is not None:
            ended.setdefault(bill.run_id, bill)


def ledger_is_the_sum_of_its_runs(accounts: Accounts) -> Iterator[Violation]:
    """A page a user, day and model: all runs that a worker took, those of deleted chats too."""
    meant: dict[Page, Sums] = defaultdict(Sums)
    for bill in accounts.last_bills.values():
        if bill.page is not None:
            meant[bill.page] = meant[bill.page].and_of(bill)
    for page in meant.keys() | accounts.ledger.keys():
        there, due = accounts.ledger.get(page), meant.get(page)
        if there != due:
            user, day, model = page
            yield Violation("the ledger is the sum of its runs", f"user {user}", f"{day} {model}: {there}, not {due}")


def reservations_are_settled_once(accounts: Accounts) -> Iterator[Violation]:
    """Each operation on a bucket is the one that was due, to the unit, and every reservation has ended."""
    if accounts.is_log_whole:
        replay = Replay(accounts)
        for operation in accounts.operations:
            yield from replay.take(operation)


def buckets_hold_what_is_left(accounts: Accounts) -> Iterator[Violation]:
    """A bucket misses what was charged since Redis lost anything, less what was refilled."""
    for user in witnessed(accounts):
        yield from _misses_another(user, accounts)
        for run_id, tokens in accounts.buckets.get(user, EMPTY).held.items():
            yield Violation("no reservation is left", f"run {run_id}", f"{tokens} tokens are held of user {user}")


def queue_timeouts_are_due(accounts: Accounts) -> Iterator[Violation]:
    """A run whose queue's deadline passed was never taken, and had waited for so long."""
    for bill in accounts.last_bills.values():
        if bill.error_code != QUEUE_TIMEOUT or bill.finished_at is None:
            continue
        if bill.attempt or bill.started_at:
            yield _of(bill, "who waited too long was never begun", f"{bill.attempt} attempts")
        deadline = timedelta(seconds=accounts.deadlines_s[bill.tier_id])
        if bill.finished_at - bill.created_at < deadline:
            yield _of(bill, "nobody is given up too early", f"after {bill.finished_at - bill.created_at} of {deadline}")


BUDGET_CHECKS: Sequence[Callable[[Accounts], Iterator[Violation]]] = (
    charges_are_what_runs_cost,
    bills_stay_as_they_are,
    ledger_is_the_sum_of_its_runs,
    reservations_are_settled_once,
    buckets_hold_what_is_left,
    queue_timeouts_are_due,
)

EMPTY = Bucket(0, 0)


@dataclass(slots=True)
class Course:
    """One bucket since it was full: as it must be, and all that was taken out for good."""

    missing: int
    at_ms: int
    began_at_ms: int
    held: dict[UUID, int] = field(default_factory=dict)
    settled: set[UUID] = field(default_factory=set)
    charged_tokens: int = 0


class Replay:
    """The buckets as they must be, by the log's operations and the runs' charges."""

    def __init__(self, accounts: Accounts) -> None:
        self._charges = {run_id: bill.charged_tokens for run_id, bill in accounts.last_bills.items()}
        self._costs = {run_id: bill.cost for run_id, bill in accounts.last_bills.items()}
        self._purses = accounts.purses
        self.courses: dict[UUID, Course] = {}

    def take(self, operation: Operation) -> Iterator[Violation]:
        """Follow one operation, and say what is wrong with it."""
        match operation:
            case Emptied():
                self.courses.clear()
            case Held():
                yield from self._hold(operation)
            case GivenBack():
                yield from self._give_back(operation)

    def _hold(self, held: Held) -> Iterator[Violation]:
        purse, run_id = self._purses[held.user_id], held.run_id
        course = self.courses.setdefault(held.user_id, Course(0, held.at_ms, held.at_ms))
        if run_id in course.held or run_id in course.settled:
            yield _misfit(held, "a run's cost is reserved once", f"{held.tokens} tokens again")
        if held.tokens != self._costs.get(run_id, held.tokens):
            yield _misfit(held, "a run's cost is reserved", f"{held.tokens} tokens, not {self._costs[run_id]}")
        refilled = max(0, held.at_ms - course.at_ms) * purse.refill_tokens_per_hour
        due = max(0, course.missing - refilled) + held.tokens * UNITS
        if held.missing != due or due > purse.budget_tokens * UNITS:
            yield _misfit(held, "a bucket misses what was taken", f"{held.missing} units, not {due}")
        course.missing, course.at_ms = held.missing, held.at_ms
        course.held[run_id] = held.tokens

    def _give_back(self, back: GivenBack) -> Iterator[Violation]:
        course = self.courses.get(back.user_id)
        held = course.held.pop(back.run_id, None) if course else None
        if course is None or held is None:
            yield _misfit(back, "a reservation ends once", f"{back.units} units came back, and nothing was held")
            return
        charge = self._charges.get(back.run_id, 0)  # what was never stored costs nothing
        if back.units != (held - charge) * UNITS:
            told = f"{back.units / UNITS} of {held} tokens, where {charge} were charged"
            yield _misfit(back, "what was not used comes back", told)
        course.settled.add(back.run_id)
        course.missing -= back.units
        course.charged_tokens += charge


def courses(accounts: Accounts) -> Mapping[UUID, Course]:
    """Every bucket that was used since Redis last lost anything, as it must be now."""
    replay = Replay(accounts)
    for operation in accounts.operations:
        any(replay.take(operation))
    return replay.courses


def witnessed(accounts: Accounts) -> set[UUID]:
    """Users whose bucket is there, or must be."""
    return accounts.buckets.keys() | (courses(accounts).keys() if accounts.is_log_whole else set())


def known_to_the_token(accounts: Accounts) -> set[UUID]:
    """Users whose bucket leaves no doubt of what they were charged: less than a token was refilled."""
    if not accounts.is_log_whole:
        return set()
    ranges = {user: _bounds(user, accounts.purses[user], accounts) for user in witnessed(accounts)}
    return {user for user, (least, most) in ranges.items() if most - least < UNITS}


def _misses_another(user: UUID, accounts: Accounts) -> Iterator[Violation]:
    bucket, purse = accounts.buckets.get(user), accounts.purses[user]
    if bucket is None:
        yield Violation("a bucket holds what is left", f"user {user}", "it is gone")
        return
    least, most = _bounds(user, purse, accounts)
    held = sum(bucket.held.values())
    # What was refilled while tokens were held may come on top: whoever reads a bucket takes no more than full.
    missing = max(0, bucket.missing - held * UNITS)
    if not least <= missing <= most:
        told = f"{bucket.missing / UNITS:.4f} tokens and {held} held, not {least / UNITS:.4f} to {most / UNITS:.4f}"
        yield Violation("a bucket holds what is left", f"user {user}", told, bucket)


def _bounds(user: UUID, purse: Purse, accounts: Accounts) -> tuple[int, int]:
    """Of what is missing. Less than a token apart where the log is whole and less than one was refilled since."""
    if not accounts.is_log_whole:
        charged = sum(bill.charged_tokens for bill in accounts.last_bills.values() if bill.user_id == user)
        return 0, charged * UNITS
    course = courses(accounts).get(user, Course(0, 0, 0))
    most = course.charged_tokens * UNITS
    return max(0, most - (course.at_ms - course.began_at_ms) * purse.refill_tokens_per_hour), most


def _price(bill: Bill, cached_token_percent: int) -> int:
    if bill.error_code and not bill.output_tokens:
        return 0
    cached = ceil(bill.cached_tokens * cached_token_percent / 100)
    return bill.input_tokens - bill.cached_tokens + cached + bill.output_tokens


def _of(bill: Bill, invariant: str, what: str, evidence: Any = None) -> Violation:
    return Violation(invariant, f"run {bill.run_id}", f"{what}; user {bill.user_id}", evidence or bill)


def _misfit(operation: Held | GivenBack, invariant: str, what: str) -> Violation:
    about = f"run {operation.run_id}"
    return Violation(invariant, about, f"{what}; user {operation.user_id}", operation)
