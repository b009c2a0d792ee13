"""manage.py prepare: what `make run` needs in the database before it serves."""

from __future__ import annotations

import json
import secrets
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from chat.models import User
from inference.sources import Source, SourceError, fetch
from scheduler import rollouts
from scheduler.models import Model, ModelVersion, Tier

DEMO_USER = "demo"


class Command(BaseCommand):
    """Safe to repeat: what an operator has changed since stays as it is."""

    help = "Registers the served model as the default one and makes the demo account; prints a line of JSON."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Which model."""
        parser.add_argument("--model-path", required=True, type=Path, help="folder with its files")
        parser.add_argument("--model-name", required=True, help="what it is called in the API and in queue names")

    @transaction.atomic
    def handle(self, *_: Any, model_path: Path, model_name: str, **__: Any) -> None:
        """Raises `CommandError` where the folder's config.json does not tell the context window."""
        serve(model_name, model_path.resolve())
        self.stdout.write(json.dumps(open_demo_account()))


def serve(name: str, folder: Path) -> None:
    """Make the model in `folder` the default one; for all tiers when it is new. The one before it is switched off."""
    Model.objects.exclude(slug=name).filter(is_default=True).update(is_default=False, is_active=False)
    served = {"is_default": True, "is_active": True}
    first = {"name": name, "temperature": temperature(folder), **served}
    model, is_new = Model.objects.update_or_create(slug=name, defaults=served, create_defaults=first)
    if is_new:
        model.tiers.set(Tier.objects.all())
    have_version(model, str(folder), context_window(folder))


def have_version(model: Model, source: str, window: int) -> None:
    """Serve that folder, unless the model had it before: what an operator rolled out since, window included, stays."""
    active = model.version
    own = [version for version in model.versions.filter(source=source) if is_of_these_files(version)]
    is_too_large = active in own and active is not None and active.context_window > window
    if active is None or not own or is_too_large:
        smaller = min(window, active.context_window) if active else window
        rollouts.adopt(ModelVersion.objects.create(model=model, source=source, context_window=smaller))


def is_of_these_files(version: ModelVersion) -> bool:
    """Whether its folder holds the files that it was made with, as far as any worker has looked."""
    if not version.digest:
        return True
    try:
        return fetch(Source.parse(version.source), cache=settings.MODEL_CACHE).manifest.digest == version.digest
    except SourceError as error:
        raise CommandError(str(error)) from error


def context_window(folder: Path) -> int:
    """How many tokens the model takes. Raises `CommandError`."""
    config = read(folder / "config.json")
    # Models that see pictures too keep it one level deeper.
    tokens = config.get("max_position_embeddings") or config.get("text_config", {}).get("max_position_embeddings")
    if not isinstance(tokens, int):
        raise CommandError(f"{folder}/config.json does not tell max_position_embeddings.")
    return tokens


def temperature(folder: Path) -> Decimal:
    """What the model's makers advise; greedy where they say nothing, as for the small model that comes along."""
    advice = folder / "generation_config.json"
    return Decimal(str(read(advice).get("temperature", 0))) if advice.exists() else Decimal(0)


def read(path: Path) -> dict[str, Any]:
    """A JSON object. Raises `CommandError`."""
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CommandError(f"{path} cannot be read ({type(error).__name__}).") from error
    return found


def open_demo_account() -> dict[str, str]:
    """The demo account, with its password where it is new.

    It is a superuser, since a newcomer must get into the admin, and of the tier that may do most.
    """
    if User.objects.filter(username=DEMO_USER).exists():
        return {"demo_user": DEMO_USER}
    password = secrets.token_urlsafe(12)
    User.objects.create_superuser(DEMO_USER, password=password, tier=Tier.objects.order_by("-weight")[0])
    return {"demo_user": DEMO_USER, "demo_password": password}
