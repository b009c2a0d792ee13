"""The admin of versions: what is staged, who may roll it out, what stays as it is, and what a rollout's page shows."""

from __future__ import annotations

import pytest
from auditlog.models import LogEntry
from django.contrib.auth.models import Permission
from django.test import Client

from chat.models import User
from scheduler import rollouts
from scheduler.models import Model, ModelVersion, Rollout, Tier, Worker

pytestmark = pytest.mark.django_db
VERSIONS, ROLLOUTS = "/admin/scheduler/modelversion", "/admin/scheduler/rollout"
NUMBERS = {"context_window": "1024", "tensor_parallel_size": "1", "pipeline_parallel_size": "1"}


@pytest.fixture
def active(model: Model) -> ModelVersion:
    version = ModelVersion.objects.create(model=model, source=model.source, context_window=2048, max_num_seqs=7)
    rollouts.adopt(version)
    return version


@pytest.fixture
def staged(active: ModelVersion) -> ModelVersion:
    return ModelVersion.objects.create(model=active.model, source=active.source, context_window=1024)


@pytest.fixture
def looker(free: Tier) -> Client:
    """Who may look at everything and change versions, but begin no rollouts."""
    user = User.objects.create_user("looker", tier=free, is_staff=True)
    may = ("view_modelversion", "change_modelversion", "view_rollout")
    user.user_permissions.set(Permission.objects.filter(codename__in=may))
    client = Client()
    client.force_login(user)
    return client


def form(version: ModelVersion, **changes: str) -> dict[str, str]:
    return {"model": version.model_id, "source": version.source, **NUMBERS, **changes}


def test_a_new_version_begins_as_the_active_one(as_operator: Client, active: ModelVersion) -> None:
    shown = as_operator.get(f"{VERSIONS}/add/?model={active.model_id}").context["adminform"].form.initial

    assert (shown["source"], shown["context_window"], shown["max_num_seqs"]) == (active.source, 2048, 7)


def test_staged_and_rolled_out_in_one_step(as_operator: Client, active: ModelVersion) -> None:
    answer = as_operator.post(f"{VERSIONS}/add/", form(active, _activate="1"), follow=True)

    rollout = Rollout.objects.get()
    assert answer.redirect_chain == [(f"{ROLLOUTS}/{rollout.pk}/change/", 302)]
    assert (rollout.version.number, rollout.previous, rollout.started_by) == (2, active, "operator")
    assert "None is there. The first one that starts takes the version." in answer.content.decode()


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("source", "ftp://somewhere", "Give an absolute folder, a hub id"),
        ("source", "../../nowhere", "neither a folder of this machine nor a hub id"),
        ("source", "x" * 1000, "neither a folder of this machine nor a hub id"),
        ("source", "tests", "Give the folder from the root on"),
        ("revision", "main", "Only hub ids have one"),
        ("context_window", "64", "leave some more for the prompt"),
        ("speculative_method", "eagle", "name it"),
        ("gpu_memory_utilization", "1.5", "less than or equal to 1"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_stands(
    as_operator: Client, active: ModelVersion, field: str, value: str, reason: str
) -> None:
    Model.objects.update(max_output_tokens=64)
    answer = as_operator.post(f"{VERSIONS}/add/", form(active, **{field: value}))

    assert reason in answer.content.decode()
    assert ModelVersion.objects.count() == 1


def test_from_its_first_rollout_on_a_version_stays_as_it_is(as_operator: Client, staged: ModelVersion) -> None:
    page = f"{VERSIONS}/{staged.pk}/change/"
    as_operator.post(page, form(staged, context_window="600"))
    staged.refresh_from_db()
    assert staged.context_window == 600

    as_operator.post(page, form(staged, context_window="600", _activate="1"))
    as_operator.post(page, form(staged, context_window="256", source="/elsewhere", note="Seen"))
    staged.refresh_from_db()
    assert (staged.context_window, staged.source, staged.note) == (600, staged.model.source, "Seen")


def test_a_second_rollout_is_refused_with_the_reason(as_operator: Client, staged: ModelVersion) -> None:
    rollouts.activate(staged)
    answer = as_operator.post(f"{VERSIONS}/add/", form(staged, _activate="1"), follow=True)

    assert "is being rolled out. Wait for its end, or roll it back." in answer.content.decode()
    assert Rollout.objects.count() == 1


def test_who_may_begin_no_rollouts_begins_none(looker: Client, staged: ModelVersion) -> None:
    page = f"{VERSIONS}/{staged.pk}/change/"
    assert "_activate" not in looker.get(page).content.decode()
    assert looker.post(page, form(staged, _activate="1")).status_code == 403
    assert not Rollout.objects.exists()

    rollout = rollouts.activate(staged)
    assert "Roll back" not in looker.get(f"{ROLLOUTS}/{rollout.pk}/change/").content.decode()
    assert looker.post(f"{ROLLOUTS}/{rollout.pk}/roll-back/").status_code == 403
    assert Rollout.objects.get().state == "running"


def test_a_rollouts_page_shows_each_worker_and_turns_round(as_operator: Client, staged: ModelVersion) -> None:
    model = staged.model
    for name in ("gpu1", "gpu2"):
        rollouts.enlist(model.pk, name)
        rollouts.arrived(name, "", "digest", [])
    rollout = rollouts.activate(staged)
    rollouts.enlist(model.pk, "gpu1")
    rollouts.check_in("gpu1", Worker.Phase.FETCHING, "3 of 9 MB")
    page = as_operator.get(f"{ROLLOUTS}/{rollout.pk}/change/").content.decode()
    assert "0 of 2 workers serve version 2" in page
    assert "Fetching files" in page
    assert "3 of 9 MB" in page
    assert 'http-equiv="refresh"' in page

    assert as_operator.get(f"{ROLLOUTS}/{rollout.pk}/roll-back/").status_code == 405
    as_operator.post(f"{ROLLOUTS}/{rollout.pk}/roll-back/")
    page = as_operator.get(f"{ROLLOUTS}/{rollout.pk}/change/").content.decode()
    assert "Rolled back by operator." in page
    assert "turn-round" not in page


def test_what_is_served_cannot_be_deleted(as_operator: Client, active: ModelVersion, staged: ModelVersion) -> None:
    assert as_operator.post(f"{VERSIONS}/{active.pk}/delete/", {"post": "yes"}).status_code == 403
    as_operator.post(f"{VERSIONS}/{staged.pk}/delete/", {"post": "yes"})
    assert list(ModelVersion.objects.all()) == [active]


def test_nor_with_others_from_the_list(as_operator: Client, active: ModelVersion, staged: ModelVersion) -> None:
    rollouts.activate(staged)
    chosen = {"action": "delete_selected", "_selected_action": [active.pk, staged.pk], "post": "yes"}
    answer = as_operator.post(f"{VERSIONS}/", chosen)

    assert "served, or being rolled out" in answer.content.decode()
    assert ModelVersion.objects.count() == 2


def test_a_models_page_leads_to_its_versions(as_operator: Client, staged: ModelVersion) -> None:
    page = as_operator.get(f"/admin/scheduler/model/{staged.model_id}/change/").content.decode()

    assert f"{VERSIONS}/{staged.pk}/change/" in page
    assert f"{VERSIONS}/add/?model={staged.model_id}" in page


def test_staging_and_rolling_out_are_in_the_audit_log(as_operator: Client, active: ModelVersion) -> None:
    as_operator.post(f"{VERSIONS}/add/", form(active, _activate="1"))

    kinds = LogEntry.objects.filter(actor__username="operator").values_list("content_type__model", flat=True)
    assert {"modelversion", "rollout"} <= set(kinds)
