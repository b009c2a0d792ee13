"""Models in a bucket, by a real S3 server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from inference.sources import Manifest, Source, SourceError, fetch, fetch_prompt_files
from inference.sources.errors import (
    AccessDenied,
    BadSource,
    DiskFull,
    FilesDiffer,
    NotFound,
    NotServable,
    Unreachable,
)
from inference.sources.s3 import Bucket, Listed
from tests.inference.sources import made_up
from tests.inference.sources.conftest import MANY, MODEL
from tests.inference.sources.s3_server import BUCKET, SECRET, S3Server, free_port
from tests.inference.sources.wire import Wire

MODEL_BYTES = sum(map(len, made_up.needed(MODEL).values()))
ROOT = Path(__file__).resolve().parents[3]


def _fetching(source: Source, cache: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.inference.sources.fetching_process", str(source), str(cache)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, env=dict(os.environ))


def _listed(prefix: str) -> list[Listed]:
    with Bucket(Source.parse(f"s3://{BUCKET}/{prefix}")) as bucket:
        return bucket.list()


def _whole_folders(cache: Path) -> list[Path]:
    return [path for path in cache.glob("*/*/*/model") if path.parent.suffix != ".draft"]


def test_a_worker_gets_the_needed_files_and_sees_how_far_it_is(tiny: Source, cache: Path) -> None:
    told: list[tuple[int, int]] = []

    fetched = fetch(tiny, cache=cache, on_progress=lambda *progress: told.append(progress))

    assert made_up.read(fetched.folder) == made_up.needed(MODEL)
    assert fetched.manifest.size_bytes == MODEL_BYTES
    assert told[0] == (0, MODEL_BYTES)
    assert told[-1] == (MODEL_BYTES, MODEL_BYTES)


def test_a_worker_that_starts_again_asks_the_server_nothing(
    tiny: Source, wire: Wire, s3: S3Server, cache: Path
) -> None:
    first = fetch(tiny, cache=cache)
    wire.count_anew()

    again = fetch(tiny, cache=cache, expected=Manifest.from_json(json.loads(json.dumps(first.manifest.as_json()))))

    assert again == first
    assert wire.gets == 0


def test_without_a_manifest_it_only_lists(tiny: Source, wire: Wire, cache: Path) -> None:
    first = fetch(tiny, cache=cache)
    wire.count_anew()

    assert fetch(tiny, cache=cache) == first
    assert wire.gets == 1


def test_a_web_process_gets_only_the_small_files(tiny: Source, wire: Wire, cache: Path, tmp_path: Path) -> None:
    manifest = fetch(tiny, cache=tmp_path / "worker's").manifest
    wire.count_anew()

    folder = fetch_prompt_files(tiny, cache=cache, expected=manifest)

    assert made_up.read(folder).keys() == {"config.json", "tokenizer.json", "tokenizer_config.json"}
    assert wire.carried_bytes < made_up.SHARD_BYTES


def test_a_web_process_beside_a_worker_uses_its_files(tiny: Source, wire: Wire, cache: Path) -> None:
    fetched = fetch(tiny, cache=cache)
    wire.count_anew()

    assert fetch_prompt_files(tiny, cache=cache, expected=fetched.manifest) == fetched.folder
    assert wire.gets == 0


def test_more_objects_than_one_listing_holds(wire: Wire, cache: Path) -> None:
    names = {listed.name for listed in _listed("many")}
    folder = fetch_prompt_files(Source.parse(f"s3://{BUCKET}/many"), cache=cache)

    assert (folder / "tokenizer.json").exists()
    assert names == {name for name in MANY if "/" not in name}


def test_many_parts_of_a_large_object_come_each_to_its_place(
    s3: S3Server, wire: Wire, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = made_up.files(shards=1, shard_bytes=3_000_000)
    monkeypatch.setattr("inference.sources.s3.PART_BYTES", 1 << 16)
    s3.put("large", large)
    wire.count_anew()

    fetched = fetch(Source.parse(f"s3://{BUCKET}/large"), cache=cache)

    assert made_up.read(fetched.folder) == made_up.needed(large)
    assert wire.gets > 45


@pytest.mark.parametrize("key", ["alice", "mallory", None])
def test_wrong_or_no_credentials_are_told_without_naming_them(
    key: str | None, tiny: Source, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-wrong-secret")
    if key:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    else:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

    with pytest.raises(AccessDenied) as refused:
        fetch(tiny, cache=cache)

    for secret in ("a-wrong-secret", "mallory", "alice", "http"):
        assert secret not in str(refused.value)


@pytest.mark.parametrize(
    ("source", "error"),
    [("s3://no-such-bucket/tiny", NotFound), (f"s3://{BUCKET}/nothing-here", NotFound), (f"s3://{BUCKET}", NotFound)],
)
def test_what_is_not_there_is_named(source: str, error: type[SourceError], wire: Wire, cache: Path) -> None:
    with pytest.raises(error, match=source):
        fetch(Source.parse(source), cache=cache)


def test_a_bucket_has_no_revisions(tiny: Source, cache: Path) -> None:
    with pytest.raises(BadSource, match="no revisions"):
        fetch(tiny, "main", cache=cache)


def test_only_safetensors_are_served(s3: S3Server, wire: Wire, cache: Path) -> None:
    s3.put("old", {name: MODEL[name] for name in ("config.json", "tokenizer.json", "pytorch_model.bin")})

    with pytest.raises(NotServable, match=r"no \*\.safetensors, but pytorch_model\.bin"):
        fetch(Source.parse(f"s3://{BUCKET}/old"), cache=cache)


def test_a_server_that_is_away_is_told(tiny: Source, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{free_port()}")

    with pytest.raises(Unreachable, match="cannot be reached"):
        fetch(tiny, cache=cache)


def test_a_fetch_goes_on_where_the_servers_death_stopped_it(
    tiny: Source, wire: Wire, s3: S3Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference.sources.s3_folder.FILES_AT_ONCE", 1)
    wire.once_carried(made_up.SHARD_BYTES * 3 // 2, s3.kill)

    with pytest.raises(Unreachable):
        fetch(tiny, cache=cache)
    assert not _whole_folders(cache)

    s3.start()
    wire.count_anew()
    fetched = fetch(tiny, cache=cache)
    assert made_up.read(fetched.folder) == made_up.needed(MODEL)
    assert wire.carried_bytes < made_up.SHARD_BYTES * 3 // 2


def test_an_object_that_changed_after_the_version_was_made_is_named(
    tiny: Source, s3: S3Server, cache: Path, tmp_path: Path
) -> None:
    expected = fetch(tiny, cache=cache).manifest
    name = "model-00002-of-00002.safetensors"
    s3.put("tiny", {name: MODEL[name].replace(b"1", b"7", 1)[: len(MODEL[name])]})

    with pytest.raises(FilesDiffer, match=f"{name} has another content"):
        fetch(tiny, cache=tmp_path / "another", expected=expected)
    assert fetch(tiny, cache=cache).manifest != expected


def test_another_size_is_noticed_before_anything_is_fetched(
    tiny: Source, s3: S3Server, wire: Wire, cache: Path, tmp_path: Path
) -> None:
    expected = fetch(tiny, cache=cache).manifest
    s3.put("tiny", {"tokenizer.json": b"{}"})
    wire.count_anew()

    with pytest.raises(FilesDiffer, match=r"tokenizer\.json has 2 bytes in place of"):
        fetch_prompt_files(tiny, cache=tmp_path / "another", expected=expected)
    assert wire.gets == 1


def test_an_object_that_changes_between_listing_and_reading_is_noticed(
    tiny: Source, s3: S3Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = _listed("tiny")
    s3.put("tiny", {"config.json": MODEL["config.json"].replace(b"Made", b"Make")})
    monkeypatch.setattr("inference.sources.s3.Bucket.list", lambda _: listing)

    with pytest.raises(FilesDiffer, match="changed while the bucket was read"):
        fetch(tiny, cache=cache)


def test_a_model_that_was_uploaded_half_is_not_taken(s3: S3Server, wire: Wire, cache: Path) -> None:
    name = "model-00001-of-00001.safetensors"
    half = made_up.files(shards=1)
    s3.put("half", {**half, name: half[name][:-1]})

    with pytest.raises(NotServable, match=f"{name} is missing, damaged or cut short"):
        fetch(Source.parse(f"s3://{BUCKET}/half"), cache=cache)
    assert not _whole_folders(cache)


def test_a_full_disk_is_told_before_it_is_full(tiny: Source, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1000, 0, 1000))

    with pytest.raises(DiskFull):
        fetch(tiny, cache=cache)


def test_a_file_of_the_cache_that_was_changed_is_fetched_again(tiny: Source, wire: Wire, cache: Path) -> None:
    fetched = fetch(tiny, cache=cache)
    os.truncate(fetched.folder / "model-00001-of-00002.safetensors", 1000)
    wire.count_anew()

    assert fetch(tiny, cache=cache, expected=fetched.manifest) == fetched
    assert made_up.read(fetched.folder) == made_up.needed(MODEL)
    assert wire.carried_bytes < made_up.SHARD_BYTES * 3 // 2


def test_two_processes_fetch_once(tiny: Source, wire: Wire, cache: Path) -> None:
    wire.pause_s = 0.05

    both = [_fetching(tiny, cache) for _ in range(2)]
    answers = [json.loads(process.communicate(timeout=60)[0]) for process in both]

    assert answers[0]["digest"] == answers[1]["digest"]
    assert wire.carried_bytes < MODEL_BYTES * 3 // 2
    assert all(len(answer["told"]) > 1 for answer in answers)


def test_a_killed_fetch_leaves_nothing_that_looks_whole(tiny: Source, wire: Wire, cache: Path) -> None:
    with _fetching(tiny, cache) as process:
        wire.once_carried(made_up.SHARD_BYTES, lambda: os.kill(process.pid, signal.SIGKILL))
        process.communicate(timeout=60)

    assert process.returncode == -signal.SIGKILL
    assert not _whole_folders(cache)
    assert made_up.read(fetch(tiny, cache=cache).folder) == made_up.needed(MODEL)
    assert not list(cache.rglob("*.draft"))


def test_nothing_secret_is_in_a_traceback(tiny: Source, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import traceback

    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://bob:{SECRET}@127.0.0.1:{free_port()}")

    with pytest.raises(SourceError) as refused:
        fetch(tiny, cache=cache)
    assert SECRET not in "".join(traceback.format_exception(refused.value))
