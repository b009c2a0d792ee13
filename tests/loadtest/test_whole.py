"""Whole tests, of processes as they run for an operator: against a server that misbehaves, and on the real stack."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from launcher.places import ROOT
from loadtest import keys, report
from tests.loadtest.stub import KEY, WORD_S, Behaviour, serving

STEP = ("--step-seconds", "6", "--think-seconds", "0.5")
AS_MAKE_DOES = [
    *(sys.executable, "-c"),
    "from launcher import loadtesting, stopping\nwith stopping.orderly():\n    loadtesting.main()",
]
WITHIN_S = 240  # other tests have the cores too

pytestmark = pytest.mark.timeout(2 * WITHIN_S)


def command(*arguments: str) -> Sequence[str]:
    return [sys.executable, "-m", "loadtest", *arguments]


def against(url: str, folder: Path, key: str = KEY) -> Sequence[str]:
    keys.write(folder / "keys", [key] * 4)
    return command("--url", url, "--keys", str(folder / "keys"), "--out", str(folder / "out"), *STEP)


def ran(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False, timeout=WITHIN_S
    )


def reported(folder: Path) -> tuple[Path, dict[str, Any]]:
    [path] = (folder / "out").glob("*/report.json")
    return path, json.loads(path.read_text())


def test_a_deployment_that_runs_is_tested_step_by_step(tmp_path: Path) -> None:
    with serving(Behaviour()) as url:
        done = ran([*against(url, tmp_path), "--step-users", "2", "--most-users", "4"])

    assert (done.returncode, done.stderr) == (0, "")
    path, told = reported(tmp_path)
    assert [step["users"] for step in told["steps"]] == [2, 4]
    for step in told["steps"]:
        assert step["questions"] > 0
        assert step["failures"] == step["refusals"] == {}
        assert step["ttft_p50_s"] >= WORD_S
        assert 0 < step["speed_p50"] < 1.1 / WORD_S
        assert list(step["tiers"]) == ["free"]
    assert told["knee"]["state"] == "above"
    assert (told["model"], told["engine"], told["is_whole"]) == ("stub", "as deployed", True)
    assert KEY not in path.read_text()
    assert (path.parent / "report.png").read_bytes().startswith(b"\x89PNG")
    assert (path.parent / "report.html").read_text().startswith("<!doctype html>")
    assert "   2 users: " in done.stdout
    assert "Knee: Not found up to 4 users" in done.stdout


def test_who_is_refused_comes_back_when_told_to_and_is_counted(tmp_path: Path) -> None:
    behaviour = Behaviour(refuses_first=1, retry_after_s=3)
    with serving(behaviour) as url:
        done = ran([*against(url, tmp_path), "--step-users", "1", "--most-users", "1", "--step-seconds", "12"])

    assert done.returncode == 0
    (refused_at, _), (again_at, _), *_ = behaviour.questions
    assert again_at - refused_at >= 3
    _, told = reported(tmp_path)
    assert sum(step["refusals"].get("queue_full", 0) for step in told["steps"]) <= 1
    assert sum(sum(step["failures"].values()) for step in told["steps"]) == 0


def test_what_fails_has_a_name_and_breaks_the_bound(tmp_path: Path) -> None:
    with serving(Behaviour(fails_every=2, cuts_every=3)) as url:
        done = ran([*against(url, tmp_path), "--step-users", "2", "--most-users", "2"])

    assert done.returncode == 0
    _, told = reported(tmp_path)
    failures = told["steps"][0]["failures"]
    assert failures["worker_lost"] > 0
    assert sum(failures.values()) > failures["worker_lost"]
    assert told["knee"] == {"state": "below", "users": 2.0, "broke": "turned_away"}
    assert told["advice"] is None


def test_a_key_that_opens_nothing_is_one_line(tmp_path: Path) -> None:
    with serving(Behaviour()) as url:
        done = ran(against(url, tmp_path, key="pal_bad"))

    assert done.returncode == 1
    assert done.stderr == f"palaver: {url} answers 401 to key 1 of the file. Name a Palaver, and keys of it.\n"
    assert not (tmp_path / "out").exists()


def test_the_locustfile_works_without_us(tmp_path: Path) -> None:
    keys.write(tmp_path / "keys", [KEY])
    behaviour = Behaviour()
    with serving(behaviour) as url:
        done = ran(
            [
                *(sys.executable, "-m", "locust", "-f", "loadtest/locustfile.py", "--host", url, "--headless"),
                *("--keys", str(tmp_path / "keys"), "--users", "3", "--run-time", "6s", "--think-seconds", "0.5"),
            ]
        )

    assert done.returncode == 0, done.stderr
    assert len(behaviour.questions) > 3
    assert "first words" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_locustfile_without_keys_says_so_in_one_line() -> None:
    done = ran(
        [
            *(sys.executable, "-m", "locust", "-f", "loadtest/locustfile.py", "--host", "http://127.0.0.1:9"),
            *("--headless", "--users", "1", "--run-time", "2s"),
        ]
    )

    assert done.returncode != 0
    assert "palaver: no keys are given." in done.stderr
    assert "Traceback" not in done.stderr


def test_the_real_stack_is_put_under_load_and_an_interrupt_still_reports(tmp_path: Path) -> None:
    options = shlex.join(["--engine", "scripted", "--out", str(tmp_path / "out"), "--step-users", "3", *STEP])
    environ = {**os.environ, "ARGS": options, "MODEL": os.environ["MODEL_PATH"]}
    with subprocess.Popen(
        AS_MAKE_DOES, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as testing:
        assert testing.stdout is not None
        assert testing.stderr is not None
        lines = []
        for line in testing.stdout:
            lines.append(line)
            if " 3 users: " in line:
                below = psutil.Process(testing.pid).children(recursive=True)
                testing.send_signal(signal.SIGINT)
                break
        said, complained = testing.stdout.read(), testing.stderr.read()

    assert testing.returncode == 128 + signal.SIGINT
    assert complained == ""
    assert "The engine was scripted" in said
    path, told = reported(tmp_path)
    assert not told["is_whole"]
    [first, *_] = told["steps"]
    assert first["questions"] > 0
    assert first["failures"] == {}
    assert {"free", "plus"} <= set(first["tiers"]) <= {"free", "plus", "pro"}
    assert report.read(path).is_scripted
    assert "stopped before its end" in (path.parent / "report.html").read_text()
    assert below
    # The kernel ends what its parent left: on a busy machine a moment later.
    _, left = psutil.wait_procs(below, timeout=60)
    assert [each for each in left if each.status() != psutil.STATUS_ZOMBIE] == []
