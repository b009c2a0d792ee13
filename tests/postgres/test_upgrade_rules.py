"""Which migrations `make check` refuses."""

from __future__ import annotations

import pytest
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import connection, migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation

from launcher import upgrades

pytestmark = pytest.mark.django_db(transaction=True)

INDEX = models.Index(fields=["created_at"], name="message_by_age")


def faults(*operations: Operation, atomic: bool = True, accepts: tuple[str, ...] = ()) -> str:
    """What is said of a migration of these."""
    loader = MigrationLoader(connection)
    kind = type("Migration", (migrations.Migration,), {"atomic": atomic, "accepts": accepts})
    migration = kind("a_migration", "chat")
    migration.operations = list(operations)
    migration.dependencies = loader.graph.leaf_nodes("chat")
    with connection.schema_editor(collect_sql=True, atomic=atomic) as editor:
        migration.apply(loader.project_state(loader.graph.leaf_nodes()), editor, collect_sql=True)
    return "\n".join(upgrades.faults(migration, "\n".join(editor.collected_sql)))


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        (migrations.AddIndex("message", INDEX), "require-concurrent-index-creation"),
        (migrations.AddField("message", "note", models.IntegerField(default=1)), "ban-drop-default"),
        (migrations.RemoveField("message", "html"), "ban-drop-column"),
        (migrations.RenameField("message", "html", "markup"), "renaming-column"),
        (migrations.AlterField("message", "token_count", models.BigIntegerField()), "changing-column-type"),
        (
            migrations.AddConstraint(
                "message", models.CheckConstraint(condition=models.Q(position__gt=0), name="some")
            ),
            "constraint-missing-not-valid",
        ),
    ],
)
def test_what_would_lock_a_table_or_break_the_release_before_is_refused(operation: Operation, said: str) -> None:
    assert said in faults(operation)


def test_a_column_with_a_default_of_the_database_passes() -> None:
    assert not faults(migrations.AddField("message", "note", models.IntegerField(default=1, db_default=1)))
    assert not faults(migrations.AddField("message", "note", models.TextField(null=True)))


def test_an_index_passes_by_itself_and_concurrently() -> None:
    assert not faults(AddIndexConcurrently("message", INDEX), atomic=False)
    another = models.Index(fields=["role"], name="message_by_role")
    assert "one statement" in faults(
        *(AddIndexConcurrently("message", each) for each in (INDEX, another)), atomic=False
    )


def test_a_migration_may_say_which_rule_is_not_for_it() -> None:
    assert not faults(migrations.RemoveField("message", "html"), accepts=("ban-drop-column",))


def test_those_of_this_release_pass() -> None:
    assert [upgrades.faults(*each) for each in upgrades.new_migrations()]
    assert not any(upgrades.faults(*each) for each in upgrades.new_migrations())
