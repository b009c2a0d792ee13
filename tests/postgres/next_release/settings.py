"""The product's settings, with migrations of a next release."""

from tests.stack.settings import *  # noqa: F403

MIGRATION_MODULES = {"chat": "tests.postgres.next_release.migrations"}
