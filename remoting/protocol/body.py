"""The base of all bodies: JSON, with RocketMQ's camelCase names on the wire.

    data = encode_body(TopicRouteData(...));  route = decode_body(data, TopicRouteData)

A decoder ignores unknown keys, gives a missing one its default, and accepts null where RocketMQ may write it. Source:
RocketMQ 4.9.8 ``remoting/protocol/body``; a family names another one where it differs.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.remoting.errors import BodyIllegal
from pocketmq.remoting.fastjson import standard_json
from pocketmq.remoting.frame import Buffer
from pocketmq.remoting.protocol.lenient import convert_leniently, decode_leniently

_T = TypeVar("_T")
LONG_MIN: Final = -(1 << 63)
LONG_MAX: Final = (1 << 63) - 1
"""Java's long; JSON has larger numbers."""


class Body(msgspec.Struct, rename="camel"):
    """The base of all bodies."""


class MessageQueue(msgspec.Struct, rename="camel", frozen=True, order=True):
    """One queue of a topic on a broker; a key in RocketMQ's tables."""

    topic: str = ""
    broker_name: str = ""
    queue_id: int = 0


class DataVersion(Body):
    """Version of a table: later (timestamp in ms, counter) wins."""

    timestamp: int = 0
    counter: int = 0
    state_version: int = 0

    def bounded(self) -> "DataVersion":
        """Return it with each number cut to a Java long: another program may send larger ones."""
        numbers = (self.timestamp, self.counter, self.state_version)
        return DataVersion(*(min(max(number, LONG_MIN), LONG_MAX) for number in numbers))


class KVTable(Body):
    """A map of strings: name-server settings, runtime information."""

    table: dict[str, str] = {}


class QueueTable(Body):
    """A body with an ``offset_table`` by ``MessageQueue``; such keys are objects on RocketMQ's wire."""


def encode_body(body: Any) -> bytes:
    """Return a body as JSON; tables by queue have objects as keys, as RocketMQ's own."""
    if not isinstance(body, QueueTable):
        return msgspec.json.encode(body)
    fields: Mapping[str, Any] = {name: getattr(body, name) for name in body.__struct_fields__}
    parts = []
    for name, wire in zip(body.__struct_fields__, body.__struct_encode_fields__, strict=True):
        value = fields[name]
        if name == "offset_table":
            items = (msgspec.json.encode(queue) + b":" + msgspec.json.encode(item) for queue, item in value.items())
            text = b"{" + b",".join(items) + b"}"
        else:
            text = msgspec.json.encode(value)
        parts.append(msgspec.json.encode(wire) + b":" + text)
    return b"{" + b",".join(parts) + b"}"


def decode_body(data: Buffer, kind: type[_T]) -> _T:
    """Return the body as ``kind``; takes standard JSON, fastjson's dialect, and what ``lenient`` allows. Raise
    ``BodyIllegal``."""
    try:
        if issubclass(kind, QueueTable):
            table: _T = _decode_queue_table(data, kind)
            return table
        try:
            return decode_leniently(data, kind)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return decode_leniently(standard_json(bytes(data)), kind)
    except DECODE_ERRORS as error:
        raise BodyIllegal(
            f"{kind.__name__} refused", why=str(error), hint="its body is JSON, see docs/protocol.md"
        ) from error


def _decode_queue_table(data: Buffer, kind: type[QueueTable]) -> Any:
    raw = msgspec.json.decode(standard_json(bytes(data)), type=dict[str, msgspec.Raw])
    table = msgspec.json.decode(raw.pop("offsetTable", msgspec.Raw(b"{}")), type=dict[str, Any])
    values: dict[str, Any] = {name: msgspec.json.decode(value) for name, value in raw.items()}
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    item_kind = fields["offset_table"].type.__args__[1]
    offsets = {
        decode_leniently(key.encode(), MessageQueue): convert_leniently(item, item_kind) for key, item in table.items()
    }
    others = {
        name: convert_leniently(values[field.encode_name], field.type)
        for name, field in fields.items()
        if field.encode_name in values
    }
    return kind(**others, offset_table=offsets)
