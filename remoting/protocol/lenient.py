"""JSON bodies as leniently as RocketMQ reads them: fastjson's conversions of a value to the type of its field.

Clients that are not written in Java rely on it: Go writes tag codes as strings, C++ longs as strings and enums as
ordinals. (fastjson 1.2.69 ``TypeUtils.castToInt``, ``castToBoolean``,
``EnumDeserializer``, ``StringCodec``.)

| field | also taken |
|---|---|
| number | its digits as a string (``"97"``, ``"97.0"``), a float without a fraction, ``true`` 1, ``false`` 0 |
| bool | ``"true"``, ``"1"``, ``"Y"``, ``"T"`` and their opposites in any case; a number: 1 is true |
| string | a number or a bool, as its text |
| enum | its ordinal; its name in any case; another name is no value, as ``null`` |
| field with a default | ``null``, and for numbers and bools ``""`` and ``"null"``: the default |

``tests/vectors/fastjson.json`` has what RocketMQ's classes read; docs/compatibility.md compares. All else is refused
with the place of the field, as are numbers in strings beyond 64 bits and fractions where a whole
number belongs (fastjson cuts them off).

Lives here: those rules, once for every body.
"""

import functools
import math
import re
from collections.abc import Callable, Hashable
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import inspect

from pocketmq.remoting.frame import Buffer

_T = TypeVar("_T")
_Rule = Callable[[Any], Any]
"""Returns a value in its field's type; None for no value; an unusable one unchanged, for msgspec to refuse."""

BYTES_MAX: Final = 1 << 20
"""A larger body must have the types of its fields: lenient reading makes an object of every value, up to 25 bytes for
each byte received."""

_WHOLE = re.compile(r"[+-]?([0-9]{1,19})(\.0*)?", re.ASCII)
_DECIMAL = re.compile(r"[+-]?[0-9]{1,32}(\.[0-9]{0,32})?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_NOTHING: Final = frozenset(("", "null", "NULL"))
_BOOLS: Final = {
    "true": True,
    "1": True,
    "y": True,
    "t": True,
    "false": False,
    "0": False,
    "n": False,
    "f": False,
}
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1


def _enum(*names: str) -> msgspec.Meta:
    """Describe an enum of RocketMQ: its names, in the order of their ordinals."""
    return msgspec.Meta(pattern=f"^({'|'.join(names)})$", extra={"ordinals": names})


ConsumeType = Annotated[str, _enum("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")]
"""RocketMQ ``ConsumeType``; the last one since 5.0."""
MessageModel = Annotated[str, _enum("BROADCASTING", "CLUSTERING")]
"""RocketMQ ``MessageModel``."""
ConsumeFromWhere = Annotated[
    str,
    _enum(
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        "CONSUME_FROM_MIN_OFFSET",
        "CONSUME_FROM_MAX_OFFSET",
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    ),
]
"""RocketMQ ``ConsumeFromWhere``; ordinals 1 to 3 are deprecated there, but still valid."""
MessageRequestMode = Annotated[str, _enum("PULL", "POP")]
"""RocketMQ 5.3 ``MessageRequestMode``."""
TopicFilterType = Annotated[str, _enum("SINGLE_TAG", "MULTI_TAG")]
"""RocketMQ ``TopicFilterType``."""


def decode_leniently(data: Buffer, kind: type[_T]) -> _T:
    """Return standard JSON as ``kind``. Raise what ``msgspec.json.decode`` raises.

    A body whose values have the types of their fields is decoded once, at no extra cost.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        if len(data) > BYTES_MAX:
            raise
        return msgspec.convert(_rule_of(kind)(msgspec.json.decode(data)), kind)


def convert_leniently(value: Any, kind: type[_T]) -> _T:
    """Return a decoded value as ``kind``. Raise ``msgspec.ValidationError``."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return msgspec.convert(_rule_of(kind)(value), kind)


def _rule_of(kind: Any) -> _Rule:
    return _cached_rule(kind)


@functools.cache
def _cached_rule(kind: Hashable) -> _Rule:
    return _rule(inspect.type_info(kind))


def _rule(kind: inspect.Type) -> _Rule:
    """Return the rule for a type; types of bodies do not contain themselves."""
    if isinstance(kind, inspect.Metadata):
        ordinals = (kind.extra or {}).get("ordinals")
        return _enum_rule(ordinals) if ordinals else _rule(kind.type)
    if isinstance(kind, inspect.UnionType):
        return _rule(next(each for each in kind.types if not isinstance(each, inspect.NoneType)))
    if isinstance(kind, inspect.StructType):
        return _struct_rule(kind)
    if isinstance(kind, inspect.ListType | inspect.VarTupleType):
        item = _rule(kind.item_type)
        return lambda value: [_kept(item, each) for each in value] if type(value) is list else value
    if isinstance(kind, inspect.DictType):
        of_value = _rule(kind.value_type)
        return lambda value: (
            {name: _kept(of_value, each) for name, each in value.items()} if type(value) is dict else value
        )
    return _SCALARS.get(type(kind), _as_it_is)


def _kept(rule: _Rule, value: Any) -> Any:
    """Apply the rule to an item of a collection, which has no default."""
    found = rule(value)
    return value if found is None else found


def _struct_rule(kind: inspect.StructType) -> _Rule:
    plan = [(field.encode_name, _rule(field.type), field.required, _is_nullable(field.type)) for field in kind.fields]

    def read(value: Any) -> Any:
        if type(value) is not dict:
            return value
        fields: dict[str, Any] = {}
        for name, rule, required, nullable in plan:
            if name in value:
                found = rule(value[name])
                if found is not None or nullable:
                    fields[name] = found
                elif required:
                    fields[name] = value[name]
        return fields

    return read


def _is_nullable(kind: inspect.Type) -> bool:
    return isinstance(kind, inspect.UnionType) and kind.includes_none


def _enum_rule(ordinals: tuple[str, ...]) -> _Rule:
    def read(value: Any) -> Any:
        if type(value) is str:
            name = value.upper()
            return name if name in ordinals else None
        if type(value) is int and 0 <= value < len(ordinals):
            return ordinals[value]
        return value

    return read


def _whole(value: Any) -> Any:
    if type(value) is str:
        if value in _NOTHING:
            return None
        digits = _WHOLE.fullmatch(value)
        if digits is None:
            return value
        number = -int(digits[1]) if value[0] == "-" else int(digits[1])
        return number if _LONG_MIN <= number <= _LONG_MAX else value
    if type(value) is float:
        return int(value) if value.is_integer() and _LONG_MIN <= value < _LONG_MAX else value
    return int(value) if type(value) is bool else value


def _decimal(value: Any) -> Any:
    if type(value) is str:
        if value in _NOTHING:
            return None
        number = float(value) if _DECIMAL.fullmatch(value) else math.inf
        return number if math.isfinite(number) else value
    return float(value) if type(value) is bool else value


def _bool(value: Any) -> Any:
    if type(value) is str:
        return None if value in _NOTHING else _BOOLS.get(value.lower(), value)
    return value == 1 if type(value) is int or type(value) is float else value


def _text(value: Any) -> Any:
    if type(value) is bool:
        return "true" if value else "false"
    return str(value) if type(value) is int or type(value) is float else value


def _as_it_is(value: Any) -> Any:
    return value


_SCALARS: Final[dict[type[inspect.Type], _Rule]] = {
    inspect.IntType: _whole,
    inspect.FloatType: _decimal,
    inspect.BoolType: _bool,
    inspect.StrType: _text,
}
