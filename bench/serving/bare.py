"""`python -m bench.serving.bare PORT`: an ASGI application with nothing behind it, which answers as the engine would.

Both kinds of API: as the bare parts that our product and the load generator are held against, and as the engine behind
servers that pass on what another makes. Tokens come when the scripted engine's would: those of a long answer at a
reader's pace, those of a short one faster.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn

from bench.serving.script import FIRST_TOKEN_MS, LONG_TOKENS_PER_S, TOKEN, TOKENS, TOKENS_PER_S

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]
_numbers = itertools.count()
_asked: dict[str, int] = {}  # tokens to come, by run


async def application(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Answer anything."""
    if scope["type"] != "http":
        return
    body = await _body(receive)
    path: str = scope["path"]
    if path.startswith("/api/chats/"):
        await _accept(send, body.get("max_output_tokens") or TOKENS)
    elif path.startswith("/api/runs/"):
        await _stream(send, _deltas(_asked.pop(path.split("/")[3])), [b"event: done\ndata: {}\n\n"])
    elif path.endswith("/chat/completions"):
        await _complete(send, body)
    else:
        await _answer(send, 200, {"data": [{"id": "default", "object": "model"}], "object": "list"})


async def _body(receive: Receive) -> dict[str, Any]:
    pieces = b""
    while True:
        message = await receive()
        pieces += message.get("body", b"")
        if not message.get("more_body"):
            return dict(json.loads(pieces)) if pieces else {}


async def _accept(send: Send, tokens: int) -> None:
    run_id = str(next(_numbers))
    _asked[run_id] = tokens
    await _answer(send, 202, {"run_id": run_id, "message_id": run_id, "stream": f"/api/runs/{run_id}/stream"})


async def _complete(send: Send, body: dict[str, Any]) -> None:
    tokens = body.get("max_tokens") or TOKENS
    if body.get("stream"):
        words = [_chunk({"content": TOKEN})] * tokens
        await _stream(send, words, [_chunk({}, "stop"), b"data: [DONE]\n\n"])
    else:
        message = {"role": "assistant", "content": TOKEN * tokens}
        await _answer(send, 200, {"object": "chat.completion", "choices": [{"index": 0, "message": message}]})


def _chunk(delta: dict[str, str], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    whole = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "default", "choices": [choice]}
    return b"data: " + json.dumps(whole).encode() + b"\n\n"


def _deltas(tokens: int) -> list[bytes]:
    deltas = [{"text": TOKEN, "offset": number * len(TOKEN)} for number in range(tokens)]
    return [b"event: delta\ndata: " + json.dumps(delta).encode() + b"\n\n" for delta in deltas]


async def _stream(send: Send, words: list[bytes], end: list[bytes]) -> None:
    """The first word after the first token's time, then one a step; the end comes with the last."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    loop = asyncio.get_running_loop()
    due = loop.time() + FIRST_TOKEN_MS / 1000
    distance_s = 1 / (LONG_TOKENS_PER_S if len(words) > TOKENS else TOKENS_PER_S)
    for word in words:
        await asyncio.sleep(due - loop.time())
        due += distance_s
        await send({"type": "http.response.body", "body": word, "more_body": True})
    for event in end:
        await send({"type": "http.response.body", "body": event, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _answer(send: Send, status: int, body: dict[str, Any]) -> None:
    payload = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(payload)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": payload})


def main() -> None:
    """Serve until told to stop."""
    uvicorn.run(application, port=int(sys.argv[1]), log_level="warning", access_log=False, lifespan="off")


if __name__ == "__main__":
    main()
