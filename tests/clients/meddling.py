"""What lies between a client and its server: connections that break after so many bytes, and lost or changed words."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator

import httpx

Way = Callable[[Iterable[bytes]], Iterator[bytes]]


class Line(httpx.BaseTransport):
    """A line to the server as it should be."""

    def __init__(self) -> None:
        self._line = httpx.HTTPTransport()
        self.asked: list[httpx.Request] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        return self.answer(request)

    def answer(self, request: httpx.Request) -> httpx.Response:
        """What the server says."""
        return self._line.handle_request(request)

    def close(self) -> None:
        self._line.close()


class Refusing(Line):
    """Answers the first request in the server's place."""

    def __init__(self, refusal: httpx.Response) -> None:
        super().__init__()
        self._refusal = refusal

    def answer(self, request: httpx.Request) -> httpx.Response:
        return self._refusal if len(self.asked) == 1 else super().answer(request)


class Deaf(Line):
    """Loses the answer to every other request, which was served."""

    def answer(self, request: httpx.Request) -> httpx.Response:
        response = super().answer(request)
        if len(self.asked) % 2:
            response.close()
            raise httpx.ReadError("lost")
        return response


class Meddling(Line):
    """Has its way with the bytes of answers that are streams."""

    def __init__(self, way: Way) -> None:
        super().__init__()
        self._way = way

    def answer(self, request: httpx.Request) -> httpx.Response:
        response = super().answer(request)
        if response.headers.get("Content-Type", "").startswith("text/event-stream"):
            assert isinstance(response.stream, httpx.SyncByteStream)
            response.stream = _Changed(response.stream, self._way)
        return response


class _Changed(httpx.SyncByteStream):
    def __init__(self, stream: httpx.SyncByteStream, way: Way) -> None:
        self._stream, self._way = stream, way

    def __iter__(self) -> Iterator[bytes]:
        return self._way(self._stream)

    def close(self) -> None:
        self._stream.close()


def cut_after(size_bytes: int, connections: int) -> Way:
    """Breaks so many connections after so many bytes; the ones that follow hold."""
    left = iter([size_bytes] * connections)

    def way(pieces: Iterable[bytes]) -> Iterator[bytes]:
        room = next(left, sys.maxsize)
        for piece in pieces:
            yield piece[:room]
            room -= len(piece)
            if room < 0:
                raise httpx.ReadError("cut")

    return way


def replaced(old: bytes, new: bytes) -> Way:
    """Puts one word in another's place; the stream is changed as a whole, so that no piece hides it."""

    def way(pieces: Iterable[bytes]) -> Iterator[bytes]:
        yield b"".join(pieces).replace(old, new)

    return way
