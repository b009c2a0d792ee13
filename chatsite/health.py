"""Whether this process lives, `/healthz`, and whether it can serve, `/readyz`: for whatever restarts and balances it.

Both are answered before Django looks at a request: a probe knows no host name, and needs none of the threads and
connections that an outage may have taken.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpResponse, JsonResponse
from redis import RedisError

from chat import problems
from inference import servers

logger = logging.getLogger(__name__)

ALIVE, READY = "/healthz", "/readyz"
OK = "ok"
# For all checks together: below what probes usually wait.
PATIENCE_S = 3.0
REDIS_TIMEOUT_S = 1.0

Check = Callable[[], str]


class Health:
    """Answers probes; its checks run one after the other in a thread of their own. For one event loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "health")
        self._looking: asyncio.Future[Mapping[str, str]] | None = None
        self._is_migrated = False
        self.is_stopping = False

    async def answer(self, path: str, method: str) -> HttpResponse | None:
        """What a probe is told; None for any other address."""
        if path not in {ALIVE, READY}:
            return None
        if method not in {"GET", "HEAD"}:
            return problems.response(problems.MethodNotAllowed(headers={"Allow": "GET, HEAD"}))
        if path == ALIVE:
            return _told({"status": OK})
        return _readiness({"process": "it was told to stop"} if self.is_stopping else await self._checks())

    async def _checks(self) -> Mapping[str, str]:
        # However many probes come, there is one look at a time, and who waits too long for it says so.
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().run_in_executor(self._thread, self._look)
        try:
            return await asyncio.wait_for(asyncio.shield(self._looking), PATIENCE_S)
        except TimeoutError:
            return {"database": f"no answer within {PATIENCE_S:.0f} s"}

    def _look(self) -> Mapping[str, str]:
        """Each thing that is needed: `ok`, or what is wrong with it."""
        try:
            checks: Mapping[str, Check] = {
                "database": _database,
                "migrations": self._migrations,
                "broker": lambda: _redis(settings.BROKER_URL),
                "streams": lambda: _redis(settings.STREAMS_URL),
            }
            return {name: check() for name, check in checks.items()}
        finally:
            connection.close()

    def _migrations(self) -> str:
        if not self._is_migrated:
            try:
                executor = MigrationExecutor(connection)
                missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
            except DatabaseError as failure:
                return _said(failure)
            if missing:
                return f"{len(missing)} not applied: run manage.py migrate"
            self._is_migrated = True
        return OK


def _database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as failure:
        return _said(failure)
    return OK


def _redis(url: str) -> str:
    try:
        servers.ping(url, REDIS_TIMEOUT_S)
    except (RedisError, OSError) as failure:
        return _said(failure)
    return OK


def _said(failure: Exception) -> str:
    # Its name and no more: a text may have addresses and names in it, and anybody may ask.
    logger.warning("health.failed %s: %s", type(failure).__name__, failure)
    return f"{type(failure).__name__}; the log says more"


def _readiness(checks: Mapping[str, str]) -> HttpResponse:
    """503 where nothing can be served. Without Redis, which all processes share, history still can."""
    wrong = {name for name, found in checks.items() if found != OK}
    if not wrong:
        return _told({"status": "ready", "checks": checks})
    if wrong <= {"broker", "streams"}:
        return _told({"status": "degraded", "checks": checks})
    return _told({"status": "unready", "checks": checks}, HTTPStatus.SERVICE_UNAVAILABLE)


def _told(body: Mapping[str, Any], status: HTTPStatus = HTTPStatus.OK) -> HttpResponse:
    return JsonResponse(body, status=status, headers={"Cache-Control": "no-store"})
