"""What may stand in a row as a source."""

from __future__ import annotations

from pathlib import Path

import pytest

from inference.sources import Source
from inference.sources.errors import BadSource
from inference.sources.source import Kind


@pytest.mark.parametrize(
    ("text", "kind", "shown"),
    [
        ("/models/tiny", Kind.LOCAL, "/models/tiny"),
        ("Org/Tiny-0.6B", Kind.HUB, "hub:Org/Tiny-0.6B"),
        ("hub:Org/Tiny", Kind.HUB, "hub:Org/Tiny"),
        ("s3://bucket/some/prefix/", Kind.S3, "s3://bucket/some/prefix"),
        ("S3://bucket", Kind.S3, "s3://bucket"),
    ],
)
def test_each_kind_has_its_form(text: str, kind: Kind, shown: str) -> None:
    source = Source.parse(text)

    assert (source.kind, str(source)) == (kind, shown)
    assert Source.parse(str(source)) == source


def test_an_existing_folder_comes_before_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Org" / "Tiny").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)

    assert Source.parse("Org/Tiny") == Source(Kind.LOCAL, str(tmp_path / "Org" / "Tiny"))
    assert Source.parse("hub:Org/Tiny").kind is Kind.HUB


@pytest.mark.parametrize(
    "text",
    ["", " ", "tiny", "https://a-secret@example.org/x", "s3://", "s3://a-secret:x@bucket/y", "a/b/c", "../x", "a/..\n"],
)
def test_what_is_no_source_is_refused_without_its_secrets(text: str) -> None:
    with pytest.raises(BadSource) as refused:
        Source.parse(text)

    assert "a-secret" not in str(refused.value)
    assert "s3://bucket/prefix" in str(refused.value)
