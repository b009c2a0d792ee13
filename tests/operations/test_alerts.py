"""The alerts that operators are given: each is explained, and asks for metrics that there are."""

from __future__ import annotations

import re

import yaml

from tests.stack.stack import ROOT

RULES = yaml.safe_load((ROOT / "deploy/prometheus-alerts.yaml").read_text())["groups"][0]["rules"]
PAGE = (ROOT / "docs/operations.md").read_text()
METRICS = "\n".join(path.read_text() for path in (ROOT / "chat/load").glob("*.py"))


def test_each_alert_says_what_to_do() -> None:
    explained = re.findall(r"^\| `(Palaver\w+)` \|", PAGE, re.MULTILINE)
    assert explained == [rule["alert"] for rule in RULES]


def test_each_alert_asks_for_metrics_that_there_are() -> None:
    asked = {name for rule in RULES for name in re.findall(r"palaver_\w+", rule["expr"])}
    assert len(asked) > 5
    documented = set(re.findall(r"palaver_\w+", PAGE))
    for name in asked:
        base = name.removesuffix("_bucket")
        assert base in documented, name
        assert base.removesuffix("_total") in METRICS, name
