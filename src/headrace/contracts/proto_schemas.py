"""Protobuf schemas: read by protoc, from text or from a descriptor in base64, which is what some clients send."""

from __future__ import annotations

import base64
import binascii
import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from headrace.contracts.proto_text import proto_text
from headrace.errors import InvalidContractError

_SECONDS = 20.0
_MAIN = "headrace_main.proto"


@dataclass(frozen=True)
class ProtoSchema:
    """A schema as its descriptor, with the descriptors of all that it imports, by name."""

    file: FileDescriptorProto
    imports: dict[str, FileDescriptorProto]


def parse_proto(text: str, references: Sequence[tuple[str, str]] = ()) -> ProtoSchema:
    """The descriptor of a schema; `references` are the texts of what it imports, by the path of the import.

    >>> schema = parse_proto('syntax = "proto3"; message Card { string id = 1; }')
    >>> schema.file.message_type[0].name
    'Card'
    """
    return _parse(text, tuple(references))


def canonical_proto(text: str, references: Sequence[tuple[str, str]], *, normalize: bool) -> str:
    """The text to keep: as it was written, unless it came as a descriptor or is to be normalized."""
    parsed = parse_proto(text, references)
    return proto_text(parsed.file) if normalize or _descriptor(text) is not None else text.strip() + "\n"


def serialized_proto(text: str, references: Sequence[tuple[str, str]]) -> str:
    """The descriptor in base64."""
    file = FileDescriptorProto()
    file.CopyFrom(parse_proto(text, references).file)
    return base64.b64encode(file.SerializeToString(deterministic=True)).decode()


@lru_cache(maxsize=256)
def _parse(text: str, references: tuple[tuple[str, str], ...]) -> ProtoSchema:
    given = _descriptor(text)
    texts = {name: _as_text(content) for name, content in references}
    for name in texts:
        _check_path(name)
    # A descriptor goes through protoc as well: so it is checked in the same way, and its imports are found.
    found = _protoc(text if given is None else proto_text(given), texts)
    file = given or found.pop(_MAIN)
    found.pop(_MAIN, None)
    if given is not None:
        _check_linked(file, found)
    return ProtoSchema(file, found)


def _protoc(text: str, imports: dict[str, str]) -> dict[str, FileDescriptorProto]:
    """In a process of its own: a schema comes from anywhere, and the compiler is not written in Python."""
    with tempfile.TemporaryDirectory(prefix="headrace-proto-") as folder:
        for name, content in {**imports, _MAIN: text}.items():
            path = Path(folder) / "in" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        out = Path(folder) / "out.pb"
        # -P: a schema could be named like a module of Python's, and must not be taken for one.
        command = [sys.executable, "-P", "-m", "grpc_tools.protoc", f"-I{folder}/in", *_includes()]
        command += ["--include_imports", f"--descriptor_set_out={out}", _MAIN]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False, cwd="/")
        except subprocess.TimeoutExpired:
            raise _invalid(f"protoc did not understand it within {_SECONDS:g} s") from None
        if done.returncode != 0:
            raise _invalid(_told(done.stderr, folder))
        files = FileDescriptorSet.FromString(out.read_bytes()).file
    return {file.name: file for file in files}


@lru_cache(maxsize=1)
def _includes() -> tuple[str, ...]:
    """Where the schemas are that everybody may import: google/protobuf, and google/type and its like."""
    tools = importlib.util.find_spec("grpc_tools")
    if tools is None or not tools.submodule_search_locations:
        raise InvalidContractError(
            "Protobuf schemas can't be read: protoc is not there.", fix="pip install grpcio-tools"
        )
    common = importlib.util.find_spec("google.type")
    folders = [Path(tools.submodule_search_locations[0]) / "_proto"]
    if common is not None and common.submodule_search_locations:
        folders.append(Path(common.submodule_search_locations[0]).parents[1])
    return tuple(f"-I{folder}" for folder in folders)


def _descriptor(text: str) -> FileDescriptorProto | None:
    """The descriptor, if the text is one in base64. No schema is: base64 has neither blanks nor semicolons."""
    try:
        return FileDescriptorProto.FromString(base64.b64decode(text.strip(), validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None


def _as_text(text: str) -> str:
    given = _descriptor(text)
    return text if given is None else proto_text(given)


def _check_path(name: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or name == _MAIN or not path.parts:
        raise _invalid(f"`{name[:100]}` can't be the name of a reference: it is the path of an import")


def _check_linked(file: FileDescriptorProto, imports: dict[str, FileDescriptorProto]) -> None:
    """What the text of a descriptor can't say (options of others) must not make it unfit for those who load it."""
    pool = DescriptorPool()
    try:
        for each in imports.values():
            pool.Add(each)
        pool.Add(file)
        pool.FindFileByName(file.name)
    except (TypeError, KeyError) as error:
        raise _invalid(str(error)) from error


def _told(said: str, folder: str) -> str:
    lines = [line.replace(f"{folder}/in/", "").replace(f"{_MAIN}:", "line ") for line in said.strip().splitlines()]
    problems = [line for line in lines if re.match(r"[\w./-]+:|line ", line) and "warning" not in line.lower()]
    return "; ".join(problems)[:500] or "protoc gives no reason"


def _invalid(why: str) -> InvalidContractError:
    return InvalidContractError("the schema is no valid Protobuf.", why=f"{why.rstrip('.')}.")
