"""Hosts as network namespaces, each with a cable to the one where the servers are."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

# Addresses that RFC 2544 keeps for tests of networks; each cable has four of them.
CABLES = {"web": "198.18.1.", "gpu": "198.18.2."}


@dataclass(frozen=True)
class Host:
    """One host: a network of its own, with nothing in it but loopback and its end of the cable."""

    name: str
    servers_address: str

    @property
    def prefix(self) -> Sequence[str]:
        """Before a command, to run it there."""
        return ("ip", "netns", "exec", _namespace(self.name))

    @property
    def _cable(self) -> str:
        return f"to-{self.name}"

    @contextmanager
    def unplugged(self) -> Iterator[None]:
        """Its cable is pulled out where the servers are: what either side sends is lost, and nobody is told."""
        _within("servers", "link", "set", self._cable, "down")
        try:
            yield
        finally:
            _within("servers", "link", "set", self._cable, "up")


@dataclass(frozen=True)
class Network:
    """The host with the servers, and those that reach it."""

    servers: Sequence[str]
    web: Host
    gpu: Host


@contextmanager
def wired() -> Iterator[Network]:
    """Three hosts. Needs root, as nothing else here does."""
    with ExitStack() as cleanup:
        for name in ("servers", *CABLES):
            _ip("netns", "add", _namespace(name))
            cleanup.callback(_ip, "netns", "delete", _namespace(name))  # and its ends of the cables
            _within(name, "link", "set", "lo", "up")
        for name, network in CABLES.items():
            _lay(name, network)
        hosts = {name: Host(name, f"{network}1") for name, network in CABLES.items()}
        yield Network(("ip", "netns", "exec", _namespace("servers")), **hosts)


def _lay(name: str, network: str) -> None:
    ends = {"servers": (f"to-{name}", f"{network}1/30"), name: ("to-servers", f"{network}2/30")}
    (near, _), (far, _) = ends.values()
    _within(*("servers", "link", "add", near, "type", "veth"), *("peer", "name", far, "netns", _namespace(name)))
    for host, (end, address) in ends.items():
        _within(host, "address", "add", address, "dev", end)
        _within(host, "link", "set", end, "up")


def _namespace(host: str) -> str:
    return f"palaver-{os.getpid()}-{host}"


def _within(host: str, *arguments: str) -> None:
    _ip("-n", _namespace(host), *arguments)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, timeout=20)
