"""The host with the servers: PostgreSQL and Valkey, with passwords, reached over TLS. Runs until its input ends.

servers_host.py FOLDER CERTIFICATE KEY: writes one line of JSON when all is ready.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

from launcher import servers
from tests import nginx
from tests.stack.stack import environment, prepared

POSTGRES_PORT, VALKEY_PORT = 5432, 6379
# Neither of the packages' servers can speak TLS itself.
TLS = """
events {{}}
stream {{
    ssl_certificate {certificate};
    ssl_certificate_key {key};
    ssl_protocols TLSv1.3;
    server {{ listen {postgres_door} ssl; ssl_alpn postgresql; proxy_pass 127.0.0.1:{postgres}; proxy_timeout 1h; }}
    server {{ listen {valkey_door} ssl; proxy_pass 127.0.0.1:{valkey}; proxy_timeout 1h; }}
}}
"""


def main(folder: Path, certificate: str, key: str) -> None:
    """Serve, until whoever started us closes our input or is gone."""
    with servers.throw_away() as behind:
        api_key = prepared({**os.environ, **environment("scripted", folder), **behind.urls})
        doors = TLS.format(
            certificate=certificate,
            key=key,
            postgres_door=POSTGRES_PORT,
            postgres=urlsplit(behind.urls["DATABASE_URL"]).port,
            valkey_door=VALKEY_PORT,
            valkey=urlsplit(behind.urls["STREAMS_URL"]).port,
        )
        with nginx.running(doors, folder, is_up):
            sys.stdout.write(json.dumps({"key": api_key, "urls": behind.urls}) + "\n")
            sys.stdout.flush()
            sys.stdin.read()


def is_up() -> bool:
    """Whether both doors are open."""
    for port in (POSTGRES_PORT, VALKEY_PORT):
        with socket.socket() as door:
            if door.connect_ex(("127.0.0.1", port)):
                return False
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
