"""The writers of a worker whose streams live in a cluster: one a node, which may be away alone."""

from __future__ import annotations

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self
from uuid import UUID

from redis.asyncio import Redis

from inference.servers import cluster_of
from inference.stream_writer import RunStream, StreamWriter
from inference.streams import run_key


class ShardedWriter:
    """What `StreamWriter` is, over as many of them as there were nodes.

    A run stays with the writer of the node that held its stream when it began, also when that moves: its pipeline goes
    where the streams are. A writer starts with its first run.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._writers: dict[str, StreamWriter] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with AsyncExitStack() as stack:
            for writer in self._writers.values():
                stack.push_async_exit(writer.__aexit__)

    async def open(self, run_id: UUID, attempt: int, model: str) -> RunStream:
        """Fence off older attempts, and return the stream to write. Raises `Fenced` when a newer one was first."""
        return await self._of(run_id).open(run_id, attempt, model)

    def begin(self, run_id: UUID, attempt: int, model: str) -> RunStream:
        """`open`, for a caller who has no time to wait: of a newer attempt it learns when it writes."""
        return self._of(run_id).begin(run_id, attempt, model)

    def _of(self, run_id: UUID) -> StreamWriter:
        cluster = cluster_of(self._redis)
        holder = cluster.holder(run_key(run_id)) if cluster else ""
        writer = self._writers.get(holder)
        if writer is None:
            writer = self._writers[holder] = StreamWriter(self._redis)
            writer.start()
        return writer


AnyWriter = StreamWriter | ShardedWriter


def writer_to(redis: Redis) -> AnyWriter:
    """One that writes the streams where `redis` finds them."""
    return ShardedWriter(redis) if cluster_of(redis) else StreamWriter(redis)
