"""What can go wrong on the way of a model's files, each with its cure."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class SourceError(Exception):
    """Root: one line of cause, one of cure; neither holds a key, a token or a signed address.

    SourceError
    ├── BadSource        what is written as source or revision cannot be one
    ├── NotFound         no such folder, bucket, prefix, repository or revision
    ├── AccessDenied     no credentials, or they do not suffice
    ├── Unreachable      the network or the server is away, silent or failing
    ├── NotServable      a needed file is missing, damaged or cut short
    ├── FilesDiffer      not the files that this version was made with
    ├── UnsafeName       a name that would lead out of the model's folder
    ├── DiskFull         no room in the cache
    └── CacheUnusable    the cache may not be written, or its disk fails
    """

    code = "source_error"

    def __init__(self, cause: str, cure: str) -> None:
        super().__init__(cause, cure)
        self.cause = cause
        self.cure = cure

    def __str__(self) -> str:
        return f"{self.cause}. {self.cure}"


class BadSource(SourceError):
    """What is written as source or revision cannot be one."""

    code = "bad_source"


class NotFound(SourceError):
    """No such folder, bucket, prefix, repository or revision."""

    code = "source_not_found"


class AccessDenied(SourceError):
    """No credentials, or they do not suffice."""

    code = "source_access_denied"


class Unreachable(SourceError):
    """The network or the server is away, silent or failing."""

    code = "source_unreachable"


class NotServable(SourceError):
    """A needed file is missing, damaged or cut short."""

    code = "model_not_servable"


class FilesDiffer(SourceError):
    """Not the files that this version was made with."""

    code = "files_differ"


class UnsafeName(SourceError):
    """A name that would lead out of the model's folder."""

    code = "unsafe_name"


class DiskFull(SourceError):
    """No room in the cache."""

    code = "disk_full"


class CacheUnusable(SourceError):
    """The cache may not be written, or its disk fails."""

    code = "cache_unusable"


@contextmanager
def storing_in(cache: Path) -> Iterator[None]:
    """Tell what the disk refuses as `DiskFull` or `CacheUnusable`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"the disk of {cache} is full", "Free some space; what is fetched already is kept."
            ) from error
        reason = error.strerror or type(error).__name__
        raise CacheUnusable(
            f"the model cache {cache} cannot be used ({reason})", "See to its disk and owner."
        ) from error
