"""The keywords of JSON Schema that bound a value, each with its rule; and schemas taken together or apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.contracts.breaks import Break

Rule = Callable[[Any, Any, str], list[Break]]

ALL_TYPES = frozenset({"null", "boolean", "number", "string", "array", "object"})
# Said about a schema, not about its values.
_ANNOTATIONS = frozenset(
    {"$schema", "$id", "id", "$comment", "title", "description", "default", "examples", "$defs", "definitions"}
    | {"$anchor", "$dynamicAnchor", "$vocabulary", "readOnly", "writeOnly", "deprecated", "format"}
    | {"contentEncoding", "contentMediaType", "contentSchema"}
)


def true_schema(node: Any) -> bool:
    """Whether it accepts everything.

    >>> true_schema({"title": "anything"}), true_schema({"type": "string"})
    (True, False)
    """
    return node is True or (isinstance(node, dict) and all(_says_nothing(key, node) for key in node))


def false_schema(node: Any) -> bool:
    """Whether it accepts nothing.

    >>> false_schema({"not": {}})
    True
    """
    return node is False or (isinstance(node, dict) and "not" in node and true_schema(node["not"]))


def _says_nothing(key: str, node: dict[str, Any]) -> bool:
    value = node[key]
    if key in _ANNOTATIONS or (not key.startswith("$") and key not in _KNOWN):
        return True
    if key in ("properties", "patternProperties"):
        return all(true_schema(each) for each in value.values())
    if key in ("additionalProperties", "items", "additionalItems", "propertyNames"):
        return not isinstance(value, list) and true_schema(value)
    return bool(key in ("required", "allOf") and not value)


_KNOWN = frozenset(
    {"type", "enum", "const", "not", "anyOf", "oneOf", "allOf", "if", "then", "else"}
    | {"properties", "patternProperties", "additionalProperties", "propertyNames", "required"}
    | {"minProperties", "maxProperties", "dependencies", "dependentRequired", "dependentSchemas"}
    | {"items", "prefixItems", "additionalItems", "contains", "minContains", "maxContains"}
    | {"minItems", "maxItems", "uniqueItems", "unevaluatedItems", "unevaluatedProperties"}
    | {"minLength", "maxLength", "pattern", "multipleOf"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
)


def types_of(schema: Any) -> frozenset[str]:
    """The types that a schema allows; of numbers, `integer` only if it does not allow the others.

    >>> sorted(types_of({"type": ["integer", "null"]}))
    ['integer', 'null']
    """
    if not isinstance(schema, dict) or "type" not in schema:
        return ALL_TYPES
    given = schema["type"]
    found = frozenset([given] if isinstance(given, str) else given)
    return found - {"integer"} if "number" in found else found


def only(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """The schema for values of one type."""
    return {**schema, "type": kind}


def finite_values(schema: Any) -> list[Any] | None:
    """All values that a schema allows, if it lists them."""
    if "const" in schema:
        return [schema["const"]]
    if "enum" in schema:
        return list(schema["enum"])
    kinds = types_of(schema)
    if kinds <= {"boolean", "null"}:
        return [*([None] if "null" in kinds else []), *([True, False] if "boolean" in kinds else [])]
    return None


def together(first: Any, second: Any) -> Any:
    """What is valid under both, or somewhat more: good enough for a writer, whose every value must be accepted.

    >>> together({"type": "number", "minimum": 1}, {"type": "integer", "minimum": 3})
    {'type': 'integer', 'minimum': 3}
    """
    if first is False or second is False:
        return False
    if first is True or second is True:
        return second if first is True else first
    made = dict(first)
    for key, value in second.items():
        made[key] = _both(key, made[key], value) if key in made and made[key] != value else value
    for name in {**first.get("properties", {}), **second.get("properties", {})}:
        # What one schema says about other properties holds for those that only the other names.
        for one, other in ((first, second), (second, first)):
            if name not in one.get("properties", {}) and "additionalProperties" in one:
                made["properties"] = {
                    **made["properties"],
                    name: together(other["properties"][name], one["additionalProperties"]),
                }
    return made


def _both(key: str, first: Any, second: Any) -> Any:
    if key in ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"):
        return max(first, second)
    if key in ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"):
        return min(first, second)
    if key == "required":
        return [*first, *(name for name in second if name not in first)]
    if key in ("properties", "patternProperties"):
        return {**first, **second, **{name: together(first[name], second[name]) for name in first if name in second}}
    if key in ("items", "additionalProperties", "propertyNames") and not isinstance(first, list):
        return first if isinstance(second, list) else together(first, second)
    if key == "type":
        return _common_types(first, second)
    if key == "enum":
        return [value for value in first if value in second]
    if key == "allOf":
        return [*first, *second]
    return first  # either is more than both


def _common_types(first: Any, second: Any) -> Any:
    ours, theirs = types_of({"type": first}), types_of({"type": second})
    common = {kind for kind in ours if kind in theirs or (kind == "integer" and "number" in theirs)}
    common |= {kind for kind in theirs if kind == "integer" and "number" in ours}
    return sorted(common)[0] if len(common) == 1 else sorted(common)


def _at_most(keyword: str, rule: str) -> Rule:
    def check(reader: Any, writer: Any, path: str) -> list[Break]:
        if keyword not in reader or (keyword in writer and writer[keyword] <= reader[keyword]):
            return []
        return [_bound(f"{rule}_{'DECREASED' if keyword in writer else 'ADDED'}", keyword, reader, writer, path)]

    return check


def _at_least(keyword: str, rule: str) -> Rule:
    def check(reader: Any, writer: Any, path: str) -> list[Break]:
        if reader.get(keyword, 0) <= writer.get(keyword, 0):
            return []
        return [_bound(f"{rule}_{'INCREASED' if keyword in writer else 'ADDED'}", keyword, reader, writer, path)]

    return check


def _bound(rule: str, keyword: str, reader: Any, writer: Any, path: str) -> Break:
    theirs = f"{keyword} {writer[keyword]}" if keyword in writer else f"no {keyword}"
    return Break(rule, path, f"the reader has {keyword} {reader[keyword]}, the writer has {theirs}")


def _pattern(reader: Any, writer: Any, path: str) -> list[Break]:
    if "pattern" not in reader or reader["pattern"] == writer.get("pattern"):
        return []
    return [_bound(f"PATTERN_{'CHANGED' if 'pattern' in writer else 'ADDED'}", "pattern", reader, writer, path)]


def _range(reader: Any, writer: Any, path: str) -> list[Break]:
    breaks = []
    for side, sign, word in (("imum", 1, "max"), ("imum", -1, "min")):
        ours, theirs = _limit(reader, word, side, sign), _limit(writer, word, side, sign)
        if ours is not None and (theirs is None or theirs > ours):
            keyword = next(
                key
                for key in (f"exclusive{word.title()}{side}", f"{word}{side}")
                if _limit_by(reader, key, sign) == ours
            )
            moved = "ADDED" if theirs is None else "DECREASED" if sign > 0 else "INCREASED"
            rule = {"m": f"{word.upper()}IMUM", "e": f"EXCLUSIVE_{word.upper()}IMUM"}[keyword[0]]
            breaks.append(_bound(f"{rule}_{moved}", keyword, reader, writer, path))
    return breaks


def _limit(schema: Any, word: str, side: str, sign: int) -> tuple[float, int] | None:
    """The bound on one side, as something to compare: the larger, the more is allowed."""
    keys = (f"{word}{side}", f"exclusive{word.title()}{side}")
    found = [limit for key in keys if (limit := _limit_by(schema, key, sign)) is not None]
    return min(found) if found else None


def _limit_by(schema: Any, key: str, sign: int) -> tuple[float, int] | None:
    value = schema.get(key)
    if value is None or isinstance(value, bool):
        return None
    exclusive = key.startswith("exclusive")
    if exclusive and "integer" in types_of(schema) and float(value).is_integer():
        return (sign * value - 1, 1)  # a whole number below 3 is at most 2
    return (sign * value, 0 if exclusive else 1)


def _multiple(reader: Any, writer: Any, path: str) -> list[Break]:
    if "multipleOf" not in reader:
        return []
    step = writer.get("multipleOf", 1 if "integer" in types_of(writer) else None)
    if step is not None and (step / reader["multipleOf"]).is_integer():
        return []
    rule = "MULTIPLE_OF_CHANGED" if "multipleOf" in writer else "MULTIPLE_OF_ADDED"
    return [_bound(rule, "multipleOf", reader, writer, path)]


def _unique(reader: Any, writer: Any, path: str) -> list[Break]:
    if not reader.get("uniqueItems") or writer.get("uniqueItems"):
        return []
    return [Break("UNIQUE_ITEMS_ADDED", path, "the reader wants items to be unique, the writer may repeat them")]


_NUMBER: tuple[Rule, ...] = (_range, _multiple)
RULES_OF_TYPE: dict[str, tuple[Rule, ...]] = {
    "string": (_at_most("maxLength", "MAX_LENGTH"), _at_least("minLength", "MIN_LENGTH"), _pattern),
    "number": _NUMBER,
    "integer": _NUMBER,
    "array": (_at_most("maxItems", "MAX_ITEMS"), _at_least("minItems", "MIN_ITEMS"), _unique),
    "object": (
        _at_most("maxProperties", "MAX_PROPERTIES"),
        _at_least("minProperties", "MIN_PROPERTIES"),
    ),
}
