"""Whether everything that is valid under a writer's JSON Schema is valid under a reader's.

That question has no complete answer, so this one errs on the side of no: what it can't prove breaks. It differs from
the plain question where registries do: a reader that requires a property which has a default in its schema fills it in;
of `oneOf` it is enough that one branch accepts; and a list with one schema for all items is not a tuple.
"""

from __future__ import annotations

import json
import re
from typing import Any

from headrace.contracts.breaks import Break
from headrace.contracts.json_keywords import (
    ALL_TYPES,
    RULES_OF_TYPE,
    false_schema,
    finite_values,
    only,
    together,
    true_schema,
    types_of,
)
from headrace.contracts.json_schemas import JsonSchema

# What is compared as a whole, since nothing simpler is safe.
_WHOLE = ("if", "then", "else", "contains", "minContains", "maxContains", "unevaluatedProperties", "unevaluatedItems")
_DEPENDENCIES = ("dependencies", "dependentRequired", "dependentSchemas")
_SUMS = ("anyOf", "oneOf")
_LONGEST_CHAIN = 100
# Schemas within schemas can be combined in more ways than anybody would wait for.
_MOST_PAIRS = 50_000


def json_breaks(reader: JsonSchema, writer: JsonSchema) -> list[Break]:
    """Why the reader does not accept what the writer may write; empty if it does.

    >>> from headrace.contracts.json_schemas import parse_json_schema
    >>> new, old = parse_json_schema('{"type": "integer"}'), parse_json_schema('{"type": "number"}')
    >>> [str(each) for each in json_breaks(new, old)]
    ['the schema itself: the reader takes integer, the writer may write number (TYPE_NARROWED)']
    """
    return list(dict.fromkeys(_Comparison(reader, writer).compare(reader.root, writer.root, "")))


class _Comparison:
    def __init__(self, reader: JsonSchema, writer: JsonSchema) -> None:
        self._reader, self._writer = reader, writer
        self._known: dict[tuple[str, str], list[Break]] = {}
        self._pairs = 0

    def compare(self, reader: Any, writer: Any, path: str) -> list[Break]:
        """Breaks of two nodes. Pairs of references are remembered: schemas may contain themselves."""
        self._pairs += 1
        if self._pairs > _MOST_PAIRS:
            return [Break("TOO_COMPLEX", path, "the schemas are combined in too many ways to be compared")]
        names = (_reference(reader), _reference(writer))
        if names == ("", ""):
            return self._pair(reader, writer, path)
        key = (names[0] or _text(reader), names[1] or _text(writer))
        if key not in self._known:
            self._known[key] = []  # inside itself a schema is as compatible as the rest of it turns out to be
            self._known[key] = self._pair(reader, writer, path)
        return self._known[key]

    def _pair(self, reader: Any, writer: Any, path: str) -> list[Break]:
        if true_schema(reader) or false_schema(writer) or self._same(reader, writer):
            return []
        if _reference(reader):
            rest = {key: value for key, value in reader.items() if key != "$ref"}
            found = self.compare(self._reader.follow(reader["$ref"]), writer, path)
            return found + ([] if true_schema(rest) else self.compare(rest, writer, path))
        if _reference(writer):
            rest = {key: value for key, value in writer.items() if key != "$ref"}
            return self.compare(reader, together(self._writer.follow(writer["$ref"]), rest), path)
        if false_schema(reader):
            return [Break("SCHEMA_REJECTS_ALL", path, "the reader accepts nothing, the writer may write something")]
        return self._branches(reader, {} if writer is True else writer, path)

    def _same(self, reader: Any, writer: Any) -> bool:
        """Whether they are one schema. Compared as text too, since for Python 1 is equal to True."""
        if reader != writer or _text(reader) != _text(writer):
            return False
        return self._reader.documents == self._writer.documents or '"$ref"' not in _text(reader)

    def _branches(self, reader: Any, writer: Any, path: str) -> list[Break]:
        """Takes apart what is made of several schemas: the writer's first, since each of its branches may come."""
        for word in _SUMS:
            if word in writer:
                if word in reader and self._branchwise(reader, writer, word, path):
                    return []
                rest = {key: value for key, value in writer.items() if key != word}
                return [
                    found
                    for branch in writer[word]
                    for found in self.compare(reader, together(self._plain(branch), rest), path)
                ]
        if "allOf" in writer:
            whole: Any = {key: value for key, value in writer.items() if key != "allOf"}
            for part in writer["allOf"]:
                whole = together(whole, self._plain(part))
            return self.compare(reader, whole, path)
        if "allOf" in reader:
            rest = {key: value for key, value in reader.items() if key != "allOf"}
            parts = [*reader["allOf"], *([] if true_schema(rest) else [rest])]
            return [found for part in parts for found in self.compare(part, writer, path)]
        values = finite_values(writer)
        if values is not None:
            possible = [value for value in values if self._writer.accepts(writer, value)]
            return self._values(reader, possible, path)
        kinds = types_of(writer)
        if len(kinds) > 1 and any(word in reader for word in _SUMS):
            return [found for kind in sorted(kinds) for found in self.compare(reader, only(writer, kind), path)]
        for word in _SUMS:
            if word in reader:
                rest = {key: value for key, value in reader.items() if key != word}
                found = self._some_branch(reader[word], writer, path, word)
                return found + ([] if true_schema(rest) else self.compare(rest, writer, path))
        return self._single(reader, writer, path)

    def _branchwise(self, reader: Any, writer: Any, word: str, path: str) -> bool:
        """Whether each branch of the writer's is accepted by one of the reader's, everything else left aside."""
        rest = [{key: value for key, value in each.items() if key != word} for each in (reader, writer)]
        if self.compare(rest[0], rest[1], path):
            return False
        return all(any(not self.compare(ours, theirs, path) for ours in reader[word]) for theirs in writer[word])

    def _plain(self, node: Any) -> Any:
        """A branch without a reference at its top, to be merged with what stands beside it."""
        for _ in range(_LONGEST_CHAIN):
            if not _reference(node):
                return node
            rest = {key: value for key, value in node.items() if key != "$ref"}
            node = together(self._writer.follow(node["$ref"]), rest)
        return True  # a reference to itself says nothing

    def _values(self, reader: Any, values: list[Any], path: str) -> list[Break]:
        refused = [value for value in values if not self._reader.accepts(reader, value)]
        if not refused:
            return []
        rule = "ENUM_ARRAY_NARROWED" if "enum" in reader or "const" in reader else "TYPE_CHANGED"
        shown = ", ".join(_text(value) for value in refused[:5])
        return [Break(rule, path, f"the writer may write {shown}, which the reader does not accept")]

    def _some_branch(self, branches: list[Any], writer: Any, path: str, word: str) -> list[Break]:
        tried = [self.compare(branch, writer, path) for branch in branches]
        if any(not found for found in tried):
            return []
        if len(tried) == 1:
            return tried[0]
        kinds = " or ".join(sorted(types_of(writer))) if types_of(writer) != ALL_TYPES else "anything"
        why = f"the writer may write {kinds}, which no branch of the reader's {word} accepts as a whole"
        return [Break("SUM_TYPE_NARROWED", path, why)]

    def _single(self, reader: Any, writer: Any, path: str) -> list[Break]:
        """Two schemas that are not made of others."""
        if "enum" in reader or "const" in reader:
            why = "the reader takes only some values, the writer may write others"
            return [Break("ENUM_ARRAY_NARROWED", path, why)]
        read, written = types_of(reader), types_of(writer)
        missing = {kind for kind in written if kind not in read and not (kind == "integer" and "number" in read)}
        if missing:
            some = missing != written or written == ALL_TYPES or (missing == {"number"} and "integer" in read)
            rule = "TYPE_NARROWED" if some else "TYPE_CHANGED"
            shown = "anything" if written == ALL_TYPES else " or ".join(sorted(missing))
            return [Break(rule, path, f"the reader takes {' or '.join(sorted(read))}, the writer may write {shown}")]
        breaks = self._not(reader, writer, path) + _whole(reader, writer, path)
        for kind in sorted(written):
            for broken in RULES_OF_TYPE.get(kind, ()):
                breaks += broken(reader, writer, path)
        if "array" in written:
            breaks += self._items(reader, writer, path)
        if "object" in written:
            breaks += self._properties(reader, writer, path)
        return breaks

    def _not(self, reader: Any, writer: Any, path: str) -> list[Break]:
        if "not" not in reader:
            return []
        if "not" in writer:
            # What the reader excludes must be excluded by the writer: the question turned round.
            turned = _Comparison(self._writer, self._reader)
            if not turned.compare(writer["not"], reader["not"], path):
                return []
        excluded = reader["not"]
        plain = isinstance(excluded, dict) and not _reference(excluded)
        if plain and not _with_integers(types_of(excluded)) & _with_integers(types_of(writer)):
            return []
        return [Break("NOT_TYPE_EXTENDED", path, "the reader excludes values that the writer may write")]

    def _items(self, reader: Any, writer: Any, path: str) -> list[Break]:
        read_first, read_rest = _shape_of_items(reader)
        first, rest = _shape_of_items(writer)
        if read_first and not first and any(not true_schema(each) for each in read_first):
            why = "the reader takes a tuple, with a schema for each place; the writer writes a list"
            return [Break("ITEMS_BECAME_TUPLE", f"{path}[]", why)]
        breaks: list[Break] = []
        for index in range(max(len(read_first), len(first))):
            new = read_first[index] if index < len(read_first) else read_rest
            old = first[index] if index < len(first) else rest
            if index < writer.get("maxItems", index + 1):
                breaks += self._part(new, old, f"{path}[{index}]", "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL")
        return breaks + self._part(read_rest, rest, f"{path}[]", "ADDITIONAL_ITEMS_REMOVED")

    def _properties(self, reader: Any, writer: Any, path: str) -> list[Break]:
        ours, theirs = reader.get("properties", {}), writer.get("properties", {})
        breaks: list[Break] = []
        for name in reader.get("required", ()):
            given = ours.get(name)
            if name not in writer.get("required", ()) and not (isinstance(given, dict) and "default" in given):
                why = "the reader requires it and has no default for it, the writer may leave it out"
                breaks.append(Break("REQUIRED_ATTRIBUTE_ADDED", _join(path, name), why))
        for name in dict.fromkeys([*ours, *theirs]):
            new, old = _of_name(reader, name), _of_name(writer, name)
            here = _join(path, name)
            if name in ours and name not in theirs and not false_schema(old) and self._part(new, old, here, ""):
                why = "the reader has a schema for it, the writer, which allows other properties, may write anything"
                breaks.append(Break("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", here, why))
            else:
                breaks += self._part(new, old, here, "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL")
        return breaks + self._dependencies(reader, writer, path) + self._other_names(reader, writer, path)

    def _dependencies(self, reader: Any, writer: Any, path: str) -> list[Break]:
        """What must be there, or hold, if a property is there."""
        theirs = {name: each for word in _DEPENDENCIES for name, each in writer.get(word, {}).items()}
        breaks: list[Break] = []
        for name, new in ((name, each) for word in _DEPENDENCIES for name, each in reader.get(word, {}).items()):
            old = theirs.get(name, True)
            here = _join(path, name)
            if not isinstance(new, list):
                breaks += self.compare(new, True if isinstance(old, list) else old, here)
            elif not set(new) <= {*(old if isinstance(old, list) else ()), *writer.get("required", ())}:
                why = f"with it the reader wants {', '.join(new)}, which the writer may leave out"
                breaks.append(Break("DEPENDENCY_ARRAY_EXTENDED", here, why))
        return breaks

    def _other_names(self, reader: Any, writer: Any, path: str) -> list[Break]:
        """Properties that neither names: by pattern, and all the others."""
        breaks: list[Break] = []
        rest = writer.get("additionalProperties", True)
        patterns = writer.get("patternProperties", {})
        for pattern, old in patterns.items():
            new = reader.get("patternProperties", {}).get(pattern, reader.get("additionalProperties", True))
            breaks += self._part(new, old, f"{path}{{{pattern}}}", "PATTERN_PROPERTY_REMOVED")
        for pattern, new in reader.get("patternProperties", {}).items():
            if pattern not in patterns:
                breaks += self._part(new, rest, f"{path}{{{pattern}}}", "PATTERN_PROPERTY_ADDED")
        new = reader.get("additionalProperties", True)
        breaks += self._part(new, rest, f"{path}{{}}", "ADDITIONAL_PROPERTIES_REMOVED")
        if "propertyNames" in reader:
            names = together({"type": "string"}, writer.get("propertyNames", True))
            breaks += self.compare(reader["propertyNames"], names, f"{path}{{name}}")
        return breaks

    def _part(self, new: Any, old: Any, path: str, closed_rule: str) -> list[Break]:
        """A part of an object or array; a reader that refuses it altogether breaks a rule of its own."""
        if false_schema(new) and not false_schema(old):
            return [Break(closed_rule, path, "the writer may write it, the reader does not allow it")]
        return self.compare(new, old, path)


def _with_integers(kinds: frozenset[str]) -> frozenset[str]:
    return kinds | {"integer"} if "number" in kinds else kinds


def _whole(reader: Any, writer: Any, path: str) -> list[Break]:
    changed = [key for key in _WHOLE if reader.get(key, True) not in (True, {}, writer.get(key))]
    if not changed:
        return []
    why = f"the reader has another {', '.join(changed)} than the writer, and these are compared as a whole"
    return [Break("KEYWORD_CHANGED", path, why)]


def _shape_of_items(schema: Any) -> tuple[list[Any], Any]:
    """The schemas of the first items, and that of the rest, in the way of any draft."""
    if "prefixItems" in schema:
        return schema["prefixItems"], schema.get("items", True)
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return [], items


def _of_name(schema: Any, name: str) -> Any:
    """What holds for a property of that name."""
    named = [schema["properties"][name]] if name in schema.get("properties", {}) else []
    named += [each for pattern, each in schema.get("patternProperties", {}).items() if _matches(pattern, name)]
    if not named:
        return schema.get("additionalProperties", True)
    return named[0] if len(named) == 1 else {"allOf": named}


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return False


def _reference(node: Any) -> str:
    return str(node["$ref"]) if isinstance(node, dict) and "$ref" in node else ""


def _text(node: Any) -> str:
    return json.dumps(node, sort_keys=True)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
