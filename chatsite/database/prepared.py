"""Statements that are sent many times a second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from django.db import DEFAULT_DB_ALIAS, connections, models
from django.db.models.expressions import DatabaseDefault
from django.db.models.query import get_related_populators
from django.db.models.sql.compiler import SQLCompiler

if TYPE_CHECKING:
    Column = models.Field[Any, Any]

M = TypeVar("M", bound=models.Model)


@dataclass(frozen=True, slots=True)
class _Statement:
    """What Django made of a queryset: its SQL, with the stand-ins among the parameters, and how rows become objects."""

    sql: str
    params: Sequence[Any]
    compiler: SQLCompiler


class Prepared(Generic[M]):
    """A queryset that Django turns into SQL once, not each time.

    That takes 0.3 to 1 ms, most of what a query of one row costs this process. `queryset` is called once, with the
    stand-ins: values of the parameters' types that stand for nothing else in there.
    """

    def __init__(self, queryset: Callable[..., models.QuerySet[M]], **stand_ins: object) -> None:
        self._queryset = queryset
        self._stand_ins = stand_ins

    def first(self, **values: object) -> M | None:
        """The queryset's first object, in its own order, with these in the stand-ins' places."""
        return next(iter(self.all(**values)), None)

    def all(self, **values: object) -> list[M]:
        """All of its objects."""
        assert values.keys() == self._stand_ins.keys(), f"wants {sorted(self._stand_ins)}"
        statement = self._statement
        connection = connections[DEFAULT_DB_ALIAS]
        with connection.cursor() as cursor:
            cursor.execute(statement.sql, [self._value(param, values) for param in statement.params])
            rows = cursor.fetchall()
        compiler = copy(statement.compiler)
        compiler.connection = connection  # this thread's
        return _objects(compiler, rows)

    def _value(self, param: Any, values: dict[str, object]) -> Any:
        for name, stand_in in self._stand_ins.items():
            if param == stand_in and type(param) is type(stand_in):
                return values[name]
        return param

    @cached_property
    def _statement(self) -> _Statement:
        query = self._queryset(**self._stand_ins).query
        compiler = query.get_compiler(DEFAULT_DB_ALIAS)
        sql, params = compiler.as_sql()
        for name, stand_in in self._stand_ins.items():
            assert stand_in in params, f"{name} is no parameter of {sql}"
        return _Statement(sql, params, compiler)


def insert(row: models.Model) -> None:
    """Store a new object as `save(force_insert=True)` does, but for signals; its columns' defaults are read back."""
    connection = connections[DEFAULT_DB_ALIAS]
    given, left = _columns(type(row), frozenset(name for name, value in vars(row).items() if _is_default(value)))
    values = [field.get_db_prep_save(field.pre_save(row, add=True), connection) for field in given]
    with connection.cursor() as cursor:
        cursor.execute(_insertion(type(row), given, left), values)
        if left:
            for field, value in zip(left, cursor.fetchone(), strict=True):
                setattr(row, field.attname, value)
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


def _objects(compiler: SQLCompiler, rows: Sequence[Sequence[Any]]) -> list[Any]:
    """As `django.db.models.query.ModelIterable` makes them."""
    select, described = cast(Sequence[Any], compiler.select), cast(dict[str, Any], compiler.klass_info)
    start, end = described["select_fields"][0], described["select_fields"][-1] + 1
    names = [column[0].target.attname for column in select[start:end]]
    related = get_related_populators(described, select, DEFAULT_DB_ALIAS)  # type: ignore[call-arg]  # of Django 6
    objects = []
    for row in compiler.results_iter([rows]):  # type: ignore[list-item]  # in pages
        found = described["model"].from_db(DEFAULT_DB_ALIAS, names, row[start:end])
        for populator in related:
            populator.populate(row, found)
        for name, position in (compiler.annotation_col_map or {}).items():
            setattr(found, name, row[position])
        objects.append(found)
    return objects
