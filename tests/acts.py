"""What the cast does in many tests, past the services."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from django.apps import apps
from django.db import connections
from django.test import Client
from redis import Redis

from chat.models import ApiKey, Chat, Message, Outcome, Role, Run, Status, User
from inference.streams import Entry, entry, run_key
from scheduler.room import queue_name

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse as Answer

A_DETAIL = "The engine gave up."


def bearing(user: User) -> Client:
    """A client that sends a key of the user, whose use was just noted: that takes a query a minute."""
    key, secret = ApiKey.objects.issue(user, "test")
    key.note_use()
    return Client(headers={"Authorization": f"Bearer {secret}"})


def add_message(chat: Chat, role: Role, content: str) -> Message:
    """The chat's next message."""
    last = chat.messages.order_by("-position").first()
    position = last.position + 1 if last else 1
    return Message.objects.create(chat=chat, position=position, role=role, content=content, token_count=1)


def bring(run: Run, status: Status, answer: str = "Hello") -> None:
    """Take a queued run to `status` by the transitions that the database allows."""
    if status is Status.QUEUED:
        return
    claim = Run.objects.claim(run.pk, "worker", timedelta(minutes=1))
    if status is Status.STREAMING:
        return
    message = add_message(run.chat, Role.ASSISTANT, answer) if status is Status.DONE else None
    code = "generation_failed" if status is Status.FAILED else ""
    outcome = Outcome(status, input_tokens=3, output_tokens=2, error_code=code, error_detail=code and A_DETAIL)
    assert run.finish(claim.attempt, outcome, message.pk if message else None)


def in_queue(broker: Redis, run: Run) -> list[UUID]:
    """The runs in the Celery queue, the next one first."""
    messages = broker.lrange(queue_name(run.model_id, run.room_tier), 0, -1)
    return [UUID(json.loads(message)["headers"]["id"]) for message in reversed(messages)]


def last_entry(streams: Redis, run: Run) -> Entry:
    """What readers of the run were told last."""
    [row] = cast(list[Any], streams.xrevrange(run_key(run.pk), count=1))
    return entry(*row)


def at_once(acts: Sequence[Callable[[], int]]) -> list[int]:
    """Run all acts at the same moment; what they return, sorted."""
    barrier = Barrier(len(acts))

    def run(act: Callable[[], int]) -> int:
        try:
            barrier.wait()
            return act()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(acts)) as threads:
        return sorted(threads.map(run, acts))


def everything_stored() -> Mapping[str, list[dict[str, Any]]]:
    """All rows that users own, by the name of their model; not when a key was used, as it is by whoever is refused."""
    models = apps.get_app_config("chat").get_models()
    stored = {model.__name__: list(model._default_manager.order_by("pk").values()) for model in models}
    for key in stored["ApiKey"]:
        del key["last_used_at"]
    return stored


def code_of(response: Answer) -> str:
    """The code of a problem; fails where the response is none."""
    assert response.headers["Content-Type"] == "application/problem+json", response.content
    problem = json.loads(response.content)
    assert problem["status"] == response.status_code
    assert problem["title"]
    assert problem["detail"]
    assert problem["type"] == "about:blank"
    code: str = problem["code"]
    return code
