"""Kombu's Redis transport, with channels that bear the death of their broker.

A channel makes its connections as it needs them, from settings that it asks of its transport each time. When the broker
dies, Celery closes the transport first and the channel afterwards, and what runs is acknowledged later still: kombu
5.7.0 then finds no transport, and an AttributeError, which is no connection error to anybody, ends the worker.
"""

from __future__ import annotations

from typing import Any

from kombu.transport import redis


class Channel(redis.Channel):
    """A channel that remembers how to reach the broker."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._remembered: dict[bool, dict[str, Any]] = {}
        super().__init__(*args, **kwargs)

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        if asynchronous not in self._remembered:
            self._remembered[asynchronous] = super()._connparams(asynchronous)  # type: ignore[misc]
        return dict(self._remembered[asynchronous])


class Transport(redis.Transport):
    """The transport of such channels; Celery's `broker_transport` names it."""

    Channel = Channel
