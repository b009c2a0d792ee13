"""What a cell finds is told truly: in the table, in the file, and by the arithmetic behind both."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.serving.cores import Cores
from bench.serving.figures import Bound, Figure, at_least, percentile, spread
from bench.serving.job import Job, Lane, Outcome, Sample, Surface
from bench.serving.meter import LOAD, SERVER, Record
from bench.serving.pace import common_window, gaps_ms, lags_ms, tokens
from bench.serving.report import table, written

FIGURES = [
    Figure("TTFT added, p50", "ms", 12.34, Bound(20), {"other": 21.0}, 0.31),
    Figure("streams", "", 50, at_least(200), {"other": None}, 1000),
]


def test_the_table_has_a_column_for_each_server_and_marks_what_is_missed() -> None:
    head, rule, ttft, streams = table(FIGURES, ["other"]).splitlines()

    assert [cell.strip() for cell in head.strip("|").split("|")] == [
        *("what", "unit", "bound", "ours", "other", "the parts alone")
    ]
    assert set(rule) == {"|", "-", " "}
    assert [cell.strip() for cell in ttft.strip("|").split("|")] == [
        *("TTFT added, p50", "ms", "≤ 20", "12.3", "21", "0.31")
    ]
    assert [cell.strip() for cell in streams.strip("|").split("|")] == ["streams", "", "≥ 200", "50 ✗", "", "1,000"]
    assert len({len(line) for line in (head, rule, ttft, streams)}) == 1


def test_the_file_bears_the_time_and_holds_what_the_table_leaves_out(tmp_path: Path) -> None:
    figure = Figure("x", "ms", 1.0, Bound(2), details={"ours": spread([1.0, 3.0])})

    path = written(tmp_path / "new", {"cell": [figure]}, {"cores": 2}, datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC))

    assert path.name == "20260304-050607.json"
    told = json.loads(path.read_text())
    assert told["machine"] == {"cores": 2}
    [line] = told["cells"]["cell"]
    assert (line["bound"], line["is_met"]) == ("≤ 2", True)
    assert line["details"]["ours"] == {"n": 2, "mean": 2.0, "p50": 1.0, "p95": 3.0, "p99": 3.0, "max": 3.0}


def test_nothing_measured_is_neither_met_nor_missed() -> None:
    assert Figure("x", "ms", None, Bound(2)).is_met is None
    assert Figure("x", "ms", 3.0).is_met is None
    assert table([Figure("x", "ms", None, Bound(2))], []).endswith("|                 |")


@pytest.mark.parametrize(("percent", "found"), [(1, 1), (50, 50), (99, 99), (99.5, 100), (100, 100)])
def test_a_percentile_is_one_of_the_values(percent: float, found: float) -> None:
    assert percentile(list(range(100, 0, -1)), percent) == found


def test_a_stalled_event_is_as_late_as_its_oldest_token() -> None:
    # Ten tokens a second; the third and fourth come with the fifth, in one event, when that is due.
    even = [(at / 10, at, at + 1) for at in range(2)]
    sample = Sample(0.0, first_at=0.0, deltas=[*even, (0.4, 2, 5), (0.5, 5, 6)])
    window = common_window([sample])

    assert lags_ms(sample, 10, window) == pytest.approx([0, 0, 200, 0])
    assert gaps_ms(sample, window) == pytest.approx([100, 300, 100])
    assert tokens(sample, window) == 6


def test_the_window_is_when_all_streams_run() -> None:
    first = Sample(0.0, first_at=1.0, deltas=[(1.0, 0, 1), (5.0, 1, 2)])
    second = Sample(0.0, first_at=3.0, deltas=[(3.0, 0, 1), (9.0, 1, 2)])

    window = common_window([first, second])

    assert (window.begin, window.end, window.seconds) == (3.0, 5.0, 2.0)
    assert tokens(first, window) + tokens(second, window) == 2


def test_cpu_time_between_two_looks_lies_on_the_line_between_them() -> None:
    seconds = {"web": [1.0, 2.0, 2.0], SERVER: [10.0, 12.0, 13.0], LOAD: [0.0, 10.0, 19.0]}
    record = Record({"web": 1}, Cores(1, 0), at=[0.0, 10.0, 20.0], seconds=seconds)

    assert record.used_s("web", 5.0, 15.0) == pytest.approx(0.5)
    noise = record.noise(0.0, 20.0)
    assert noise.others == pytest.approx((3 - 1) / 20)
    assert noise.load == pytest.approx(19 / 20)
    assert noise.spoils


def test_a_job_and_its_outcome_survive_the_way_between_processes() -> None:
    job = Job(Surface.OPENAI, 80, [Lane("key", "chat")], 3, per_s=2.0)
    outcome = Outcome([Sample(1.0, deltas=[(1.5, 0, 1)])], 0.5, 2.0)

    assert Job.of(json.loads(json.dumps(job.as_json()))) == job
    again = Outcome.of(json.loads(json.dumps(outcome.as_json())))
    assert (again.cpu_share, again.samples[0].due_at, [tuple(delta) for delta in again.samples[0].deltas]) == (
        *(0.5, 1.0),
        [(1.5, 0, 1)],
    )


def test_later_streams_get_fewer_tokens_so_that_all_end_together() -> None:
    job = Job(Surface.PALAVER, 80, [], 3, max_output_tokens=100, fewer_tokens_each=40)

    assert [job.tokens_of(number) for number in range(4)] == [100, 60, 20, 1]
    assert Job(Surface.PALAVER, 80, [], 3).tokens_of(0) == 0
