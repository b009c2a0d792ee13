"""Who asks for everything while servers are away, reads on, and says what was not answered as it should be."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import random
import re
import statistics
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import httpx
import psutil

from tests.faults import asks
from tests.faults.asks import POSTGRES, Ask
from tests.faults.client import Client
from tests.faults.crowd import KEY_HEADER, Seen, Stop, User, Wish
from tests.faults.world import World
from tests.sse_client import Api, EventParser, Reading, request

BROKER = "broker"
# Against hangs, on a machine that is busy with other things.
ANSWER_WITHIN_S = 40.0
AT_ONCE = 6
BACK_WITHIN_S = 60.0
LOOK_EVERY_S = 0.1
A_TOKEN = "t" * 32
# Some 30 s of an answer, of characters that do not end where tokens do.
CHATS = ("chat to delete", "chat to ask in", "chat to ask in once", "chat to ask in by form")
LONG_TEXT = "No outage of a minute is seen by whoever reads this. 狐 🦊 é. " * 5
LONG_SCRIPT = {"text": LONG_TEXT, "split_characters": True}
LONG = f"[[script {json.dumps(LONG_SCRIPT)}]]"
# The same, and it stands whole until it is cancelled, however long the outages before that take.
UNENDING = f"[[script {json.dumps({**LONG_SCRIPT, 'unending': True})}]]"
USAGE = next(ask for ask in asks.API if ask.route == "/api/usage")
A_WISH = Wish(
    text=LONG, chars=len(LONG_TEXT), stop=Stop.NEVER, stop_after_s=0, double=False, second_reader=False, goes_on=False,
    is_cut=False, seed=0,
)  # fmt: skip
COPY_SESSION = """
    INSERT INTO django_session SELECT %s, session_data, expire_date FROM django_session WHERE session_key = %s
    RETURNING true
"""
PROMOTE = """
    WITH promoted AS (
        UPDATE chat_user SET is_staff = true, is_superuser = true, tier_id = demo.tier_id
          FROM (SELECT tier_id FROM chat_user WHERE username = 'demo') demo WHERE username = 'visitor' RETURNING id
    )
    INSERT INTO chat_apikey (user_id, name, shown, digest, scopes)
    SELECT id, 'test', 'pal_', encode(sha256(%s::bytea), 'hex'), '{read,write,admin}' FROM promoted RETURNING true
"""
LOCK = "SELECT true FROM chat_user WHERE id = (SELECT user_id FROM chat_apikey WHERE digest = %s) FOR UPDATE"
IS_LOCKED_OUT = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"
ALL_ENDED = "SELECT count(*) = 0 FROM chat_run WHERE status IN ('queued', 'streaming')"
ANSWERED = """
    SELECT count(*) = 2 AND bool_and(status = 'done') FROM chat_run WHERE kind = 'reply' AND chat_id = ANY(%s::uuid[])
"""
BEING_WRITTEN = "SELECT count(*) >= %s FROM chat_run WHERE first_token_at IS NOT NULL AND status = 'streaming'"
BACKENDS = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"


@dataclass(frozen=True, slots=True)
class Told:
    """An answer, while certain servers were away."""

    ask: Ask
    away: frozenset[str]
    status: int
    headers: Mapping[str, str]
    body: str
    took_s: float


@dataclass(eq=False)
class Cast:
    """One user at a browser and with a key, who is an operator too; a second with runs of her own; what both saw."""

    world: World
    key: str
    session: str
    locked_out: str  # a key, as the readers' are
    readers: Sequence[str]
    seen: Seen = field(default_factory=Seen)
    things: dict[str, str] = field(default_factory=dict)
    normal: dict[str, Told] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    counts: list[Mapping[str, int]] = field(default_factory=list)

    @property
    def base(self) -> str:
        """The web process's address."""
        return f"http://127.0.0.1:{self.world.ports[0]}"

    def headers(self, ask: Ask, scene: Mapping[str, str]) -> dict[str, str]:
        """Who asks, and from a page of ours."""
        sent = {KEY_HEADER: f"{scene['keys']} {ask.name}"} if ask.is_keyed else {}
        if ask.by == "key":
            return sent | {"Authorization": f"Bearer {scene.get('key', self.key)}"}
        session = {"session": self.session, "leaving session": scene.get("leaving session")}.get(ask.by)
        cookies = f"csrftoken={A_TOKEN}" + (f"; sessionid={session}" if session else "")
        return sent | {"Cookie": cookies, "X-CSRFToken": A_TOKEN}

    async def ask(self, ask: Ask, scene: Mapping[str, str], away: frozenset[str] = asks.NOTHING) -> Told:
        """Send one request, and read the answer unless it is endless."""
        headers, path, began_at = self.headers(ask, scene), ask.path(scene), time.monotonic()
        sent: dict[str, Any] = {}
        if ask.body is not None:
            body = {name: scene.get("new name", "") if value == "<name>" else value for name, value in ask.body.items()}
            sent = {"json": body} if ask.is_api else {"data": body}
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S), httpx.AsyncClient(timeout=None, verify=False) as client:
                answer = await client.send(
                    httpx.Request(ask.method, self.base + path, headers=headers, **sent), stream=True
                )
                is_endless = answer.headers.get("content-type", "").startswith("text/event-stream")
                text = "" if is_endless else (await answer.aread()).decode()
                await answer.aclose()
                return Told(ask, away, answer.status_code, answer.headers, text, time.monotonic() - began_at)
        except (TimeoutError, httpx.HTTPError) as failure:
            return Told(ask, away, 0, {}, f"{type(failure).__name__} {failure}", time.monotonic() - began_at)

    async def ask_all(self, scene: Mapping[str, str], *away: str) -> None:
        """Send everything once, some at a time, in no order. Fails on what is not answered as it should be."""
        gate, everything = asyncio.Semaphore(AT_ONCE), [*asks.API, *asks.OPENAI, *asks.PAGES, *asks.of_operators()]
        random.shuffle(everything)

        async def one(ask: Ask) -> Told:
            async with gate:
                return await self.ask(ask, scene, frozenset(away))

        told = await asyncio.gather(*map(one, everything))
        if not self.normal:
            self.normal = {answer.ask.name: answer for answer in told}
        self.told += told
        wrongs = [wrong for answer in told for wrong in self.wrongs(answer)]
        assert wrongs == [], "\n".join(wrongs)

    def wrongs(self, told: Told) -> list[str]:
        """What is not as it should be."""
        ask, normal = told.ask, self.normal.get(told.ask.name, told)
        where = f"{ask.name} without {', '.join(sorted(told.away)) or 'nothing'}: {told.status} {told.body[:200]}"
        if not ask.needs & told.away:
            return [where] * (told.status != (ask.status or normal.status) or told.status >= 500)
        if told.status != 503 or not told.headers.get("retry-after", "").isdigit():
            return [where]
        if ask.is_api:
            return [where] * (not _code(told).endswith("_unavailable"))
        is_readable = "Back in a moment" in told.body and "Traceback" not in told.body
        return [where] * (not is_readable or _policy(told) != _policy(normal))

    async def api(self, method: str, path: str, body: Mapping[str, str] | None = None, key: str | None = None) -> Any:
        """An answer's JSON while all is well."""
        headers = {"Authorization": f"Bearer {key or self.key}"}
        async with request(self.world.ports[0], method, path, headers, body) as answer:
            answered = await answer.json()
            assert answer.status < 300, answered
            return answered

    async def chat(self) -> str:
        """A new one."""
        return str((await self.api("POST", "/api/chats", {}))["id"])

    async def new_key(self) -> str:
        """Its id."""
        return str((await self.api("POST", "/api/keys", {"name": "scene"}))["id"])

    async def run(self, text: str) -> str:
        """A new one, in a chat of its own."""
        path = f"/api/chats/{await self.chat()}/messages"
        return str((await self.api("POST", path, {"content": f"{uuid4()} {text}"}))["run_id"])

    async def scene(self) -> Mapping[str, str]:
        """New things for what is used up by being asked for: chats, runs that have ended, a session, keys."""
        new = {name: await self.chat() for name in CHATS}
        new |= {name: await self.run(asks.SHORT) for name in ("run to retry", "run to retry once")}
        retried = [new["run to retry"], new["run to retry once"]]
        await self.until("SELECT bool_and(status = 'done') FROM chat_run WHERE id = ANY(%s::uuid[])", retried)
        new |= {"run to cancel": await self.run(UNENDING), "new name": f"newcomer-{uuid4()}", "keys": uuid4().hex}
        new["leaving session"] = uuid4().hex
        await self.fetch(COPY_SESSION, new["leaving session"], self.session)
        new |= {name: await self.new_key() for name in ("key to revoke", "key to revoke by form")}
        self.cancelled.append(new["run to cancel"])
        return self.things | new

    async def scenes(self, count: int) -> Sequence[Mapping[str, str]]:
        """So many, with one run that is being written."""
        scenes = [await self.scene() for _ in range(count)]
        live = await self.run(UNENDING)
        self.cancelled.append(live)
        await self.until(BEING_WRITTEN, 1 + count)
        return [{**scene, "live run": live} for scene in scenes]

    async def begin(self, count: int) -> tuple[Sequence[Mapping[str, str]], asyncio.Future[Any]]:
        """So many scenes, and two readers of long answers, which are being written when this returns."""
        scenes = await self.scenes(count)
        reading = asyncio.gather(*map(self.read, self.readers))
        await self.until(BEING_WRITTEN, 1 + count + len(self.readers))
        return scenes, reading

    async def ask_in_peace(self) -> None:
        """Send everything once while all is well, and count what is connected."""
        [scene] = await self.scenes(1)
        await self.ask_all(scene)
        await self.settle()

    async def read(self, key: str) -> None:
        """One user's question, to its answer's end."""
        seed = random.SystemRandom().randrange(1 << 32)
        client = Client(self.world.ports, key, random.Random(seed), self.seen.requests)
        await User(seed, client, self.seen).ask_and_read(replace(A_WISH, text=f"{uuid4()} {LONG}", seed=seed))

    async def until(self, query: str, *values: Any) -> float:
        """Return when the query says yes; how long that took."""
        began_at = time.monotonic()
        while not (await self.fetch(query, *values))[0]:
            assert time.monotonic() - began_at < BACK_WITHIN_S, f"never: {query} {values}\n{self.world.tails()}"
            await asyncio.sleep(LOOK_EVERY_S)
        return time.monotonic() - began_at

    async def until_served(self) -> float:
        """Return when what needs Postgres is served; how long that took."""
        began_at = time.monotonic()
        async with asyncio.timeout(BACK_WITHIN_S):
            while (await self.ask(USAGE, self.things)).status != USAGE.status:  # noqa: ASYNC110  (nobody to wake us)
                await asyncio.sleep(LOOK_EVERY_S)
        return time.monotonic() - began_at

    async def fetch(self, query: str, *values: Any) -> Sequence[Any]:
        """One row."""

        def read() -> Sequence[Any]:
            with self.world.database() as connection:
                return connection.execute(query.encode(), values).fetchone() or ()

        return await asyncio.to_thread(read)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Heard]:
        """The user's feed meanwhile, over as many connections as it takes."""
        heard = Heard()
        task = asyncio.create_task(heard.listen(self.world.ports[0], self.key))
        try:
            yield heard
        finally:
            task.cancel()
            await asyncio.wait({task})

    @asynccontextmanager
    async def in_flight(self) -> AsyncIterator[asyncio.Task[Told]]:
        """A question that is being stored, and waits for a lock of ours."""
        chat = (await self.api("POST", "/api/chats", {}, self.locked_out))["id"]
        question = Ask("POST", asks.MESSAGES, 202, of="chat", body={"content": asks.SHORT})
        digest = hashlib.sha256(self.locked_out.encode()).hexdigest()
        with contextlib.closing(await asyncio.to_thread(self.world.database)) as connection:
            await asyncio.to_thread(connection.execute, b"BEGIN")
            await asyncio.to_thread(connection.execute, LOCK.encode(), [digest])
            scene = {"chat": chat, "key": self.locked_out}
            task = asyncio.create_task(self.ask(question, scene, frozenset({POSTGRES})))
            await self.until(IS_LOCKED_OUT)
            yield task

    async def settle(self) -> None:
        """Cancel what does not end by itself, return when nothing is live, and count what is connected."""
        for run_id in self.cancelled:
            await self.api("POST", f"/api/runs/{run_id}/cancel", {})
        await self.until(ALL_ENDED)
        counts = {"postgres": (await self.fetch(BACKENDS))[0]}
        for server in (self.world.broker, self.world.streams):
            async with self.world.redis_of(server) as redis:
                counts[server.name] = (await redis.info("clients"))["connected_clients"]
        for part in (*self.world.webs, *self.world.workers, *self.world.reapers):
            counts[f"open files of {part.name}"] = psutil.Process(part.pid).num_fds()
        self.counts.append(counts)

    async def assert_once(self, *scenes: Mapping[str, str]) -> None:
        """What was sent with a key, and is sent again, is done once."""
        for scene in scenes:
            keyed = [ask for ask in asks.API if ask.is_keyed]
            assert [(await self.ask(ask, scene)).status for ask in keyed] == [ask.status for ask in keyed]
            runs = "SELECT count(*) FROM chat_run WHERE kind = 'reply' AND chat_id = %s"
            assert await self.fetch(runs, scene["chat to ask in once"]) == (1,)
        await self.until(ALL_ENDED)

    async def assert_whole(self, run_id: str) -> None:
        """Who reads the run from its beginning is told all of it, and its end."""
        reading = Reading()
        await Api(self.world.ports[0], self.key).read(f"/api/runs/{run_id}/stream", reading)
        assert reading.ended
        digest = hashlib.sha256(reading.text.encode()).hexdigest()
        assert (digest, len(reading.text)) == (reading.ended.data["sha256"], reading.ended.data["chars"]), run_id

    def figures(self, how: str) -> str:
        """How long answers took since this was last asked."""
        told, self.told = self.told, []
        kinds: dict[tuple[str, bool], list[float]] = defaultdict(list)
        for answer in told:
            kinds[", ".join(sorted(answer.away)) or "none", answer.status == 503].append(answer.took_s)
        return "\n".join(
            f"{how}: {away} away, {len(took)} requests {'answered 503' if is_refusal else 'served'}: "
            f"median {statistics.median(took):.2f} s, worst {max(took):.2f} s"
            for (away, is_refusal), took in sorted(kinds.items())
        )


class Heard:
    """What a user's feed told."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def listen(self, port: int, key: str) -> None:
        """Listen, and come back whenever the feed ends."""
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                async with request(port, "GET", "/api/events", {"Authorization": f"Bearer {key}"}) as answer:
                    parser = EventParser()
                    async for chunk in answer.chunks():
                        self.names += [event.name for event in parser.feed(chunk)]
            await asyncio.sleep(LOOK_EVERY_S)

    async def until(self, name: str) -> None:
        """Return when that was told."""
        async with asyncio.timeout(BACK_WITHIN_S):
            while name not in self.names:  # noqa: ASYNC110  (nobody to wake us)
                await asyncio.sleep(LOOK_EVERY_S)


def _code(told: Told) -> str:
    """Of a refusal, in the shape that its address has for them; empty for anything else."""
    if told.headers["content-type"] == "application/problem+json":
        return str(json.loads(told.body)["code"])
    is_error = told.ask.route.startswith("/v1/") and told.headers["content-type"] == "application/json"
    return str(json.loads(told.body)["error"]["reason"]) if is_error else ""


def _policy(told: Told) -> str:
    """What the page's scripts may do, but for the one that each page has a number of its own for."""
    return re.sub(r" 'nonce-[^']*'", "", told.headers["content-security-policy"])
