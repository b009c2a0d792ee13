"""Whether migrations can be applied while the product serves: squawk, which knows Postgres' locks, reads their SQL."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.db.migrations import Migration

SQUAWK = Path(sys.executable).parent / "squawk"
OLDEST = "14"  # Postgres
# The last of each app that was there before there were rules.
BEFORE = {"chat": "0016_run_auto", "scheduler": "0009_routing_rules"}
# Of style; and what the schema editor does for all (chatsite/database/migrating.py).
EXCEPT = (
    *("prefer-bigint-over-int", "prefer-bigint-over-smallint", "prefer-identity", "prefer-robust-stmts"),
    *("prefer-text-field", "require-lock-timeout", "require-statement-timeout"),
)


def main() -> None:
    """Say what would lock a table that is in use; leaves by `SystemExit`, non-zero where something would."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatsite.settings")
    import django

    django.setup()
    found = [f"{migration}: {fault}" for migration, sql in new_migrations() for fault in faults(migration, sql)]
    print("\n".join(found) or "Nothing locks a table that is in use.")
    sys.exit(1 if found else 0)


def new_migrations() -> Iterator[tuple[Migration, str]]:
    """Each migration that the rules are for, and its SQL."""
    from django.db import connection
    from django.db.migrations.loader import MigrationLoader

    loader = MigrationLoader(connection)
    for app, name in sorted(loader.graph.nodes):
        if name > BEFORE.get(app, name):
            migration = loader.graph.nodes[app, name]
            yield migration, "\n".join(loader.collect_sql([(migration, False)]))


def faults(migration: Migration, sql: str) -> list[str]:
    """What is wrong with a migration; nothing where it can be applied beside whoever uses its tables.

    Rules that it names in `accepts`, a tuple, are not for it.
    """
    if not migration.atomic and len(_statements(sql)) > 1:
        return ["without a transaction it must be one statement: what fails half done cannot be begun again"]
    rules = [*EXCEPT, *getattr(migration, "accepts", ())]
    command = [str(SQUAWK), "--pg-version", OLDEST, "--reporter", "gcc", *(f"--exclude={rule}" for rule in rules)]
    command += ["--assume-in-transaction"] * migration.atomic
    told = subprocess.run(
        [*command, "--stdin-filepath", "migration.sql"], input=sql, capture_output=True, text=True, check=False
    )
    return told.stdout.splitlines() or told.stderr.splitlines() * bool(told.returncode)


def _statements(sql: str) -> list[str]:
    return [line for line in sql.splitlines() if line and not line.startswith("--")]


if __name__ == "__main__":
    main()
