"""Objects of a bucket, by boto3: endpoint, region and credentials come the ways that AWS's own tools take them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

from inference.sources.choice import check_name
from inference.sources.errors import NotFound
from inference.sources.s3_errors import changed_meanwhile, told
from inference.sources.sink import Sink
from inference.sources.source import Source

CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 20
ATTEMPTS = 3
PART_BYTES = 16 << 20
PARTS_AT_ONCE = 8


@dataclass(frozen=True, slots=True, order=True)
class Listed:
    """An object as the listing has it: its size, its name below the prefix, its ETag."""

    size_bytes: int
    name: str
    etag: str


class Bucket:
    """What lies on the top level of a prefix. To be closed, as its connections are kept."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._bucket, _, prefix = source.name.partition("/")
        self._prefix = f"{prefix}/" if prefix else ""
        with told(source):
            self._client = _client()
        self._pins = _Pins(self._client.meta.events)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def list(self) -> list[Listed]:
        """Its objects, those below further slashes left out. Raises `SourceError`."""
        with told(self._source):
            listed = [
                Listed(entry["Size"], self._name(entry["Key"]), _bare(entry.get("ETag", "")))
                for entry in self._entries()
            ]
        found = [entry for entry in listed if entry.name]
        if not found:
            raise NotFound(f"{self._source} holds no files", "Check the prefix; it is the folder of the model's files.")
        return found

    def download(self, listed: Listed, sink: Sink, add: Callable[[int], None]) -> None:
        """Write the object to `sink`, parts being fetched side by side; `add` hears how many bytes more.

        Raises `SourceError`.
        """
        from s3transfer.manager import TransferConfig, TransferManager

        if not listed.size_bytes:
            return  # no range of nothing can be asked for
        self._pins.add(self._prefix + listed.name, listed.etag)
        config = TransferConfig(
            multipart_threshold=PART_BYTES,
            multipart_chunksize=PART_BYTES,
            max_request_concurrency=PARTS_AT_ONCE,
        )
        with told(self._source), TransferManager(self._client, config) as transfers:
            transfers.download(self._bucket, self._prefix + listed.name, sink, subscribers=[_heard_by(add)]).result()

    def _entries(self) -> Iterator[dict[str, Any]]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix, Delimiter="/"
        )
        for page in pages:
            for folder in page.get("CommonPrefixes", ()):
                self._name(folder["Prefix"])
            yield from page.get("Contents", ())

    def _name(self, key: str) -> str:
        name = key.removeprefix(self._prefix)
        check_name(name, str(self._source))
        return name


class _Pins:
    """Each object is read as it was listed, or not at all."""

    def __init__(self, events: Any) -> None:
        self._etags: dict[str, str] = {}
        events.register("provide-client-params.s3.GetObject", self._ask)
        events.register("before-call.s3.GetObject", self._remember)
        # Some compatible servers ignore If-Match.
        events.register("after-call.s3.GetObject", self._check)

    def add(self, key: str, etag: str) -> None:
        """Before the object is asked for."""
        self._etags[key] = etag

    def _ask(self, params: dict[str, Any], **_: Any) -> None:
        if etag := self._etags[params["Key"]]:
            params["IfMatch"] = f'"{etag}"'

    def _remember(self, params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        context["listed_etag"] = _bare(params["headers"].get("If-Match", ""))

    def _check(self, parsed: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        if context["listed_etag"] and "ETag" in parsed and _bare(parsed["ETag"]) != context["listed_etag"]:
            parsed["Body"].close()
            raise changed_meanwhile()


def _heard_by(add: Callable[[int], None]) -> Any:
    """Its base class can only be named once boto3 is imported."""
    from s3transfer.subscribers import BaseSubscriber

    class Hearing(BaseSubscriber):  # type: ignore[misc]  # mypy does not read s3transfer
        def on_progress(self, *, bytes_transferred: int, **_: Any) -> None:
            """Fewer, when a part begins again."""
            add(bytes_transferred)

    return Hearing()


def _client() -> Any:
    import boto3
    from botocore.config import Config

    for library in ("boto3", "botocore", "s3transfer"):
        # What they say at lower levels holds signatures and session tokens.
        logging.getLogger(library).setLevel(logging.WARNING)
    config = Config(
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        # Some compatible servers send the whole object's checksum with a part of it; we have sha256.
        response_checksum_validation="when_required",
        max_pool_connections=4 * PARTS_AT_ONCE,
        tcp_keepalive=True,
    )
    return boto3.session.Session().client("s3", config=config)


def _bare(etag: str) -> str:
    return etag.strip('"')
