"""A replica that lags by ten seconds: lists come from it, and nobody misses what he was shown."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from chatsite.database.absence import PAUSE_S
from launcher.child import Child
from tests.postgres.standby import Standby, catch_up, server_folder, silenced
from tests.sse_client import Api, Reading
from tests.stack.stack import Process, Stack, new_users, web_beside

LAG_S = 10
# A statement in its log, whichever way it was sent.
STATEMENT = re.compile(r"LOG:  (?:statement|execute [^:]*): SELECT .*")
# Past the triggers: what was changed so is seen by whoever reads the primary, and by nobody else.
UNMARKED = "SET session_replication_role = replica"
PASSWORD = "correct horse battery"
# Begins in a minute: what ends it is the cancel.
ENDLESS = 'Slowly, please. [[script {"first_token_ms": 60000}]]'


@dataclass(frozen=True)
class Site:
    """A web process of the stack's product that knows of the replica, and users of it."""

    web: Process
    port: int
    replica: Standby
    replica_url: str
    primary_url: str
    quiet: Api
    busy: Api

    def in_replica(self, query: str, *values: object) -> Any:
        """One value there."""
        with psycopg.connect(self.replica_url) as connection:
            return (connection.execute(query.encode(), values).fetchone() or [None])[0]

    def change_unmarked(self, statement: str, *values: object) -> None:
        """Change the primary so that nobody is told."""
        with psycopg.connect(self.primary_url) as connection:
            connection.execute(UNMARKED)
            connection.execute(statement.encode(), values)

    def statements(self, act: Callable[[], object]) -> list[str]:
        """What the replica is asked while `act` runs."""
        begin = self.replica.log.stat().st_size
        act()
        return STATEMENT.findall(self.replica.log.read_bytes()[begin:].decode(errors="replace"))

    def get(self, api: Api, path: str) -> Any:
        """What that user is answered, from a synchronous test."""
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", headers=api.headers, timeout=30).raise_for_status()


@pytest.fixture(scope="module")
def standby(scripted_stack: Stack) -> Iterator[tuple[Standby, Child]]:
    with server_folder() as folder:
        settings = [f"recovery_min_apply_delay={LAG_S}s", "log_statement=all"]
        standby = Standby(folder, scripted_stack.database_url, settings)
        server = standby.start()
        try:
            yield standby, server
        finally:
            server.stop()


@pytest.fixture(scope="module")
def site(
    scripted_stack: Stack, standby: tuple[Standby, Child], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """Its users have a chat each, of which the replica knows."""
    primary_url, folder = scripted_stack.database_url, tmp_path_factory.mktemp("web")
    url = urlsplit(standby[0].url)._replace(path=urlsplit(primary_url).path).geturl()
    reading = replace(scripted_stack, environ={**scripted_stack.environ, "DATABASE_REPLICA_URL": url})
    with web_beside(reading, folder) as (web, port):
        quiet, busy = (Api(port, key) for key in new_users(primary_url, 2))
        for user in (quiet, busy):
            asyncio.run(answered(user))
        catch_up(primary_url, url)
        yield Site(web, port, standby[0], url, primary_url, quiet, busy)


async def answered(api: Api, chat_id: str | None = None) -> tuple[str, str]:
    """Ask and read to the end; the chat and the answer."""
    asked, reading = await api.ask("Hello", chat_id), Reading()
    await api.read(asked["stream"], reading)
    assert reading.ended
    return asked["chat_id"], reading.text


async def contents(api: Api, chat_id: str) -> list[str]:
    return [message["content"] for message in (await api.get(f"/api/chats/{chat_id}/messages"))["results"]]


def test_lists_of_who_is_quiet_come_from_the_replica(site: Site) -> None:
    [chat] = site.get(site.quiet, "/api/chats").json()["results"]
    messages = f"/api/chats/{chat['id']}/messages"
    site.change_unmarked("UPDATE chat_chat SET title = 'on the primary only' WHERE id = %s", chat["id"])
    site.change_unmarked("UPDATE chat_message SET content = 'on the primary only' WHERE chat_id = %s", chat["id"])

    assert len(site.statements(lambda: site.get(site.quiet, "/api/chats"))) == 2  # the mark, the list
    assert len(site.statements(lambda: site.get(site.quiet, messages))) == 3  # the mark, the messages, their runs
    assert site.get(site.quiet, "/api/chats").json()["results"][0]["title"] == chat["title"]
    assert "on the primary only" not in site.get(site.quiet, messages).text


async def test_a_user_sees_the_own_question_and_the_answer_at_once(site: Site) -> None:
    api = site.busy
    asked, reading = await api.ask("What is new?"), Reading()
    chat_id = asked["chat_id"]

    assert await contents(api, chat_id) == ["What is new?"]
    listed = (await api.get("/api/chats"))["results"]
    assert listed[0]["id"] == chat_id
    assert len(listed) >= 2

    await api.read(asked["stream"], reading)
    assert await contents(api, chat_id) == ["What is new?", reading.text]
    assert (await api.get("/api/chats"))["results"][0]["live_run_id"] is None
    assert site.in_replica("SELECT count(*) FROM chat_chat WHERE id = %s", chat_id) == 0


async def test_what_is_opened_renamed_and_deleted_is_so_at_once(site: Site) -> None:
    api = site.busy
    opened = (await api.post("/api/chats", {}))["id"]
    assert (await api.get("/api/chats"))["results"][0]["id"] == opened

    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{site.port}", headers=api.headers) as client:
        await client.patch(f"/api/chats/{opened}", json={"title": "Renamed"})
    assert (await api.get("/api/chats"))["results"][0]["title"] == "Renamed"

    await api.call("DELETE", f"/api/chats/{opened}")
    assert opened not in [chat["id"] for chat in (await api.get("/api/chats"))["results"]]
    assert (await api.call("GET", f"/api/chats/{opened}/messages"))[0] == 404


async def test_no_stale_run_is_acted_on(site: Site) -> None:
    api = site.busy
    asked, reading = await api.ask(ENDLESS), Reading()
    chat, run = f"/api/chats/{asked['chat_id']}", f"/api/runs/{asked['run_id']}"
    catch_up(site.primary_url, site.replica_url)
    assert site.in_replica("SELECT status FROM chat_run WHERE id = %s", asked["run_id"]) in {"queued", "streaming"}
    await api.post(f"{run}/cancel", {})
    await api.read(asked["stream"], reading)

    # There it is live yet; here it is over, and a question and a retry are taken.
    assert site.in_replica("SELECT status FROM chat_run WHERE id = %s", asked["run_id"]) in {"queued", "streaming"}
    assert (await api.get("/api/chats"))["results"][0]["live_run_id"] is None
    assert [each["run"]["status"] for each in (await api.get(f"{chat}/messages"))["results"]] == ["cancelled"]
    assert (await api.call("POST", f"{run}/cancel"))[0] == 200
    again = await api.post(f"{run}/retry", {})
    # Of this one the replica knows nothing, and a second one is refused for it.
    assert (await api.get("/api/chats"))["results"][0]["live_run_id"] == again["run_id"]
    assert (await api.call("POST", f"{run}/retry"))[0] == 409
    async with api.stream(again["stream"]) as stream:
        assert stream.status == 200
    await api.post(f"/api/runs/{again['run_id']}/cancel", {})


def test_a_page_shows_what_its_user_has_just_written(site: Site) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{site.port}", follow_redirects=True, timeout=30) as browser:

        def send(address: str, **form: str) -> httpx.Response:
            token = browser.cookies["csrftoken"]
            return browser.post(address, data={**form, "csrfmiddlewaretoken": token}).raise_for_status()

        browser.get("/sign-up")
        send("/sign-up", username=f"new-{time.time_ns()}", password1=PASSWORD, password2=PASSWORD)
        page = send("/ask", content="A question of mine")
        assert "A question of mine" in page.text
        catch_up(site.primary_url, site.replica_url)
        assert site.statements(lambda: browser.get("/"))
        send(page.url.path + "/ask", content="And another question")
        assert "And another question" in browser.get(page.url.path).text


def test_with_a_silent_replica_lists_come_from_the_primary(
    site: Site, standby: tuple[Standby, Child], figures: Callable[[str], None]
) -> None:
    took_s = []
    begin = site.web.log.stat().st_size
    with silenced(standby[1]):
        for _ in range(20):
            began_at = time.monotonic()
            assert "on the primary only" in site.get(site.quiet, "/api/chats").text
            took_s.append(time.monotonic() - began_at)
    figures(f"replica silent: first list {took_s[0]:.2f} s, median of those after it {sorted(took_s[1:])[9]:.3f} s")

    # Who waits for it says so; the others know.
    logged = site.web.log.read_bytes()[begin:].decode()
    assert 1 <= logged.count("replica.away") <= 2 + sum(took_s) / PAUSE_S
    until_read_again(site)


def until_read_again(site: Site) -> None:
    give_up_at = time.monotonic() + 60
    while not site.statements(lambda: site.get(site.quiet, "/api/chats")):
        assert time.monotonic() < give_up_at
        time.sleep(0.2)


def test_with_a_replica_that_is_gone_lists_come_from_the_primary(site: Site, standby: tuple[Standby, Child]) -> None:
    standby[1].stop()

    for _ in range(5):
        assert "on the primary only" in site.get(site.quiet, "/api/chats").text
