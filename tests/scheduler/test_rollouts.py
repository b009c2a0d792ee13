"""Rollouts, step by step, as workers and the reaper take them: who is told when, and what turns them round."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone

from inference import attendance
from scheduler import rollouts
from scheduler.models import Model, ModelVersion, Rollout, Worker
from scheduler.rollouts import FilesDiffer, NoVersion, RolloutRefused

pytestmark = pytest.mark.django_db
Stage = Callable[..., ModelVersion]
State, Phase = Rollout.State, Worker.Phase
LONG_AGO = timedelta(hours=2)


@pytest.fixture
def stage(model: Model) -> Stage:
    """Another version of the model."""

    def make(**columns: object) -> ModelVersion:
        wanted = {"source": model.source, "context_window": 2048, **columns}
        return ModelVersion.objects.create(model=model, **wanted)

    return make


@pytest.fixture
def first(stage: Stage) -> ModelVersion:
    """The version that is active."""
    version = stage()
    rollouts.adopt(version)
    return version


def serve(*names: str) -> None:
    """Workers come and serve what they are told."""
    for name in names:
        version = rollouts.enlist(slug(), name)
        rollouts.check_in(name, Phase.LOADING, "")
        rollouts.arrived(name, "", f"digest of {version.number}", {"files": {}})


def slug() -> str:
    return Model.objects.get().pk


def told(name: str) -> int | None:
    """What a worker that goes on serving hears."""
    return rollouts.check_in(name, Phase.SERVING, "")


def standing(rollout: Rollout) -> tuple[str, str]:
    rollout.refresh_from_db()
    return rollout.state, rollout.reason


def test_workers_change_one_at_a_time_and_then_the_version_is_active(first: ModelVersion, stage: Stage) -> None:
    serve("gpu1", "gpu2")
    second = stage(context_window=1024)
    rollout = rollouts.activate(second, by="operator")

    assert (told("gpu1"), told("gpu2")) == (second.pk, first.pk)
    rollouts.check_in("gpu1", Phase.DRAINING, "")
    rollouts.advance()
    assert told("gpu2") == first.pk, "the second was told before the first was there"
    serve("gpu1")
    assert (told("gpu1"), told("gpu2")) == (second.pk, second.pk)
    assert (standing(rollout), Model.objects.get().version) == ((State.RUNNING, ""), first)
    serve("gpu2")

    model = Model.objects.get()
    assert (standing(rollout), model.version, model.context_window) == ((State.DONE, ""), second, 1024)
    assert [version.state for version in ModelVersion.objects.order_by("number")] == ["retired", "active"]


def test_a_version_that_one_cannot_load_goes_back_everywhere(first: ModelVersion, stage: Stage) -> None:
    serve("gpu1", "gpu2", "gpu3")
    second = stage()
    rollout = rollouts.activate(second)
    rollouts.advance()
    serve("gpu1")
    assert rollouts.enlist(slug(), "gpu2") == second
    rollouts.failed("gpu2", "CUDA out of memory")

    assert standing(rollout) == (State.ROLLING_BACK, "gpu2: CUDA out of memory")
    assert told("gpu1") == second.pk, "sent back while another was on its way back"
    assert told("gpu3") == first.pk
    serve("gpu2")
    assert told("gpu1") == first.pk
    serve("gpu1")

    second.refresh_from_db()
    assert (standing(rollout)[0], second.state, second.problem) == (State.ROLLED_BACK, "staged", rollout.reason)
    assert Model.objects.get().version == first
    assert {worker.version_id for worker in Worker.objects.all()} == {first.pk}


def test_one_that_fails_with_the_version_before_turns_nothing_round(first: ModelVersion, stage: Stage) -> None:
    serve("gpu1", "gpu2")
    rollout = rollouts.activate(stage())
    rollouts.failed("gpu2", "its disk is full")
    assert standing(rollout) == (State.RUNNING, "")


def test_one_that_ends_while_it_loads_turns_the_rollout_round(first: ModelVersion, stage: Stage) -> None:
    serve("gpu1")
    rollout = rollouts.activate(stage())
    rollouts.advance()
    rollouts.enlist(slug(), "gpu1")
    rollouts.check_in("gpu1", Phase.LOADING, "")

    assert rollouts.enlist(slug(), "gpu1") == first
    assert standing(rollout) == (
        State.ROLLING_BACK,
        f"gpu1 ended while loading {rollout.version}: its log says why.",
    )


@pytest.mark.parametrize(
    ("column", "reason"), [("seen_at", "gpu1 fell silent while loading it"), ("since", "for more than 1:00:00")]
)
def test_one_that_falls_silent_or_never_comes_does_so_too(
    first: ModelVersion, stage: Stage, column: str, reason: str
) -> None:
    serve("gpu1", "gpu2")
    rollout = rollouts.activate(stage())
    rollouts.advance()
    rollouts.enlist(slug(), "gpu1")
    rollouts.check_in("gpu1", Phase.LOADING, "half of it")
    rollouts.advance()
    assert standing(rollout)[0] == State.RUNNING
    # Silent for two minutes, which is no reason to forget it.
    age = timedelta(minutes=2) if column == "seen_at" else LONG_AGO
    Worker.objects.filter(pk="gpu1").update(**{column: timezone.now() - age})
    rollouts.advance()

    assert standing(rollout)[0] == State.ROLLING_BACK
    assert reason in standing(rollout)[1]


def test_one_that_dies_on_the_way_back_is_not_waited_for(first: ModelVersion, stage: Stage) -> None:
    serve("gpu1", "gpu2")
    rollout = rollouts.activate(stage())
    rollouts.advance()
    rollouts.enlist(slug(), "gpu1")
    rollouts.failed("gpu1", "no")
    Worker.objects.filter(pk="gpu1").update(seen_at=timezone.now() - timedelta(minutes=2))
    rollouts.advance()
    rollouts.advance()

    assert standing(rollout)[0] == State.ROLLED_BACK
    assert rollouts.enlist(slug(), "gpu1") == first


def test_a_way_back_that_is_barred_ends_and_says_so(first: ModelVersion, stage: Stage) -> None:
    serve("gpu1", "gpu2", "gpu3")
    second = stage()
    rollout = rollouts.activate(second)
    serve("gpu1")
    rollouts.enlist(slug(), "gpu2")
    rollouts.failed("gpu2", "no memory")
    with pytest.raises(RolloutRefused, match=r"rolled back\. Wait for its end\.\Z"):
        rollouts.activate(stage())
    assert rollouts.enlist(slug(), "gpu2") == first
    rollouts.failed("gpu2", "its files are others")

    assert standing(rollout) == (
        State.ROLLED_BACK,
        "gpu2: no memory\nAnd on the way back gpu2: its files are others",
    )
    assert told("gpu1") == first.pk, "left on a version that was rolled back"
    assert rollouts.activate(stage()).state == State.RUNNING


def test_an_operator_can_turn_it_round(first: ModelVersion, stage: Stage) -> None:
    serve("gpu1", "gpu2")
    second = stage(context_window=1024)
    rollout = rollouts.activate(second)
    rollouts.advance()
    serve("gpu1")
    assert Model.objects.get().context_window == 1024, "both must have room for what is asked"
    rollouts.roll_back(rollout, "Rolled back by operator.")
    rollouts.roll_back(rollout, "again")
    assert told("gpu1") == first.pk
    serve("gpu1")

    assert standing(rollout) == (State.ROLLED_BACK, "Rolled back by operator.")
    assert Model.objects.get().context_window == 2048
    assert told("gpu2") == first.pk


def test_the_window_does_not_grow_before_all_workers_have_it(first: ModelVersion, stage: Stage) -> None:
    serve("gpu1", "gpu2")
    rollouts.activate(stage(context_window=4096))
    rollouts.advance()
    serve("gpu1")
    assert Model.objects.get().context_window == 2048
    serve("gpu2")
    assert Model.objects.get().context_window == 4096


def test_a_models_first_version_waits_for_a_worker_and_is_proved_by_it(model: Model, stage: Stage) -> None:
    Model.objects.update(source="", context_window=0)
    with pytest.raises(NoVersion, match="stage one in the admin"):
        rollouts.enlist(model.pk, "gpu1")
    rollout = rollouts.activate(stage())
    rollouts.advance()
    assert standing(rollout)[0] == State.RUNNING
    serve("gpu1")

    assert standing(rollout)[0] == State.DONE
    assert Model.objects.get().source == model.source


def test_a_first_version_that_cannot_be_loaded_leaves_the_model_as_it_was(model: Model, stage: Stage) -> None:
    Model.objects.update(source="", context_window=0)
    rollout = rollouts.activate(stage(source="/nowhere"))
    rollouts.enlist(model.pk, "gpu1")
    rollouts.failed("gpu1", "there is no /nowhere")

    assert standing(rollout) == (State.ROLLED_BACK, "gpu1: there is no /nowhere")
    assert rollouts.check_in("gpu1", Phase.LOADING, "") is None, "it is to end"
    with pytest.raises(NoVersion):
        rollouts.enlist(model.pk, "gpu1")


def test_a_worker_that_starts_meanwhile_takes_the_old_version_unless_it_is_alone(
    first: ModelVersion, stage: Stage
) -> None:
    serve("gpu1")
    second = stage()
    rollout = rollouts.activate(second)
    assert rollouts.enlist(slug(), "gpu2") == first
    Worker.objects.all().delete()
    serve("gpu3")

    assert standing(rollout)[0] == State.DONE
    assert Model.objects.get().version == second


def test_one_that_ends_for_good_is_not_waited_for(first: ModelVersion, stage: Stage) -> None:
    serve("gpu1", "gpu2")
    second = stage()
    rollouts.activate(second)
    rollouts.advance()
    rollouts.resign("gpu1")
    rollouts.advance()
    assert told("gpu2") == second.pk


def test_a_worker_that_was_forgotten_is_told_to_begin_again(first: ModelVersion) -> None:
    serve("gpu1")
    Worker.objects.update(seen_at=timezone.now() - LONG_AGO)
    rollouts.advance()
    assert told("gpu1") is None


def test_a_second_rollout_and_the_active_version_are_refused(first: ModelVersion, stage: Stage) -> None:
    second, third = stage(), stage()
    with pytest.raises(RolloutRefused, match="is active already"):
        rollouts.activate(first)
    Model.objects.update(is_active=False)
    with pytest.raises(RolloutRefused, match="Switch it on first"):
        rollouts.activate(second)
    Model.objects.update(is_active=True)
    rollouts.activate(second)
    with pytest.raises(RolloutRefused, match="Wait for its end, or roll it back"):
        rollouts.activate(third)
    with pytest.raises(IntegrityError), transaction.atomic():
        Rollout.objects.create(model=first.model, version=third)


def test_other_files_than_the_first_worker_had_are_not_served(first: ModelVersion) -> None:
    serve("gpu1")
    rollouts.enlist(slug(), "gpu2")
    with pytest.raises(FilesDiffer, match="others than where it was loaded first"):
        rollouts.arrived("gpu2", "", "another digest", {})
    assert Worker.objects.get(pk="gpu2").phase == Phase.FETCHING


def test_workers_and_rows_have_the_same_phases() -> None:
    assert {*Phase.values} == {*attendance.Phase}


def test_versions_are_numbered_and_one_is_active(model: Model, stage: Stage) -> None:
    assert [stage().number, stage().number] == [1, 2]
    with pytest.raises(IntegrityError), transaction.atomic():
        ModelVersion.objects.update(state="active")


@pytest.mark.parametrize(
    ("columns", "field"),
    [
        ({"context_window": 64}, "context_window"),
        ({"speculative_method": "draft_model"}, "speculative_model"),
        ({"speculative_method": "ngram", "speculative_model": "some/model"}, "speculative_model"),
        ({"num_speculative_tokens": 3}, "num_speculative_tokens"),
    ],
)
def test_half_a_version_is_refused(model: Model, columns: dict[str, object], field: str) -> None:
    Model.objects.update(max_output_tokens=64)
    version = ModelVersion(model=model, source="/somewhere", **{"context_window": 2048, **columns})
    with pytest.raises(ValidationError) as refused:
        version.full_clean()
    assert list(refused.value.message_dict) == [field]
