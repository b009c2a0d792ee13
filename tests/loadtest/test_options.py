"""Options that cannot be are told in one line, before anything is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.child import free_port
from launcher.places import ROOT, STEPS
from loadtest import keys
from loadtest.options import EX_USAGE, BadOptions, Options, options_of, parsed
from loadtest.target import TargetProblem, deployed, shared_out


def options(*arguments: str, hardware: str = "cpu") -> Options:
    return options_of(parsed(arguments), hardware)


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "loadtest", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False, timeout=120
    )


def test_a_processor_is_asked_for_less_than_a_gpu() -> None:
    on_gpu = options(hardware="gpu")

    assert on_gpu.speed_bound == 10.0
    assert options().speed_bound < on_gpu.speed_bound
    assert options("--speed-bound", "7.5").speed_bound == 7.5


def test_the_margin_is_between_a_fifth_and_three_tenths_unless_told() -> None:
    assert 0.2 <= options().margin <= 0.3


@pytest.mark.parametrize(
    "arguments",
    [
        ["--step-users", "0"],
        ["--step-users", "-3"],
        ["--step-users", "four"],
        ["--step-users", "9", "--most-users", "8"],
        ["--step-seconds", "1"],
        ["--step-seconds", "nan"],
        ["--ttft-bound-s", "0"],
        ["--speed-bound", "inf"],
        ["--turns", "0.5"],
        ["--margin", "1"],
        ["--margin", "-0.1"],
        ["--tiers", "free"],
        ["--tiers", "free=0"],
        ["--tiers", ""],
        ["--engine", "gpt"],
        ["--url", "http://127.0.0.1:8000"],
        ["--keys", "keys.txt"],
        ["--url", "localhost:8000", "--keys", "keys.txt"],
        ["--url", "http://127.0.0.1:99999", "--keys", "keys.txt"],
        ["--url", "http://127.0.0.1:8000/api", "--keys", "keys.txt"],
        ["--url", "http://127.0.0.1:8000", "--keys", "/nowhere/keys.txt"],
        ["--url", "http://127.0.0.1:8000", "--keys", os.devnull],
        ["--nonsense"],
        ["stray"],
    ],
)
def test_what_cannot_be_is_refused(arguments: list[str]) -> None:
    with pytest.raises(BadOptions) as refusal:
        options(*arguments)

    assert "\n" not in str(refusal.value)


def test_help_tells_of_every_option() -> None:
    helped = ran("--help")

    assert (helped.returncode, helped.stderr) == (0, "")
    assert "--ttft-bound-s" in helped.stdout
    assert "30 % do not count" in " ".join(helped.stdout.split())


def test_a_refusal_is_one_line_and_no_trace() -> None:
    refused = ran("--step-users", "many")

    assert refused.returncode == EX_USAGE
    assert refused.stdout == ""
    assert refused.stderr == "palaver: argument --step-users: 'many' is no number from 1 to 100000.\n"


def test_a_server_that_is_away_is_one_line(tmp_path: Path) -> None:
    keys.write(tmp_path / "keys", ["pal_key"])
    url = f"http://127.0.0.1:{free_port()}"

    refused = ran("--url", url, "--keys", str(tmp_path / "keys"))

    assert refused.returncode == 1
    assert refused.stderr.startswith(f"palaver: {url} does not answer: ")
    assert refused.stderr.count("\n") == 1


def test_a_server_that_says_nothing_is_not_waited_for(
    silent_redis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loadtest.target.ANSWERS_WITHIN_S", 0.2)
    keys.write(tmp_path / "keys", ["pal_key"])
    url = silent_redis.replace("redis://", "http://").removesuffix("/0")

    with pytest.raises(TargetProblem, match="does not answer"):
        deployed(options("--url", url, "--keys", str(tmp_path / "keys")), ["pal_key"])


def test_reports_that_are_not_there_cannot_be_compared() -> None:
    refused = ran("--compare", "one.json", "two.json")

    assert refused.returncode == 1
    assert refused.stderr == "palaver: one.json cannot be read: No such file or directory\n"


def test_keys_are_read_a_line_without_remarks(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# of the test's users\npal_one\n\n  pal_two  # a friend\n")

    assert keys.read(path) == ["pal_one", "pal_two"]


@pytest.mark.parametrize("text", ["", "# nothing\n", "two words\n", "pal_é\n"])
def test_a_file_without_usable_keys_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)

    with pytest.raises(keys.NoKeys):
        keys.read(path)


def test_keys_are_written_for_their_owner_alone(tmp_path: Path) -> None:
    keys.write(tmp_path / "keys", ["pal_one"])

    assert (tmp_path / "keys").stat().st_mode & 0o077 == 0
    assert keys.read(tmp_path / "keys") == ["pal_one"]


def test_the_file_of_keys_does_not_reach_the_report(tmp_path: Path) -> None:
    keys.write(tmp_path / "keys", ["pal_one"])
    told = options("--url", "http://127.0.0.1:8000", "--keys", str(tmp_path / "keys")).as_json()

    assert "keys" not in told
    assert "pal_one" not in str(told)


def test_tiers_are_mixed_from_the_first_users_on() -> None:
    order = shared_out(20, {"free": 7, "plus": 2, "pro": 1})

    assert (order.count("free"), order.count("plus"), order.count("pro")) == (14, 4, 2)
    assert set(order[:10]) == {"free", "plus", "pro"}
    assert shared_out(0, {"free": 1}) == []


def test_make_knows_the_command() -> None:
    assert "loadtest" in STEPS
    assert "loadtest:" in (ROOT / "Makefile").read_text()
