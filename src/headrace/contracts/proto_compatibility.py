"""Whether a Protobuf reader can read what a Protobuf writer writes.

Fields are told apart by number; what counts is how they are encoded. So names may change, fields may come and go, and
types may change within a group that has one encoding; enums are numbers. Beyond the encoding, two things are kept as
registries keep them: messages do not vanish, and the package does not change (a payload names its message by place).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

from headrace.contracts.breaks import Break
from headrace.contracts.proto_schemas import ProtoSchema

_F = FieldDescriptorProto
# Types in one group have one encoding: a reader with another type of the group reads the value, or a part of it.
_ENCODINGS = {
    "number": (_F.TYPE_INT32, _F.TYPE_INT64, _F.TYPE_UINT32, _F.TYPE_UINT64, _F.TYPE_BOOL, _F.TYPE_ENUM),
    "signed number": (_F.TYPE_SINT32, _F.TYPE_SINT64),
    "text or bytes": (_F.TYPE_STRING, _F.TYPE_BYTES),
    "fixed 32 bits": (_F.TYPE_FIXED32, _F.TYPE_SFIXED32),
    "fixed 64 bits": (_F.TYPE_FIXED64, _F.TYPE_SFIXED64),
    "float": (_F.TYPE_FLOAT,),
    "double": (_F.TYPE_DOUBLE,),
}
_ENCODING_OF = {kind: name for name, kinds in _ENCODINGS.items() for kind in kinds}


def proto_breaks(reader: ProtoSchema, writer: ProtoSchema) -> list[Break]:
    """Why the reader can't read what the writer writes; empty if it can.

    >>> from headrace.contracts.proto_schemas import parse_proto
    >>> old = parse_proto('syntax = "proto3"; message Card { string id = 1; }')
    >>> new = parse_proto('syntax = "proto3"; message Card { int32 id = 1; }')
    >>> [str(each) for each in proto_breaks(new, old)]
    ['Card.id: the reader expects a number, the writer writes text or bytes (FIELD_SCALAR_KIND_CHANGED)']
    """
    return list(dict.fromkeys(_Comparison(reader, writer).all()))


class _Types:
    """The messages of a schema and its imports, by full name, each with its name inside its package."""

    def __init__(self, schema: ProtoSchema) -> None:
        self.messages: dict[str, DescriptorProto] = {}
        self.local: dict[str, str] = {}
        for file in (schema.file, *schema.imports.values()):
            prefix = f".{file.package}" if file.package else ""
            for name, message in _nested(file.message_type, ""):
                self.messages[f"{prefix}.{name}"] = message
                self.local[f"{prefix}.{name}"] = name

    def entry(self, field: FieldDescriptorProto) -> DescriptorProto | None:
        """The key and value of a map, if the field is one."""
        message = self.messages.get(field.type_name)
        return message if message is not None and message.options.map_entry else None


class _Comparison:
    def __init__(self, reader: ProtoSchema, writer: ProtoSchema) -> None:
        self._reader, self._writer = reader.file, writer.file
        self._reads, self._writes = _Types(reader), _Types(writer)
        self._seen: set[tuple[int, int]] = set()

    def all(self) -> Iterator[Break]:
        if self._reader.package != self._writer.package:
            why = f"the reader's package is {self._reader.package!r}, the writer's is {self._writer.package!r}"
            yield Break("PACKAGE_CHANGED", "", why)
        reads = dict(_nested(self._reader.message_type, ""))
        for name, written in _nested(self._writer.message_type, ""):
            if written.options.map_entry:
                continue
            if name in reads:
                yield from self._message(reads[name], written, name)
            else:
                yield Break("MESSAGE_REMOVED", name, "the writer has this message, the reader has not")

    def _message(self, reader: DescriptorProto, writer: DescriptorProto, path: str) -> Iterator[Break]:
        pair = (id(reader), id(writer))
        if pair in self._seen:
            return
        self._seen.add(pair)
        read, written = _by_number(reader), _by_number(writer)
        yield from _oneofs(reader, writer, path)
        for number in sorted(read.keys() | written.keys()):
            new, old = read.get(number), written.get(number)
            if new is not None and old is not None:
                yield from self._field(new, old, f"{path}.{new.name}")
            elif new is None and old is not None and old.label == _F.LABEL_REQUIRED:
                yield Break(
                    "REQUIRED_FIELD_REMOVED", f"{path}.{old.name}", "the writer requires it, the reader lost it"
                )
            elif old is None and new is not None and new.label == _F.LABEL_REQUIRED:
                why = "the reader requires it, and the writer does not write it"
                yield Break("REQUIRED_FIELD_ADDED", f"{path}.{new.name}", why)

    def _field(self, reader: FieldDescriptorProto, writer: FieldDescriptorProto, path: str) -> Iterator[Break]:
        read_entry, written_entry = self._reads.entry(reader), self._writes.entry(writer)
        kinds = _kind(reader, read_entry), _kind(writer, written_entry)
        if kinds[0] != kinds[1]:
            why = f"the reader expects a {kinds[0]}, the writer writes a {kinds[1]}"
            yield Break("FIELD_KIND_CHANGED", path, why)
        elif read_entry is not None and written_entry is not None:
            for new, old in zip(read_entry.field, written_entry.field, strict=True):
                yield from self._field(new, old, f"{path}.{new.name}")
        elif kinds[0] == "message":
            yield from self._named(reader, writer, path)
        else:
            yield from _scalar(reader, writer, path)

    def _named(self, reader: FieldDescriptorProto, writer: FieldDescriptorProto, path: str) -> Iterator[Break]:
        new, old = reader.type_name, writer.type_name
        if self._reads.local.get(new, new) != self._writes.local.get(old, old):
            why = f"the reader expects a message {new.lstrip('.')}, the writer writes a {old.lstrip('.')}"
            yield Break("FIELD_NAMED_TYPE_CHANGED", path, why)
        elif new in self._reads.messages and old in self._writes.messages:
            yield from self._message(self._reads.messages[new], self._writes.messages[old], path)


def _scalar(reader: FieldDescriptorProto, writer: FieldDescriptorProto, path: str) -> Iterator[Break]:
    new, old = _ENCODING_OF[reader.type], _ENCODING_OF[writer.type]
    if new != old:
        article = "" if new == "text or bytes" else "a "
        why = f"the reader expects {article}{new}, the writer writes {'' if old == 'text or bytes' else 'a '}{old}"
        yield Break("FIELD_SCALAR_KIND_CHANGED", path, why)
    elif (reader.label == _F.LABEL_REPEATED) != (writer.label == _F.LABEL_REPEATED) and new != "text or bytes":
        # Repeated numbers are packed into one field; a single one is not.
        many, one = ("reader", "writer") if reader.label == _F.LABEL_REPEATED else ("writer", "reader")
        why = f"the {many} has many of them, the {one} has one: numbers are encoded in another way then"
        yield Break("FIELD_NUMERIC_LABEL_CHANGED", path, why)


def _oneofs(reader: DescriptorProto, writer: DescriptorProto, path: str) -> Iterator[Break]:
    """Of the members of a oneof only one is kept: a writer must not set two, and none of them may get lost."""
    read, written = _by_number(reader), _by_number(writer)
    for index, oneof in _real_oneofs(reader):
        origins: dict[str, str] = {}
        for field in reader.field:
            old = written.get(field.number)
            if _member(field, index) and old is not None:
                group = f"oneof {old.oneof_index}" if _in_oneof(old) else f"field {old.number}"
                origins[group] = old.name
        if len(origins) > 1:
            single = sum(1 for group in origins if group.startswith("field"))
            rule = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if single > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
            names = ", ".join(origins.values())
            yield Break(rule, f"{path}.{oneof}", f"the writer may set {names} at once, the reader keeps one of them")
    for index, oneof in _real_oneofs(writer):
        members = [field for field in writer.field if _member(field, index)]
        survivors = [field for field in members if field.number in read]
        kept = any(name == oneof for _, name in _real_oneofs(reader))
        if not survivors and not kept:
            continue  # the whole of it is gone, as a field may be
        for field in members:
            if field.number not in read:
                why = f"the writer may set it in the oneof {oneof}, the reader has not got it"
                yield Break("ONEOF_FIELD_REMOVED", f"{path}.{field.name}", why)


def _real_oneofs(message: DescriptorProto) -> Iterator[tuple[int, str]]:
    """Those that somebody wrote: an optional field of proto3 has one of its own, which is not meant."""
    for index, oneof in enumerate(message.oneof_decl):
        if any(_member(field, index) for field in message.field):
            yield index, oneof.name


def _member(field: FieldDescriptorProto, index: int) -> bool:
    return _in_oneof(field) and field.oneof_index == index


def _in_oneof(field: FieldDescriptorProto) -> bool:
    return field.HasField("oneof_index") and not field.proto3_optional


def _by_number(message: DescriptorProto) -> dict[int, FieldDescriptorProto]:
    return {field.number: field for field in message.field}


def _nested(messages: Iterable[DescriptorProto], prefix: str) -> Iterator[tuple[str, DescriptorProto]]:
    for message in messages:
        yield f"{prefix}{message.name}", message
        yield from _nested(message.nested_type, f"{prefix}{message.name}.")


def _kind(field: FieldDescriptorProto, entry: DescriptorProto | None) -> str:
    if entry is not None:
        return "map"
    return "message" if field.type in (_F.TYPE_MESSAGE, _F.TYPE_GROUP) else "scalar"
