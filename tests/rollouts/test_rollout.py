"""Two versions of a model swapped under load, a third that cannot be served, and what everybody sees of it."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from launcher.install import hardware
from launcher.workers import environments
from tests.inference.sources import made_up
from tests.inference.sources.s3_server import BUCKET, KEY, SECRET, S3Server
from tests.long_form import times
from tests.real_model import model_folder
from tests.rollouts.pair import Operator, Pair, running
from tests.sse_client import Reading

CONCURRENT = 50
ENDED = "SELECT state, reason FROM scheduler_rollout WHERE id = %s AND ended_at IS NOT NULL"
ACTIVE = """
    SELECT model.context_window, version.number FROM scheduler_model model
      JOIN scheduler_modelversion version ON version.id = model.version_id
"""
SERVING = """
    SELECT phase, number FROM scheduler_worker worker JOIN scheduler_modelversion version ON version.id = version_id
"""
RUNS = """
    SELECT version.number, min(run.attempt) AS least, max(run.attempt) AS most FROM chat_run run
      JOIN scheduler_modelversion version ON version.id = run.version_id
     WHERE kind = 'reply' GROUP BY version.number ORDER BY version.number
"""
SCRIPT = {"SCRIPT_SLOTS": "16", "SCRIPT_TOKENS_PER_S": "20", "SCRIPT_CHARS": "120", "SCRIPT_SPLIT_CHARACTERS": "1"}


def without_a_tokenizer(folder: Path) -> dict[str, str]:
    """Fields of a version whose files are those of the model, but for one."""
    for path in model_folder().iterdir():
        if path.name != "tokenizer.json":
            (folder / path.name).symlink_to(path)
    (folder / "tokenizer.json").write_text("{}")
    return {"source": str(folder)}


@dataclass(frozen=True)
class Engine:
    """How a pair of workers runs: how long a rollout may take, how long answers are, and what it cannot load."""

    name: str
    wishes: Mapping[str, str]
    of_workers: Callable[[Path], Sequence[Mapping[str, str]]]
    patience_s: float
    answer_tokens: int
    broken: Callable[[Path], dict[str, str]]
    reason: str


SCRIPTED = Engine("scripted", SCRIPT, lambda _: [{}, {}], 120, 100, without_a_tokenizer, "cannot be used")
VLLM = Engine(
    *("vllm", {"SLOTS": "16"}, lambda ready: environments(2, hardware(), ready), 900, 24),
    broken=lambda _: {"context_window": "1000000"},
    reason="max_model_len",
)
# The real engine takes minutes, loads six times and wants the machine for itself.
ENGINES = times(short=1, long=2)


@pytest.fixture(scope="module", params=[SCRIPTED, VLLM][:ENGINES], ids=lambda engine: engine.name)
def engine(request: pytest.FixtureRequest) -> Engine:
    engine: Engine = request.param
    return engine


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("s3"))
    yield server
    server.client.close()
    server.kill()


@pytest.fixture(scope="module")
def pair(engine: Engine, bucket: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    own = engine.of_workers(tmp_path_factory.mktemp("ready"))
    folder = tmp_path_factory.mktemp("pair")
    keys = {"AWS_ENDPOINT_URL_S3": bucket.url, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    wishes = {**engine.wishes, **keys, "AWS_REGION": "us-east-1", "MODEL_CACHE": str(folder / "cache")}
    wishes["BACKGROUND_RUNS"] = "false"
    with running(engine.name, 8, folder, wishes, own) as pair:
        yield pair


class Load:
    """So many people who ask again as soon as they have their answer."""

    def __init__(self, pair: Pair, answer_tokens: int) -> None:
        self._api = pair.api
        self._answer_tokens = answer_tokens
        self._is_over = False
        self.readings: list[Reading] = []

    async def __aenter__(self) -> Load:
        self._people = [asyncio.create_task(self._person(number)) for number in range(CONCURRENT)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_over = True
        await asyncio.gather(*self._people)

    async def _person(self, number: int) -> None:
        turn = 0
        while not self._is_over:
            turn += 1
            asked = await self._api.ask(
                f"Person {number} asks for story {turn}.", max_output_tokens=self._answer_tokens
            )
            reading = Reading()
            while reading.ended is None:
                await self._api.read(asked["stream"], reading)
            self.readings.append(reading)


@pytest.mark.timeout(1800)
def test_versions_are_swapped_under_load_and_a_broken_one_is_rolled_back(
    pair: Pair, engine: Engine, tmp_path: Path
) -> None:
    readings = asyncio.run(_swapped(pair, engine, tmp_path))

    assert Counter(reading.ended.name for reading in readings if reading.ended) == {"done": len(readings)}
    for reading in readings:
        assert reading.ended is not None
        assert hashlib.sha256(reading.text.encode()).hexdigest() == reading.ended.data["sha256"]
        assert not any(event.name == "reset" for event in reading.events), "an answer was begun anew"
    runs = pair.rows(RUNS)
    assert [(run["number"], run["least"], run["most"]) for run in runs] == [(1, 1, 1), (2, 1, 1)], runs


async def _swapped(pair: Pair, engine: Engine, tmp_path: Path) -> list[Reading]:
    async with Load(pair, engine.answer_tokens) as load:
        while len(load.readings) < CONCURRENT // 5:  # noqa: ASYNC110  (what it waits for has no event)
            await asyncio.sleep(0.1)
        await asyncio.to_thread(_as_operator, pair, engine, _roll_out_a_smaller_window)
        await asyncio.to_thread(_as_operator, pair, engine, partial(_try_a_broken_one, tmp_path))
    return load.readings


def _as_operator(pair: Pair, engine: Engine, act: Callable[[Pair, Engine, Operator], None]) -> None:
    with pair.operator() as operator:
        act(pair, engine, operator)


@pytest.mark.timeout(1800)
def test_a_version_comes_out_of_a_bucket(pair: Pair, engine: Engine, bucket: S3Server) -> None:
    # Small weights where nobody loads them.
    made = made_up.files(shards=1) if engine is SCRIPTED else {}
    bucket.put("better", made | {path.name: path.read_bytes() for path in _wanted(engine)})
    with pair.operator() as operator:
        rollout = operator.roll_out(source=f"s3://{BUCKET}/better")
        [ended] = pair.until(lambda: pair.rows(ENDED, rollout), engine.patience_s)
        assert (ended["state"], ended["reason"]) == ("done", "")
    [run] = asyncio.run(_asked(pair, engine))

    assert run.ended
    assert run.ended.name == "done"
    [version] = pair.rows("SELECT digest, manifest FROM scheduler_modelversion WHERE starts_with(source, 's3:')")
    assert len(version["digest"]) == 64
    assert "tokenizer.json" in {name for name, _size, _digest in version["manifest"]}


def _wanted(engine: Engine) -> list[Path]:
    return [
        path
        for path in model_folder().iterdir()
        if path.is_file() and (path.suffix != ".safetensors" or engine is VLLM)
    ]


async def _asked(pair: Pair, engine: Engine) -> list[Reading]:
    asked, reading = await pair.api.ask("Hello?", max_output_tokens=engine.answer_tokens), Reading()
    await pair.api.read(asked["stream"], reading)
    return [reading]


def _roll_out_a_smaller_window(pair: Pair, engine: Engine, operator: Operator) -> None:
    rollout = operator.roll_out(context_window="1024")
    assert "of 2 workers serve version 2" in operator.page(f"/admin/scheduler/rollout/{rollout}/change/")
    [ended] = pair.until(lambda: pair.rows(ENDED, rollout), engine.patience_s)
    assert ended["state"] == "done", ended
    assert pair.rows(ACTIVE) == [{"context_window": 1024, "number": 2}]
    assert "2 of 2 workers serve version 2" in operator.page(f"/admin/scheduler/rollout/{rollout}/change/")


def _try_a_broken_one(tmp_path: Path, pair: Pair, engine: Engine, operator: Operator) -> None:
    rollout = operator.roll_out(**engine.broken(tmp_path))
    [ended] = pair.until(lambda: pair.rows(ENDED, rollout), engine.patience_s)
    assert ended["state"] == "rolled_back", ended
    for page in ("modelversion/", f"rollout/{rollout}/change/"):
        assert engine.reason in operator.page(f"/admin/scheduler/{page}"), page
    assert [(row["phase"], row["number"]) for row in pair.rows(SERVING)] == [("serving", 2)] * 2
    assert pair.rows(ACTIVE) == [{"context_window": 1024, "number": 2}]
