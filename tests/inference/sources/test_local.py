"""Models in folders of this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from inference.sources import Manifest, Source, fetch, fetch_prompt_files, hashes
from inference.sources.errors import BadSource, CacheUnusable, FilesDiffer, NotFound, NotServable, SourceError
from tests.inference.sources import made_up

MODEL = made_up.files()
SHARD = "model-00001-of-00002.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = made_up.write(tmp_path / "model", MODEL)
    for path in folder.iterdir():
        _age(path)
    return folder


def _age(path: Path) -> None:
    """Files of today have settled; those of this second are hashed again."""
    os.utime(path, (time.time() - 60, time.time() - 60))


def _source(folder: Path) -> Source:
    return Source.parse(str(folder))


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that were read whole, in order."""
    names: list[str] = []
    really = hashes.sha256_of

    def sha256_of(path: Path, add: Callable[[int], None]) -> str:
        names.append(path.name)
        return really(path, add)

    monkeypatch.setattr(hashes, "sha256_of", sha256_of)
    return names


def test_a_folder_is_used_in_place(folder: Path, cache: Path) -> None:
    fetched = fetch(_source(folder), cache=cache)

    assert fetched.folder == folder
    assert {file.name for file in fetched.manifest.files} == made_up.needed(MODEL).keys()
    assert not list(cache.rglob("*.safetensors"))


def test_a_restart_reads_no_file_again(folder: Path, cache: Path, hashed: list[str]) -> None:
    first = fetch(_source(folder), cache=cache)
    assert sorted(hashed) == sorted(made_up.needed(MODEL))
    hashed.clear()

    assert fetch(_source(folder), cache=cache, expected=first.manifest) == first
    assert hashed == []


@pytest.mark.parametrize("how", ["rewritten", "replaced"])
def test_a_changed_file_is_read_again_and_named(how: str, folder: Path, cache: Path, hashed: list[str]) -> None:
    first = fetch(_source(folder), cache=cache)
    hashed.clear()
    path = folder / SHARD
    then = path.stat().st_mtime_ns
    content = path.read_bytes()[:-1] + b"!"
    if how == "replaced":  # even with the old time
        path.rename(folder / "kept.old")
        path.write_bytes(content)
        os.utime(path, ns=(then, then))
    else:
        path.write_bytes(content)
        os.utime(path, ns=(then + 1, then + 1))

    with pytest.raises(FilesDiffer, match=f"{SHARD} has another content"):
        fetch(_source(folder), cache=cache, expected=first.manifest)
    assert hashed == [SHARD]


def test_a_file_of_this_moment_is_not_trusted_to_stay(folder: Path, cache: Path, hashed: list[str]) -> None:
    (folder / SHARD).touch()
    fetch(_source(folder), cache=cache)
    hashed.clear()

    fetch(_source(folder), cache=cache)

    assert hashed == [SHARD]


def test_files_that_came_or_went_are_named(folder: Path, cache: Path) -> None:
    manifest = fetch(_source(folder), cache=cache).manifest
    (folder / "added.json").write_text("{}")
    with pytest.raises(FilesDiffer, match=r"added.json is new"):
        fetch(_source(folder), cache=cache, expected=manifest)

    (folder / "added.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(FilesDiffer, match=r"tokenizer_config.json is missing"):
        fetch(_source(folder), cache=cache, expected=manifest)


def test_files_that_nobody_needs_do_not_count(folder: Path, cache: Path) -> None:
    before = fetch(_source(folder), cache=cache).manifest

    made_up.write(folder, {"README.md": b"Changed.", "onnx/model.json": b"{}", "run.py": b"", "x.gguf": b""})

    assert fetch(_source(folder), cache=cache).manifest == before


def test_prompt_files_want_no_cache_and_are_checked(folder: Path, cache: Path) -> None:
    manifest = fetch(_source(folder), cache=cache).manifest
    nowhere = cache / "nowhere"

    assert fetch_prompt_files(_source(folder), cache=nowhere, expected=manifest) == folder
    assert not nowhere.exists()
    (folder / "tokenizer.json").write_bytes(MODEL["tokenizer.json"].replace(b"a", b"b"))
    with pytest.raises(FilesDiffer, match=r"tokenizer.json has another content"):
        fetch_prompt_files(_source(folder), cache=nowhere, expected=manifest)


def test_links_are_followed(folder: Path, cache: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    linked.mkdir()
    for path in folder.iterdir():
        (linked / path.name).symlink_to(path)

    assert fetch(_source(linked), cache=cache).manifest == fetch(_source(folder), cache=cache).manifest


@pytest.mark.parametrize(
    ("missing", "error"), [("config.json", NotServable), ("tokenizer.json", NotServable), (SHARD, NotServable)]
)
def test_a_missing_file_is_named(missing: str, error: type[SourceError], folder: Path, cache: Path) -> None:
    (folder / missing).unlink()

    with pytest.raises(error, match=missing):
        fetch(_source(folder), cache=cache)


def test_weights_that_are_cut_short_are_named(folder: Path, cache: Path) -> None:
    os.truncate(folder / SHARD, 1000)

    with pytest.raises(NotServable, match=SHARD):
        fetch(_source(folder), cache=cache)


def test_no_folder_no_revision_no_cache(folder: Path, cache: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="elsewhere"):
        fetch(_source(tmp_path / "elsewhere"), cache=cache)
    with pytest.raises(BadSource, match="no revisions"):
        fetch(_source(folder), "main", cache=cache)
    (tmp_path / "file").touch()
    with pytest.raises(CacheUnusable):
        fetch(_source(folder), cache=tmp_path / "file")


def test_a_damaged_list_of_hashes_only_costs_time(folder: Path, cache: Path) -> None:
    first = fetch(_source(folder), cache=cache)
    for kept in cache.rglob("hashes.json"):
        kept.write_text('{"config.json": 1')

    assert fetch(_source(folder), cache=cache) == first


def test_a_digest_is_of_the_files_alone(folder: Path, cache: Path) -> None:
    manifest = fetch(_source(folder), cache=cache).manifest

    assert Manifest.of(reversed(manifest.files)).digest == manifest.digest
    assert Manifest.from_json(manifest.as_json()) == manifest
    assert Manifest.of(manifest.files[1:]).digest != manifest.digest
    with pytest.raises(ValueError, match="not a manifest"):
        Manifest.from_json(7)
