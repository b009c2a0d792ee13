"""manage.py apikey USER: make an API key and print its secret."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from chat.models import USUAL_SCOPES, ApiKey, Scope, User

MAX_DAYS = 3650


class Command(BaseCommand):
    """The secret alone goes to stdout, so that a shell can take it."""

    help = "Makes an API key for a user and prints its secret, which is shown this once."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Whose key, and what it is called."""
        parser.add_argument("user", metavar="USER", help="user name")
        parser.add_argument("--name", default="command line", help="to tell the user's keys apart")
        parser.add_argument(
            "--scope",
            action="append",
            choices=Scope.values,
            help=f"what it is good for, once for each; {' and '.join(USUAL_SCOPES)} unless told",
        )
        parser.add_argument("--days", type=int, help="for how long; for good unless told")

    def handle(self, *_: Any, user: str, name: str, scope: list[str] | None, days: int | None, **__: Any) -> None:
        """Raises `CommandError` where there is no such user, or no such time."""
        owner = User.objects.filter(username=user, is_active=True).first()
        if owner is None:
            raise CommandError(f"There is no active user called {user}.")
        if days is not None and not 0 < days <= MAX_DAYS:
            raise CommandError(f"--days is from 1 to {MAX_DAYS}.")
        expires_at = None if days is None else timezone.now() + timedelta(days=days)
        key, secret = ApiKey.objects.issue(owner, name[:64], expires_at, scope or USUAL_SCOPES)
        self.stderr.write(f"A key of {owner.username}, called {key.name}. This is the only time it is shown:")
        self.stdout.write(secret)
