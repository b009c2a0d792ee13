"""Ends a worker whose engine is dead or silent, with work or without: only a new process brings the engine back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Self

from inference.engine import Engine, EngineDead, Load

logger = logging.getLogger(__name__)

CHECK_S = 1.0


class Watchdog:
    """Looks at the engine every second; when it is dead or silent kills what is left of it, and tells `on_dead` once.

    Silent is an engine that has work and has shown no progress for `silence_s`. Weakness: this lives on the engine's
    event loop, and sees nothing while that is blocked.
    """

    def __init__(
        self, engine: Engine, silence_s: float, on_dead: Callable[[EngineDead], None], check_s: float = CHECK_S
    ) -> None:
        self._engine = engine
        self._silence_s = silence_s
        self._on_dead = on_dead
        self._check_s = check_s
        self._steps = 0
        self._silent_s = 0.0
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._watching = asyncio.create_task(self._watch(), name="watchdog")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._watching is not None
        self._watching.cancel()
        await asyncio.wait({self._watching})

    async def _watch(self) -> None:
        try:
            while True:
                await self._pause()
                self._engine.check_health()
                self._refuse_silence()
        except EngineDead as death:
            self._end(death)
        except Exception as error:  # an engine that cannot be watched is not to be trusted either
            logger.exception("watchdog.broke")
            self._end(EngineDead(f"the watchdog broke: {type(error).__name__}"))

    async def _pause(self) -> None:
        await asyncio.sleep(self._check_s)
        load = self._engine.load()
        # By checks, not by the clock: a worker that was itself paused, or its loop blocked, must not blame the engine.
        self._silent_s = self._silent_s + self._check_s if self._is_silent(load) else 0.0
        self._steps = load.steps

    def _is_silent(self, load: Load) -> bool:
        # Not by `running`: what the scheduler last said stays said when an idle engine steps no more.
        return load.requests > 0 and load.steps == self._steps

    def _refuse_silence(self) -> None:
        if self._silent_s >= self._silence_s:
            raise EngineDead(
                f"it has work and made no step for {self._silent_s:.0f} s"
                " (a model that is only slow needs a larger ENGINE_SILENCE_S)"
            )

    def _end(self, death: EngineDead) -> None:
        load = self._engine.load()
        logger.critical(
            "watchdog.engine_dead requests=%d running=%d waiting=%d cause=%s"
            " cure=runs go back, the worker exits; whoever started it must start it again",
            *(load.requests, load.running, load.waiting, " ".join(str(death).split())[:300]),
        )
        try:
            self._engine.kill()
        finally:
            self._on_dead(death)
