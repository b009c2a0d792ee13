"""Bring the database up to date: `python -m launcher.database MODEL_FOLDER MODEL_NAME`, one Django for all of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(model_folder: str, model_name: str) -> None:
    """Migrate, gather static files and register the model; the last line printed is the JSON of `prepare`."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatsite.settings")
    import django
    from django.conf import settings
    from django.core.management import call_command

    django.setup()
    call_command("migrate", interactive=False)
    if not settings.DEBUG:
        call_command("collectstatic", interactive=False, verbosity=0)
    call_command("prepare", model_path=Path(model_folder), model_name=model_name)


if __name__ == "__main__":
    main(*sys.argv[1:])
