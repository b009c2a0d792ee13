"""What a user's open pages are told of each act, by whoever does it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID

import pytest
from django.conf import LazySettings, settings
from django.test import Client
from redis import Redis
from redis.client import PubSub

from chat import feed
from chat.models import Chat, Run, Status, User
from inference.scripted_engine import Script
from scheduler.models import Model
from tests.chat.generating import A_MINUTE, Worker, working

pytestmark = pytest.mark.django_db(transaction=True)
JSON = "application/json"


@pytest.fixture
def run(new_run: Callable[..., Run]) -> Run:
    return new_run()


class Ear:
    """Hears what a user's pages are told."""

    def __init__(self, pubsub: PubSub) -> None:
        self._pubsub = pubsub

    def heard(self, count: int) -> list[tuple[str, dict[str, Any]]]:
        """The next `count` events, and that there are no more."""
        events = [self._next(5) for _ in range(count)]
        assert self._next(0.05) is None
        return [(name, dict(data)) for name, data in filter(None, events)]

    def _next(self, patience_s: float) -> tuple[str, Mapping[str, Any]] | None:
        message = self._pubsub.get_message(timeout=patience_s)
        return feed.read(message["data"]) if message else None


@pytest.fixture
def ear(alice: User) -> Iterator[Ear]:
    """Alice's."""
    with Redis.from_url(settings.STREAMS_URL) as redis, redis.pubsub(ignore_subscribe_messages=True) as pubsub:
        pubsub.subscribe(feed.channel(alice.pk))
        assert pubsub.get_message(timeout=5) is None  # the confirmation
        yield Ear(pubsub)


def shown(chat_id: UUID | str, live_run_id: UUID | str | None = None) -> tuple[str, dict[str, Any]]:
    """The event of a chat as it is stored now."""
    chat = Chat.objects.get(pk=chat_id)
    updated_at = chat.updated_at.isoformat().replace("+00:00", "Z")
    live = live_run_id and str(live_run_id)
    return "chat", {"id": str(chat.pk), "title": chat.title, "updated_at": updated_at, "live_run_id": live}


def of_run(name: str, run: Run, status: str) -> tuple[str, dict[str, Any]]:
    return name, {"run_id": str(run.pk), "chat_id": str(run.chat_id), "status": status}


def test_opening_a_chat(as_alice: Client, ear: Ear) -> None:
    opened = as_alice.post("/api/chats", {}, content_type=JSON).json()

    told = ear.heard(1)
    assert told == [shown(opened["id"])]
    assert told[0][1]["updated_at"] == opened["updated_at"]


def test_asking_and_retrying(as_alice: Client, ear: Ear, chat: Chat, model: Model) -> None:
    for path, body in ((f"/api/chats/{chat.pk}/messages", {"content": "Hi"}), ("retry", {})):
        if path == "retry":
            last = Run.objects.get()
            Run.objects.cancel_queued(last.pk)
            path = f"/api/runs/{last.pk}/retry"  # noqa: PLW2901
        run = Run.objects.get(pk=as_alice.post(path, body, content_type=JSON).json()["run_id"])

        assert ear.heard(2) == [of_run("run_begun", run, "queued"), shown(chat.pk, run.pk)]


def test_a_refused_question_is_not_told(as_alice: Client, ear: Ear, chat: Chat, model: Model) -> None:
    assert as_alice.post(f"/api/chats/{chat.pk}/messages", {"content": " "}, content_type=JSON).status_code == 400

    assert ear.heard(0) == []


def test_renaming(as_alice: Client, ear: Ear, new_run: Callable[..., Run]) -> None:
    run = new_run()
    as_alice.patch(f"/api/chats/{run.chat_id}", {"title": "Größe 世界"}, content_type=JSON)

    told = ear.heard(1)
    assert told == [shown(run.chat_id, run.pk)]
    assert told[0][1]["title"] == "Größe 世界"


def test_deleting_a_chat_tells_no_end_of_its_run(as_alice: Client, ear: Ear, new_run: Callable[..., Run]) -> None:
    run = new_run()
    assert as_alice.delete(f"/api/chats/{run.chat_id}").status_code == 204

    assert ear.heard(1) == [("chat_deleted", {"id": str(run.chat_id)})]


def test_cancelling_a_run_that_waits(as_alice: Client, ear: Ear, new_run: Callable[..., Run]) -> None:
    run = new_run()
    for _ in range(2):
        as_alice.post(f"/api/runs/{run.pk}/cancel")

    assert ear.heard(2) == [of_run("run_ended", run, "cancelled"), shown(run.chat_id)]


def test_cancelling_a_run_whose_worker_is_gone(as_alice: Client, ear: Ear, new_run: Callable[..., Run]) -> None:
    run = new_run(Status.STREAMING)
    Run.objects.filter(pk=run.pk).update(lease_until=run.started_at)
    assert as_alice.post(f"/api/runs/{run.pk}/cancel").json()["status"] == "cancelled"

    assert ear.heard(2) == [of_run("run_ended", run, "cancelled"), shown(run.chat_id)]


async def told_by(worker: Worker, run: Run, ear: Ear, count: int) -> list[tuple[str, dict[str, Any]]]:
    await worker.attempts.run(run.pk)
    await worker.attempts._announcements.finish()
    return ear.heard(count)


async def test_a_workers_run_begins_and_ends(ear: Ear, run: Run) -> None:
    async with working(Script(text="Hello")) as worker:
        told = await told_by(worker, run, ear, 3)
        chat = await worker.ask_rows(lambda: shown(run.chat_id))

    assert told == [of_run("run_begun", run, "streaming"), of_run("run_ended", run, "done"), chat]


async def test_a_run_that_another_worker_has_is_not_told(ear: Ear, run: Run) -> None:
    async with working(Script(text="Hello")) as worker:
        await worker.ask_rows(lambda: Run.objects.claim(run.pk, "another", A_MINUTE))

        assert await told_by(worker, run, ear, 0) == []


async def test_a_run_goes_its_way_while_nobody_can_be_told(run: Run, settings: LazySettings) -> None:
    async with working(Script(text="Hello")) as worker:
        settings.STREAMS_URL = "redis://127.0.0.1:9/0"
        await worker.attempts.run(run.pk)

        assert (await worker.row(run)).status == Status.DONE
