"""Whatever a bucket says, nothing is written outside of the cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from inference.sources import Source, fetch, fetch_prompt_files
from inference.sources.errors import FilesDiffer, UnsafeName
from tests.inference.sources import hostile_bucket

NEEDED = ("m/config.json", "m/tokenizer.json", "m/model.safetensors")
SOURCE = Source.parse("s3://bucket/m")


@pytest.fixture(autouse=True)
def _any_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")


@pytest.mark.parametrize(
    "key",
    ["m/../../x.json", "m/..", "m//etc/x.json", "/etc/x.json", "m/x\0.json", "m/..\\x.json", "m/a/../../../x.json"],
)
def test_a_key_that_leads_out_is_refused(
    key: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hostile_bucket.listing(*NEEDED, key) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)

        with pytest.raises(UnsafeName):
            fetch(SOURCE, cache=cache)

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [next(cache.rglob("lock"))]


def test_an_honest_server_refuses_what_is_not_as_listed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hostile_bucket.listing(*NEEDED, etag_now="changed") as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)

        with pytest.raises(FilesDiffer, match="changed while the bucket was read"):
            fetch_prompt_files(SOURCE, cache=cache)
