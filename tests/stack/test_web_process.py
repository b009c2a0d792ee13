"""The web process by itself: where it listens, what it serves, how it stops."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.sse_client import Reading, request
from tests.stack.stack import ROOT, Process, Stack, web_beside
from tests.streaming.telling import until

STOPS_WITHIN_S = 5
# Takes the engine five seconds: its readers are connected before it may begin.
LONG = 'Slowly, please. [[script {"chars": 400}]]'


async def test_sigterm_ends_open_streams_at_once_and_readers_resume_elsewhere(
    scripted_stack: Stack, second_web: tuple[Process, int]
) -> None:
    process, port = second_web
    api, other = scripted_stack.api, scripted_stack.api
    other.door = port
    readings = [Reading() for _ in range(10)]
    with scripted_stack.worker.paused():
        asked = await api.ask(LONG)
        readers = [asyncio.create_task(other.read(asked["stream"], reading)) for reading in readings]
        await until(lambda: all(reading.events for reading in readings))
    await until(lambda: all(reading.text for reading in readings))

    process.popen.send_signal(signal.SIGTERM)
    stopped_in_s = await asyncio.to_thread(seconds_until_exit, process)
    await asyncio.wait_for(asyncio.gather(*readers), 1)

    assert stopped_in_s < STOPS_WITHIN_S
    assert not any(reading.ended for reading in readings)
    await asyncio.gather(*(api.read(asked["stream"], reading) for reading in readings))
    stored = (await api.get(f"/api/chats/{asked['chat_id']}/messages"))["results"][-1]["content"]
    assert {reading.text for reading in readings} == {stored}


async def test_kill_9_under_a_hundred_streams_costs_their_readers_a_reconnect(
    scripted_stack: Stack, second_web: tuple[Process, int]
) -> None:
    process, port = second_web
    api, other = scripted_stack.api, scripted_stack.api
    other.door = port
    with scripted_stack.worker.paused():
        runs = [await api.ask(LONG) for _ in range(10)]
        readings = [(run, Reading()) for run in runs for _ in range(10)]
        readers = [asyncio.create_task(other.read(run["stream"], reading)) for run, reading in readings]
        await until(lambda: all(reading.events for _, reading in readings))
    await until(lambda: all(reading.text for _, reading in readings))

    process.popen.kill()
    process.popen.wait()
    await asyncio.gather(*readers, return_exceptions=True)

    assert not any(reading.ended for _, reading in readings)
    await asyncio.gather(*(api.read(run["stream"], reading) for run, reading in readings))
    for run, reading in readings:
        stored = (await api.get(f"/api/chats/{run['chat_id']}/messages"))["results"][-1]["content"]
        assert reading.text == stored


def seconds_until_exit(process: Process) -> float:
    """How long it takes to stop."""
    began_at = time.monotonic()
    process.popen.wait(30)
    return time.monotonic() - began_at


async def test_the_admins_styles_are_served(scripted_stack: Stack) -> None:
    async with request(scripted_stack.port, "GET", "/admin/login/") as answer:
        page = (await answer.body()).decode()
    for path in re.findall(r'href="(/static/[^"]+\.css)"', page):
        async with request(scripted_stack.port, "GET", path) as answer:
            assert answer.status == 200, path
            assert answer.headers["content-type"].startswith("text/css")
            assert await answer.body()
    assert "/static/admin/css/base" in page


async def test_a_body_in_chunks_is_read_and_has_a_limit(scripted_stack: Stack) -> None:
    taken = await post_in_chunks(scripted_stack, [b'{"title": ', b'"in pieces"}'])
    broken = await post_in_chunks(scripted_stack, [b"{"])
    endless = await post_in_chunks(scripted_stack, [b" " * 65_536] * 12)

    assert [answer.split()[1] for answer in (taken, broken, endless)] == [b"201", b"400", b"413"]


async def post_in_chunks(stack: Stack, chunks: list[bytes]) -> bytes:
    """What is answered to a new chat whose body has no length."""
    reader, writer = await asyncio.open_connection("127.0.0.1", stack.port)
    head = f"POST /api/chats HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nAuthorization: Bearer {stack.key}\r\n"
    writer.write(f"{head}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
    for chunk in [*chunks, b""]:
        writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_an_upgrade_to_a_websocket_is_not_taken_up(scripted_stack: Stack) -> None:
    wishes = {"Upgrade": "websocket", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version": "13"}
    async with request(scripted_stack.port, "GET", "/sign-in", wishes) as answer:
        assert answer.status == 200


def test_a_taken_port_is_told_in_one_line(scripted_stack: Stack) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        ran = serve(scripted_stack, "--port", str(port))

    assert ran.returncode == 1
    assert (
        ran.stderr == f"cannot listen on 127.0.0.1:{port}: the port is taken; stop what holds it, or choose another\n"
    )


def test_a_host_that_is_not_ours_is_told_in_one_line(scripted_stack: Stack) -> None:
    ran = serve(scripted_stack, "--host", "192.0.2.1", "--port", "1")

    assert ran.returncode == 1
    assert ran.stderr.count("\n") == 1
    assert ran.stderr.startswith("cannot listen on 192.0.2.1:1: ")


def test_a_unix_socket_in_use_is_not_taken_over_and_a_left_over_one_is(scripted_stack: Stack, tmp_path: Path) -> None:
    path = tmp_path / "web.sock"
    with socket.socket(socket.AF_UNIX) as holder:
        holder.bind(str(path))
        holder.listen()
        ran = serve(scripted_stack, "--uds", str(path))
        assert (ran.returncode, ran.stderr) == (1, f"cannot listen on {path}: another process does\n")

    with web_beside(scripted_stack, tmp_path, "--uds", str(path)):
        deadline = time.monotonic() + 30
        while not answers_on(path):
            assert time.monotonic() < deadline
            time.sleep(0.1)


def serve(stack: Stack, *options: str) -> subprocess.CompletedProcess[str]:
    """Run one more web process of the stack's until it exits."""
    command = [sys.executable, "-m", "chatsite.serve", *options]
    return subprocess.run(command, cwd=ROOT, env=stack.environ, capture_output=True, text=True, timeout=60, check=False)


def answers_on(path: Path) -> bool:
    """Whether HTTP is answered on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
        client.sendall(b"GET /admin/login/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return client.recv(1024).startswith(b"HTTP/1.1 200 ")


async def test_styles_and_scripts_may_be_kept_for_good_since_their_names_change_with_them(
    scripted_stack: Stack,
) -> None:
    async with request(scripted_stack.port, "GET", "/sign-in") as answer:
        (style, *_) = re.findall(r'href="(/static/[^"]+\.css)"', (await answer.body()).decode())
    manifest = json.loads((Path(scripted_stack.environ["STATIC_ROOT"]) / "staticfiles.json").read_text())["paths"]
    for path in (style, f"/static/{manifest['chat/page.js']}"):
        async with request(scripted_stack.port, "GET", path) as answer:
            assert answer.status == 200, path
            assert "immutable" in answer.headers["cache-control"]
            text = (await answer.body()).decode()
    imported = re.findall(r'from "\./(\w+)\.([0-9a-f]{12})\.js"', text)
    assert {"conversation", "sidebar"} <= {name for name, _ in imported}
    assert len(imported) == text.count("import {")
