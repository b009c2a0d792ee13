"""The migrations of `chat`, and two that a next release might bring: a column and an index for the messages."""

from chat import migrations

__path__ = [*__path__, *migrations.__path__]
