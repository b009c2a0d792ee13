"""The link between two hosts is cut in mid-answer: people see a pause, and what was going on."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable

import pytest

from tests.hosts.conftest import Hosts
from tests.sse_client import Api, Reading
from tests.streaming.telling import until

CUT_S = 20
READERS = 8
# It takes the engine longer than the cut, so that each is in mid-answer before it and has more to come behind it.
ANSWER = json.dumps({"chars": 900})

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("name", ["web", "gpu"])
async def test_an_answer_goes_on_when_a_link_was_cut(hosts: Hosts, name: str, figures: Callable[[str], None]) -> None:
    host = {"web": hosts.network.web, "gpu": hosts.network.gpu}[name]
    readings = [Reading() for _ in range(READERS)]
    asked = [await hosts.api.ask(f"{n} [[script {ANSWER}]]") for n in range(READERS)]
    readers = [
        asyncio.create_task(read_to_the_end(hosts.api, run["stream"], reading))
        for run, reading in zip(asked, readings, strict=True)
    ]
    await until(lambda: all(len(reading.text) > 100 for reading in readings))

    with host.unplugged():
        await asyncio.sleep(CUT_S)
        assert not any(reading.ended for reading in readings)
        before = [reading.text for reading in readings]
    restored_at = time.monotonic()
    await until(lambda: any(len(r.text) > len(text) for r, text in zip(readings, before, strict=True)))
    again_after_s = time.monotonic() - restored_at
    await asyncio.gather(*readers)

    for run, reading in zip(asked, readings, strict=True):
        assert reading.ended is not None
        assert reading.ended.name == "done"
        assert all(event.name != "reset" for event in reading.events)
        assert reading.ended.data["sha256"] == hashlib.sha256(reading.text.encode()).hexdigest()
        stored = (await hosts.api.get(f"/api/chats/{run['chat_id']}/messages"))["results"][-1]["content"]
        assert reading.text == stored
    attempts = [(await hosts.api.get(f"/api/runs/{run['run_id']}"))["attempt"] for run in asked]
    figures(f"link to {name} cut for {CUT_S} s: words again {again_after_s:.1f} s after it, attempts {attempts}")


async def read_to_the_end(api: Api, path: str, reading: Reading) -> None:
    """Read as a browser does, which comes back whenever it is cut off or turned away for now."""
    while not reading.ended:
        try:
            status = await api.read(path, reading)
        except (OSError, asyncio.IncompleteReadError):
            status = 0
        assert status in (0, 200, 503), (status, reading.refusal)
        await asyncio.sleep(0.2)
