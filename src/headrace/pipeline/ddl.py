"""Spark's DDL for columns, read without Spark: `card_id STRING NOT NULL, amount DECIMAL(10,2), tags ARRAY<STRING>`.

Types come out as Spark's simple names (`bigint`, `decimal(10,2)`, `struct<lat:double,lon:double>`), so that two ways of
writing a type compare equal and Spark reads them back unchanged. Comments are dropped: they are not data.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.errors import InvalidSchemaError, closest

_SIMPLE_TYPES = {
    "boolean": "boolean",
    "byte": "tinyint",
    "tinyint": "tinyint",
    "short": "smallint",
    "smallint": "smallint",
    "int": "int",
    "integer": "int",
    "long": "bigint",
    "bigint": "bigint",
    "float": "float",
    "real": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "variant": "variant",
}
_DECIMALS = ("decimal", "dec", "numeric")
_NESTED = ("array", "map", "struct")
_TYPE_NAMES = (*_SIMPLE_TYPES, *_DECIMALS, *_NESTED)
# What other systems call Spark's types; no spelling distance leads from one to the other.
_FOREIGN = {
    "bool": "boolean",
    "char": "string",
    "datetime": "timestamp",
    "float32": "float",
    "float64": "double",
    "int32": "int",
    "int64": "bigint",
    "json": "string",
    "number": "decimal",
    "str": "string",
    "text": "string",
    "timestamptz": "timestamp",
    "uuid": "string",
    "varchar": "string",
}
_MAX_PRECISION = 38

_TOKEN = re.compile(r"\s+|(`(?:[^`]|``)+`)|('(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\")|(\w+)|([<>(),:])", re.DOTALL)
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Column:
    """One column: its name, its type in Spark's simple names (None: not known before it runs), and if it may be null.

    >>> Column("amount", "decimal(10,2)", nullable=False).ddl()
    '`amount` decimal(10,2) NOT NULL'
    """

    name: str
    type: str | None
    nullable: bool = True

    def ddl(self) -> str:
        """The column as Spark reads it back. The name is always quoted, so that no name can clash with a keyword."""
        if self.type is None:
            raise InvalidSchemaError(f"the type of column `{self.name}` is not known before it runs.")
        return f"{_quote(self.name)} {self.type}{'' if self.nullable else ' NOT NULL'}"


def parse_columns(text: str) -> tuple[Column, ...]:
    """The columns of a DDL string. All that is wrong with it is said at once.

    >>> [column.type for column in parse_columns("id LONG NOT NULL, at: Timestamp, place STRUCT<lat: DOUBLE>")]
    ['bigint', 'timestamp', 'struct<lat:double>']
    """
    tokens = _tokens(text)
    if not tokens:
        raise InvalidSchemaError("the schema is empty.", fix='list its columns, like "id BIGINT, name STRING".')
    columns: list[Column] = []
    problems: list[InvalidSchemaError] = []
    for part in _split(tokens):
        try:
            columns.append(_Parser(part).column())
        except InvalidSchemaError as problem:
            problems.append(problem)
    if len(problems) > 1:
        raise InvalidSchemaError(
            f"{len(problems)} columns of the schema can't be read.",
            why="\n".join(problem.what for problem in problems),
            fix="\n".join(dict.fromkeys(problem.fix for problem in problems if problem.fix)),
        )
    if problems:
        raise problems[0]
    check_names(column.name for column in columns)
    return tuple(columns)


def parse_type(text: str) -> str:
    """A type in Spark's simple names.

    >>> parse_type("Map<String, Array<Long>>")
    'map<string,array<bigint>>'
    """
    parser = _Parser(_tokens(text))
    parsed = parser.type("")
    parser.end()
    return parsed


def struct_columns(type: str | None) -> tuple[Column, ...] | None:
    """The fields of a struct type; None for any other type.

    >>> [field.name for field in struct_columns("struct<lat:double,lon:double>") or ()]
    ['lat', 'lon']
    """
    if type is None or not type.startswith("struct<"):
        return None
    return parse_columns(type.removeprefix("struct<").removesuffix(">"))


def struct_type(fields: Iterable[Column]) -> str:
    """The struct type with these fields.

    >>> struct_type([Column("lat", "double"), Column("lon", "double", nullable=False)])
    'struct<lat:double,lon:double not null>'
    """
    return f"struct<{','.join(_struct_field(field) for field in fields)}>"


def check_names(names: Iterable[str]) -> None:
    """Raise if two names are one to Spark, which does not tell `Id` from `id`."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.get(name.lower())
        seen[name.lower()] = name
        if other is not None:
            both = f"`{name}`" if other == name else f"`{other}` and `{name}`"
            raise InvalidSchemaError(
                f"the schema has two columns {both}.",
                why="Spark does not tell upper from lower case in column names.",
                fix="rename or remove one of them.",
            )


def _struct_field(field: Column) -> str:
    name = field.name if _PLAIN_NAME.fullmatch(field.name) else _quote(field.name)
    return f"{name}:{field.type}{'' if field.nullable else ' not null'}"


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise InvalidSchemaError(
                f"the schema can't be read at `{text[at : at + 20].strip()}`.",
                fix="put names with other characters than letters, digits and _ in `backticks`.",
            )
        if not found.group().isspace():
            tokens.append(found.group())
        at = found.end()
    return tokens


def _split(tokens: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token in "<(") - (token in ">)")
        if token == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


class _Parser:
    """Reads one column, or one type, from its tokens."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0

    def column(self, parent: str = "") -> Column:
        name = self._name(parent)
        path = f"{parent}.{name}" if parent else name
        if self._peek() == "<":
            raise InvalidSchemaError(
                f"`{name}<` is a type where a column should stand.",
                why="A schema is a list of columns, each a name and a type.",
                fix='put a name before the type, like "place STRUCT<lat: DOUBLE>";\n'
                "for the columns of a struct, leave out the STRUCT<...> around them.",
            )
        self._take(":")
        type = self.type(path)
        nullable = not self._take("not")
        if not nullable:
            self._expect("null", path)
        if self._take("comment"):
            self._comment(path)
        if not parent:
            self.end(path)
        return Column(name, type, nullable)

    def type(self, path: str) -> str:
        name = self._next().lower()
        if name in _SIMPLE_TYPES:
            return _SIMPLE_TYPES[name]
        if name in _DECIMALS:
            return self._decimal(path)
        if name == "array":
            self._expect("<", path)
            element = self.type(path)
            self._expect(">", path)
            return f"array<{element}>"
        if name == "map":
            self._expect("<", path)
            key = self.type(path)
            self._expect(",", path)
            value = self.type(path)
            self._expect(">", path)
            return f"map<{key},{value}>"
        if name == "struct":
            return self._struct(path)
        raise _unknown_type(path, name)

    def end(self, path: str = "") -> None:
        if self._at < len(self._tokens):
            raise _unreadable(path, f"`{self._tokens[self._at]}` is not expected here")

    def _struct(self, path: str) -> str:
        self._expect("<", path)
        fields = [self.column(path or "struct")]
        while self._take(","):
            fields.append(self.column(path or "struct"))
        self._expect(">", path)
        check_names(field.name for field in fields)
        return struct_type(fields)

    def _decimal(self, path: str) -> str:
        precision, scale = 10, 0
        if self._take("("):
            precision = self._number(path)
            scale = self._number(path) if self._take(",") else 0
            self._expect(")", path)
        if not 1 <= precision <= _MAX_PRECISION or scale > precision:
            raise _unreadable(path, f"decimal({precision},{scale}) has not 1 to 38 digits with the scale among them")
        return f"decimal({precision},{scale})"

    def _number(self, path: str) -> int:
        token = self._next()
        if not re.fullmatch("[0-9]{1,4}", token):
            raise _unreadable(path, f"`{token}` should be a number")
        return int(token)

    def _comment(self, path: str) -> None:
        if not self._next().startswith(("'", '"')):
            raise _unreadable(path, "COMMENT should be followed by a text in quotes")

    def _name(self, parent: str) -> str:
        token = self._next()
        if token.startswith("`"):
            return token[1:-1].replace("``", "`")
        if not re.fullmatch(r"\w+", token):
            raise _unreadable(
                parent, f"a column name should stand where `{token}` is" if token else "a column is empty"
            )
        return token

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, token: str) -> bool:
        if self._peek().lower() != token:
            return False
        self._at += 1
        return True

    def _expect(self, token: str, path: str) -> None:
        if not self._take(token):
            found = self._peek()
            raise _unreadable(path, f"`{token}` is expected {f'where `{found}` is' if found else 'at the end'}")


def _unknown_type(path: str, name: str) -> InvalidSchemaError:
    column = f"column `{path}`" if path else "the schema"
    if not name:
        return InvalidSchemaError(f"{column} has no type.", fix=f"give it one, like `{path or 'id'} STRING`.")
    meant = _FOREIGN.get(name) or closest(name, _TYPE_NAMES)
    hint = f": did you mean {meant.upper()}?" if meant else "."
    known = ", ".join(dict.fromkeys([*_SIMPLE_TYPES.values(), "decimal(p,s)", "array<>", "map<,>", "struct<>"]))
    return InvalidSchemaError(f"{column} has an unknown type `{name}`{hint}", fix=f"use one of {known}.")


def _unreadable(path: str, reason: str) -> InvalidSchemaError:
    where = f"column `{path}`" if path else "the schema"
    return InvalidSchemaError(
        f"{where} can't be read: {reason}.", fix='write it like "id BIGINT NOT NULL, place STRUCT<lat: DOUBLE>".'
    )
