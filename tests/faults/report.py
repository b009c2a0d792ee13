"""What a soak came to, in a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.faults.accounts import Emptied, GivenBack, Held
from tests.faults.budget_checks import known_to_the_token, witnessed
from tests.faults.records import Read, Records, Verdict, Violation

SHARE_AT_LEAST = 0.999
EXAMPLES = 12


@dataclass(frozen=True)
class Outcome:
    """A soak's records and what was done to its world."""

    seed: int
    seconds: float
    records: Records
    violations: Sequence[Violation]
    faults: Mapping[str, int]
    strange_deaths: Sequence[str] = ()
    least_runs: int = 0
    broken: Sequence[str] = field(default_factory=tuple)  # faults that could not be brought about

    @property
    def share(self) -> float:
        """Of requests that were served or properly refused."""
        verdicts = Counter(request.verdict for request in self.records.requests)
        good = verdicts[Verdict.SERVED] + verdicts[Verdict.REFUSED]
        return good / max(1, verdicts.total())

    @property
    def shortcomings(self) -> Sequence[str]:
        """Why it has not passed; empty where it has."""
        return [line for line in self._shortcomings() if line]

    def _shortcomings(self) -> Iterator[str]:
        yield f"{len(self.violations)} violations" if self.violations else ""
        is_short = self.share < SHARE_AT_LEAST
        yield f"{self.share:.3%} of requests served or properly refused, not {SHARE_AT_LEAST:.1%}" if is_short else ""
        runs = len(self.records.rows)
        yield f"{runs} runs, not {self.least_runs}" if runs < self.least_runs else ""
        yield f"{len(self.strange_deaths)} processes ended by themselves" if self.strange_deaths else ""

    def table(self) -> str:
        """For people."""
        return "\n".join(f"{name:<58}{value:>14}" for name, value in self._lines())

    def _lines(self) -> Iterator[tuple[str, object]]:
        yield "seed", self.seed
        yield "seconds", f"{self.seconds:.0f}"
        yield "faults", sum(self.faults.values())
        for name, count in sorted(self.faults.items()):
            yield f"  {name}", count
        yield "  that could not be brought about", len(self.broken)
        records = self.records
        yield "runs", len(records.rows)
        for status, count in sorted(Counter(_ending(row.status, row.error_code) for row in records.rows).items()):
            yield f"  {status}", count
        for attempts, count in sorted(Counter(min(row.attempt, 3) for row in records.rows).items()):
            yield f"  {'3 or more' if attempts == 3 else attempts} attempts", count
        yield "readers", len(records.reads)
        yield "  longest pause of one, s", f"{self.slowest.longest_pause_s if self.slowest else 0:.1f}"
        yield "  resets told", sum(event.name == "reset" for read in records.reads for event in read.events)
        yield "requests", len(records.requests)
        for verdict in Verdict:
            yield f"  {verdict}", sum(request.verdict is verdict for request in records.requests)
        yield "  served or properly refused", f"{self.share:.3%}"
        for said, count in Counter(_refusal(request.what, request.said) for request in records.requests).items():
            if said:
                yield f"    {said[:52]}", count
        yield from self._accounts()
        yield "processes that ended by themselves", len(self.strange_deaths)
        yield "violations", len(self.violations)

    def _accounts(self) -> Iterator[tuple[str, object]]:
        accounts = self.records.accounts
        charged = {bill.run_id: bill.charged_tokens for bill in accounts.last_bills.values() if bill.charged_tokens}
        held = [operation.run_id for operation in accounts.operations if isinstance(operation, Held)]
        yield "runs that were charged", len(charged)
        yield "  tokens", sum(charged.values())
        yield "  of deleted chats", len(charged.keys() - {row.id for row in self.records.rows})
        yield "  that nothing was reserved for, Redis being away", len(charged.keys() - set(held))
        yield "pages of the ledger", len(accounts.ledger)
        settled = sum(isinstance(operation, GivenBack) for operation in accounts.operations)
        yield "reservations", len(held)
        yield "  settled", settled
        yield "  lost with all buckets", len(held) - settled
        yield "  given back for what was never stored", len(set(held) - accounts.last_bills.keys())
        yield "times that all buckets were lost", sum(isinstance(found, Emptied) for found in accounts.operations)
        yield "  each operation on them checked", "yes" if accounts.is_log_whole else "no: log cut"
        yield "buckets in use at the end", len(witnessed(accounts))
        yield "  checked to the token by charges alone", len(known_to_the_token(accounts))
        yield "  checked within what was refilled", len(witnessed(accounts)) - len(known_to_the_token(accounts))

    @property
    def slowest(self) -> Read | None:
        """The reader with the longest pause."""
        return max(self.records.reads, key=lambda read: read.longest_pause_s, default=None)

    def course_of_slowest(self) -> str:
        """What his run went through meanwhile."""
        return "\n".join(self._history(str(self.slowest.run_id))) if self.slowest else ""

    def evidence(self) -> str:
        """What is needed to look at the violations."""
        lines = [*self.strange_deaths, *self.broken]
        for name, count in Counter(found.invariant for found in self.violations).items():
            lines.append(f"== {name}: {count}")
            examples = [found for found in self.violations if found.invariant == name][:EXAMPLES]
            for found in examples:
                lines.append(f"{found.about}: {found.what}")
                lines += [f"    {line}" for line in self._history(found.about)]
                lines.append(f"    {str(found.evidence)[:2000]}")
        return "\n".join(lines)

    def _history(self, about: str) -> Iterator[str]:
        for row in self.records.rows:
            if str(row.id) in about:
                yield str(row)
        for change in self.records.changes:
            if str(change.run_id) in about:
                yield f"{change.at:%H:%M:%S.%f} {change.status} attempt={change.attempt} {change.worker}"


def _ending(status: str, code: str) -> str:
    return f"{status} ({code})" if code else status


def _refusal(what: str, said: str) -> str:
    return f"{what}: {said}" if said else ""
