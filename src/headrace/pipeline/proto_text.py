"""Protobuf schemas as text (or as a serialized descriptor), read into messages and enums with full names.

Options, services, extensions and comments are read over: they do not change what a message's bytes mean.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field

from headrace.errors import InvalidSchemaError

_TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|\s+|(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[A-Za-z_][\w.]*|\.[A-Za-z_][\w.]*|[-+]?[\w.]+|.)",
    re.DOTALL,
)


@dataclass
class ProtoField:
    """One field. `presence`: whether absent differs from the default."""

    name: str
    number: int
    type: str
    repeated: bool = False
    presence: bool = False
    required: bool = False
    map_key: str | None = None
    packed: bool = True


@dataclass
class ProtoMessage:
    """A message with its full name and its path: the indexes that the wire format names it by."""

    name: str
    path: tuple[int, ...]
    fields: list[ProtoField] = field(default_factory=list)


@dataclass
class ProtoFile:
    """What a file defines."""

    package: str = ""
    proto3: bool = False
    messages: dict[str, ProtoMessage] = field(default_factory=dict)
    enums: dict[str, dict[int, str]] = field(default_factory=dict)


def parse_proto(text: str) -> ProtoFile:
    """A file from its text, or from its descriptor in base64, in which form Python's serializers register it.

    >>> parse_proto('syntax = "proto3"; message Click { string user = 1; }').messages["Click"].fields[0].name
    'user'
    """
    stripped = text.strip()
    if re.fullmatch(r"[A-Za-z0-9+/=\s]+", stripped) and not stripped.startswith("syntax"):
        try:
            return _from_descriptor(base64.b64decode(stripped, validate=True))
        except (binascii.Error, ValueError):
            pass
    return _Parser(text).file()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = [m.group(1) for m in _TOKEN.finditer(text) if m.group(1)]
        self._at = 0
        self._made = ProtoFile()

    def file(self) -> ProtoFile:
        tops = 0
        while self._at < len(self._tokens):
            match self._next():
                case "syntax" | "edition":
                    self._expect("=")
                    self._made.proto3 = self._next().strip("\"'") != "proto2"
                    self._expect(";")
                case "package":
                    self._made.package = self._next()
                    self._expect(";")
                case "message":
                    self._message(self._made.package, (tops,))
                    tops += 1
                case "enum":
                    self._enum(self._made.package)
                case ";":
                    pass
                case _:
                    self._skip()
        return self._made

    def _message(self, scope: str, path: tuple[int, ...]) -> None:
        name = self._next()
        full = f"{scope}.{name}" if scope else name
        message = self._made.messages[full] = ProtoMessage(full, path)
        self._expect("{")
        self._body(message, path, oneof=False)

    def _body(self, message: ProtoMessage, path: tuple[int, ...], *, oneof: bool) -> None:
        nested = 0
        while (token := self._next()) != "}":
            match token:
                case "message" if self._peek(1) == "{":
                    self._message(message.name, (*path, nested))
                    nested += 1
                case "enum" if self._peek(1) == "{":
                    self._enum(message.name)
                case "oneof" if self._peek(1) == "{":
                    self._next()
                    self._expect("{")
                    self._body(message, path, oneof=True)
                case "option" | "reserved" | "extensions" | "extend":
                    self._skip()
                case ";":
                    pass
                case _:
                    message.fields.append(self._field(token, oneof))

    def _field(self, token: str, oneof: bool) -> ProtoField:
        label = token if token in ("optional", "required", "repeated") else ""
        type = self._next() if label else token
        key = None
        if type == "map" and self._peek() == "<":
            self._next()
            key = self._next()
            self._expect(",")
            type = self._next()
            self._expect(">")
        if type == "group":
            raise InvalidSchemaError("the schema has a group.", why="Groups are long deprecated.", fix="use a message.")
        name = self._next()
        self._expect("=")
        number = int(self._next(), 0)
        options = ""
        if self._peek() == "[":
            while (part := self._next()) != "]":
                options += part
        self._expect(";")
        repeated = label == "repeated" or key is not None
        presence = label in ("optional", "required") or oneof or not self._made.proto3
        packed = self._made.proto3 if "packed=" not in options else "packed=true" in options
        return ProtoField(name, number, type, repeated, presence, label == "required", key, packed)

    def _enum(self, scope: str) -> None:
        name = self._next()
        values = self._made.enums[f"{scope}.{name}" if scope else name] = {}
        self._expect("{")
        while (token := self._next()) != "}":
            if token in ("option", "reserved"):
                self._skip()
            elif token != ";":
                self._expect("=")
                # Of two names for one number the first is the one that is shown.
                values.setdefault(int(self._next(), 0), token)
                self._skip()

    def _skip(self) -> None:
        """To the end of a statement that does not matter here."""
        depth = 0
        while True:
            token = self._next()
            depth += (token == "{") - (token == "}")
            if depth == 0 and token in (";", "}"):
                return

    def _next(self) -> str:
        if self._at >= len(self._tokens):
            raise InvalidSchemaError("the schema is no Protobuf schema: it ends too early.")
        self._at += 1
        return self._tokens[self._at - 1]

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else ""

    def _expect(self, token: str) -> None:
        found = self._next()
        if found != token:
            near = " ".join(self._tokens[max(0, self._at - 6) : self._at])
            raise InvalidSchemaError(f"the schema is no Protobuf schema: `{token}` is due near `{near}`.")


def _from_descriptor(data: bytes) -> ProtoFile:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        file = FileDescriptorProto.FromString(data)
    except DecodeError as problem:
        raise ValueError(str(problem)) from problem
    if not file.message_type and not file.enum_type:
        raise ValueError("no descriptor of a file")
    made = ProtoFile(file.package, file.syntax in ("proto3", "editions"))
    names = {number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()}

    def visit(message: DescriptorProto, scope: str, path: tuple[int, ...]) -> None:
        full = f"{scope}.{message.name}" if scope else message.name
        found = made.messages[full] = ProtoMessage(full, path)
        entries = {f".{full}.{n.name}": n for n in message.nested_type if n.options.map_entry}
        for f in message.field:
            repeated = f.label == FieldDescriptorProto.LABEL_REPEATED
            presence = f.proto3_optional or f.HasField("oneof_index") or (not made.proto3 and not repeated)
            type, key = f.type_name or names[f.type], None
            if f.type_name in entries:
                of_key, of_value = sorted(entries[f.type_name].field, key=lambda each: each.number)
                type, key = of_value.type_name or names[of_value.type], names[of_key.type]
            packed = f.options.packed if f.options.HasField("packed") else made.proto3
            required = f.label == FieldDescriptorProto.LABEL_REQUIRED
            found.fields.append(ProtoField(f.name, f.number, type, repeated, presence, required, key, packed))
        for i, nested in enumerate(message.nested_type):
            if not nested.options.map_entry:
                visit(nested, full, (*path, i))
        for enum in message.enum_type:
            made.enums[f"{full}.{enum.name}"] = {v.number: v.name for v in reversed(enum.value)}

    for i, message in enumerate(file.message_type):
        visit(message, file.package, (i,))
    for enum in file.enum_type:
        made.enums[f"{file.package}.{enum.name}".lstrip(".")] = {v.number: v.name for v in reversed(enum.value)}
    return made
