"""The product on three hosts: web and reaper, the worker, and the servers, with TLS between them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
import trustme

from tests.hosts.network import Host, Network, wired
from tests.hosts.servers_host import POSTGRES_PORT, VALKEY_PORT
from tests.sse_client import Api
from tests.stack.stack import MODEL, ROOT, environment, started

SOCKET_PATH_MAX = 100
READY_WITHIN_S = 90
# A word of a few characters each twentieth of a second, which is what people see.
SCRIPT = {"SCRIPT_SLOTS": "64", "SCRIPT_TOKENS_PER_S": "40"}


@dataclass(frozen=True)
class Hosts:
    """The product, and how to look at it: the web process's socket needs no network."""

    network: Network
    api: Api
    web_environ: Mapping[str, str]


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Started once. Skips where nobody may make a network."""
    if os.geteuid() or not shutil.which("ip"):
        pytest.skip("network namespaces need root and iproute2")
    folder = tmp_path_factory.mktemp("hosts")
    folder.chmod(0o711)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    with ExitStack() as cleanup:
        network = cleanup.enter_context(wired())
        told = cleanup.enter_context(_servers(network, authority, folder))
        environs = {host.name: _environ(host, told["urls"], folder) for host in (network.web, network.gpu)}
        door = folder / "web.sock"
        for host, name, module in (
            (network.web, "web", ["chatsite.serve", "--uds", str(door)]),
            (network.web, "reaper", ["manage", "reaper"]),
            (network.gpu, "worker", ["inference.worker", "--model", MODEL, "--worker-name", "gpu1@test"]),
        ):
            process = started(name, module, environs[host.name], folder, host.prefix)
            cleanup.callback(process.stop)
        give_up_at = time.monotonic() + READY_WITHIN_S
        while not (door.exists() and (folder / "ready").exists()):
            process.check()
            assert time.monotonic() < give_up_at, process.tail()
            time.sleep(0.1)
        yield Hosts(network, Api(door, told["key"]), environs["web"])


@contextmanager
def _servers(network: Network, authority: trustme.CA, folder: Path) -> Iterator[Any]:
    certificate = authority.issue_cert(network.web.servers_address, network.gpu.servers_address)
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    command = [
        sys.executable,
        "-m",
        "tests.hosts.servers_host",
        *map(str, (folder, folder / "cert.pem", folder / "key.pem")),
    ]
    with subprocess.Popen(
        [*network.servers, *command],
        cwd=ROOT,
        env=os.environ | dict.fromkeys(("DATABASE_URL", "BROKER_URL", "STREAMS_URL"), ""),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as host:
        assert host.stdout is not None
        line = host.stdout.readline()
        assert line, "the servers' host ended"
        yield json.loads(line)
        assert host.stdin is not None
        host.stdin.close()


def _environ(host: Host, urls: Mapping[str, str], folder: Path) -> dict[str, str]:
    """What its processes read: who the servers are is checked, by a certificate that only this authority gives."""
    ca = str(folder / "ca.pem")
    # Here TLS ends before PostgreSQL; a server of your own that has it needs no `sslnegotiation`.
    postgres = {"sslmode": "verify-full", "sslrootcert": ca, "sslnegotiation": "direct"}
    valkey = {"ssl_cert_reqs": "required", "ssl_ca_certs": ca}
    return {
        **os.environ,
        **environment("scripted", folder),
        **SCRIPT,
        "DATABASE_URL": _over_tls(
            urls["DATABASE_URL"], "postgres", f"{host.servers_address}:{POSTGRES_PORT}", postgres
        ),
        "BROKER_URL": _over_tls(urls["BROKER_URL"], "rediss", f"{host.servers_address}:{VALKEY_PORT}", valkey),
        "STREAMS_URL": _over_tls(urls["STREAMS_URL"], "rediss", f"{host.servers_address}:{VALKEY_PORT}", valkey),
    }


def _over_tls(url: str, scheme: str, address: str, options: Mapping[str, str]) -> str:
    parts = urlsplit(url)
    credentials = parts.netloc.rpartition("@")[0]
    return parts._replace(scheme=scheme, netloc=f"{credentials}@{address}", query=urlencode(options)).geturl()
