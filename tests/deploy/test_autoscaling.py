"""The signal that an autoscaler follows: its formula, and a surge replayed against `/metrics`."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from django.conf import LazySettings
from django.test import Client
from redis import Redis

from chat.load.picture import ModelLoad, TierLoad, Waiting
from chat.load.wanted import wanted_workers
from chat.models import Chat, Message, Role, Run, User
from inference import reports
from inference.reports import Report, Seen, TierReport
from scheduler.models import Model, Tier

SLOTS, HELD_S, LOADING_S = 4, 8, 60
STEP_S = 5
# Questions a second, and from when on.
CALM, SURGE = 0.25, 2.0
SURGE_FROM_S, SURGE_UNTIL_S, END_S = 60, 360, 960
# As the chart tells Kubernetes: the most that was wished for in so long.
STABLE_S = 300
ENOUGH = 5  # eight tenths of their slots hold the surge: 2 a second, for 8 s each, on 4 slots


def load(waiting: int, in_hand: Sequence[int], taken_per_s: float = 0.0, kv: float = 0.0) -> ModelLoad:
    """A model with so many workers, of ten slots each."""
    engine = {"slots": 10, "kv_cache_usage": kv}
    seen = [Seen(f"w{n}", 0.0, Report(engine=engine, tiers={"free": TierReport(in_hand=n)})) for n in in_hand]
    of_tier = TierLoad(Tier(slug="free"), Waiting(waiting), sum(in_hand), taken_per_s, None)
    return ModelLoad(Model(slug="m"), [of_tier], seen)


@pytest.mark.parametrize(
    ("now", "wanted"),
    [
        (load(0, []), 0),
        (load(7, []), 1),  # of the first one nobody knows how many slots it will have
        (load(0, [0]), 0),
        (load(0, [8]), 1),
        (load(0, [9]), 2),
        (load(0, [8, 8, 8]), 3),
        (load(0, [2, 2, 2]), 1),
        (load(0, [2, 2], kv=0.9), 3),
        (load(1, [8], taken_per_s=0.4), 1),
        (load(60, [10], taken_per_s=0.5), 3),  # held for 20 s: each slot takes three in a minute
        (load(60, [10], taken_per_s=0.1), 7),  # held for 100 s: a slot for each
        (load(14, [10]), 3),  # nothing was taken yet: likewise
    ],
)
def test_the_formula(now: ModelLoad, wanted: int) -> None:
    assert wanted_workers(now, 60) == wanted


def test_titles_and_summaries_ask_for_no_worker() -> None:
    report = Report(engine={"slots": 10}, tiers={"_background": TierReport(in_hand=10)})
    assert wanted_workers(ModelLoad(Model(slug="m"), [], [Seen("w", 0.0, report)]), 60) == 0


@dataclass
class Worker:
    """One that serves: when the runs in its slots end, and when it took runs in the last minute."""

    since_s: int
    ends_s: list[int] = field(default_factory=list)
    taken_s: deque[int] = field(default_factory=deque)

    def take(self, most: int, now_s: int) -> int:
        """Fill its free slots; how many it took."""
        self.ends_s = [end for end in self.ends_s if end > now_s]
        taken = min(most, SLOTS - len(self.ends_s))
        self.ends_s += [now_s + HELD_S] * taken
        self.taken_s.extend([now_s] * taken)
        return taken

    def report(self, now_s: int) -> TierReport:
        """What it says of itself: its rate is that of the last minute, or since it serves."""
        while self.taken_s and self.taken_s[0] <= now_s - 60:
            self.taken_s.popleft()
        per_s = len(self.taken_s) / max(STEP_S, min(60, now_s - self.since_s))
        return TierReport(in_hand=len(self.ends_s), taken_per_s=per_s)


@dataclass
class Site:
    """Questions that come and are answered, in a time of its own."""

    workers: list[Worker] = field(default_factory=lambda: [Worker(0)])
    waiting: int = 0
    now_s: int = 0
    _owed: float = 0.0

    def step(self) -> None:
        """The next seconds."""
        for _ in range(STEP_S):
            self.now_s += 1
            self._owed += SURGE if SURGE_FROM_S <= self.now_s < SURGE_UNTIL_S else CALM
            self.waiting += int(self._owed)
            self._owed %= 1
            for worker in self.workers:
                self.waiting -= worker.take(self.waiting, self.now_s)

    def serve_with(self, count: int) -> None:
        """Add workers, or take the last away."""
        self.workers = [*self.workers, *(Worker(self.now_s) for _ in range(count - len(self.workers)))][:count]


class Rows:
    """Runs that wait, in Postgres, and reports of workers, in Valkey."""

    def __init__(self, streams: Redis, model: Model, owner: User) -> None:
        self._streams, self._model, self._owner = streams, model, owner

    def are_those_of(self, site: Site) -> None:
        """Make them so."""
        live = Run.objects.filter(model=self._model)
        surplus = live.count() - site.waiting
        if surplus > 0:
            live.filter(pk__in=list(live.values_list("pk", flat=True)[:surplus])).delete()
        self._ask(-surplus)
        ms = self._streams.time()[0] * 1000
        self._streams.delete(reports.KEY)
        for number, worker in enumerate(site.workers):
            parts = {str(self._owner.tier_id): worker.report(site.now_s)}
            report = Report(model=self._model.pk, engine={"slots": SLOTS}, tiers=parts)
            self._streams.hset(reports.KEY, f"w{number}", f"{ms} {report.encoded()}")

    def _ask(self, count: int) -> None:
        chats = Chat.objects.bulk_create(Chat(owner=self._owner) for _ in range(count))
        prompts = Message.objects.bulk_create(
            Message(chat=chat, position=1, role=Role.USER, content="Hi", token_count=1) for chat in chats
        )
        Run.objects.bulk_create(
            Run(
                chat=prompt.chat,
                prompt=prompt,
                model=self._model,
                tier=self._owner.tier,
                input_tokens=3,
                max_output_tokens=8,
            )
            for prompt in prompts
        )


@dataclass
class Autoscaler:
    """Kubernetes' own, in short: up at once, down to the most of the last minutes; a new worker takes its time."""

    ready_s: list[int] = field(default_factory=lambda: [0])
    _wishes: deque[tuple[int, int]] = field(default_factory=deque)

    def hears(self, now_s: int, wish: int) -> int:
        """Follow a wish; how many workers serve then."""
        self._wishes.append((now_s, wish))
        while self._wishes[0][0] < now_s - STABLE_S:
            self._wishes.popleft()
        want = max(1, *(each for _, each in self._wishes)) if wish < len(self.ready_s) else wish
        self.ready_s = [*self.ready_s, *[now_s + LOADING_S] * (want - len(self.ready_s))][:want]
        return sum(ready <= now_s for ready in self.ready_s)


@pytest.fixture
def scrape(settings: LazySettings, model: Model) -> Callable[[], int | None]:
    """The signal as Prometheus reads it."""
    settings.METRICS_TOKEN = "a-token"
    prometheus = Client(headers={"Authorization": "Bearer a-token"})

    def read() -> int | None:
        text = prometheus.get("/metrics").content.decode()
        found = re.search(rf'^palaver_wanted_workers{{model="{model.pk}"}} (\S+)$', text, re.MULTILINE)
        return int(float(found[1])) if found else None

    return read


@pytest.fixture
def rows(streams: Redis, model: Model, alice: User) -> Iterator[Rows]:
    yield Rows(streams, model, alice)
    streams.delete(reports.KEY)


def test_the_signal_follows_a_surge_up_and_down(rows: Rows, scrape: Callable[[], int | None]) -> None:
    site, autoscaler = Site(), Autoscaler()
    wishes: dict[int, int] = {}
    workers: list[int] = []
    while site.now_s < END_S:
        site.step()
        rows.are_those_of(site)
        wish = scrape()
        assert wish is not None
        wishes[site.now_s] = wish
        site.serve_with(autoscaler.hears(site.now_s, wish))
        workers.append(len(autoscaler.ready_s))
        if site.now_s == SURGE_UNTIL_S - STEP_S:
            assert site.waiting == 0  # they came, and were enough

    calm = [wish for at, wish in wishes.items() if at < SURGE_FROM_S]
    settled = [wish for at, wish in wishes.items() if SURGE_UNTIL_S - LOADING_S <= at < SURGE_UNTIL_S]
    after = [wish for at, wish in wishes.items() if at > SURGE_UNTIL_S + LOADING_S]
    assert (set(calm), set(settled), set(after)) == ({1}, {ENOUGH}, {1})
    assert ENOUGH < max(workers) <= 3 * ENOUGH  # for those too who had gathered while the first ones loaded
    assert workers[-1] == 1
    assert has_one_hill(list(wishes.values()))
    assert has_one_hill(workers)


def has_one_hill(numbers: Sequence[int]) -> bool:
    """Whether they go up, and then down, and that is all."""
    top = numbers.index(max(numbers))
    return [*numbers] == sorted(numbers[:top]) + sorted(numbers[top:], reverse=True)


def test_with_the_streams_away_there_is_no_signal(
    scrape: Callable[[], int | None], settings: LazySettings, silent_redis: str
) -> None:
    settings.STREAMS_URL = silent_redis

    assert scrape() is None
