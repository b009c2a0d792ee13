"""The operator's view of the load: who may see it, whether it is true, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.conf import LazySettings
from django.contrib.auth.models import Permission
from django.db import connection
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext
from prometheus_client.parser import text_string_to_metric_families
from redis import Redis

from chat.load import history
from chat.load.history import Sampler, last_hour
from chat.load.picture import ModelLoad, draw
from chat.models import Chat, Run, Status, User
from chat.recovery import Reaper
from chat.templatetags.figures import a_minute
from inference import reports
from inference.metering import BOUNDS_S
from inference.reports import Measured, Report, TierReport
from scheduler.models import Model, Tier
from tests.acts import code_of
from tests.metering import metered

pytestmark = pytest.mark.django_db

NewRun = Callable[..., Run]
Tell = Callable[..., None]
PAGE, FIGURES, METRICS = "/admin/load/", "/admin/load/?figures", "/metrics"
TOKEN = "a-token-of-the-monitoring-system"
ONE_WAIT = Measured(tuple(int(bound == 5) for bound in (*BOUNDS_S["queue_wait"], 0)), 3.5)


@pytest.fixture
def tell(streams: Redis, model: Model) -> Iterator[Tell]:
    """Reports as a worker of the model does, some time ago."""

    def report(worker: str = "gpu1", age_s: float = 0, **tiers: TierReport) -> None:
        seconds, microseconds = streams.time()
        engine = {"slots": 6, "running": 3, "kv_cache_usage": 0.5, "prefix_queries": 10}
        text = Report(
            model=model.pk,
            input_tokens_per_s=20,
            output_tokens_per_s=100,
            prefix_hit_rate=0.25,
            engine=engine,
            tiers=tiers,
        ).encoded()
        streams.hset(reports.KEY, worker, f"{int((seconds - age_s) * 1000 + microseconds / 1000)} {text}")

    streams.delete(reports.KEY, history.KEY)
    yield report
    streams.delete(reports.KEY, history.KEY)


@pytest.fixture
def staff(free: Tier) -> User:
    """May enter the admin, and see nothing there."""
    return User.objects.create_user("staff", tier=free, is_staff=True)


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def allow(user: User, *codes: str) -> None:
    user.user_permissions.add(*Permission.objects.filter(codename__in=codes))


def ask_before(run: Run, seconds: float) -> None:
    Run.objects.filter(pk=run.pk).update(created_at=F("created_at") - timedelta(seconds=seconds))


def series(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Samples by name and labels."""
    families = text_string_to_metric_families(text)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def load_of(model: Model) -> ModelLoad:
    return next(load for load in draw().models if load.model == model)


# Who may.


def test_a_stranger_and_a_user_are_sent_to_sign_in_and_learn_nothing(bob: User) -> None:
    for client in (Client(), signed_in(bob)):
        for address in (PAGE, FIGURES):
            answer = client.get(address)
            assert (answer.status_code, answer.headers["Location"].split("?")[0]) == (302, "/admin/login/")


def test_staff_see_the_load_once_they_may_see_tiers_and_models(staff: User) -> None:
    assert signed_in(staff).get(PAGE).status_code == 403
    assert "Load:" not in signed_in(staff).get("/admin/").content.decode()
    allow(staff, "view_tier")
    assert signed_in(staff).get(FIGURES).status_code == 403

    allow(staff, "view_model")

    assert signed_in(staff).get(PAGE).status_code == 200
    assert 'href="/admin/load/"' in signed_in(staff).get("/admin/").content.decode()


def test_a_workers_runs_are_a_link_away_for_who_may_see_them(staff: User, tell: Tell) -> None:
    tell("gpu1@a&b")
    allow(staff, "view_tier", "view_model")
    assert "gpu1@a&amp;b" in signed_in(staff).get(FIGURES).content.decode()
    assert "/admin/chat/run/" not in signed_in(staff).get(FIGURES).content.decode()

    allow(staff, "view_run")

    assert 'href="/admin/chat/run/?worker=gpu1%40a%26b"' in signed_in(staff).get(FIGURES).content.decode()


def test_metrics_are_for_operators_who_are_signed_in(bob: User, staff: User, as_operator: Client) -> None:
    for client in (Client(), signed_in(bob), signed_in(staff), Client(headers={"Authorization": "Bearer "})):
        answer = client.get(METRICS)
        assert (answer.status_code, code_of(answer)) == (403, "forbidden")

    allow(staff, "view_tier", "view_model")

    assert signed_in(staff).get(METRICS).status_code == 200
    assert as_operator.get(METRICS).headers["Content-Type"].startswith("text/plain")


def test_metrics_are_for_who_has_the_token(db: None, settings: LazySettings) -> None:
    settings.METRICS_TOKEN = TOKEN

    def status(header: str) -> int:
        return Client(headers={"Authorization": header}).get(METRICS).status_code

    assert status(f"Bearer {TOKEN}") == 200
    assert {status(header) for header in (TOKEN, f"Bearer {TOKEN}x", "Bearer é", f"Basic {TOKEN}", "Bearer")} == {403}


def test_an_api_key_is_no_key_to_the_metrics(as_alice: Client) -> None:
    assert as_alice.get(METRICS).status_code == 403


def test_nothing_is_changed_there(as_operator: Client) -> None:
    assert as_operator.post(METRICS).status_code == 405
    assert as_operator.post(PAGE).status_code == 405


# Whether it is true.


def test_depth_and_oldest_wait_are_those_of_the_rows(new_run: NewRun, chat: Chat, pro: Tier, tell: Tell) -> None:
    def another(status: Status = Status.QUEUED) -> Run:
        return new_run(status, in_chat=Chat.objects.create(owner=chat.owner))

    runs = [another(), another(), another()]
    Run.objects.filter(pk=runs[2].pk).update(tier=pro)
    for run, age_s in zip(runs, (5, 100, 30), strict=True):
        ask_before(run, age_s)
    for status in (Status.STREAMING, Status.DONE, Status.CANCELLED):
        ask_before(another(status), 500)

    waiting = {each.tier.pk: each.waiting for each in load_of(runs[0].model).tiers}

    assert {tier: found.runs for tier, found in waiting.items()} == {"free": 2, "pro": 1}
    assert waiting["free"].oldest_s == pytest.approx(100, abs=20)
    assert waiting["pro"].oldest_s == pytest.approx(30, abs=20)


def test_figures_of_workers_are_the_sums_of_their_reports(model: Model, tell: Tell) -> None:
    tell("gpu1", free=TierReport(in_hand=1, taken_per_s=0.5, charged_per_s=25))
    tell("gpu2", free=TierReport(in_hand=1), pro=TierReport(in_hand=4, taken_per_s=2, charged_per_s=75))

    load = load_of(model)

    assert (load.slots, load.in_hand, load.output_tokens_per_s, load.kv_cache_usage) == (12, 6, 200, 0.5)
    assert {each.tier.pk: (each.in_hand, each.taken_per_s, each.share) for each in load.tiers} == {
        "free": (2, 0.5, 0.25),
        "pro": (4, 2, 0.75),
    }


def test_a_page_shows_them_and_has_nothing_inline(as_operator: Client, model: Model, tell: Tell) -> None:
    from tests.chat.test_admin import INLINE

    tell("gpu<1>", free=TierReport(in_hand=4, taken_per_s=0.5, charged_per_s=25))
    Sampler().sample_when_due()

    page, figures = (as_operator.get(address).content.decode() for address in (PAGE, FIGURES))

    assert not INLINE.findall(page)
    assert "gpu&lt;1&gt;" in page
    for shown in ("gpu&lt;1&gt;", "3 / 6", "50%", "25%", "100, 20", '<td class="number">30</td>', "100%"):
        assert shown in figures
    assert "trouble" not in figures


@pytest.mark.parametrize(
    ("per_s", "shown"), [(0, "0"), (0.12, "7.2"), (0.1333, "8"), (20 / 60, "20"), (205.7, "12.3k"), (5000, "300k")]
)
def test_a_rate_is_shown_short_and_a_whole_one_without_a_point(per_s: float, shown: str) -> None:
    assert a_minute(per_s) == shown


def test_a_model_that_nobody_serves_is_said_to_be_so(as_operator: Client, new_run: NewRun, tell: Tell) -> None:
    new_run()

    assert "No worker serves this model, and 1 waits for one." in " ".join(
        as_operator.get(FIGURES).content.decode().split()
    )


def test_a_silent_worker_counts_no_more_and_is_named(as_operator: Client, model: Model, tell: Tell) -> None:
    tell("gpu1", age_s=30, free=TierReport(in_hand=4))

    figures = as_operator.get(FIGURES).content.decode()

    assert "Silent for 30 s" in figures
    assert "No worker serves this model" in figures
    assert (load_of(model).slots, load_of(model).in_hand) == (0, 0)


def test_what_a_worker_of_another_release_does_not_tell_is_said_to_be_unknown(
    as_operator: Client, model: Model, tell: Tell, streams: Redis
) -> None:
    streams.hset(reports.KEY, "gpu1", f"{streams.time()[0] * 1000} {Report(model=model.pk).encoded()}")

    assert "– / –" in as_operator.get(FIGURES).content.decode()


def test_with_the_streams_away_the_page_says_what_it_does_not_know(
    as_operator: Client, new_run: NewRun, settings: LazySettings, silent_redis: str
) -> None:
    new_run()
    settings.STREAMS_URL = silent_redis

    figures = as_operator.get(FIGURES).content.decode()

    assert "nothing is known of workers" in figures
    assert "No worker serves" not in figures
    assert series(as_operator.get(METRICS).content.decode())["palaver_workers_known", frozenset()] == 0


def test_metrics_say_what_the_reports_and_the_rows_say(
    as_operator: Client, new_run: NewRun, model: Model, tell: Tell
) -> None:
    new_run()
    tell(free=TierReport(in_hand=2, taken=9, output_tokens=70, ended={"done": 6, "failed": 1}, queue_wait=ONE_WAIT))

    found = series(as_operator.get(METRICS).content.decode())

    def value(name: str, **labels: str) -> float:
        return found["palaver_" + name, frozenset({"model": model.pk, **labels}.items())]

    of_tier = {"worker": "gpu1", "tier": "free"}
    assert value("waiting_runs", tier="free") == 1
    assert value("worker_slots", worker="gpu1") == 6
    assert value("worker_runs", **of_tier) == 2
    assert value("runs_taken_total", **of_tier) == 9
    assert value("runs_ended_total", **of_tier, status="failed") == 1
    assert value("tokens_total", **of_tier, kind="output") == 70
    assert value("prefix_cache_queries_total", worker="gpu1") == 10
    assert [value("queue_wait_seconds_bucket", **of_tier, le=le) for le in ("2.5", "5.0", "600.0", "+Inf")] == [
        0,
        1,
        1,
        1,
    ]
    assert (value("queue_wait_seconds_count", **of_tier), value("queue_wait_seconds_sum", **of_tier)) == (1, 3.5)


@pytest.mark.parametrize("version", ["", "x", "1.0.0", "99999999999999999999"])
def test_metrics_come_in_a_version_that_is_known(as_operator: Client, version: str) -> None:
    answer = as_operator.get(METRICS, headers={"accept": f"application/openmetrics-text;version={version}"})

    assert answer.status_code == 200
    assert b"palaver_workers_known" in answer.content


def test_a_workers_series_vanish_with_its_report(as_operator: Client, model: Model, tell: Tell) -> None:
    tell("gpu1", free=TierReport(taken=9))
    tell("gpu2", age_s=reports.FRESH_S + 1, free=TierReport(taken=9))

    named = {
        dict(labels)["worker"]
        for _, labels in series(as_operator.get(METRICS).content.decode())
        if "worker" in dict(labels)
    }

    assert named == {"gpu1"}


# The last hour.


def test_samples_are_taken_at_their_own_pace_and_no_more_than_an_hour_of_them(
    new_run: NewRun, tell: Tell, streams: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run()
    tell(free=TierReport(in_hand=2))
    sampler = Sampler()
    for _ in range(3):
        sampler.sample_when_due()

    [sample] = last_hour()
    assert sample.models[run.model_id]["tiers"]["free"] == {"waiting": 1, "in_hand": 2, "oldest_s": 0}
    assert sample.models[run.model_id]["kv"] == 0.5

    monkeypatch.setattr(history, "SAMPLES", 4)
    for _ in range(6):
        history.sample()
    assert streams.xlen(history.KEY) == 4


def test_the_reaper_takes_them(new_run: NewRun, tell: Tell) -> None:
    new_run()

    Reaper(period_s=0).round()

    assert len(last_hour()) == 1


# What it costs.


@pytest.fixture
def grow(new_run: NewRun, chat: Chat, tell: Tell) -> Callable[[int], None]:
    """Adds runs that wait, and as many workers at most."""

    def add(count: int) -> None:
        for number in range(count):
            new_run(in_chat=Chat.objects.create(owner=chat.owner))
            tell(f"gpu{number}", free=TierReport(in_hand=1))
        history.sample()

    return add


@pytest.mark.parametrize("address", [PAGE, FIGURES, METRICS])
def test_a_look_costs_the_same_however_many_runs_and_workers_there_are(
    as_operator: Client, grow: Callable[[int], None], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look() -> tuple[int, list[str]]:
        with CaptureQueriesContext(connection) as queries, metered(monkeypatch) as costs:
            assert as_operator.get(address).status_code == 200
        return len(queries), costs.commands

    grow(1)
    look()  # opens connections
    few = look()

    grow(20)

    assert look() == few
    assert few[1] == ["EVAL", *(("EVAL",) if address != METRICS else ())]
