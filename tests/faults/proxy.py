"""A wire between one worker and one Redis, which can lose a reply: the command ran, and nobody is told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

CHUNK_BYTES = 65536


@dataclass(eq=False)
class Loss:
    """One reply that is to be lost: the next one to a command with this word in it."""

    command: bytes
    happened: asyncio.Event


class Proxy:
    """Passes bytes on, in both directions, until a reply is to be lost; then it swallows that and cuts."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.port is not None
        self._server_port = parts.port
        self._parts = parts
        self._loss: Loss | None = None
        self._listening: asyncio.Server | None = None
        self._passing: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """How the worker reaches the server through here."""
        assert self._listening is not None
        port = self._listening.sockets[0].getsockname()[1]
        return self._parts._replace(netloc=f"{self._parts.netloc.rpartition(':')[0]}:{port}").geturl()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Proxy]:
        """Take connections meanwhile."""
        self._listening = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        try:
            yield self
        finally:
            self._listening.close()
            for task in self._passing:
                task.cancel()
            if self._passing:
                await asyncio.wait(self._passing)

    async def lose_reply(self, command: bytes, within_s: float) -> bool:
        """Lose the reply to the next such command; False when none came within the time."""
        loss = self._loss = Loss(command, asyncio.Event())
        try:
            async with asyncio.timeout(within_s):
                await loss.happened.wait()
        except TimeoutError:
            return False
        finally:
            self._loss = None
        return True

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        try:
            await self._pass(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # a wire that breaks tells its ends, and nobody else
        finally:
            self._passing.discard(task)
            writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, commands = await asyncio.open_connection("127.0.0.1", self._server_port)
        losing: list[Loss] = []
        ways = [
            asyncio.create_task(self._send(reader, commands, losing)),
            asyncio.create_task(self._answer(upstream, writer, losing)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            commands.close()

    async def _send(self, reader: asyncio.StreamReader, commands: asyncio.StreamWriter, losing: list[Loss]) -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            if self._loss is not None and self._loss.command in chunk:
                losing.append(self._loss)
                self._loss = None
            commands.write(chunk)
            await commands.drain()

    async def _answer(self, upstream: asyncio.StreamReader, writer: asyncio.StreamWriter, losing: list[Loss]) -> None:
        with contextlib.suppress(ConnectionError):
            while chunk := await upstream.read(CHUNK_BYTES):
                if losing:
                    losing[0].happened.set()
                    return
                writer.write(chunk)
                await writer.drain()
