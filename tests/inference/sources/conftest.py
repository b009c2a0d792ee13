"""An S3 server with one model in it, and the wire to it; a home without credentials."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from inference.sources import Source
from tests.inference.sources import made_up
from tests.inference.sources.s3_server import BUCKET, KEY, SECRET, S3Server
from tests.inference.sources.wire import Wire

# Parts of 16 MiB would want a large model; the wire is slow enough for these.
MODEL = made_up.files(shards=2)
MANY = {**made_up.files(shards=1), **{f"extra-{n:04}.json": b"{}" for n in range(1001)}, "zzz.json": b"{}"}


@pytest.fixture(autouse=True)
def _nobody_elses_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws" / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "aws" / "credentials"))
    monkeypatch.setenv("AWS_REGION", "us-east-1")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def running_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    folder = tmp_path_factory.mktemp("s3")
    made_up.write(folder / "data" / BUCKET / "many", MANY)
    server = S3Server(folder)
    yield server
    server.client.close()
    server.kill()


@pytest.fixture
def s3(running_s3: S3Server) -> S3Server:
    if not running_s3.runs:
        running_s3.start()
    running_s3.put("tiny", MODEL)
    return running_s3


@pytest.fixture
def wire(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    wire = Wire(s3.port)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", wire.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    yield wire
    wire.close()


@pytest.fixture
def tiny(wire: Wire) -> Source:
    return Source.parse(f"s3://{BUCKET}/tiny")
