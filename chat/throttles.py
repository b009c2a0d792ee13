"""How often this site's people may do what costs: requests of one credential, failed sign-ins, new API keys."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from django.conf import settings
from limits import RateLimitItemPerHour, RateLimitItemPerMinute

from scheduler.dispensable import shared
from scheduler.errors import TooManyNewKeys, TooManyRequests, TooManySignIns
from scheduler.throttles import Throttle, Windows

SIGN_IN_MINUTES = 5
FAILURES_OF_A_NAME = 10
FAILURES_OF_AN_ADDRESS = 50
NEW_KEYS_AN_HOUR = 60
# A household or a server has a whole /64 of IPv6 addresses to send from.
IPV6_PREFIX_BITS = 64


def requests() -> Throttle:
    """Requests of one credential, by its name. Refuses with `TooManyRequests`."""
    item = RateLimitItemPerMinute(settings.REQUESTS_PER_MINUTE, namespace="requests")
    return Throttle(_windows(settings.STREAMS_URL), item, TooManyRequests)


def new_keys() -> Throttle:
    """API keys that one user makes, by the user's id. Refuses with `TooManyNewKeys`."""
    item = RateLimitItemPerHour(NEW_KEYS_AN_HOUR, namespace="new-keys")
    return Throttle(_windows(settings.STREAMS_URL), item, TooManyNewKeys)


class SignInAttempt:
    """A sign-in that counts as failed until it is said to have succeeded."""

    def __init__(self) -> None:
        self.has_succeeded = False


@contextmanager
def sign_in(address: str, username: str) -> Iterator[SignInAttempt]:
    """Let somebody at `address` try to sign in as `username`. Raises `TooManySignIns` after too many failures.

    An attempt counts from its beginning, so that many at once are not all let through before the first has failed; it
    is forgiven when it succeeds, or breaks.
    """
    source = network(address)
    with ExitStack() as forgiven:
        for throttle, name in (
            (_failures(FAILURES_OF_A_NAME, "sign-ins-as"), _hashed(source, username)),
            (_failures(FAILURES_OF_AN_ADDRESS, "sign-ins-from"), _hashed(source)),
        ):
            throttle.take(name)
            forgiven.callback(throttle.give_back, name)
        attempt = SignInAttempt()
        yield attempt
        if not attempt.has_succeeded:
            forgiven.pop_all()


def network(address: str) -> str:
    """The address, or the part of an IPv6 address that its holder cannot change at will."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address  # of a Unix socket there is none
    if isinstance(parsed, IPv6Address) and not parsed.ipv4_mapped:
        return str(IPv6Address(int(parsed) >> IPV6_PREFIX_BITS << IPV6_PREFIX_BITS))
    return address


def _failures(count: int, namespace: str) -> Throttle:
    item = RateLimitItemPerMinute(count, SIGN_IN_MINUTES, namespace=namespace)
    return Throttle(_windows(settings.STREAMS_URL), item, TooManySignIns)


@lru_cache
def _windows(redis_url: str) -> Windows:
    return Windows(shared(redis_url))


def _hashed(*parts: str) -> str:
    """Of a fixed length, and nobody's name in Redis."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
