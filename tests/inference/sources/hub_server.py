"""As much of the hub as a download asks for: what a repository holds at a commit, and its files."""

from __future__ import annotations

import hashlib
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

REPOSITORY = "Org/Tiny"
TOKEN = "hf_a-secret-token"


class HubServer:
    """One repository with a branch `main`; remembers what it was asked for."""

    def __init__(self, made: dict[str, bytes]) -> None:
        self.commits: dict[str, dict[str, bytes]] = {}
        self.commit(made)
        self.closed = False
        self.asked: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def commit(self, made: dict[str, bytes]) -> str:
        """Files that `main` holds from now on."""
        self.main = hashlib.sha1(repr(sorted(made.items())).encode()).hexdigest()
        self.commits[self.main] = made
        return self.main

    def stop(self) -> None:
        """It is away then."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers, body."""
        self.asked.append(path)
        parts = path.strip("/").split("/")
        if self.closed:
            return 401, {"X-Error-Code": "RepoNotFound"}, b""
        if parts[:2] == ["api", "models"]:
            return self._described("/".join(parts[2:4]), parts[4:])
        if parts[2:3] != ["resolve"]:
            return 404, {}, b""
        commit, name = parts[3], "/".join(parts[4:])
        content = self.commits[commit][name]
        return 200, {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": commit}, content

    def _described(self, repository: str, rest: list[str]) -> tuple[int, dict[str, str], bytes]:
        if repository != REPOSITORY:
            return 404, {"X-Error-Code": "RepoNotFound"}, b""
        commit = rest[1] if len(rest) > 1 and rest[1] != "main" else self.main
        if commit not in self.commits:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        made = self.commits[commit]
        oids = {name: hashlib.sha1(content).hexdigest() for name, content in made.items()}
        files = [{"type": "file", "path": name, "size": len(made[name]), "oid": oids[name]} for name in made]
        siblings = [{"rfilename": name, "size": len(content)} for name, content in made.items()]
        body: Any = files if rest[:1] == ["tree"] else {"id": REPOSITORY, "sha": commit, "siblings": siblings}
        return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()


def _handler(hub: HubServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, headers, body = hub.answer(unquote(urlsplit(self.path).path))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    return Handler
