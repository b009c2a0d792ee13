"""A Valkey Cluster of three primaries with a replica each, up in seconds: to be failed over and looked into."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from launcher.child import free_port
from launcher.valkey import program

PRIMARIES = 3
SLOTS = 16384
PASSWORD = "of-the-cluster"
# Of nodes that are to stand in for each other, and of those that are to stay what they are on a machine that is busy.
NODE_TIMEOUT_MS, STEADY_MS = 1000, 15_000
PATIENCE_S = 20
SETTINGS = f"""\
bind 127.0.0.1
port {{port}}
cluster-port {{bus_port}}
requirepass {PASSWORD}
primaryauth {PASSWORD}
dir .
save ""
appendonly no
cluster-enabled yes
cluster-node-timeout {NODE_TIMEOUT_MS}
cluster-require-full-coverage no
cluster-replica-validity-factor 0
repl-diskless-sync-delay 0
repl-ping-replica-period 1
maxmemory-policy noeviction
"""


@dataclass(eq=False)
class Node:
    """One server of the cluster."""

    folder: Path
    port: int = field(default_factory=free_port)
    bus_port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir()
        (self.folder / "valkey.conf").write_text(SETTINGS.format(port=self.port, bus_port=self.bus_port))
        self.client = Redis(port=self.port, password=PASSWORD, socket_timeout=2)

    def start(self) -> None:
        """Start it, also once more."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(program()), "valkey.conf"], cwd=self.folder, stdout=log, stderr=subprocess.STDOUT
            )

    def signal(self, number: signal.Signals) -> None:
        """SIGKILL ends it at once; SIGSTOP and SIGCONT make it silent and let it speak again."""
        assert self.process
        os.kill(self.process.pid, number)
        if number == signal.SIGKILL:
            self.process.wait()

    def stop(self) -> None:
        """However it is."""
        self.client.close()
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def says(self, *words: Any) -> Any:
        """What it answers; None while it does not."""
        try:
            return self.client.execute_command(*words)  # type: ignore[no-untyped-call]
        except (RedisError, OSError):
            return None

    @property
    def is_dead(self) -> bool:
        """Whether it was killed."""
        return self.process is None or self.process.poll() is not None

    @property
    def is_primary(self) -> bool:
        """Whether it lives, and takes writes."""
        return bool((role := self.says("ROLE")) and role[0] == b"master")

    @property
    def is_in_step(self) -> bool:
        """Whether it is a replica that has all that its primary had."""
        return bool((role := self.says("ROLE")) and role[0] == b"slave" and role[3] == b"connected")


class ValkeyCluster:
    """Its nodes, the pairs of them that stand in for each other, and the acts of whoever keeps it."""

    def __init__(self, folder: Path) -> None:
        self.pairs = [(Node(folder / f"{n}a"), Node(folder / f"{n}b")) for n in range(PRIMARIES)]

    @property
    def nodes(self) -> Sequence[Node]:
        """All of them."""
        return [node for pair in self.pairs for node in pair]

    @property
    def url(self) -> str:
        """Of some of the nodes, as it stands in settings."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[:4])
        return f"redis+cluster://:{PASSWORD}@{hosts}"

    def form(self) -> None:
        """Make one cluster of nodes that run."""
        until(lambda: all(node.says("PING") for node in self.nodes))
        first = self.nodes[0]
        for number, node in enumerate(self.nodes):
            node.says("CLUSTER SET-CONFIG-EPOCH", number + 1)
            first.says("CLUSTER MEET", "127.0.0.1", node.port, node.bus_port)
        share = SLOTS // PRIMARIES + 1
        for number, (primary, _) in enumerate(self.pairs):
            primary.says("CLUSTER ADDSLOTSRANGE", number * share, min(SLOTS, (number + 1) * share) - 1)
        for primary, replica in self.pairs:
            name = primary.says("CLUSTER MYID")
            until(lambda name=name, replica=replica: replica.says("CLUSTER REPLICATE", name))  # type: ignore[misc]
        self.settle()

    def settle(self) -> None:
        """Return when all nodes live, agree on the slots, and each replica is in step."""
        until(lambda: all(_is_whole(node) for node in self.nodes))
        until(lambda: all(sum((one.is_primary, other.is_in_step)) == 2 for one, other in map(in_order, self.pairs)))

    def primary_of(self, slot: int) -> tuple[Node, Node]:
        """The primary that holds a slot, and its replica."""
        return in_order(self.pairs[slot // (SLOTS // PRIMARIES + 1)])

    def mend(self) -> None:
        """Bring back what was killed or silenced: it returns as a replica. And have them stay as they are."""
        for node in self.nodes:
            if node.is_dead:
                node.start()
            node.signal(signal.SIGCONT)
        self.settle()
        self.give_up_after(STEADY_MS)

    def give_up_after(self, ms: int) -> None:
        """How long a node is silent until its replica stands in."""
        for node in self.nodes:
            node.says("CONFIG", "SET", "cluster-node-timeout", ms)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Formed, for as long as the block lasts."""
        with ExitStack() as stack:
            for node in self.nodes:
                stack.callback(node.stop)
                node.start()
            self.form()
            self.give_up_after(STEADY_MS)
            yield


def in_order(pair: tuple[Node, Node]) -> tuple[Node, Node]:
    """The primary first."""
    one, other = pair
    return (one, other) if one.is_primary or not other.is_primary else (other, one)


def until(holds: Callable[[], Any], patience_s: float = PATIENCE_S) -> None:
    """Return when it holds."""
    give_up_at = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < give_up_at, "the cluster did not come to that"
        time.sleep(0.02)


def _is_whole(node: Node) -> bool:
    info = node.says("CLUSTER INFO")
    return bool(
        info
        and info["cluster_state"] == "ok"
        and info["cluster_slots_ok"] == str(SLOTS)
        and info["cluster_known_nodes"] == str(2 * PRIMARIES)
    )
