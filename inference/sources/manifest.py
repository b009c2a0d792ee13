"""Which files a model is made of, to the byte."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from inference.sources.errors import FilesDiffer, SourceError

CURE = "Bring the old files back, or register them as a new version."


@dataclass(frozen=True, slots=True, order=True)
class File:
    """A file's name in its folder, its size and the sha256 of its content, in hex."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a model, or some of them, by name."""

    files: tuple[File, ...]

    @classmethod
    def of(cls, files: Iterable[File]) -> Self:
        """Of files in any order."""
        return cls(tuple(sorted(files)))

    @classmethod
    def from_json(cls, stored: Any) -> Self:
        """What `as_json` gave. Raises `ValueError`."""
        try:
            return cls.of(File(str(name), int(size_bytes), str(sha256)) for name, size_bytes, sha256 in stored)
        except TypeError as error:
            raise ValueError("not a manifest") from error

    def as_json(self) -> list[list[str | int]]:
        """Lists of name, size and sha256, to be kept in a row."""
        return [[file.name, file.size_bytes, file.sha256] for file in self.files]

    @property
    def digest(self) -> str:
        """sha256 in hex over the sorted files: the same wherever and in whatever order they lie."""
        return hashlib.sha256(json.dumps(self.as_json(), separators=(",", ":")).encode()).hexdigest()

    @property
    def size_bytes(self) -> int:
        """Of all files together."""
        return sum(file.size_bytes for file in self.files)

    def only(self, takes: Callable[[str], bool]) -> Manifest:
        """The part of it whose names are taken."""
        return Manifest(tuple(file for file in self.files if takes(file.name)))

    def check(self, found: Manifest) -> None:
        """Raises `FilesDiffer` naming the first file that is not as in this manifest."""
        self.check_sizes({file.name: file.size_bytes for file in found.files})
        for file in found.files:
            self.check_file(file)

    def check_sizes(self, found: Mapping[str, int]) -> None:
        """The same before any content is known, for files by name. Raises `FilesDiffer`."""
        known = {file.name: file.size_bytes for file in self.files}
        for name in sorted(known.keys() | found.keys()):
            if name not in found:
                raise _differs(name, "is missing")
            if name not in known:
                raise _differs(name, "is new")
            if known[name] != found[name]:
                raise _differs(name, f"has {found[name]} bytes in place of {known[name]}")

    def check_file(self, found: File) -> None:
        """Raises `FilesDiffer` when its content is another one."""
        if found not in self.files:
            raise _differs(found.name, "has another content")


def _differs(name: str, how: str) -> SourceError:
    return FilesDiffer(f"the files are not those that this version was made with: {name} {how}", CURE)
