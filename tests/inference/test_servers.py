"""Which Redis a URL names: one server, or a cluster."""

from __future__ import annotations

import pytest

from inference.servers import BadAddress, Seeds, checked, is_cluster


@pytest.mark.parametrize(
    ("url", "named"),
    [("redis://h:1/1", False), ("rediss://h", False), ("redis+cluster://h:1", True), ("rediss+cluster://h:1", True)],
)
def test_the_scheme_says_whether_it_is_a_cluster(url: str, named: bool) -> None:
    assert is_cluster(url) is named
    checked(url, may_be_cluster=True)


def test_nodes_and_how_to_connect_to_all_of_them() -> None:
    seeds = Seeds.parse("rediss+cluster://user:p%40ss@one:7000,two, [::1]:7002/0?ssl_ca_certs=/ca.pem&max_idle=1")

    assert seeds.nodes == [("one", 7000), ("two", 6379), ("::1", 7002)]
    assert seeds.options["ssl"]
    assert (seeds.options["username"], seeds.options["password"]) == ("user", "p@ss")
    assert seeds.options["ssl_ca_certs"] == "/ca.pem"


@pytest.mark.parametrize("url", ["redis+cluster://:secret@h:1/1", "redis+cluster://:secret@h:1?db=2"])
def test_a_numbered_database_is_refused(url: str) -> None:
    with pytest.raises(BadAddress, match="no numbered databases") as refused:
        checked(url, may_be_cluster=True)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["redis+cluster://:secret@", "redis+cluster://:secret@h:port", "redis+cluster://h:1,,h:2"]
)
def test_a_cluster_without_readable_nodes_is_refused(url: str) -> None:
    with pytest.raises(BadAddress, match="a cluster's URL is") as refused:
        checked(url, may_be_cluster=True)
    assert "secret" not in str(refused.value)
