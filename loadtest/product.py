"""A Palaver for the test alone: throw-away servers, web, reaper and a GPU worker, as `make run` starts it."""

from __future__ import annotations

import importlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg

from launcher import workers
from launcher.install import hardware
from loadtest.options import BadOptions, Options
from loadtest.target import Target, TargetProblem, shared_out
from tests.faults.world import Plan, World, new_folder, remove, running
from tests.real_model import model_folder

# The stack for tests takes limits away; of a tier's, only those of single users are in this test's way.
TIERS_AS_MADE = """
    UPDATE scheduler_tier SET concurrency = %(concurrency)s, shed_at_percent = %(shed_at_percent)s,
           queue_depth = DEFAULT, queue_deadline_s = DEFAULT
     WHERE slug = %(slug)s
"""
MODELS_AS_MADE = "UPDATE scheduler_model SET queue_depth = DEFAULT"
SET_TIER = """
    UPDATE chat_user SET tier_id = %s FROM chat_apikey
     WHERE chat_apikey.user_id = chat_user.id AND digest = encode(sha256(%s::bytea), 'hex')
"""
SCRIPT: Mapping[str, str] = {"SCRIPT_CHARS": "4000", "SCRIPT_TOKENS_PER_S": "20", "SCRIPT_FIRST_TOKEN_MS": "50"}
LIMITS = (
    "lifted: users' token budgets, requests a minute, streams at a time",
    "kept: runs at a time, longest answers, queue depths, shedding and deadlines, as the tiers come",
)


@asynccontextmanager
async def opened(options: Options) -> AsyncIterator[Target]:
    """One that serves, with a user for each that will come. Raises `StackBroken`, `TargetProblem`, `BadOptions`."""
    if not (Path(os.environ.get("MODEL_PATH", "")) / "tokenizer.json").is_file():
        raise TargetProblem("MODEL_PATH names no model's folder. Use make loadtest, which sets it.")
    folder = new_folder()
    plan = Plan(1, webs=1, reapers=1, wishes=_wishes(options.engine, folder), is_watched=False)
    try:
        async with running(plan, folder) as world:
            keys = _users(world, shared_out(options.most_users, options.tiers))
            url = f"http://127.0.0.1:{world.ports[0]}"
            yield Target(url, keys, model_folder().resolve().name, options.engine, LIMITS, is_ours=True)
    finally:
        remove(folder)


def _wishes(engine: str, folder: Path) -> Mapping[str, str]:
    wishes = {"ENGINE": engine, "LOG_LEVEL": "WARNING"}
    if engine == "scripted":
        return {**wishes, **{name: value for name, value in SCRIPT.items() if name not in os.environ}}
    return {**wishes, **_place(folder)}


def _place(folder: Path) -> Mapping[str, str]:
    """A GPU of the worker's own; else all cores but one, on which the load and the servers are."""
    if hardware() == "cpu":
        threads = max(1, len(os.sched_getaffinity(0)) - 1)
        return {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads)), "VLLM_LOGGING_LEVEL": "ERROR"}
    [place] = workers.environments(1, "gpu", folder)
    return {name: value for name, value in place.items() if name != "READY_FILE"}


def _users(world: World, tiers: Sequence[str]) -> Sequence[str]:
    keys = world.users(len(tiers))
    with world.database() as database:
        for limits in _limits_as_made():
            database.execute(TIERS_AS_MADE, limits)
        database.execute(MODELS_AS_MADE)
        try:
            for tier, key in zip(tiers, keys, strict=True):
                database.execute(SET_TIER, [tier, key.encode()])
        except psycopg.errors.ForeignKeyViolation as error:
            known = database.execute("SELECT slug FROM scheduler_tier ORDER BY weight").fetchall()
            raise BadOptions(f"--tiers: there are only {', '.join(slug for (slug,) in known)}") from error
    return keys


def _limits_as_made() -> Sequence[Mapping[str, object]]:
    """What the product's own first rows are made with."""
    first = importlib.import_module("scheduler.migrations.0002_first_tiers").TIERS
    budgets = importlib.import_module("scheduler.migrations.0004_first_budgets").BUDGETS
    return [{**tier, **budgets[tier["slug"]]} for tier in first]
