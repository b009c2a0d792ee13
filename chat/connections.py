"""Giving database connections back to the pool."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections


@contextmanager
def given_back() -> Iterator[None]:
    """Hold a connection for no longer than the block; for views.

    Django gives it back when the response was sent, some turns of the event loop later: with many clients at once,
    requests that were answered already held the connections that others waited for.
    """
    try:
        yield
    finally:
        for connection in connections.all(initialized_only=True):
            if not connection.in_atomic_block:  # a caller's, who goes on
                connection.close_if_unusable_or_obsolete()
