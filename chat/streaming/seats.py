"""How many streams may be open: counted in the process that holds them, so that a crash leaks none."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from uuid import UUID

from django.conf import settings

from chat.streaming.refusals import StreamsFull, TooManyStreams

logger = logging.getLogger(__name__)


class Seats:
    """Who has how many streams open in this process; `taken` is the sum. For one event loop."""

    def __init__(self) -> None:
        self._by_user: Counter[UUID] = Counter()
        self.taken = 0

    def take(self, user_id: UUID) -> Callable[[], None]:
        """One stream more; call what is returned once, when it has ended. Raises `TooManyStreams`, `StreamsFull`."""
        if self._by_user[user_id] >= settings.STREAMS_PER_USER:
            raise TooManyStreams(settings.STREAMS_PER_USER)
        if self.taken >= settings.STREAMS_PER_PROCESS:
            logger.warning("stream.process_full open=%d", self.taken)
            raise StreamsFull()
        self._by_user[user_id] += 1
        self.taken += 1
        return partial(self._leave, user_id)

    def _leave(self, user_id: UUID) -> None:
        self.taken -= 1
        self._by_user[user_id] -= 1
        if not self._by_user[user_id]:
            del self._by_user[user_id]
