"""Which source a registry row names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

from inference.sources.errors import BadSource

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.\-]*/[A-Za-z0-9][\w.\-]*")
BUCKET = re.compile(r"[a-z0-9A-Z][A-Za-z0-9._\-]{1,254}")
FORMS = "Give an absolute folder, a hub id such as Qwen/Qwen3-0.6B, or s3://bucket/prefix."


class Kind(StrEnum):
    """Who keeps the files."""

    LOCAL = "local"
    HUB = "hub"
    S3 = "s3"


@dataclass(frozen=True, slots=True)
class Source:
    """A folder, a hub id, or a bucket with a prefix; `str()` gives the form that `parse` takes."""

    kind: Kind
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """An absolute or existing path is local, `s3://…` is S3, `Org/Name` is a hub id. Raises `BadSource`."""
        text = text.strip()
        if not text or not text.isprintable():
            raise BadSource("the source is empty or holds characters that cannot be shown", FORMS)
        if scheme := SCHEME.match(text):
            return cls(Kind.S3, _bucket_and_prefix(scheme[1].lower(), text[scheme.end() :]))
        if text.startswith("hub:"):
            return cls(Kind.HUB, _hub_id(text.removeprefix("hub:")))
        path = Path(text).expanduser()
        if path.is_absolute() or _is_folder(path):
            return cls(Kind.LOCAL, str(path.absolute()))
        return cls(Kind.HUB, _hub_id(text))

    def __str__(self) -> str:
        return {Kind.LOCAL: "", Kind.HUB: "hub:", Kind.S3: "s3://"}[self.kind] + self.name


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # too long a name
        return False


def _bucket_and_prefix(scheme: str, rest: str) -> str:
    # The text is not repeated: people put keys into addresses.
    if scheme != "s3":
        raise BadSource(f"a source cannot begin with {scheme}://", FORMS)
    bucket, _, prefix = rest.partition("/")
    if not BUCKET.fullmatch(bucket):
        raise BadSource("the bucket's name is missing or cannot be one", FORMS + " Keys belong into the environment.")
    return f"{bucket}/{prefix.strip('/')}".rstrip("/")


def _hub_id(text: str) -> str:
    if not HUB_ID.fullmatch(text) or ".." in text or "--" in text:
        raise BadSource(f"{text} is neither a folder of this machine nor a hub id", FORMS)
    return text
