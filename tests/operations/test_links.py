"""Links from one page of the documentation to another lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.stack.stack import ROOT

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
LINK = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target, anchor in LINK.findall(text):
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(found), f"{page.name}: {target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Of its headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
