"""The Python client, against a running server and over lines that are not what they should be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

import httpx
import pytest

from clients.python.palaver_client import (
    Conflict,
    Ended,
    NotAllowed,
    NotAnswered,
    NotFound,
    OverLimit,
    Palaver,
    Patience,
    Reading,
    Reset,
    Text,
    TextMismatch,
    Told,
    Unreachable,
)
from launcher.child import free_port
from tests.browser.wire import wire_to
from tests.clients.meddling import Deaf, Meddling, Refusing, cut_after, replaced
from tests.stack.stack import ROOT, Stack

# Line breaks that are none in a stream of events, and characters of several code points.
ODD = "data: one\u2028two\u2029three\x85four\n\nevent: done\r\n👩‍👩‍👧‍👦 سلام e\u0301 "
HASTY = Patience(total_s=20, first_pause_s=0.02, longest_pause_s=0.1, silence_s=10)
CLIENT = ROOT / "clients" / "python" / "palaver_client.py"
ENDLESS = f"[[script {json.dumps({'chars': 2000})}]]"
CUTS = 6
Connect = Callable[..., Palaver]


def question(text: str | None = None, **script: Any) -> str:
    """A question whose answer the scripted engine is told."""
    return f"[[script {json.dumps({**script, **({'text': text} if text else {})})}]]"


@pytest.fixture
def connect(scripted_stack: Stack) -> Iterator[Connect]:
    """Makes clients of the demo account, by a line, with a patience."""
    made = []

    def client(line: httpx.BaseTransport | None = None, patience: Patience = HASTY, port: int = 0) -> Palaver:
        address = f"http://127.0.0.1:{port or scripted_stack.port}"
        made.append(Palaver(address, scripted_stack.key, patience=patience, transport=line))
        return made[-1]

    yield client
    for each in made:
        each.close()


def problem(status: int, code: str, headers: Mapping[str, str]) -> httpx.Response:
    """A refusal as the server makes them."""
    told = {"status": status, "code": code, "detail": "Wait."}
    return httpx.Response(status, json=told, headers={**headers, "Content-Type": "application/problem+json"})


def stored(stack: Stack, chat_id: str) -> list[Mapping[str, Any]]:
    """The chat's messages, as the server has them."""
    headers = {"Authorization": f"Bearer {stack.key}"}
    answer = httpx.get(f"http://127.0.0.1:{stack.port}/api/chats/{chat_id}/messages", headers=headers)
    results: list[Mapping[str, Any]] = answer.json()["results"]
    return results


def environment(stack: Stack) -> dict[str, str]:
    """What a program knows of the server."""
    return os.environ | {"PALAVER_URL": f"http://127.0.0.1:{stack.port}", "PALAVER_KEY": stack.key}


def read(palaver: Palaver, content: str) -> tuple[str, Reading]:
    """Ask in a new chat and read to the end; the chat's id, and what was read."""
    chat_id, reading = palaver.open_chat(), Reading()
    for _ in palaver.stream(palaver.ask(chat_id, content), reading):
        pass
    return chat_id, reading


def test_an_answer_comes_in_pieces_and_whole(connect: Connect, scripted_stack: Stack) -> None:
    palaver = connect()
    chat_id, reading = palaver.open_chat(), Reading()
    run = palaver.ask(chat_id, question(ODD))

    *pieces, ended = palaver.stream(run, reading)

    texts = [event.text for event in pieces if isinstance(event, Text)]
    assert len(texts) > 1
    assert "".join(texts) == reading.text == stored(scripted_stack, chat_id)[-1]["content"] == ODD
    assert isinstance(ended, Ended)
    assert (ended.status, ended.usage["output_tokens"] > 0) == ("done", True)
    # Who has had the last event is told 204.
    assert list(palaver.stream(run, Reading(last_id=reading.last_id))) == []
    assert palaver.answer(chat_id, question("Yes."), max_output_tokens=3) == "Yes"


@pytest.mark.parametrize("size_bytes", [70, 250, 480])
def test_cuts_in_mid_answer_lose_and_repeat_nothing(connect: Connect, scripted_stack: Stack, size_bytes: int) -> None:
    line = Meddling(cut_after(size_bytes, CUTS))

    chat_id, reading = read(connect(line), question(ODD * 2))

    assert reading.text == stored(scripted_stack, chat_id)[-1]["content"] == ODD * 2
    assert len([request for request in line.asked if request.method == "GET"]) == CUTS + 1


def test_a_connection_that_has_gone_dead_is_given_up(connect: Connect, scripted_stack: Stack) -> None:
    with wire_to(scripted_stack.port) as wire:
        palaver = connect(patience=replace(HASTY, silence_s=2), port=wire.server_address[1])
        reading, cuts = Reading(), 0
        for event in palaver.stream(palaver.ask(palaver.open_chat(), question(ODD * 2)), reading):
            if isinstance(event, Text) and not cuts:
                wire.cut()
                cuts += 1

    assert (reading.text, cuts) == (ODD * 2, 1)


def test_a_question_whose_answer_is_lost_is_asked_once(connect: Connect, scripted_stack: Stack) -> None:
    line = Deaf()

    chat_id, reading = read(connect(line), question("Once."))

    assert [message["content"] for message in stored(scripted_stack, chat_id)] == [question("Once."), "Once."]
    assert reading.text == "Once."
    keys = [request.headers["Idempotency-Key"] for request in line.asked if request.method == "POST"]
    assert (len(keys), len(set(keys))) == (4, 2)


def test_a_limit_is_waited_for_as_long_as_it_says(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    refusal = problem(429, "too_many_requests", {"Retry-After": "7"})

    assert connect(Refusing(refusal)).open_chat()
    assert slept == [7]


def test_a_limit_that_outlasts_the_patience_is_told(connect: Connect) -> None:
    refusal = problem(429, "budget_exhausted", {"Retry-After": "3600"})

    with pytest.raises(OverLimit) as told:
        connect(Refusing(refusal)).open_chat()

    assert (told.value.status, told.value.code, told.value.retry_after_s) == (429, "budget_exhausted", 3600)


def test_a_cancelled_run_ends_with_what_there_is(connect: Connect, scripted_stack: Stack) -> None:
    palaver, reading, ended = connect(), Reading(), None
    chat_id = palaver.open_chat()
    run = palaver.ask(chat_id, ENDLESS)
    for event in palaver.stream(run, reading):
        if isinstance(event, Text):
            palaver.cancel(run)
        ended = event

    assert isinstance(ended, Ended)
    assert ended.status == "cancelled"
    assert reading.text == stored(scripted_stack, chat_id)[-1]["content"]


@pytest.mark.parametrize(("old", "new"), [(b"Paris", b"Lyons"), (b"Paris", b"Lyon"), (b"event: delta", b"event: new")])
def test_an_answer_that_was_changed_on_its_way_is_no_answer(connect: Connect, old: bytes, new: bytes) -> None:
    palaver = connect(Meddling(replaced(old, new)))

    with pytest.raises(TextMismatch):
        palaver.answer(palaver.open_chat(), question("Paris", tokens_per_step=8))


def test_a_run_that_fails_is_no_answer(connect: Connect) -> None:
    palaver = connect()

    with pytest.raises(NotAnswered) as told:
        palaver.answer(palaver.open_chat(), question("Paris", failure="generation_failed"))

    assert (told.value.code, told.value.ended.status) == ("generation_failed", "failed")


def test_refusals_say_what_the_server_said(connect: Connect, scripted_stack: Stack) -> None:
    palaver = connect()
    with pytest.raises(NotFound) as unknown:
        palaver.ask(str(uuid4()), "Hi")
    chat_id = palaver.open_chat()
    run = palaver.ask(chat_id, ENDLESS)
    with pytest.raises(Conflict) as busy:
        palaver.ask(chat_id, "Hi")
    palaver.cancel(run)
    with (
        pytest.raises(NotAllowed) as nobody,
        Palaver(f"http://127.0.0.1:{scripted_stack.port}", "pal_none") as stranger,
    ):
        stranger.open_chat()

    assert (unknown.value.status, unknown.value.code) == (404, "not_found")
    assert (busy.value.code, busy.value.data["run_id"]) == ("chat_busy", run.id)
    assert "Wait for the run to end" in busy.value.detail
    assert (nobody.value.status, nobody.value.code) == (401, "not_authenticated")


def test_a_server_that_is_not_there_is_given_up() -> None:
    impatient = replace(HASTY, total_s=0.2)
    with pytest.raises(Unreachable), Palaver(f"http://127.0.0.1:{free_port()}", "key", patience=impatient) as palaver:
        palaver.open_chat()


def test_what_a_reset_voids_is_taken_back() -> None:
    reading = Reading()
    told = [
        Told("delta", "1", {"text": "one two", "offset": 0}),
        Told("reset", "2", {"offset": 4}),
        Told("delta", "3", {"text": "2", "offset": 4}),
    ]

    news = [reading.take(each) for each in told]

    assert news == [Text("one two", 0), Reset(4), Text("2", 4)]
    assert (reading.text, reading.last_id) == ("one 2", "3")


def test_the_command_prints_the_answer_and_its_interruption_cancels(scripted_stack: Stack) -> None:
    environ, command = environment(scripted_stack), [sys.executable, str(CLIENT)]
    whole = subprocess.run([*command, question(ODD)], env=environ, capture_output=True, timeout=60, check=True)
    with subprocess.Popen([*command, ENDLESS], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as cut:
        assert cut.stdout
        assert cut.stdout.read(1)
        cut.send_signal(signal.SIGINT)
        _, complaint = cut.communicate(timeout=60)

    assert whole.stdout.decode() == ODD + "\n"
    assert (cut.returncode, complaint.decode()) == (130, "palaver: The run was cancelled. (cancelled)\n")


def test_the_example_of_its_readme_works(scripted_stack: Stack) -> None:
    example = (CLIENT.parent / "README.md").read_text().split("```python\n")[1].split("```")[0]
    ran = subprocess.run(
        [sys.executable, "-c", example],
        cwd=CLIENT.parent,
        env=environment(scripted_stack),
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert (ran.returncode, ran.stderr) == (0, b"")
    assert len(ran.stdout.decode()) > 1
