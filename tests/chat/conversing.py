"""A chat that goes on turn by turn on a worker in the test's own process, which is asked what its engine was given."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from chat import services
from chat.models import Chat, Run, Summary
from inference.engine import Generation, Step
from inference.host import ServedModel
from inference.scripted_engine import Script, ScriptedEngine
from inference.tokens import Tokenizer
from scheduler.models import Model
from tests.chat.generating import A_MINUTE, SERVED, Worker, working_on
from tests.real_model import model_folder

T = TypeVar("T")
BLOCK = 16
SCRIPT = Script(tokens_per_s=5000, prefix_caching=True, block_tokens=BLOCK)


class NotingEngine(ScriptedEngine):
    """Keeps what it was asked for."""

    def __init__(self, script: Script, tokenizer: Tokenizer) -> None:
        super().__init__(script, tokenizer)
        self.asked: list[Generation] = []

    def generate(self, generation: Generation) -> AsyncGenerator[Step, None]:
        """As the scripted engine does."""
        self.asked.append(generation)
        return super().generate(generation)


@dataclass
class Conversation:
    """One chat, its worker, and the model that it is with."""

    chat: Chat
    model: Model
    worker: Worker
    engine: NotingEngine

    async def do(self, act: Callable[[], T]) -> T:
        """Act where the ORM may be used."""
        return await self.worker.ask_rows(act)

    async def ask(self, content: str) -> Run:
        """Queue a question; the run as it is stored."""
        owner = self.chat.owner
        run = await self.do(lambda: services.ask(owner, self.chat, services.Question(content, self.model)))
        return await self.worker.row(run)

    async def answered(self, run: Run) -> Run:
        """Let the worker bring a run to its end, and queue what follows it."""
        await self.worker.attempts.run(run.pk)
        await self.worker.attempts._follow_ups.finish()
        return await self.worker.row(run)

    async def turn(self, content: str) -> Run:
        """Ask, and have it answered."""
        return await self.answered(await self.ask(content))

    async def waiting(self, kind: Run.Kind) -> Run | None:
        """The background run of that kind that nobody has begun."""
        return await self.do(lambda: Run.objects.filter(chat=self.chat, kind=kind, status="queued").first())

    async def background(self, kind: Run.Kind) -> Run:
        """Bring the one that waits to its end."""
        run = await self.waiting(kind)
        assert run is not None, f"no {kind} waits"
        return await self.answered(run)

    async def epochs(self) -> Sequence[Summary]:
        """All that the chat has."""
        return await self.do(lambda: list(Summary.objects.filter(chat=self.chat).order_by("epoch")))

    def prompt_of(self, run: Run, attempt: int = 1) -> list[int]:
        """What the engine was given for it."""
        [asked] = [each for each in self.engine.asked if each.request_id == f"{run.pk}:{attempt}"]
        return list(asked.prompt_ids)

    def warmed_by(self, run: Run) -> list[int]:
        """What it computed for the chat's next turn."""
        [asked] = [each for each in self.engine.asked if each.request_id == f"{run.pk}:1:warm"]
        return list(asked.prompt_ids)

    def text(self, ids: Sequence[int]) -> str:
        """What ids stand for, control tokens left out."""
        return Tokenizer.load(self.model.source).decode(ids)


@asynccontextmanager
async def conversing(
    chat: Chat, model: Model, script: Script = SCRIPT, served: ServedModel = SERVED
) -> AsyncIterator[Conversation]:
    """A conversation in the chat."""
    engine = NotingEngine(script, Tokenizer.load(model_folder()))
    await engine.start()
    try:
        async with working_on(engine, A_MINUTE, served=served) as worker:
            yield Conversation(chat, model, worker, engine)
    finally:
        await engine.stop()
