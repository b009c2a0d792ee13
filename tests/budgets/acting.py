"""A process that asks, works, cancels, deletes and dies at random: `python -m tests.budgets.acting SEED MODEL`.

It goes on until it is killed or its own dice have it die. What it does goes through the product's own functions; it
dies where a process could: with a cost reserved and nothing stored, behind a commit, with an end that is not settled.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import django

django.setup()

from uuid6 import uuid7  # noqa: E402

from chat import accounting, cancelling, outcomes, problems, queueing, services  # noqa: E402
from chat.draft import Counts  # noqa: E402
from chat.finishing import finish_run  # noqa: E402
from chat.generation import claim_run  # noqa: E402
from chat.models import Chat, Outcome, Run, RunTaken, Status, User  # noqa: E402
from scheduler.budgets import TokenBuckets  # noqa: E402
from scheduler.errors import SchedulerError  # noqa: E402
from scheduler.models import Model  # noqa: E402

DIES = 0.006  # at each place where it may
OTHERS = 0.2
LEASE = timedelta(minutes=1)
# A worker that dies at once, for all that others see.
NO_LEASE = timedelta(seconds=-1)
TURNS_OF_A_CHAT = 4


class Actor:
    """One of many that act on the same rows."""

    def __init__(self, seed: int, model: Model) -> None:
        self._dice = random.Random(seed)
        self._model = model
        self._users = list(User.objects.order_by("username"))
        self._fates: list[Callable[[Run], object]] = [
            *[self._work] * 6,
            cancelling.cancel,
            cancelling.expire,
            self._delete,
            self._die_as_worker,
            lambda _: None,
        ]

    def act_for_ever(self) -> None:
        """Ask, and let something happen to the run; now and then to somebody else's."""
        self._die_at(TokenBuckets, "reserve")
        self._die_at(TokenBuckets, "settle")
        self._die_at(queueing, "admit")
        self._die_at(accounting, "enter")
        while True:
            with suppress(problems.Problem, SchedulerError):
                self._dice.choice(self._fates)(self._ask())
            if self._dice.random() < OTHERS:
                self._act_on_another()

    def _act_on_another(self) -> None:
        with suppress(problems.NotFound):  # deleted meanwhile
            if run := Run.objects.live().order_by("?").first():
                self._dice.choice([self._work, cancelling.cancel])(run)

    def _die_at(self, owner: Any, name: str) -> None:
        """Let a function be the last thing that is done, now and then, or the first that is not."""
        function = getattr(owner, name)

        def mortal(*args: Any, **kwargs: Any) -> Any:
            if self._dice.random() < DIES:
                os.kill(os.getpid(), signal.SIGKILL)
            result = function(*args, **kwargs)
            if self._dice.random() < DIES:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(owner, name, mortal)

    def _ask(self) -> Run:
        user = User.objects.get(pk=self._dice.choice(self._users).pk)
        question = services.Question("Hi", self._model, self._dice.choice([None, 1, 20, 10_000]))
        return services.ask(user, self._chat(user), question)

    def _chat(self, user: User) -> Chat:
        chat = user.chats.order_by("?").first() if self._dice.random() < 0.8 else None
        if chat is None or chat.messages.count() > 2 * TURNS_OF_A_CHAT:
            return services.open_chat(user)
        return chat

    def _work(self, run: Run) -> None:
        with suppress(RunTaken):
            claimed, claim = claim_run(run.pk, "worker", LEASE)
            self._end(claimed, claim.attempt)

    def _end(self, run: Run, attempt: int) -> None:
        counts = Counts(self._dice.randint(0, run.max_output_tokens), self._dice.choice([0, 7, run.input_tokens, 9999]))
        outcome = self._dice.choice([self._done, self._done, outcomes.cancelled, outcomes.worker_lost])(run, counts)
        if finish_run(run, attempt, outcome, "an answer", uuid7()):
            accounting.settle(run)

    @staticmethod
    def _done(run: Run, counts: Counts) -> Outcome:
        return replace(outcomes.cancelled(run, counts), status=Status.DONE, finish_reason="stop")

    def _delete(self, run: Run) -> None:
        if self._dice.random() < 0.5:
            with suppress(RunTaken):
                claim_run(run.pk, "worker", LEASE)
        services.delete(run.chat.owner, run.chat)

    def _die_as_worker(self, run: Run) -> None:
        with suppress(RunTaken):
            claim_run(run.pk, "worker", NO_LEASE)


if __name__ == "__main__":
    Actor(int(sys.argv[1]), Model.objects.get(pk=sys.argv[2])).act_for_ever()
