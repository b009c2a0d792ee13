"""Bring the database up to date: `python -m launcher.database MODEL_FOLDER MODEL_NAME`, one Django for all of it."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

GATHERED = "gathered.txt"


def main(model_folder: str, model_name: str) -> None:
    """Migrate, gather static files and register the model; the last line printed is the JSON of `prepare`."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatsite.settings")
    import django
    from django.conf import settings
    from django.core.management import call_command

    django.setup()
    call_command("migrate", interactive=False)
    if not settings.DEBUG:
        gather_static_files()
    call_command("prepare", model_path=Path(model_folder), model_name=model_name)


def gather_static_files() -> None:
    """Run `collectstatic`, unless the files are as they were the last time: naming them all by what is in them takes
    longer than everything else at a start.
    """
    from django.conf import settings
    from django.core.management import call_command

    root, sources = Path(settings.STATIC_ROOT), _digest_of_sources()
    gathered = root / GATHERED
    if gathered.exists() and gathered.read_text() == sources:
        return
    gathered.unlink(missing_ok=True)
    call_command("collectstatic", interactive=False, verbosity=0)
    gathered.write_text(sources)


def _digest_of_sources() -> str:
    """Of what is gathered, by names, sizes and times, and of what gathers it."""
    import django
    from django.contrib.staticfiles.finders import get_finders

    from chatsite import static_files

    files = [storage.path(name) for finder in get_finders() for name, storage in finder.list(ignore_patterns=())]
    marks = [(path, (stat := os.stat(path)).st_size, stat.st_mtime_ns) for path in [*files, static_files.__file__]]
    return hashlib.sha256(repr((django.__version__, marks)).encode()).hexdigest()


if __name__ == "__main__":
    main(*sys.argv[1:])
