"""Values as text, for stores that hold text: the same forms as in a topic."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from headrace.pipeline.schema import Column

_NESTED = ("array", "map", "struct", "variant")


def is_nested(column: Column) -> bool:
    """Whether values of the column are structs, arrays or maps.

    >>> is_nested(Column("tags", "array<string>")), is_nested(Column("id", "bigint"))
    (True, False)
    """
    return (column.type or "").startswith(_NESTED)


def to_text(value: Any) -> str:
    """A value that is not null, as text.

    >>> to_text(Decimal("1.50")), to_text(datetime(2024, 1, 1, tzinfo=UTC)), to_text(True)
    ('1.50', '2024-01-01T00:00:00.000Z', 'true')
    """
    match value:
        case bool():
            return "true" if value else "false"
        case datetime():
            return _time(value)
        case date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return str(value)


def to_json(row: Mapping[str, Any], nested: Iterable[str] = ()) -> str:
    """A row as a JSON object. Columns named in `nested` are JSON already; decimals keep all their digits.

    >>> to_json({"id": 7, "amount": Decimal("1.50"), "tags": '["a"]', "note": None}, nested=["tags"])
    '{"id": 7, "amount": 1.50, "tags": ["a"], "note": null}'
    """
    raw = set(nested)
    parts = (f"{json.dumps(n, ensure_ascii=False)}: {v if n in raw and v else _json(v)}" for n, v in row.items())
    return "{" + ", ".join(parts) + "}"


def _json(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float() if not math.isfinite(value):
            return f'"{value}"'
        case Decimal():
            return format(value, "f")
        case int() | float():
            return repr(value)
        case _:
            return json.dumps(to_text(value), ensure_ascii=False)


def _time(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat(timespec="milliseconds" if value.microsecond % 1000 == 0 else "microseconds")
    at = value.astimezone(UTC)
    spec = "milliseconds" if at.microsecond % 1000 == 0 else "microseconds"
    return at.isoformat(timespec=spec).replace("+00:00", "Z")
