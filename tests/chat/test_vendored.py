"""Libraries of others that the pages load: those that were looked at, with licence and sum."""

from __future__ import annotations

import hashlib
import re

from django.conf import settings

FOLDER = settings.BASE_DIR / "chat/static/vendor"


def test_each_file_is_the_one_that_is_listed() -> None:
    listed = dict(re.findall(r"`([\w.-]+)` \|.*?`([0-9a-f]{64})`", (FOLDER / "README.md").read_text()))
    scripts = [path for path in FOLDER.rglob("*") if path.is_file() and path.name not in {"README.md", "LICENSE"}]

    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in scripts} == listed
    assert scripts
    assert all((path.parent / "LICENSE").exists() for path in scripts)
