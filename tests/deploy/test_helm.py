"""The chart, as helm's own command makes manifests of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import yaml

from chat.load.metrics import LoadCollector
from chatsite.serve import GRACE_S
from tests.deploy.test_compose import ENDS_WITHIN_S
from tests.deploy.tools import CHART, attempted, run

SECRET = ("--set", "existingSecret=palaver-secrets")
Manifests = dict[tuple[str, str], Any]


def rendered(*arguments: str, workers: Sequence[Mapping[str, Any]] | None = None) -> Manifests:
    """Manifests by kind and name."""
    chosen = () if workers is None else ("--set-json", f"workers={json.dumps(workers)}")
    made = run("helm", "template", "p", CHART, *SECRET, *arguments, *chosen)
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(made) if each}


def worker(**values: Any) -> dict[str, Any]:
    return {"name": "a", "model": "my-model", "drainSeconds": 60, "startSeconds": 600, **values}


def pod_of(manifests: Manifests, name: str) -> dict[str, Any]:
    spec: dict[str, Any] = manifests["Deployment", name]["spec"]["template"]["spec"]
    return spec


def environ_of(pod: Mapping[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in pod["containers"][0]["env"]}


def test_helm_finds_nothing_to_mend() -> None:
    run("helm", "lint", "--strict", CHART, *SECRET)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "existingSecret"),
        ((*SECRET, "--set", "settings.SECRET_KEY=plain"), "SECRET_KEY"),
        ((*SECRET, "--set-json", json.dumps(worker(drainSeconds=-1)).join(("workers=[", "]"))), "drainSeconds"),
        ((*SECRET, "--set-json", json.dumps(worker(name="A b")).join(("workers=[", "]"))), "name"),
        ((*SECRET, "--set-json", json.dumps(worker(typo=1)).join(("workers=[", "]"))), "typo"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(arguments: Sequence[str], named: str) -> None:
    refused = attempted("helm", "template", "p", CHART, *arguments)

    assert refused.returncode
    assert named in refused.stderr


def test_web_pods_leave_when_nobody_is_sent_to_them_any_more() -> None:
    made = rendered("--set", "web.preStopSeconds=7,web.drainSeconds=90")
    pod, spec = pod_of(made, "p-web"), made["Deployment", "p-web"]["spec"]
    [container] = pod["containers"]

    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert container["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "7"]
    assert {"name": "WEB_DRAIN_S", "value": "90"} in container["env"]
    assert pod["terminationGracePeriodSeconds"] > 7 + 90 + GRACE_S + 5
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert {container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe")} == {"/healthz"}
    assert made["Deployment", "p-reaper"]["spec"]["replicas"] == 2


@pytest.mark.parametrize("drain_s", [0, 60, 900])
def test_a_worker_has_the_time_to_drain(drain_s: int) -> None:
    pod = pod_of(rendered(workers=[worker(drainSeconds=drain_s, gpus=2)]), "p-worker-a")
    environ = environ_of(pod)

    assert int(environ["DRAIN_S"]) == drain_s
    assert pod["terminationGracePeriodSeconds"] > drain_s + ENDS_WITHIN_S
    assert environ["WORKER_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 2
    probe = pod["containers"][0]["startupProbe"]
    assert probe["exec"]["command"][-1] == environ["READY_FILE"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 600


def test_two_models_have_workers_and_names_of_their_own() -> None:
    made = rendered(workers=[worker(), worker(name="b", model="other", replicas=3)])

    models = {name: environ_of(pod_of(made, name))["WORKER_MODEL"] for name in ("p-worker-a", "p-worker-b")}
    assert models == {"p-worker-a": "my-model", "p-worker-b": "other"}
    assert [made["Deployment", name]["spec"]["replicas"] for name in models] == [1, 3]


@pytest.mark.parametrize("kind", ["hpa", "keda"])
def test_an_autoscaler_follows_the_metric_that_the_product_has(db: None, kind: str) -> None:
    scaling = {"kind": kind, "min": 2, "max": 9, "stableSeconds": 300}
    made = rendered(workers=[worker(autoscaling=scaling)])
    said = {metric.name for metric in LoadCollector().collect()}

    if kind == "hpa":
        spec = made["HorizontalPodAutoscaler", "p-worker-a"]["spec"]
        external, behaviour = spec["metrics"][0]["external"], spec["behavior"]
        asked, target = external["metric"]["name"], external["target"]["averageValue"]
        assert external["metric"]["selector"]["matchLabels"] == {"model": "my-model"}
        assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 9)
    else:
        spec = made["ScaledObject", "p-worker-a"]["spec"]
        [trigger] = spec["triggers"]
        asked, target = "palaver_wanted_workers", trigger["metadata"]["threshold"]
        assert trigger["metadata"]["query"] == 'max(palaver_wanted_workers{model="my-model"})'
        behaviour = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (2, 9)
    assert asked in said
    assert target == "1"  # a worker for each that is wanted
    assert behaviour["scaleDown"]["stabilizationWindowSeconds"] == 300
    assert "replicas" not in made["Deployment", "p-worker-a"]["spec"]  # or each upgrade would set it back


def test_streams_pass_the_ingress_at_once_and_no_post_twice() -> None:
    [ingress] = [each for (kind, _), each in rendered().items() if kind == "Ingress"]
    said = {name.rpartition("/")[2]: value for name, value in ingress["metadata"]["annotations"].items()}

    assert said["proxy-buffering"] == "off"
    assert int(said["proxy-read-timeout"]) == 3600
    assert said["proxy-next-upstream"] == "error timeout"


def test_secrets_are_named_and_nowhere_written() -> None:
    made = rendered("--set", "networkPolicy.enabled=true", "--set", "scrapeConfig.enabled=true")

    pods = [each["spec"]["template"]["spec"] for each in made.values() if each["kind"] in ("Deployment", "Job")]
    assert len(pods) == 4
    for pod in pods:
        [container] = pod["containers"]
        assert {"secretRef": {"name": "palaver-secrets"}} in container["envFrom"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
    assert not [kind for kind, _ in made if kind == "Secret"]
    assert {"SECRET_KEY", "DATABASE_URL"}.isdisjoint(made["ConfigMap", "p-settings"]["data"])


def test_migrations_come_before_the_release_with_the_same_settings() -> None:
    made = rendered("--set-json", 'hosts=["a.example.org","b.example.org"]')
    job = made["Job", "p-migrate"]

    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    settings = made["ConfigMap", "p-settings"]["data"]
    assert environ_of(job["spec"]["template"]["spec"]) == settings
    assert settings["CSRF_TRUSTED_ORIGINS"] == "https://a.example.org,https://b.example.org"
