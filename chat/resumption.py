"""Where an attempt goes on that is not a run's first."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from redis.asyncio import Redis
from redis.exceptions import RedisError

from chat.attempt import Attempt, AttemptLost, Verdict
from chat.emitted import Emitted, agree
from chat.models import Run
from chat.rows import Rows
from inference.stream_writer import RunStream
from inference.streams import Delta, Event, Reset, read_rest
from inference.tokens import Tokenizer

logger = logging.getLogger(__name__)

# A restart or a failover of Redis is ridden out; then the checkpoints must do.
PATIENCE_S = 90.0
RETRY_S = 0.2


@dataclass(frozen=True, slots=True)
class Resumption:
    """What an attempt tells its readers first.

    Readers who hold text beyond `agreed` hold what is not in the answer: they read a stream that Redis has lost since.
    """

    agreed: int
    events: Sequence[Event]

    @classmethod
    def anew(cls, text: str, token_ids: Sequence[int]) -> Resumption:
        """Void what was told, and tell everything again."""
        return cls(0, [Reset(0), *([Delta(text, 0, tuple(token_ids))] if text else [])])

    @classmethod
    def behind(cls, text: str, token_ids: Sequence[int], stream: Emitted) -> Resumption:
        """Go on behind `text`, which `token_ids` stand for, where `stream` was left."""
        if not agree(text, stream.text):
            # Two attempts wrote differently, and the stream has the one that is void.
            return cls.anew(text, token_ids)
        untold = text[len(stream.text) :]
        filling = [Delta(untold, len(stream.text), tuple(token_ids[len(stream.token_ids) :]))] if untold else []
        # The reset tells nothing to readers who hold no more than that.
        return cls(len(text), [*filling, Reset(len(text))])


async def resume(attempt: Attempt, stream: RunStream, streams: Redis, rows: Rows, tokenizer: Tokenizer) -> None:
    """Go on where the attempts before this one were cut off.

    Behind another version of the model the text goes on in this one's ids, and is told anew with them.

    Raises `AttemptLost`, `HandedBack`, `Fenced`, `DatabaseAway`.
    """
    told = await _told(attempt, stream, streams)
    saved = await rows.insist(_saved, attempt.run)
    draft, emitted = attempt.draft, told.or_later(saved)
    if attempt.run.version_id == attempt.claim.version_before:
        draft.go_on_from(emitted, saved)
        resumption = Resumption.behind(draft.text, draft.token_ids, told)
    else:
        ids = tuple(tokenizer.encode_text(emitted.text))
        draft.go_on_from(Emitted(emitted.text, ids, emitted.attempt), Emitted())
        resumption = Resumption.anew(draft.text, draft.token_ids)
    if not await rows.insist(Run.objects.resume, attempt.claim, resumption.agreed):
        raise AttemptLost(attempt.request_id)
    stream.resume(resumption.events, offset=len(draft.text))
    logger.info(
        "run.resumed run=%s attempt=%d tokens=%d agreed=%d",
        *(attempt.run.pk, attempt.claim.attempt, len(draft.token_ids), resumption.agreed),
    )


async def _told(attempt: Attempt, stream: RunStream, streams: Redis) -> Emitted:
    """What the stream tells, read behind our fence: nobody can add to it. Nothing where Redis stays away."""
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        if attempt.verdict is not Verdict.CANCELLED:
            attempt.check()
        try:
            await stream.flush()
            if stream.is_settled:
                return Emitted.in_stream(await read_rest(streams, attempt.run.pk), attempt.run.resumptions)
        except (RedisError, OSError) as error:
            logger.warning("run.not_resumed run=%s error=%s", attempt.run.pk, type(error).__name__)
        # After a look: who cancels waits for no Redis, but keeps what it has.
        if attempt.verdict is Verdict.CANCELLED or time.monotonic() >= give_up_at:
            return Emitted()
        await asyncio.sleep(RETRY_S)


def _saved(run: Run) -> Emitted:
    return Emitted.put_by(run.checkpoints.all(), run.resumptions)
