"""Workers never share a core."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher import workers
from launcher.cores import divide
from launcher.problems import SetupProblem


def test_one_worker_gets_every_core() -> None:
    assert divide(["0", "1", "2"], 1, "core") == ["0,1,2"]


def test_two_workers_on_two_cores_get_one_each() -> None:
    assert divide(["0", "1"], 2, "core") == ["0", "1"]


@pytest.mark.parametrize("workers", range(1, 8))
def test_every_core_goes_to_one_worker_and_shares_are_even(workers: int) -> None:
    cores = [str(core) for core in (0, 2, 3, 5, 8, 9, 12)]

    shares = [share.split(",") for share in divide(cores, workers, "core")]

    assert [core for share in shares for core in share] == cores
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_more_workers_than_cores_are_refused() -> None:
    with pytest.raises(SetupProblem, match="3 workers need a core each"):
        divide(["0", "1"], 3, "core")


def test_workers_get_cores_and_ready_files_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {4, 7, 9})
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    first, second = workers.environments(2, "cpu", tmp_path)

    assert [(own["OMP_PLACES"], own["OMP_NUM_THREADS"]) for own in (first, second)] == [("{4}", "1"), ("{7,9}", "2")]
    assert first["READY_FILE"] != second["READY_FILE"]


def test_workers_on_gpus_get_one_each(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")

    assert [own["CUDA_VISIBLE_DEVICES"] for own in workers.environments(2, "gpu", tmp_path)] == ["2", "5"]
