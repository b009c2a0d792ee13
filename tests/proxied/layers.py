"""Two proxies before the web processes: the product's own configuration of nginx, and one that suits nobody."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import trustme

from tests import nginx
from tests.stack.stack import ROOT

CONFIGURATION = ROOT / "deploy/nginx/palaver"
# What is the operator's in it, and where it is found on a machine of its own.
CHANGED = {
    "listen 80;": "listen 127.0.0.1:{plain};",
    "listen 443 ssl http2;": "listen 127.0.0.1:{tls} ssl; http2 on;",
    "/etc/nginx/tls/fullchain.pem": "{home}/chain.pem",
    "/etc/nginx/tls/privkey.pem": "{home}/key.pem",
    "/var/cache/nginx/palaver": "{home}/cache",
    "server 127.0.0.1:8001": "server 127.0.0.1:{web1}",
    "server 127.0.0.1:8002": "server 127.0.0.1:{web2}",
}
HEAD = """
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
"""
OURS = "include palaver/http.conf; }}"
# It holds back what comes, to send more at once, and compresses whatever it can.
STRANGE = """
    gzip on;
    gzip_types *;
    gzip_min_length 0;
    gzip_proxied any;
    proxy_buffers 64 64k;
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass https://127.0.0.1:{tls}; }}
    }}
}}
"""


@contextmanager
def ours(home: Path, webs: Sequence[int], authority: trustme.CA, doors: Mapping[str, int]) -> Iterator[None]:
    """deploy/nginx/, as it is shipped but for ports and paths, on the doors `plain` and `tls`."""
    places = {"home": home, "web1": webs[0], "web2": webs[1], **doors}
    shutil.copytree(CONFIGURATION, home / "palaver")
    unused = set(CHANGED)
    for file in (home / "palaver").iterdir():
        text = file.read_text()
        for shipped, here in CHANGED.items():
            unused -= {shipped} if shipped in text else set()
            text = text.replace(shipped, here.format(**places))
        file.write_text(text)
    assert not unused, f"no longer in {CONFIGURATION}: {unused}"
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(home / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(home / "chain.pem")
    with nginx.running((HEAD + OURS).format(home=home), home, lambda: listens(doors["tls"])):
        yield


@contextmanager
def strange(home: Path, port: int, tls: int) -> Iterator[None]:
    """Somebody else's, on `port`, before ours."""
    with nginx.running((HEAD + STRANGE).format(home=home, port=port, tls=tls), home, lambda: listens(port)):
        yield


def listens(port: int) -> bool:
    """Whether somebody does there."""
    with socket.socket() as probe:
        return not probe.connect_ex(("127.0.0.1", port))
