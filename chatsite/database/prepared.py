"""Statements that are sent many times a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from django.db import DEFAULT_DB_ALIAS, connections, models
from django.db.models.expressions import DatabaseDefault
from django.db.models.query import get_related_populators
from django.db.models.sql.compiler import SQLCompiler
from psycopg.sql import Literal

from chatsite.database.base import DatabaseWrapper

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.backends.utils import CursorWrapper

    Column = models.Field[Any, Any]

M = TypeVar("M", bound=models.Model)


@dataclass(frozen=True, slots=True)
class _Statement:
    """What Django made of a queryset: its SQL, the names of its parameters, and how rows become objects."""

    sql: str
    names: Sequence[str]
    compiler: SQLCompiler
    converters: dict[int, Any]
    related: Sequence[Any]

    def objects(self, connection: BaseDatabaseWrapper, rows: Sequence[Sequence[Any]]) -> list[Any]:
        """As `django.db.models.query.ModelIterable` makes them."""
        compiler = copy(self.compiler)
        compiler.connection = connection  # this thread's
        described, select = cast(dict[str, Any], compiler.klass_info), cast(Sequence[Any], compiler.select)
        start, end = described["select_fields"][0], described["select_fields"][-1] + 1
        names = [column[0].target.attname for column in select[start:end]]
        objects = []
        for row in compiler.apply_converters(rows, self.converters):
            found = described["model"].from_db(DEFAULT_DB_ALIAS, names, row[start:end])
            for populator in self.related:
                populator.populate(row, found)
            for name, position in (compiler.annotation_col_map or {}).items():
                setattr(found, name, row[position])
            objects.append(found)
        return objects


class Prepared(Generic[M]):
    """A queryset that Django turns into SQL once, not each time.

    That takes 0.3 to 1 ms, most of what a query of one row costs this process. `queryset` is called once, with the
    stand-ins: values of the parameters' types that stand for nothing else in there.
    """

    def __init__(self, queryset: Callable[..., models.QuerySet[M]], **stand_ins: object) -> None:
        self._queryset = queryset
        self._stand_ins = stand_ins

    def first(self, **values: Any) -> M | None:
        """The queryset's first object, in its own order, with these in the stand-ins' places."""
        return next(iter(self.all(**values)), None)

    def all(self, **values: Any) -> list[M]:
        """All of its objects."""
        assert values.keys() == self._stand_ins.keys(), f"wants {sorted(self._stand_ins)}"
        statement = self._statement
        connection = connections[DEFAULT_DB_ALIAS]
        with planned() as cursor:
            cursor.execute(statement.sql, [values[name] for name in statement.names])
            rows = cursor.fetchall()
        return statement.objects(connection, rows)

    @cached_property
    def _statement(self) -> _Statement:
        compiler = self._queryset(**self._stand_ins).query.get_compiler(DEFAULT_DB_ALIAS)
        sql, names = self._parametrised(*compiler.as_sql())
        select, described = cast(Sequence[Any], compiler.select), cast(dict[str, Any], compiler.klass_info)
        converters = compiler.get_converters([column for column, *_ in select])
        related = get_related_populators(described, select, DEFAULT_DB_ALIAS)  # type: ignore[call-arg]  # of Django 6
        return _Statement(sql, names, compiler, converters, related)

    def _parametrised(self, sql: str, params: Sequence[Any]) -> tuple[str, list[str]]:
        """The stand-ins stay parameters, all else is written out: partial indexes are for what the planner can see."""
        first, *pieces = sql.split("%s")
        texts, names = [first], list[str]()
        for param, piece in zip(params, pieces, strict=True):
            name = self._name_of(param)
            texts += ["%s" if name else _written_out(param), piece]
            names += [name] if name else []
        for name in self._stand_ins:
            assert name in names, f"{name} is no parameter of {sql}"
        return "".join(texts), names

    def _name_of(self, param: Any) -> str | None:
        same = (name for name, value in self._stand_ins.items() if param == value and type(param) is type(value))
        return next(same, None)


def _written_out(param: Any) -> str:
    return Literal(param).as_string(connections[DEFAULT_DB_ALIAS].connection).replace("%", "%%")


@contextmanager
def planned() -> Iterator[CursorWrapper]:
    """A cursor of whose statements the server keeps the plans: to plan takes it longer than to carry out."""
    with cast(DatabaseWrapper, connections[DEFAULT_DB_ALIAS]).planned_cursor() as cursor:
        yield cursor


def insert(*rows: models.Model) -> None:
    """Store new objects as `save(force_insert=True)` does, but for signals; their columns' defaults are read back.

    In this order, and all in one round trip.
    """
    connection = connections[DEFAULT_DB_ALIAS]
    columns = [
        _columns(type(row), frozenset(name for name, value in vars(row).items() if _is_default(value))) for row in rows
    ]
    statements = [_insertion(type(row), *parts) for row, parts in zip(rows, columns, strict=True)]
    values = [
        field.get_db_prep_save(field.pre_save(row, add=True), connection)
        for row, (given, _) in zip(rows, columns, strict=True)
        for field in given
    ]
    with connection.cursor() as cursor:
        cursor.execute("; ".join(statements), values)
        for row, (_, left) in zip(rows, columns, strict=True):
            if left:
                for field, value in zip(left, cursor.fetchone(), strict=True):
                    setattr(row, field.attname, value)
            cursor.nextset()
            row._state.adding, row._state.db = False, DEFAULT_DB_ALIAS


def _is_default(value: object) -> bool:
    return isinstance(value, DatabaseDefault)


@lru_cache
def _columns(model: type[models.Model], left: frozenset[str]) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    """Those that the object sets, and those left to the database."""
    columns = model._meta.concrete_fields
    return (
        tuple(column for column in columns if column.attname not in left),
        tuple(column for column in columns if column.attname in left),
    )


@lru_cache
def _insertion(model: type[models.Model], given: Sequence[Column], left: Sequence[Column]) -> str:
    names, places = ", ".join(f'"{column.column}"' for column in given), ", ".join(["%s"] * len(given))
    returning = f" RETURNING {', '.join(str(column.column) for column in left)}" if left else ""
    return f'INSERT INTO "{model._meta.db_table}" ({names}) VALUES ({places}){returning}'  # noqa: S608  # the models' own names
