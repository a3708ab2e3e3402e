"""JSON Schemas: read, checked against their meta-schema, with every `$ref` made absolute, so that it can be followed
from anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from jsonschema import Draft7Validator
from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

from headrace.errors import InvalidContractError

_ROOT = "http://headrace.invalid/root.json"
# Values, not schemas: what looks like a reference in there is none.
_VALUES = {"enum", "const", "default", "examples"}


@dataclass
class JsonSchema:
    """A schema with everything that it refers to."""

    root: Any
    documents: dict[str, Any] = field(default_factory=dict)

    def follow(self, reference: str) -> Any:
        """What an absolute reference means."""
        if reference in self.documents:
            return self.documents[reference]
        address, fragment = urldefrag(reference)
        if address not in self.documents:
            raise _invalid(f"`{reference.removeprefix(_ROOT)}` refers to nothing that is known")
        node = self.documents[address]
        for part in unquote(fragment).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            try:
                node = node[int(key)] if isinstance(node, list) else node[key]
            except (KeyError, IndexError, ValueError, TypeError):
                raise _invalid(f"`{reference.removeprefix(_ROOT)}` leads nowhere") from None
        return node

    def accepts(self, node: Any, value: Any) -> bool:
        """Whether a value is valid under one of its nodes."""
        kind = validator_for(self.root, default=Draft7Validator)
        return bool(kind(node, registry=self._registry).is_valid(value))

    @cached_property
    def _registry(self) -> Registry[Any]:
        found = {name: document for name, document in self.documents.items() if "#" not in name}
        return Registry().with_resources(
            (name, Resource.from_contents(document, default_specification=DRAFT7))
            for name, document in found.items()
            if isinstance(document, dict | bool)
        )


def parse_json_schema(text: str, references: Mapping[str, str] | None = None) -> JsonSchema:
    """The schema; `references` are the texts of those that it refers to, by the name by which it does.

    >>> parse_json_schema('{"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": true}}').root["type"]
    'array'
    """
    schema = JsonSchema(None)
    try:
        for name, content in (references or {}).items():
            _add(schema, urljoin(_ROOT, name), json.loads(content))
        schema.root = _add(schema, _ROOT, json.loads(text))
        _check(schema.root)
        for reference in _references(schema.root):
            schema.follow(reference)
    except json.JSONDecodeError as error:
        raise _invalid(f"it is no JSON: {error}") from error
    except RecursionError:
        raise _invalid("it is nested too deeply") from None
    return schema


def canonical_json(text: str, *, sort: bool) -> str:
    """The same without white space; with `sort`, with the keys in order.

    >>> canonical_json('{"type": "string",  "maxLength": 3}', sort=True)
    '{"maxLength":3,"type":"string"}'
    """
    return json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False, sort_keys=sort)


def _check(root: Any) -> None:
    if not isinstance(root, dict | bool):
        raise _invalid("a schema is an object, or true or false")
    try:
        # Without a `$schema` it is draft 7, as for the registries and serializers of the field.
        if isinstance(root, dict):
            validator_for(root, default=Draft7Validator).check_schema(root)
    except SchemaError as error:
        place = "/".join(str(part) for part in error.absolute_path)
        raise _invalid(f"{error.message[:300]}{f' (at {place})' if place else ''}") from error


def _add(schema: JsonSchema, address: str, document: Any) -> Any:
    absolute = _absolute(schema, address, document)
    schema.documents[address] = absolute
    return absolute


def _absolute(schema: JsonSchema, base: str, node: Any) -> Any:
    """The node with absolute references; notes the names that it gives to its parts on the way."""
    if isinstance(node, list):
        return [_absolute(schema, base, each) for each in node]
    if not isinstance(node, dict):
        return node
    names = [node[key] for key in ("$id", "id") if isinstance(node.get(key), str)]
    here = urldefrag(urljoin(base, names[0]))[0] if names else base
    made: dict[str, Any] = {}
    for key, value in node.items():
        if key in ("$ref", "$dynamicRef", "$recursiveRef") and isinstance(value, str):
            made["$ref"] = urljoin(here, value)
        elif key in _VALUES:
            made[key] = value
        else:
            made[key] = _absolute(schema, here, value)
    anchors = [node[key] for key in ("$anchor", "$dynamicAnchor") if isinstance(node.get(key), str)]
    for anchor in anchors:
        schema.documents[f"{here}#{anchor}"] = made
    for name in names:
        schema.documents[urljoin(base, name) if "#" in name else here] = made
    return made


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, list):
        for each in node:
            yield from _references(each)
    elif isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for key, value in node.items():
            if key not in _VALUES:
                yield from _references(value)


def _invalid(why: str) -> InvalidContractError:
    return InvalidContractError("the schema is no valid JSON Schema.", why=f"{why.rstrip('.')}.")
