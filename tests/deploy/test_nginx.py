"""The configuration of nginx beside what the product has: its addresses, limits and pauses."""

from __future__ import annotations

import re
from uuid import uuid4

from django.conf import settings
from django.urls import reverse

from chatsite.serve import configured
from tests.deploy.tools import DEPLOY

FOLDER = DEPLOY / "nginx" / "palaver"


def read(name: str) -> str:
    return (FOLDER / name).read_text()


def location(start: str) -> str:
    """What stands in a location."""
    found = re.search(rf"^location {re.escape(start)} {{\n(.*?)^}}", read("locations.conf"), re.MULTILINE | re.DOTALL)
    assert found, start
    return found[1]


def test_every_stream_passes_unheld() -> None:
    [pattern] = re.findall(r"^location ~ (\S+) {", read("locations.conf"), re.MULTILINE)
    for address in (reverse("events"), reverse("run-stream", args=[uuid4()])):
        assert re.search(pattern, address)
    assert not re.search(pattern, reverse("run", args=[uuid4()]))
    for start in (f"~ {pattern}", "/v1/"):
        assert "include palaver/stream.conf" in location(start)
    for name in ("openai-completions", "openai-responses"):
        assert reverse(name).startswith("/v1/")
    for line in ("proxy_buffering off;", "gzip off;", "proxy_pass_header X-Accel-Buffering;"):
        assert line in read("stream.conf")


def test_a_silent_stream_is_not_cut() -> None:
    [seconds] = re.findall(r"proxy_read_timeout (\d+)s;", location("~ ^/api/(events$|runs/[^/]+/stream$)"))
    assert int(seconds) >= 2 * settings.HEARTBEAT_S


def test_too_long_a_question_is_refused_by_the_product() -> None:
    [kilobytes] = re.findall(r"client_max_body_size (\d+)k;", read("locations.conf"))
    assert settings.DATA_UPLOAD_MAX_MEMORY_SIZE < int(kilobytes) * 1024 < 2 * settings.DATA_UPLOAD_MAX_MEMORY_SIZE


def test_kept_connections_end_on_this_side() -> None:
    [seconds] = re.findall(r"keepalive_timeout (\d+)s;", read("upstreams.conf"))
    assert int(seconds) < configured().timeout_keep_alive


def test_what_the_product_believes_is_said_by_nginx_itself() -> None:
    for line in ("X-Forwarded-For $remote_addr;", "X-Forwarded-Proto $scheme;"):
        assert f"proxy_set_header {line}" in read("proxy.conf")
    # A location that says one of its own inherits none.
    assert "proxy_set_header" not in read("locations.conf") + read("site.conf") + read("stream.conf")


def test_addresses_with_rules_of_their_own_are_the_products() -> None:
    assert "limit_req zone" in location(f"= {reverse('sign-up')}")
    assert "operators.conf" in location(f"= {reverse('metrics')}")
    assert "operators.conf" in location(reverse("admin:index"))
    assert f"/{settings.STATIC_URL.strip('/')}/" == "/static/"
    assert "proxy_cache palaver_static" in location("/static/")
