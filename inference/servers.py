"""Clients of the Redis that a URL names: one server, or a cluster, whose client is used as one server's is."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import redis
from redis._parsers import AsyncCommandsParser
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.cluster import ClusterNode, ClusterPipeline, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode as BlockingNode
from redis.cluster import RedisCluster as BlockingCluster
from redis.connection import SSLConnection, parse_url
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import RedisClusterException, RedisError
from redis.exceptions import TimeoutError as ReplyLate
from redis.retry import Retry as BlockingRetry

# The scheme of one server behind that of a cluster.
SCHEMES = {"redis+cluster": "redis", "rediss+cluster": "rediss"}
ONE = ("redis", "rediss", "unix")
VERIFY = "ssl_cert_reqs"
DEFAULT_PORT = 6379
# What a Redis raises that is away. A cluster's client has one more, which is no `RedisError`.
AWAY = (RedisError, RedisClusterException, OSError)
LOST = (ConnectionLost, ReplyLate)
# Of a process in a cluster: commands at a time, and to one node of it beside them the blocked reads and the pipelines.
COMMANDS = 64
CONNECTIONS_A_NODE = 3 * COMMANDS
TURN_TIMEOUT_S = 5.0
# While a primary is away everything that fails would ask for the cluster's layout, and connect anew to all nodes.
LOOK_AGAIN_S = 0.25


class BadAddress(ValueError):
    """A URL of a cluster that cannot be read; the text says what is wrong, and has no password in it."""


@dataclass(frozen=True, slots=True)
class Seeds:
    """Nodes by which the others of a cluster are found, and how to connect to all of them."""

    nodes: Sequence[tuple[str, int]]
    options: dict[str, Any]

    @classmethod
    def parse(cls, url: str) -> Seeds:
        """Read `redis+cluster://[user:password@]host[:port][,host[:port]…][?options]`. Raises `BadAddress`."""
        parts = urlsplit(url)
        credentials, at, hosts = parts.netloc.rpartition("@")
        if parts.path.strip("/") not in {"", "0"}:
            raise BadAddress(f"a cluster has no numbered databases: leave {parts.path} out of the URL")
        form = "{}://{}{}{{}}?{}".format(SCHEMES.get(parts.scheme, ""), credentials, at, parts.query)
        try:
            found = [_options(form.format(host.strip())) for host in hosts.split(",")]
            nodes = [(each.pop("host"), each.pop("port", DEFAULT_PORT)) for each in found]
        except (KeyError, ValueError):  # whose words may have the password in them
            raise BadAddress("a cluster's URL is redis+cluster://[user:password@]host:port[,host:port…]") from None
        if "db" in found[0]:
            raise BadAddress("a cluster has no numbered databases: leave db out of the URL")
        return cls(nodes, found[0])


def _options(url: str) -> dict[str, Any]:
    options = dict(parse_url(url))  # type: ignore[no-untyped-call]
    if options.pop("connection_class", None) is SSLConnection:
        options["ssl"] = True
    return options


def is_cluster(url: str) -> bool:
    """Whether the URL names a cluster."""
    return urlsplit(url).scheme in SCHEMES


def checked(url: str, may_be_cluster: bool) -> str:
    """The URL; over TLS with the server's certificate checked unless it says otherwise. Raises `BadAddress`.

    Without a word of it kombu would connect in clear, and send the password so.
    """
    parts = urlsplit(url)
    if parts.scheme not in {*ONE, *SCHEMES}:
        known = ", ".join(f"{scheme}://" for scheme in (*ONE, *(SCHEMES if may_be_cluster else ())))
        raise BadAddress(f"its scheme is none of {known}")
    if is_cluster(url):
        if not may_be_cluster:
            raise BadAddress("it names a cluster, and Celery's queues need one server")
        Seeds.parse(url)
    if not parts.scheme.startswith("rediss") or VERIFY in parts.query:
        return url
    return parts._replace(query="&".join(filter(None, [parts.query, f"{VERIFY}=required"]))).geturl()


@contextmanager
def away_as_lost() -> Iterator[None]:
    """What a cluster's client raises beside `RedisError` is one inside."""
    try:
        yield
    except RedisClusterException as away:
        raise ConnectionLost(str(away)) from away


def blocking(url: str, **options: Any) -> redis.Redis:
    """A client for threads. One of a cluster finds its nodes at once. Raises `RedisError` when they are away."""
    if not is_cluster(url):
        return redis.Redis.from_url(url, **options)
    seeds = Seeds.parse(url)
    with away_as_lost():
        nodes = [BlockingNode(*node) for node in seeds.nodes]  # type: ignore[no-untyped-call]
        # It knows the commands that it is asked for here, and their keys.
        return cast(redis.Redis, BlockingCluster(startup_nodes=nodes, **seeds.options, **options))


def asynchronous(url: str, **options: Any) -> Redis:
    """A client for one event loop, which tries nothing twice. The owner closes it."""
    if is_cluster(url):
        return cast(Redis, Cluster(Seeds.parse(url), **options))
    return Redis.from_url(url, retry=Retry(NoBackoff(), retries=0), **options)


def ping(url: str, timeout_s: float) -> None:
    """Raises `RedisError` or `OSError` when the server, or any primary of the cluster, does not answer in time."""
    options: dict[str, Any] = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}
    if is_cluster(url):
        # Silent nodes are waited for one after the other: for the layout, then for their own answers.
        patience_s = timeout_s / 4
        again = BlockingRetry(NoBackoff(), retries=0)
        options = {"socket_timeout": patience_s, "socket_connect_timeout": patience_s, "retry": again}
    with blocking(url, **options) as client, away_as_lost():
        primaries = {"target_nodes": BlockingCluster.PRIMARIES} if is_cluster(url) else {}
        client.execute_command("PING", **primaries)


def publish(client: redis.Redis, channel: str, messages: Iterable[str]) -> None:
    """In one round trip; in a cluster, where a pipeline may not, one after the other."""
    if isinstance(cast(object, client), BlockingCluster):
        for message in messages:
            client.publish(channel, message)
        return
    with client.pipeline(transaction=False) as pipe:
        for message in messages:
            pipe.publish(channel, message)
        pipe.execute()


@asynccontextmanager
async def listening(client: Redis) -> AsyncIterator[PubSub]:
    """A subscription that is connected, in a cluster to any node: each hears what is published at another."""
    cluster = cluster_of(client)
    pubsub = cluster.pubsub(node=await cluster.any_node()) if cluster else client.pubsub()
    async with pubsub:
        await pubsub.connect()  # type: ignore[no-untyped-call]
        yield pubsub


def cluster_of(client: object) -> Cluster | None:
    """The client as one of a cluster; None where it is one server's."""
    return client if isinstance(client, Cluster) else None


class Cluster(RedisCluster):
    """A cluster's client: nothing connects before it is asked, and what it raises while away is a `RedisError`.

    Commands wait for their turn, in order, where many come at once. After a failure the next one asks for the cluster's
    layout. None is sent again, unless it `repeats` what met a lost connection: once.
    """

    def __init__(self, seeds: Seeds, *, repeats: bool = False, **options: Any) -> None:
        super().__init__(
            startup_nodes=[ClusterNode(*node) for node in seeds.nodes],
            max_connections=CONNECTIONS_A_NODE,
            # A redirection says all that there is to know of a slot; to forget the rest would break what is under way.
            reinitialize_steps=0,
            retry=Retry(NoBackoff(), retries=0),
            **seeds.options,
            **options,
        )
        self.commands_parser = Commands(self.get_nodes)
        self._turns = asyncio.Semaphore(COMMANDS)
        self._repeats = repeats
        self._looked_at = float("-inf")

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def initialize(self, *args: Any, **options: Any) -> Cluster:
        """Know the cluster's layout. Raises `ConnectionError`, as redis-py has it, when no node tells it."""
        if self._initialize and self._knows and time.monotonic() < self._looked_at + LOOK_AGAIN_S:
            self._initialize = False
        if self._initialize:
            with away_as_lost():
                await super().initialize(*args, **options)
            self._looked_at = time.monotonic()
        return self

    @property
    def _knows(self) -> bool:
        return self.nodes_manager.default_node is not None

    def look_again(self) -> None:
        """Ask for the layout before the next command: it may have changed."""
        self._initialize = True

    async def any_node(self) -> ClusterNode:
        """One of the nodes that the cluster has now."""
        self.look_again()
        await self.initialize()
        return random.choice(self.get_nodes())  # noqa: S311  (any will do)

    def holder(self, key: str) -> str:
        """The name of the node that holds a key, as far as is known; empty before anything was asked."""
        node = self.get_node_from_key(key) if self._knows else None
        return node.name if node else ""

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """One command. Raises `ConnectionError` too when it has no turn for long."""
        try:
            async with asyncio.timeout(TURN_TIMEOUT_S):
                await self._turns.acquire()
        except TimeoutError as timeout:
            raise ConnectionLost(f"no turn at the cluster for {TURN_TIMEOUT_S:.0f} s") from timeout
        try:
            return await self._execute(*args, **options)
        except ConnectionLost:
            if not self._repeats:
                raise
            return await self._execute(*args, **options)
        finally:
            self._turns.release()

    async def read(self, cursors: dict[Any, Any], count: int, block_ms: int) -> Any:
        """XREAD of streams in one slot. It has no turn to wait for, and does not ask a server which words are keys."""
        await self.initialize()
        with away_as_lost():
            node = self.get_node_from_key(next(iter(cursors)))
        words = ("XREAD", "COUNT", count, "BLOCK", block_ms, "STREAMS", *cursors, *cursors.values())
        return await self._execute(*words, target_nodes=node)

    async def _execute(self, *args: Any, **options: Any) -> Any:
        await self.initialize()  # else the first one goes to any node
        with away_as_lost():
            return await super().execute_command(*args, **options)

    def pipeline(self, transaction: Any = None, _shard_hint: Any = None) -> ClusterPipeline:
        """Commands for all nodes, which are asked at the same time."""
        return Pipeline(self, transaction)  # type: ignore[abstract]


class Commands(AsyncCommandsParser):
    """Which words of commands are keys: asked once, of any node, and not after each failure of one that is away."""

    def __init__(self, nodes: Callable[[], Sequence[ClusterNode]]) -> None:
        super().__init__()
        self._nodes = nodes

    async def initialize(self, _node: ClusterNode | None = None) -> None:
        """Know them. Raises `ConnectionError` when no node says them."""
        for node in () if self.commands else self._nodes():
            with suppress(*LOST):
                await super().initialize(node)
                return
        if not self.commands:
            raise ConnectionLost("no node of the cluster answers")


class Pipeline(ClusterPipeline):
    """One that asks for the cluster's layout after a failure; redis-py's does so only before it sends all again."""

    async def execute(self, raise_on_error: bool = True, allow_redirections: bool = True) -> list[Any]:
        """The replies. Raises `RedisError`."""
        try:
            with away_as_lost():
                replies = await super().execute(raise_on_error, allow_redirections)
        except LOST:
            self._look_again()
            raise
        if any(isinstance(reply, LOST) for reply in replies):
            self._look_again()
        return replies

    def _look_again(self) -> None:
        cast(Cluster, self.cluster_client).look_again()
