"""Whoever starts processes one behind the other waits until each has come up."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from deploy.ready import main


def test_a_file_is_waited_for(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    assert main([str(ready)]) == 1

    threading.Timer(0.3, ready.touch).start()

    assert main([str(ready), "--within", "30"]) == 0


def test_an_address_that_answers_503_or_nothing_is_not_ready() -> None:
    answers = [503, 200]

    class Web(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(answers.pop(0))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Web) as web:
        address = f"http://127.0.0.1:{web.server_port}/readyz"
        threading.Thread(target=web.serve_forever, args=(0.05,), daemon=True).start()
        assert main([address]) == 1
        assert main([address, "--within", "30"]) == 0
        web.shutdown()
    assert main([address]) == 1
