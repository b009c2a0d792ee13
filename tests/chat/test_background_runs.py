"""Runs that nobody waits for: they have a room of their own, beside the tiers', and count in nobody's queue."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.conf import LazySettings
from redis import Redis

from chat import queueing
from chat.load.picture import draw
from chat.models import Chat, Message, Outcome, Run, Status
from chat.recovery import Reaper
from chat.standing import Standing
from scheduler.models import Model, Tier
from scheduler.prices import charge
from scheduler.room import BACKGROUND, queue_name, room_key
from tests.acts import in_queue

pytestmark = pytest.mark.django_db(transaction=True)

NewRun = Callable[..., Run]


@pytest.fixture
def title(chat: Chat, model: Model, new_run: NewRun) -> Run:
    """A queued run that makes up the title of Alice's chat."""
    reply = new_run(Status.DONE)
    return Run.objects.create(
        kind=Run.Kind.TITLE,
        chat=chat,
        prompt=Message.objects.get(pk=reply.prompt_id),
        model=model,
        tier=chat.owner.tier,
        input_tokens=30,
        max_output_tokens=8,
    )


def rooms(broker: Redis, model: Model) -> dict[str, int]:
    """How many wait in each room of the model."""
    return {tier: broker.zcard(room_key(model.pk, tier)) for tier in ("free", BACKGROUND)}


def test_a_background_run_waits_beside_those_of_the_tier(
    title: Run, broker: Redis, model: Model, settings: LazySettings
) -> None:
    settings.DISPATCH_LOOKAHEAD = 0

    queueing.admit(title)

    assert rooms(broker, model) == {"free": 0, BACKGROUND: 1}
    assert queueing.withdraw(title)
    assert rooms(broker, model) == {"free": 0, BACKGROUND: 0}


def test_it_goes_to_a_queue_of_its_own(title: Run, broker: Redis) -> None:
    queueing.admit(title)

    assert broker.llen(queue_name(title.model_id, BACKGROUND)) == 1
    assert Run.objects.get(pk=title.pk).released_at


def test_the_reaper_lets_in_one_of_which_the_broker_does_not_know(title: Run, broker: Redis) -> None:
    Reaper(period_s=0.01).round()

    assert in_queue(broker, title) == [title.pk]


def test_a_release_of_all_rooms_is_of_the_background_room_too(
    title: Run, broker: Redis, settings: LazySettings
) -> None:
    settings.DISPATCH_LOOKAHEAD = 0
    queueing.admit(title)
    settings.DISPATCH_LOOKAHEAD = 1

    queueing.release_all()

    assert in_queue(broker, title) == [title.pk]


def test_it_takes_nobodys_place_in_the_queue(title: Run, chat: Chat, model: Model) -> None:
    standing = Standing.of(chat.owner, chat, model)

    assert (standing.live_run_id, standing.live_runs, standing.waiting.of_model) == (None, 0, 0)
    assert [load.waiting for load in draw().models if load.model == model] == [0]


def test_workers_take_it_by_a_tenth_of_the_lightest_weight(
    model: Model, free: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_POOL", "5")  # the host's module sets one for all processes that come
    from chat.hosting import host

    Tier.objects.exclude(pk="free").update(weight=5)
    Tier.objects.filter(pk="free").update(weight=2)

    queues = host.queues(model.pk)

    assert (queues[queue_name(model.pk, "free")], queues[queue_name(model.pk, BACKGROUND)]) == (2, 0.2)
    # Not told in numbers: processes of the release before read whole ones.
    drain = queueing.estimates().drain(model.pk)
    assert BACKGROUND not in drain.weights
    assert drain._weight(BACKGROUND) == 0.2


def test_what_it_came_to_counts_though_its_user_is_charged_nothing(title: Run, model: Model) -> None:
    assert title.drawn == 0
    claim = Run.objects.claim(title.pk, "worker", timedelta(minutes=1))
    title.finish(claim.attempt, Outcome(Status.DONE, input_tokens=30, cached_tokens=20, output_tokens=5), None)

    ended = Run.objects.select_related("chat", "model").get(pk=title.pk)

    assert ended.charged_tokens == 0
    assert queueing.correction(ended).charge == charge(30, 20, 5, model.cached_token_percent) > 0
