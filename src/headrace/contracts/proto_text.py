"""Protobuf schemas as text: what is left of it without its layout, and the text of a descriptor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)
from google.protobuf.message import Message

_TOKEN = re.compile(r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[\w.]+|.""", re.DOTALL)
_SCALARS = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in FieldDescriptorProto.Type.items()
    if name not in ("TYPE_MESSAGE", "TYPE_ENUM", "TYPE_GROUP")
}
_MOST_NUMBER = 2**29 - 1
_MOST_ENUM_NUMBER = 2**31 - 1


def without_layout(text: str) -> str:
    """The tokens of a schema: two texts that differ in comments and white space only have the same.

    >>> without_layout('syntax = "proto3";  // the third')
    'syntax = "proto3" ;'
    """
    return " ".join(found[0] for found in _TOKEN.finditer(text) if found["skip"] is None)


def proto_text(file: FileDescriptorProto) -> str:
    """The schema of a descriptor, as one would write it.

    >>> file = FileDescriptorProto(name="a.proto", syntax="proto3", package="shop")
    >>> print(proto_text(file))
    syntax = "proto3";
    package shop;
    <BLANKLINE>
    """
    return "\n".join([*_file(file), ""])


def _file(file: FileDescriptorProto) -> Iterator[str]:
    if file.syntax == "editions":
        yield f'edition = "{_edition(file)}";'
    else:
        yield f'syntax = "{file.syntax or "proto2"}";'
    if file.package:
        yield f"package {file.package};"
    for index, name in enumerate(file.dependency):
        public = "public " if index in file.public_dependency else ""
        yield f'import {public}"{name}";'
    for name, value in _options(file.options):
        yield f"option {name} = {value};"
    for message in file.message_type:
        yield from ("", *_message(message, file.syntax))
    for enum in file.enum_type:
        yield from ("", *_enum(enum))
    yield from _extensions(file.extension, file.syntax)
    for service in file.service:
        yield from ("", *_service(service))


def _edition(file: FileDescriptorProto) -> str:
    from google.protobuf.descriptor_pb2 import Edition

    return str(Edition.Name(file.edition)).removeprefix("EDITION_")


def _message(message: DescriptorProto, syntax: str) -> Iterator[str]:
    yield f"message {message.name} {{"
    yield from _indented(_message_body(message, syntax))
    yield "}"


def _message_body(message: DescriptorProto, syntax: str) -> Iterator[str]:
    nested = {each.name: each for each in message.nested_type}
    groups = {_last(field.type_name) for field in _all_fields(message) if field.type == FieldDescriptorProto.TYPE_GROUP}
    for name, value in _options(message.options):
        if name != "map_entry":
            yield f"option {name} = {value};"
    oneofs: set[int] = set()
    for field in message.field:
        if field.HasField("oneof_index") and not field.proto3_optional:
            if field.oneof_index in oneofs:
                continue
            oneofs.add(field.oneof_index)
            yield f"oneof {message.oneof_decl[field.oneof_index].name} {{"
            members = [each for each in message.field if _in_oneof(each, field.oneof_index)]
            yield from _indented(line for each in members for line in _field(each, nested, syntax, label=False))
            yield "}"
        else:
            yield from _field(field, nested, syntax, label=True)
    for range in message.extension_range:
        yield f"extensions {_range(range.start, range.end - 1, _MOST_NUMBER)};"
    yield from _extensions(message.extension, syntax)
    if message.reserved_range:
        ranges = (_range(each.start, each.end - 1, _MOST_NUMBER) for each in message.reserved_range)
        yield f"reserved {', '.join(ranges)};"
    yield from _reserved_names(message.reserved_name)
    for inner in message.nested_type:
        if not inner.options.map_entry and inner.name not in groups:
            yield from _message(inner, syntax)
    for enum in message.enum_type:
        yield from _enum(enum)


def _all_fields(message: DescriptorProto) -> Iterator[FieldDescriptorProto]:
    yield from message.field
    yield from message.extension


def _in_oneof(field: FieldDescriptorProto, index: int) -> bool:
    return field.HasField("oneof_index") and field.oneof_index == index and not field.proto3_optional


def _field(
    field: FieldDescriptorProto, nested: dict[str, DescriptorProto], syntax: str, *, label: bool
) -> Iterator[str]:
    options = _field_options(field)
    entry = nested.get(_last(field.type_name))
    if entry is not None and entry.options.map_entry:
        key, value = (_type(each) for each in entry.field)
        yield f"map<{key}, {value}> {field.name} = {field.number}{options};"
        return
    word = f"{_label(field, syntax)} " if label and _label(field, syntax) else ""
    if field.type == FieldDescriptorProto.TYPE_GROUP:
        group = nested[_last(field.type_name)]
        yield f"{word}group {group.name} = {field.number}{options} {{"
        yield from _indented(_message_body(group, syntax))
        yield "}"
        return
    yield f"{word}{_type(field)} {field.name} = {field.number}{options};"


def _label(field: FieldDescriptorProto, syntax: str) -> str:
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return "repeated"
    if field.label == FieldDescriptorProto.LABEL_REQUIRED:
        return "required"
    return "optional" if field.proto3_optional or syntax in ("", "proto2") else ""


def _field_options(field: FieldDescriptorProto) -> str:
    options = []
    if field.HasField("default_value"):
        quoted = field.type in (FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_BYTES)
        # The default of bytes is kept escaped already.
        escaped = (
            field.default_value if field.type == FieldDescriptorProto.TYPE_BYTES else _escaped(field.default_value)
        )
        options.append(f'default = "{escaped}"' if quoted else f"default = {field.default_value}")
    if field.HasField("json_name") and field.json_name != _json_name(field.name):
        options.append(f'json_name = "{_escaped(field.json_name)}"')
    options += [f"{name} = {value}" for name, value in _options(field.options)]
    return f" [{', '.join(options)}]" if options else ""


def _enum(enum: EnumDescriptorProto) -> Iterator[str]:
    yield f"enum {enum.name} {{"
    for name, value in _options(enum.options):
        yield f"  option {name} = {value};"
    for constant in enum.value:
        options = ", ".join(f"{name} = {value}" for name, value in _options(constant.options))
        yield f"  {constant.name} = {constant.number}{f' [{options}]' if options else ''};"
    if enum.reserved_range:
        ranges = (_range(each.start, each.end, _MOST_ENUM_NUMBER) for each in enum.reserved_range)
        yield f"  reserved {', '.join(ranges)};"
    yield from _indented(_reserved_names(enum.reserved_name))
    yield "}"


def _service(service: ServiceDescriptorProto) -> Iterator[str]:
    yield f"service {service.name} {{"
    for method in service.method:
        takes = ("stream " if method.client_streaming else "") + method.input_type
        gives = ("stream " if method.server_streaming else "") + method.output_type
        yield f"  rpc {method.name} ({takes}) returns ({gives});"
    yield "}"


def _extensions(fields: Iterable[FieldDescriptorProto], syntax: str) -> Iterator[str]:
    for field in fields:
        yield f"extend {field.extendee} {{"
        yield from _indented(_field(field, {}, syntax, label=True))
        yield "}"


def _options(options: Message) -> Iterator[tuple[str, str]]:
    """The options that Protobuf itself knows. Those of others are not in reach without their own schemas."""
    for field, value in options.ListFields():
        if field.is_extension or field.message_type is not None or field.name == "proto3_optional":
            continue
        for each in value if isinstance(value, list) or hasattr(value, "append") else [value]:
            if isinstance(each, bool):
                yield field.name, "true" if each else "false"
            elif field.enum_type is not None:
                yield field.name, field.enum_type.values_by_number[each].name
            elif isinstance(each, str):
                yield field.name, f'"{_escaped(each)}"'
            else:
                yield field.name, str(each)


def _reserved_names(names: Iterable[str]) -> Iterator[str]:
    quoted = [f'"{name}"' for name in names]
    if quoted:
        yield f"reserved {', '.join(quoted)};"


def _type(field: FieldDescriptorProto) -> str:
    return field.type_name or _SCALARS[field.type]


def _range(first: int, last: int, most: int) -> str:
    if first == last:
        return str(first)
    return f"{first} to {'max' if last >= most else last}"


def _json_name(name: str) -> str:
    """The name in JSON unless another is given: the letter after an underscore is a capital."""
    return re.sub(r"_+(.)?", lambda found: (found[1] or "").upper(), name)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _indented(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield f"  {line}"
