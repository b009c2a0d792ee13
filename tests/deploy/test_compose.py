"""The compose file, as docker's own command reads it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.conf import settings

from chatsite.serve import GRACE_S
from tests.deploy.tools import DEPLOY, attempted, run

FILE, ON_CPU = DEPLOY / "compose.yaml", DEPLOY / "compose.cpu.yaml"
ENDS_WITHIN_S = 13
REQUIRED = ("PALAVER_HOST", "SECRET_KEY", "POSTGRES_PASSWORD", "BROKER_PASSWORD", "STREAMS_PASSWORD", "METRICS_TOKEN")
GIVEN = {name: f"the-{name.lower()}" for name in (*REQUIRED, "MODEL_SLUG")}


def services(*files: str) -> dict[str, Any]:
    """What would be started."""
    named = [word for file in files or (str(FILE),) for word in ("--file", file)]
    read: dict[str, Any] = json.loads(run("docker-compose", *named, "config", "--format", "json", environ=GIVEN))
    return read["services"]  # type: ignore[no-any-return]


def seconds(duration: str) -> int:
    """As Go writes it."""
    units = {"h": 3600, "m": 60, "s": 1}
    return sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)([hms])", duration))


def test_it_holds_the_whole_product() -> None:
    read = services()

    assert set(read) == {"nginx", "web1", "web2", "worker", "reaper", "migrate", "postgres", "broker", "streams"}
    for name in ("web1", "web2", "worker", "reaper"):
        assert read[name]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
        assert read[name]["restart"] == "always"  # also with status 75
        assert read[name]["read_only"]
    assert [each["capabilities"] for each in read["worker"]["deploy"]["resources"]["reservations"]["devices"]] == [
        ["gpu"]
    ]
    assert not services(str(FILE), str(ON_CPU))["worker"]["deploy"]["resources"]["reservations"]
    assert [name for name, each in read.items() if each.get("ports")] == ["nginx"]


@pytest.mark.parametrize("missing", GIVEN)
def test_it_does_not_start_without(missing: str) -> None:
    for given in ({**GIVEN, missing: ""}, {name: value for name, value in GIVEN.items() if name != missing}):
        refused = attempted("docker-compose", "--file", FILE, "config", "--quiet", environ=given)

        assert refused.returncode
        assert missing in refused.stderr


def test_the_example_has_every_variable_that_is_asked_for() -> None:
    asked = set(re.findall(r"\$\{(\w+)", FILE.read_text()))

    assert asked == set(re.findall(r"^(\w+)=", (DEPLOY / ".env.example").read_text(), re.MULTILINE))
    assert set(GIVEN) == set(re.findall(r"\$\{(\w+):\?", FILE.read_text()))


def test_who_stops_has_the_time_that_it_takes() -> None:
    read = services()
    drain_s = float(read["worker"]["environment"]["DRAIN_S"])

    assert seconds(read["worker"]["stop_grace_period"]) > drain_s + ENDS_WITHIN_S
    assert {
        seconds(read[name]["stop_grace_period"]) > settings.WEB_DRAIN_S + GRACE_S + 5 for name in ("web1", "web2")
    } == {True}


def test_nothing_of_the_brokers_is_evicted_or_lost() -> None:
    for name in ("broker", "streams"):
        command = " ".join(services()[name]["command"])
        for needed in ("--appendonly yes", "--appendfsync everysec", "noeviction", "--requirepass"):
            assert needed in command
        assert services()[name]["volumes"]


def test_its_nginx_differs_from_the_others_by_addresses_only() -> None:
    ours, read = (DEPLOY / "compose/upstreams.conf").read_text(), services()
    for number in (1, 2):
        address = read[f"web{number}"]["networks"]["default"]["ipv4_address"]
        assert ours.count(f"server {address}:8000 ") == 3
        ours = ours.replace(f"{address}:8000", f"127.0.0.1:800{number}")

    assert ours == (DEPLOY / "nginx/palaver/upstreams.conf").read_text()
