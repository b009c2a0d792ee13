"""manage.py capacity [MODEL]: how many sequences and people an engine with the model carries on this machine."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from inference.capacity_options import add_profile, given
from scheduler.models import Model


class Command(BaseCommand):
    """Has it told by a process of the GPU side: this one never loads an engine."""

    help = "Reads a model's real numbers from its engine, measures its speed, and says how many people that serves."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Which model, and how people chat."""
        parser.add_argument("model", metavar="MODEL", nargs="?", help="its slug; the default one unless told")
        add_profile(parser)

    def handle(self, *_: Any, model: str | None, **options: Any) -> None:
        """Raises `CommandError` where there is no such model, or no engine with it."""
        command = [sys.executable, "-m", "inference.capacity_report", "--model", model_of(model).pk, *given(options)]
        # Ended by an exception, which ends the child: by the signal alone it would go on.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        told = subprocess.run(command, cwd=settings.BASE_DIR, check=False)
        if told.returncode:
            raise CommandError("The capacity of this model could not be told: see above.")


def model_of(named: str | None) -> Model:
    """Raises `CommandError`."""
    found = Model.objects.filter(pk=named) if named else Model.objects.filter(is_default=True)
    model = found.first()
    if model is None:
        raise CommandError(f"There is no model {named}." if named else "There is no default model: name one.")
    return model
