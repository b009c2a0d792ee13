"""A server that speaks enough of Palaver's API to be put under load, and misbehaves where it is told to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

KEY = "pal_good"
WORDS = 10
WORD_S = 0.05


@dataclass
class Behaviour:
    """What it does, and what it saw: moments of all POSTs of questions by key."""

    refuses_first: int = 0
    retry_after_s: int = 1
    fails_every: int = 0
    cuts_every: int = 0
    questions: list[tuple[float, str]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=count)


class Server(ThreadingHTTPServer):
    """Says nothing of readers who leave in mid-answer, as all do when a test ends."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass


@contextmanager
def serving(behaviour: Behaviour) -> Iterator[str]:
    """It, on a free port; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.headers["Authorization"] != f"Bearer {KEY}":
                self._answer(401, {"code": "not_authenticated"})
            elif self.path.endswith("/stream"):
                self._stream(int(self.path.split("/")[3]))
            else:
                self._answer(200, {"tier": "free"} if self.path == "/api/usage" else {"results": [{"slug": "stub"}]})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/api/chats":
                self._answer(201, {"id": "a-chat"})
                return
            number = next(behaviour.numbers)
            behaviour.questions.append((time.monotonic(), self.headers["Authorization"]))
            if number < behaviour.refuses_first:
                self._answer(503, {"code": "queue_full"}, {"Retry-After": str(behaviour.retry_after_s)})
            else:
                self._answer(202, {"run_id": str(number), "stream": f"/api/runs/{number}/stream"})

        def _stream(self, number: int) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self._chunk(": hb\n\n")
            for _ in range(WORDS):
                time.sleep(WORD_S)
                self._chunk('event: delta\ndata: {"text": "word ", "offset": 0}\n\n')
            if behaviour.cuts_every and number % behaviour.cuts_every == 0:
                self.close_connection = True
                return
            kind = "failed" if behaviour.fails_every and number % behaviour.fails_every == 0 else "done"
            last = {"status": kind, "usage": {"output_tokens": WORDS}}
            self._chunk(f"event: {kind}\ndata: {json.dumps({**last, 'code': 'worker_lost'})}\n\n")
            self._chunk("")

        def _chunk(self, text: str) -> None:
            self.wfile.write(f"{len(text):x}\r\n{text}\r\n".encode())
            self.wfile.flush()

        def _answer(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
            payload = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {**(headers or {}), "Content-Length": str(len(payload))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
