"""Typed headers as maps of strings: RocketMQ's ``extFields``.

Lives here: the wire names, and one reader and one writer closure for each header of the table, made at import.

Rules (RocketMQ ``RemotingCommand.java``): every value is a string; a bool is written as ``true`` or ``false``, and read
as Java does: all but ``true`` is false. None is left out, and so is an empty string where that is the default. A
compound value (ours only) is JSON text.
"""

import inspect
import re
import types
from collections.abc import Callable, Mapping
from typing import Any, Union, get_args, get_origin

import msgspec

from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.common.spelling import camel_case
from pocketmq.remoting.errors import HeaderIllegal
from pocketmq.remoting.protocol import PROTOCOL
from pocketmq.remoting.protocol.spec import Header

Reader = Callable[[dict[str, str]], Header]
"""Takes its fields out of the map (the rest are unknown) and returns the header, or raises ``HeaderIllegal``."""
Writer = Callable[[Any], dict[str, str]]

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_BOOLS = {"true": True, "false": False, "True": True, "False": False, "1": False, "0": False}
"""The usual ones; "0" is C++'s false."""
_SMALL = {str(number): number for number in range(1024)}
"""Most numbers of a header are ids and flags: a table is faster than parsing them."""
_NONE: dict[str, Any] = {}
_PLAIN = (str, int, types.NoneType)
"""Types of defaults. Each struct gets a new list, so a map of strings must name it."""


def wire_names(header: type[Header]) -> dict[str, str]:
    """Return field name → wire name, in field order."""
    return {field: header.wire_names.get(field, camel_case(field)) for field in header.__struct_fields__}


def _illegal(header: type[Header], wire: str, why: str) -> HeaderIllegal:
    return HeaderIllegal(
        f"{header.__name__} refused", why=f"field {wire}: {why}", hint="see docs/protocol.md for its fields", field=wire
    )


class _Field:
    """Reader and writer of one field."""

    __slots__ = ("convert", "default", "is_text", "known", "name", "required", "skip_empty", "wire", "write")

    def __init__(self, header: type[Header], name: str, wire: str, annotation: Any, default: Any) -> None:
        self.name = name
        self.wire = wire
        self.required = default is msgspec.NODEFAULT
        self.default = default
        annotation = _without_none(annotation)
        low, high = _bounds(annotation)
        base = get_args(annotation)[0] if hasattr(annotation, "__metadata__") else annotation
        self.is_text = base is str
        self.skip_empty = self.is_text and default == ""
        self.convert: Callable[[str], Any]
        self.write: Callable[[Any], str]
        self.known: Mapping[str, Any] = _NONE
        if base is str:
            self.convert = self.write = str
        elif base is bool:
            self.convert, self.write, self.known = _read_bool, _write_bool, _BOOLS
        elif base is int:
            self.convert, self.write = _read_int(header, wire, low, high), str
            if low <= 0 and high >= len(_SMALL):
                self.known = _SMALL
        else:
            self.convert, self.write = _read_compound(header, wire, annotation), _write_compound


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType):
        return next(arg for arg in get_args(annotation) if arg is not type(None))
    return annotation


def _bounds(annotation: Any) -> tuple[int, int]:
    for meta in getattr(annotation, "__metadata__", ()):
        if isinstance(meta, msgspec.Meta) and meta.ge is not None and meta.le is not None:
            return int(meta.ge), int(meta.le)
    return -(2**63), 2**63 - 1


def _read_int(header: type[Header], wire: str, low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        is_plain = len(text) < 20 and text.isascii() and text.isdigit()
        if not is_plain and not _INTEGER.fullmatch(text):
            raise _illegal(header, wire, f"{text[:40]!r} is not a number")
        value = int(text)
        if low <= value <= high:
            return value
        raise _illegal(header, wire, f"{value} does not fit into {'an int' if high < 2**31 else 'a long'}")

    return read


def _read_bool(text: str) -> bool:
    """Return what Java's ``Boolean.parseBoolean`` returns: all but "true", in any case, is false."""
    return text.lower() == "true"


def _read_compound(header: type[Header], wire: str, annotation: Any) -> Callable[[str], Any]:
    decode = msgspec.json.Decoder(annotation).decode

    def read(text: str) -> Any:
        try:
            return decode(text)
        except DECODE_ERRORS as error:
            raise _illegal(header, wire, str(error)) from error

    return read


def _write_bool(value: bool) -> str:
    return "true" if value else "false"


def _write_compound(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _fields(header: type[Header]) -> list[_Field]:
    """Return the fields in order. ``msgspec.structs.fields`` takes three times as long; every client imports this."""
    hints: dict[str, Any] = {}
    for base in reversed(header.__mro__):
        hints.update(inspect.get_annotations(base))
    names = wire_names(header)
    required = len(names) - len(header.__struct_defaults__)
    defaults = (msgspec.NODEFAULT,) * required + header.__struct_defaults__
    return [
        _Field(header, name, wire, hints[name], default if isinstance(default, _PLAIN) else msgspec.NODEFAULT)
        for (name, wire), default in zip(names.items(), defaults, strict=True)
    ]


def _make_reader(header: type[Header], fields: list[_Field]) -> Reader:
    plan = [(f.wire, f.is_text, f.known.get, f.convert, f.required, f.default) for f in fields]

    def read(fields: dict[str, str]) -> Header:
        values: list[Any] = []
        take, add = fields.pop, values.append
        for wire, is_text, known, convert, required, default in plan:
            text = take(wire, None)
            if text is None or (not text and not is_text):
                if required:
                    raise _illegal(header, wire, "is missing")
                add(default)
            elif is_text:
                add(text)
            else:
                value = known(text)
                add(convert(text) if value is None else value)
        return header(*values)

    return read


def _make_writer(fields: list[_Field]) -> Writer:
    plan = [(f.wire, f.write, f.skip_empty, f.is_text) for f in fields]
    items_of = msgspec.structs.astuple

    def write(value: Any) -> dict[str, str]:
        fields: dict[str, str] = {}
        for (wire, to_text, skip_empty, is_text), item in zip(plan, items_of(value), strict=True):
            if item is None or (skip_empty and not item):
                continue
            fields[wire] = item if is_text else to_text(item)
        return fields

    return write


def header_types() -> list[type[Header]]:
    """Return each header of the protocol once."""
    found = [kind for spec in PROTOCOL.values() for kind in (spec.request, spec.response) if kind is not None]
    return list(dict.fromkeys(found))


def _make_all() -> tuple[Mapping[type[Header], Reader], Mapping[type[Header], Writer]]:
    readers: dict[type[Header], Reader] = {}
    writers: dict[type[Header], Writer] = {}
    for header in header_types():
        fields = _fields(header)  # reading the annotations is what takes time at import: once for both
        readers[header] = _make_reader(header, fields)
        writers[header] = _make_writer(fields)
    return readers, writers


READERS, WRITERS = _make_all()
