"""An S3 server that lists keys that no honest one would hold; it knows no signatures, and heeds If-Match."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import quote


@contextmanager
def listing(*keys: str, etag_now: str = "listed") -> Iterator[str]:
    """Gives its address; each object is two bytes, and has another ETag by now if one is given."""
    entries = "".join(f"<Contents><Key>{quote(key)}</Key><Size>2</Size><ETag>listed</ETag></Contents>" for key in keys)
    listed = f"<ListBucketResult><EncodingType>url</EncodingType>{entries}</ListBucketResult>".encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked_for = self.headers.get("If-Match")
            changed = asked_for is not None and asked_for != f'"{etag_now}"'
            body = listed if "list-type=2" in self.path else b"<Error><Code>PreconditionFailed</Code></Error>" * changed
            self.send_response(412 if changed else 200)
            self.send_header("Content-Length", str(len(body or b"{}")))
            self.end_headers()
            self.wfile.write(body or b"{}")

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
