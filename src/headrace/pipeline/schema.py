"""What the rows of a stream look like: columns with names and types, from a DDL string or a dataclass."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any

from headrace.errors import InvalidSchemaError
from headrace.pipeline.ddl import Column, check_names, parse_columns, parse_type, struct_type

__all__ = ["Column", "Schema", "as_schema"]

_PYTHON_TYPES: dict[Any, str] = {
    str: "string",
    int: "bigint",
    float: "double",
    bool: "boolean",
    bytes: "binary",
    datetime: "timestamp",
    date: "date",
    Decimal: "decimal(38,18)",
}


@dataclass(frozen=True)
class Schema(Mapping[str, str | None]):
    """The columns of a stream in order, and by name a mapping to their types. Names are found as Spark finds them: in
    any case.

    >>> schema = as_schema("card_id STRING, amount DOUBLE NOT NULL")
    >>> schema["Amount"], schema.names, "city" in schema
    ('double', ('card_id', 'amount'), False)
    """

    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names in order."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column:
        """The column of that name.

        >>> as_schema("card_id STRING NOT NULL").column("CARD_ID")
        Column(name='card_id', type='string', nullable=False)
        """
        for column in self.columns:
            if column.name.lower() == name.lower():
                return column
        raise KeyError(name)

    def spelled(self, name: str) -> str:
        """The name as the schema writes it. One that it does not have stays as it is.

        >>> as_schema("card_id STRING").spelled("CARD_ID")
        'card_id'
        """
        return self.column(name).name if name in self else name

    def ddl(self) -> str:
        """The schema as Spark reads it.

        >>> as_schema("card_id STRING, amount DOUBLE NOT NULL").ddl()
        '`card_id` string, `amount` double NOT NULL'
        """
        return ", ".join(column.ddl() for column in self.columns)

    def with_column(self, column: Column) -> Schema:
        """This schema with one more column, or with another column of that name in its place."""
        if column.name not in self:
            return Schema((*self.columns, column))
        kept = self.column(column.name)
        return Schema(tuple(column if old is kept else old for old in self.columns))

    def __getitem__(self, name: str) -> str | None:
        return self.column(name).type

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.columns)


def as_schema(value: object) -> Schema:
    """The schema that a DDL string or a dataclass describes.

    Fields of a dataclass that are not `T | None` become NOT NULL. `Annotated[T, "<Spark type>"]` overrides the type.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Payment:
    ...     card_id: str
    ...     amount: Annotated[Decimal, "decimal(10,2)"]
    ...     note: str | None
    >>> as_schema(Payment).ddl()
    '`card_id` string NOT NULL, `amount` decimal(10,2) NOT NULL, `note` string'
    """
    if isinstance(value, Schema):
        return value
    if isinstance(value, str):
        return Schema(parse_columns(value))
    if isinstance(value, type) and dataclasses.is_dataclass(value):
        return Schema(_dataclass_columns(value, ()))
    raise InvalidSchemaError(
        f"{value!r} is not a schema.", fix='pass a DDL string, like "id BIGINT, name STRING", or a dataclass type.'
    )


def _dataclass_columns(record: type, parents: tuple[type, ...]) -> tuple[Column, ...]:
    if record in parents:
        raise InvalidSchemaError(
            f"dataclass `{record.__name__}` contains itself.", why="A Spark type has a fixed depth.", fix="unfold it."
        )
    hints = _type_hints(record)
    columns = []
    for field in dataclasses.fields(record):
        spark_type, nullable = _spark_type(hints[field.name], f"{record.__name__}.{field.name}", (*parents, record))
        columns.append(Column(field.name, spark_type, nullable))
    if not columns:
        raise InvalidSchemaError(f"dataclass `{record.__name__}` has no fields.", fix="give it one field per column.")
    check_names(column.name for column in columns)
    return tuple(columns)


def _type_hints(record: type) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(record, include_extras=True)
    except Exception as unreadable:
        # Annotations that are text run as code here, and may fail as any code may.
        path = f"{record.__name__}.{_unreadable_field(record)}"
        if isinstance(unreadable, NameError):
            what = f"field `{path}` names a type that is not defined: {unreadable.name}."
            raise InvalidSchemaError(what, fix="import it, or define it at module level.") from unreadable
        raise InvalidSchemaError(
            f"the type of field `{path}` can't be read.",
            why=f"{type(unreadable).__name__}: {unreadable}",
            fix="write a type that works as code in that module: after `from datetime import datetime` it is\n"
            "datetime | None, not datetime.datetime | None.",
        ) from unreadable
    for name, hint in hints.items():
        if hint is dataclasses.InitVar or isinstance(hint, dataclasses.InitVar):
            raise InvalidSchemaError(
                f"field `{record.__name__}.{name}` is an InitVar.",
                why="It is only handed to __post_init__: rows would not have it.",
                fix="make it a plain field, or read with a dataclass that does not have it.",
            )
    return hints


def _unreadable_field(record: type) -> str:
    """The first field of a dataclass whose annotation can't be read on its own."""
    for owner in reversed(record.__mro__):
        for name, annotation in inspect.get_annotations(owner).items():
            alone = type(owner.__name__, (), {"__annotations__": {name: annotation}, "__module__": owner.__module__})
            try:
                typing.get_type_hints(alone, localns=dict(vars(owner)), include_extras=True)
            except Exception:  # noqa: BLE001 - as above; which one it is says the caller
                return name
    return "?"


def _spark_type(hint: Any, path: str, parents: tuple[type, ...]) -> tuple[str, bool]:
    """The Spark type of a type hint, and whether it may be null."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        others = [argument for argument in arguments if argument is not types.NoneType]
        if len(others) != 1 or len(others) == len(arguments):
            raise _no_spark_type(hint, path)
        return _spark_type(others[0], path, parents)[0], True
    if origin is Annotated:
        inner, *notes = arguments
        override = next((note for note in notes if isinstance(note, str)), None)
        if override is None:
            return _spark_type(inner, path, parents)
        nullable = types.NoneType in typing.get_args(inner)
        return _override(override, path), nullable
    if origin is list and len(arguments) == 1:
        return f"array<{_spark_type(arguments[0], path, parents)[0]}>", False
    if origin is dict and len(arguments) == 2 and arguments[0] is str:
        return f"map<string,{_spark_type(arguments[1], path, parents)[0]}>", False
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return struct_type(_dataclass_columns(hint, parents)), False
    if isinstance(hint, type) and hint in _PYTHON_TYPES:
        return _PYTHON_TYPES[hint], False
    raise _no_spark_type(hint, path)


def _override(text: str, path: str) -> str:
    try:
        return parse_type(text)
    except InvalidSchemaError as problem:
        raise InvalidSchemaError(f"field `{path}`: {problem.what}", fix=problem.fix) from problem


def _no_spark_type(hint: Any, path: str) -> InvalidSchemaError:
    name = hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
    return InvalidSchemaError(
        f"field `{path}` has the type {name}, which has no Spark type.",
        fix="use str, int, float, bool, bytes, datetime, date, Decimal, list[T], dict[str, T] or a dataclass, any\n"
        'of them `| None`; or name the Spark type: Annotated[T, "decimal(10,2)"].',
    )
