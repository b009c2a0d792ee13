"""Foreseen trouble during set-up, told in one line."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class SetupProblem(Exception):
    """Something the user can cure: what is wrong, and what to do about it."""

    def __init__(self, cause: str, cure: str) -> None:
        super().__init__(cause, cure)
        self.cause = cause
        self.cure = cure

    def __str__(self) -> str:
        return f"palaver: {self.cause}. {self.cure}"


DISK_FULL = SetupProblem("the disk is full", "Free some space and run the same command again; what is done is kept.")


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Turn foreseen trouble into one line on stderr and exit status 1."""
    try:
        yield
    except SetupProblem as problem:
        sys.exit(tell(problem))
    except PermissionError as error:
        sys.exit(
            tell(SetupProblem(f"may not use {error.filename}", "Run as the user who owns it, or change its owner."))
        )
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        sys.exit(tell(DISK_FULL))


def tell(problem: SetupProblem) -> int:
    """Print the problem on stderr; returns the exit status that belongs to it."""
    print(problem, file=sys.stderr, flush=True)
    return 1
