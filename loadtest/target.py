"""What is put under load: a deployment that runs, or one that is started for the test."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from loadtest.options import Options

ANSWERS_WITHIN_S = 20.0
AS_DEPLOYED = "as deployed"


class TargetProblem(Exception):
    """It cannot be put under load; the text says why."""


@dataclass(frozen=True)
class Target:
    """Where it is, who may use it, and what is known of it."""

    url: str
    keys: Sequence[str]
    model: str
    engine: str
    limits: Sequence[str]
    is_ours: bool = False  # started for the test, by this process


def shared_out(count: int, weights: Mapping[str, int]) -> list[str]:
    """A tier for each of so many users, mixed: any first few of them are shared out about as all are."""
    total = sum(weights.values())
    given = dict.fromkeys(weights, 0)
    order = []
    for number in range(1, count + 1):
        tier = max(weights, key=lambda name: number * weights[name] / total - given[name])
        given[tier] += 1
        order.append(tier)
    return order


def deployed(options: Options, keys: Sequence[str]) -> Target:
    """The one at `--url`. Raises `TargetProblem` where it is away, or takes one of the keys for none of its own."""
    assert options.url is not None
    for number, key in enumerate(keys, start=1):
        _asked(options.url, "/api/usage", key, f"key {number} of the file")
    models = _asked(options.url, "/api/models", keys[0], "key 1 of the file").get("results") or [{}]
    limits = ["all limits of the deployment hold: budgets, runs at a time, requests a minute, queues"]
    if len(keys) < options.most_users:
        limits.append(f"{len(keys)} keys for up to {options.most_users} users: some share a key, and so its limits")
    return Target(options.url, keys, str(models[0].get("slug", "unknown")), AS_DEPLOYED, limits)


def _asked(url: str, path: str, key: str, whose: str) -> dict[str, list[dict[str, object]]]:
    request = Request(url + path, headers={"Authorization": f"Bearer {key}"})
    try:
        with urlopen(request, timeout=ANSWERS_WITHIN_S) as answer:
            return dict(json.load(answer))
    except HTTPError as error:
        raise TargetProblem(f"{url} answers {error.code} to {whose}. Name a Palaver, and keys of it.") from error
    except (URLError, OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise TargetProblem(f"{url} does not answer: {reason}. Start it, or correct --url.") from error
    except ValueError as error:
        raise TargetProblem(f"{url} answers, but not as a Palaver does. Correct --url.") from error
