"""manage.py apikey USER: make an API key and print its secret."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from chat.models import ApiKey, User


class Command(BaseCommand):
    """The secret alone goes to stdout, so that a shell can take it."""

    help = "Makes an API key for a user and prints its secret, which is shown this once."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Whose key, and what it is called."""
        parser.add_argument("user", metavar="USER", help="user name")
        parser.add_argument("--name", default="command line", help="to tell the user's keys apart")

    def handle(self, *_: Any, user: str, name: str, **__: Any) -> None:
        """Raises `CommandError` where there is no such user."""
        owner = User.objects.filter(username=user, is_active=True).first()
        if owner is None:
            raise CommandError(f"There is no active user called {user}.")
        key, secret = ApiKey.objects.issue(owner, name[:64])
        self.stderr.write(f"A key of {owner.username}, called {key.name}. This is the only time it is shown:")
        self.stdout.write(secret)
