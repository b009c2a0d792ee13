"""An upgrade while prompts are answered: the next release's migrations, on a table of a million messages."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import psycopg
import pytest

from tests.sse_client import Api, Reading, request
from tests.stack.stack import ROOT, Stack, new_users

ROWS = 1_000_000
OF_A_CHAT = 1000
ASKERS = 4
SHORT = 'Hello. [[script {"chars": 20}]]'
SETTINGS = "tests.postgres.next_release.settings"
# Without triggers, those of foreign keys too: in ids that grow, as the product's own do.
FILL = """
    SET session_replication_role = replica;
    INSERT INTO chat_chat (id, owner_id, title)
    SELECT lpad(to_hex(n), 32, '0')::uuid, (SELECT id FROM chat_user WHERE username = 'demo'), 'Filled'
      FROM generate_series(1, {chats}) n;
    INSERT INTO chat_message (id, chat_id, position, role, content, token_count)
    SELECT lpad(to_hex(n), 32, '0')::uuid, lpad(to_hex(n / {of_a_chat} + 1), 32, '0')::uuid, n % {of_a_chat} + 1,
           'user', 'A message among many', 5
      FROM generate_series(0, {rows} - 1) n;
    RESET session_replication_role;
    ANALYZE chat_message
"""
INDEX = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('message_by_age')"
COLUMN = "SELECT count(*), sum(weight) FROM chat_message"


@dataclass
class Asked:
    """What became of the prompts, and how long each took to be taken."""

    port: int
    statuses: Counter[int] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    took_s: list[float] = field(default_factory=list)

    async def ask(self, api: Api, chat_id: str) -> None:
        """Ask, read the answer to its end, and the chat."""
        began_at = time.monotonic()
        path = f"/api/chats/{chat_id}/messages"
        async with request(self.port, "POST", path, api.headers, {"content": SHORT}) as answer:
            self.statuses[answer.status] += 1
            asked = await answer.json()
        self.took_s.append(time.monotonic() - began_at)
        reading = Reading()
        self.statuses[await api.read(asked["stream"], reading)] += 1
        self.ends[reading.ended.name if reading.ended else "none"] += 1
        self.statuses[(await api.call("GET", path))[0]] += 1


@pytest.fixture(scope="module")
def filled(restored: Stack) -> Stack:
    """With so many messages; for tests that come last, since its schema is the next release's then."""
    fill = FILL.format(chats=ROWS // OF_A_CHAT, rows=ROWS, of_a_chat=OF_A_CHAT)
    with psycopg.connect(restored.database_url, autocommit=True) as connection:
        for statement in fill.split(";"):
            connection.execute(statement.encode())
    return restored


@asynccontextmanager
async def asking(stack: Stack) -> AsyncIterator[Asked]:
    """People who ask one question after the other, in a new chat each time, while the block runs."""
    asked, stopped = Asked(stack.port), asyncio.Event()

    async def go_on(api: Api) -> None:
        while not stopped.is_set():
            await asked.ask(api, (await api.post("/api/chats", {}))["id"])

    users = [Api(stack.port, key) for key in new_users(stack.database_url, ASKERS)]
    tasks = [asyncio.create_task(go_on(user)) for user in users]
    try:
        yield asked
    finally:
        stopped.set()
        await asyncio.gather(*tasks)


async def migrated(stack: Stack) -> str:
    """Apply the next release's migrations; what the command had to say."""
    migrate = await asyncio.create_subprocess_exec(
        *(sys.executable, "manage.py", "migrate", "--no-input"),
        cwd=ROOT,
        env={**os.environ, **stack.environ, "DJANGO_SETTINGS_MODULE": SETTINGS},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await asyncio.wait_for(migrate.communicate(), 200)
    assert migrate.returncode == 0, said
    return said.decode()


async def test_a_column_and_an_index_are_added_while_prompts_are_answered_and_somebody_holds_the_table(
    filled: Stack, figures: Callable[[str], None]
) -> None:
    async with asking(filled) as asked:
        with psycopg.connect(filled.database_url) as holder:
            holder.execute("SELECT 1 FROM chat_message LIMIT 1")  # and its transaction stays open
            migrating = asyncio.create_task(migrated(filled))
            await until_it_waited_twice(filled)
        began_at = time.monotonic()
        said = await migrating
        took_s = time.monotonic() - began_at

    assert "A table is in use" in said
    assert "Applying chat.9002_message_by_age... OK" in said
    assert asked.statuses.keys() == {200, 202}
    assert asked.ends.keys() == {"done"}
    assert asked.ends["done"] > 2 * ASKERS
    with psycopg.connect(filled.database_url) as connection:
        assert connection.execute(INDEX).fetchone() == (True,)
        count, weight = connection.execute(COLUMN).fetchone() or (0, 0)
    assert count == weight > ROWS
    figures(
        f"column and index on {ROWS:,} messages within {took_s:.1f} s of the table's release, "
        f"{asked.ends['done']} answers meanwhile, the slowest question taken in {max(asked.took_s):.2f} s"
    )


async def until_it_waited_twice(stack: Stack) -> None:
    """Return when the migration has waited for its lock, let others pass, and waited again."""
    waits = 0
    is_waiting = False
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        async with asyncio.timeout(60):
            while waits < 2 or is_waiting:
                query = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND NOT granted"
                now = connection.execute(query).fetchone() != (0,)
                waits += now and not is_waiting
                is_waiting = now
                await asyncio.sleep(0.05)
