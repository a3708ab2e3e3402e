"""Whether an Avro reader can read what an Avro writer writes, by the rules of schema resolution in the specification.

The verdicts are those of `avro.compatibility` (a test compares them), but for one thing: an alias without a namespace
is meant in the namespace of the type that has it, which the library overlooks. What we need beside the verdict is the
field, by its name, and the rule; the library collects places and reasons in sets that do not say which belong together.
"""

from __future__ import annotations

from avro.schema import (
    ArraySchema,
    EnumSchema,
    Field,
    FixedSchema,
    MapSchema,
    NamedSchema,
    RecordSchema,
    Schema,
    UnionSchema,
)

from headrace.contracts.breaks import Break

# What a reader takes beside its own type.
_PROMOTIONS = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "bytes": {"string"},
    "string": {"bytes"},
}


def avro_breaks(reader: Schema, writer: Schema) -> list[Break]:
    """Why the reader can't read what the writer writes; empty if it can.

    >>> from headrace.contracts.avro_schemas import parse_avro
    >>> old = parse_avro('{"type": "record", "name": "Card", "fields": [{"name": "id", "type": "string"}]}')
    >>> new = parse_avro('{"type": "record", "name": "Card", "fields": [{"name": "id", "type": "int"}]}')
    >>> [str(each) for each in avro_breaks(new, old)]
    ['id: the reader expects int, the writer writes string (TYPE_MISMATCH)']
    """
    return list(dict.fromkeys(_Comparison().compare(reader, writer, "")))


class _Comparison:
    """One comparison; remembers the pairs that it has seen, since types may contain themselves."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], list[Break]] = {}

    def compare(self, reader: Schema, writer: Schema, path: str) -> list[Break]:
        pair = (id(reader), id(writer))
        if pair not in self._known:
            self._known[pair] = []  # inside itself a type is as compatible as the rest of it turns out to be
            self._known[pair] = self._pair(reader, writer, path)
        return self._known[pair]

    def _pair(self, reader: Schema, writer: Schema, path: str) -> list[Break]:
        if isinstance(writer, UnionSchema):
            return [found for branch in writer.schemas for found in self.compare(reader, branch, path)]
        if isinstance(reader, UnionSchema):
            return self._some_branch(reader, writer, path)
        if isinstance(reader, ArraySchema) and isinstance(writer, ArraySchema):
            return self.compare(reader.items, writer.items, f"{path}[]")
        if isinstance(reader, MapSchema) and isinstance(writer, MapSchema):
            return self.compare(reader.values, writer.values, f"{path}{{}}")
        if isinstance(reader, FixedSchema) and isinstance(writer, FixedSchema):
            return _names(reader, writer, path) + _sizes(reader, writer, path)
        if isinstance(reader, EnumSchema) and isinstance(writer, EnumSchema):
            return _names(reader, writer, path) + _symbols(reader, writer, path)
        if isinstance(reader, RecordSchema) and isinstance(writer, RecordSchema):
            return _names(reader, writer, path) + self._fields(reader, writer, path)
        if reader.type == writer.type or writer.type in _PROMOTIONS.get(reader.type, ()):
            return []
        why = f"the reader expects {_shown(reader)}, the writer writes {_shown(writer)}"
        return [Break("TYPE_MISMATCH", path, why)]

    def _some_branch(self, reader: UnionSchema, writer: Schema, path: str) -> list[Break]:
        if any(not self.compare(branch, writer, path) for branch in reader.schemas):
            return []
        # If one branch is of the same kind, what differs inside of it says more than that the branch is missing.
        for branch in reader.schemas:
            same_name = not isinstance(branch, NamedSchema) or branch.name == getattr(writer, "name", None)
            if branch.type == writer.type and same_name:
                return self.compare(branch, writer, path)
        branches = ", ".join(_shown(branch) for branch in reader.schemas)
        why = f"the writer may write {_shown(writer)}, the reader takes one of: {branches or 'nothing'}"
        return [Break("MISSING_UNION_BRANCH", path, why)]

    def _fields(self, reader: RecordSchema, writer: RecordSchema, path: str) -> list[Break]:
        breaks: list[Break] = []
        for field in reader.fields:
            here = f"{path}.{field.name}" if path else str(field.name)
            written = _written(writer, field)
            if written is not None:
                breaks += self.compare(field.type, written.type, here)
            elif not field.has_default:
                why = "the reader has no default for it, and the writer does not write it"
                breaks.append(Break("READER_FIELD_MISSING_DEFAULT_VALUE", here, why))
        return breaks


def _written(writer: RecordSchema, field: Field) -> Field | None:
    """The writer's field that a field of the reader is read from: by its name, else by an alias."""
    by_name: dict[str, Field] = {str(written.name): written for written in writer.fields}
    names = [str(field.name), *_aliases(field)]
    return next((by_name[name] for name in names if name in by_name), None)


def _aliases(named: Field | NamedSchema) -> list[str]:
    given = named.props.get("aliases")
    return [str(alias) for alias in given] if isinstance(given, list) else []


def _names(reader: NamedSchema, writer: NamedSchema, path: str) -> list[Break]:
    """By their short names: schemas move between namespaces without a change in what is written."""
    if reader.name == writer.name:
        return []
    space = str(reader.fullname).rpartition(".")[0]
    aliases = {alias if "." in alias or not space else f"{space}.{alias}" for alias in _aliases(reader)}
    if writer.fullname in aliases:
        return []
    why = f"the reader expects a type with the name {reader.fullname}, the writer's is {writer.fullname}"
    return [Break("NAME_MISMATCH", path, why)]


def _sizes(reader: FixedSchema, writer: FixedSchema, path: str) -> list[Break]:
    if reader.size == writer.size:
        return []
    why = f"the reader expects {reader.size} bytes, the writer writes {writer.size}"
    return [Break("FIXED_SIZE_MISMATCH", path, why)]


def _symbols(reader: EnumSchema, writer: EnumSchema, path: str) -> list[Break]:
    missing = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
    if not missing or reader.props.get("default") in reader.symbols:
        return []
    why = f"the reader has no symbol {', '.join(missing)}, and no default for symbols that it does not know"
    return [Break("MISSING_ENUM_SYMBOLS", path, why)]


def _shown(schema: Schema) -> str:
    if isinstance(schema, NamedSchema):
        return f"{schema.type} {schema.fullname}"
    return str(schema.type)
