"""A worker's place on its model's roster: it tells how far the worker is, and hears of another version.

By a thread, since loading a model holds up the event loop for as long as that takes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from inference.host import NotServed, Roster

logger = logging.getLogger(__name__)

CHECK_IN_S = 2.0
# For what must be told before the worker goes on, or ends: the database may be restarting.
PATIENCE_S = 30.0
# For what need not be: it must not hold up the end.
LEAVE_S = 1.0


class Phase(StrEnum):
    """How far a worker is with its version."""

    FETCHING = "fetching"
    LOADING = "loading"
    PROBING = "probing"
    SERVING = "serving"
    DRAINING = "draining"
    FAILED = "failed"


class Attendance:
    """Checks in every two seconds. While the rows are away the worker goes on as it is."""

    def __init__(self, roster: Roster, version: int) -> None:
        self._roster = roster
        self._version = version
        self._phase, self._detail = Phase.FETCHING, ""
        self._is_known = True
        self._is_told = False
        # Behind a failure: whether the worker is to be started again with another version.
        self.is_wanted_elsewhere = False
        self._news = threading.Event()
        self._is_over = False

    @contextmanager
    def kept(self, on_other: Callable[[], None]) -> Iterator[None]:
        """Check in meanwhile; calls `on_other`, once, when another version is to be served."""
        thread = threading.Thread(target=self._attend, args=(on_other,), name="attendance", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_over = True
            self._news.set()
            thread.join(LEAVE_S)

    def now(self, phase: Phase, detail: str = "") -> None:
        """The worker is so far; callable from any thread, and from a signal handler."""
        is_news = phase is not self._phase
        self._phase, self._detail = phase, detail
        if is_news:
            self._news.set()

    def drains(self) -> None:
        """What runs is finished, and no more is taken."""
        self.now(Phase.DRAINING)

    def arrived(self, revision: str, digest: str, manifest: Any) -> None:
        """The version is loaded and answers. Raises `NotServed` where its files are others than they should be."""
        self._insist(lambda: self._roster.arrived(revision, digest, manifest))
        self.now(Phase.SERVING)

    def failed(self, reason: str) -> None:
        """It could not be loaded, or does not answer."""
        self._is_over = True  # what it does afterwards is not told any more
        try:
            self._insist(lambda: self._roster.failed(reason))
            self.is_wanted_elsewhere = self._roster.check_in(Phase.FAILED, reason) != self._version
        except NotServed as refused:
            logger.warning("attendance.not_told reason=%s", refused)

    def leave(self) -> None:
        """The worker ends for good; where the rows are away it is forgotten by and by."""
        self._is_over = True
        leaving = threading.Thread(target=self._leave, name="leaving", daemon=True)
        leaving.start()
        leaving.join(LEAVE_S)

    def _leave(self) -> None:
        try:
            self._roster.leave()
        except NotServed as refused:
            logger.warning("attendance.not_left reason=%s", refused)

    def _attend(self, on_other: Callable[[], None]) -> None:
        while not self._is_over:
            self._check_in(on_other)
            self._news.wait(CHECK_IN_S)
            self._news.clear()

    def _check_in(self, on_other: Callable[[], None]) -> None:
        try:
            self._heed(self._roster.check_in(self._phase, self._detail), on_other)
        except NotServed as refused:
            self._stay(str(refused))
        except Exception:
            logger.exception("attendance.not_told")

    def _heed(self, version: int | None, on_other: Callable[[], None]) -> None:
        self._is_known = True
        if version != self._version and not (self._is_told or self._is_over):
            self._is_told = True
            logger.info("attendance.other_version from=%d to=%s", self._version, version)
            on_other()

    def _stay(self, reason: str) -> None:
        if self._is_known:
            logger.warning("attendance.not_told reason=%s", reason)
        self._is_known = False

    def _insist(self, act: Callable[[], None]) -> None:
        """`act`, repeated for a while where the rows are away. Raises `NotServed`."""
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            try:
                act()
            except NotServed as refused:
                if not refused.is_passing or time.monotonic() >= give_up_at:
                    raise
                time.sleep(1)
            else:
                return
