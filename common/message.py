"""Messages as users see them.

Lives here: ``Message``, which a producer sends, and ``ReceivedMessage``, which a consumer gets.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypedDict, TypeVar, Unpack, overload

from pocketmq.common import record as names
from pocketmq.common.body_codec import BODY_BYTES_MAX, BodyUnreadable, decompress_body
from pocketmq.common.errors import MessageIllegal
from pocketmq.common.message_id import offset_msg_id
from pocketmq.common.record import (
    BORN_HOST_AT,
    BORN_HOST_V6_FLAG,
    COMPRESSED_FLAG,
    HOST_V4_BYTES,
    HOST_V6_BYTES,
    STORE_HOST_V6_FLAG,
    SYS_FLAG_AT,
    TRANSACTION_MASK,
    decode_properties,
    host_text,
)
from pocketmq.common.value_codec import JSON, BodyCodec, encode_value, known_decoder, not_decoded

__all__ = ["BODY_BYTES_MAX", "BodyUnreadable", "Message", "ReceivedMessage", "decompress_body"]

_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_T = TypeVar("_T")


class MessageFields(TypedDict, total=False):
    """The keyword arguments of ``Message``."""

    tags: str
    keys: Sequence[str] | str
    properties: Mapping[str, str] | None
    flag: int
    wait_store_msg_ok: bool
    sharding_key: str | None
    delay_time_level: int
    delay_time_sec: int | None
    delay_time_ms: int | None
    deliver_time_ms: int | None


class Message:
    """What a producer sends. Nothing is checked here; the producer does, before it sends.

    ``keys``: one string (keys separated by spaces) or several; the broker indexes each. ``properties``: the user's own.
    ``sharding_key`` selects the queue. ``wait_store_msg_ok`` False: the answer does not wait for disk or slaves.
    ``delay_time_level``: 0 now, 1 to 18 after the broker's delay of that level. ``delay_time_ms`` from now on, or
    ``deliver_time_ms`` (ms since 1970): at any time up to the broker's ``timer_max_delay_sec`` ahead (RocketMQ 5 and
    PocketMQ; an older broker delivers at once). ``delay_time_sec``: the same in seconds. At most one of them.
    """

    is_plain_kind: ClassVar[bool] = True
    """Whether it is a plain message: other kinds are sent one by one, as RocketMQ's clients do."""

    __slots__ = (
        "body",
        "delay_time_level",
        "delay_time_ms",
        "deliver_time_ms",
        "flag",
        "keys",
        "packed",
        "properties",
        "sharding_key",
        "tags",
        "topic",
        "wait_store_msg_ok",
    )

    def __init__(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str = "",
        keys: Sequence[str] | str = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        wait_store_msg_ok: bool = True,
        sharding_key: str | None = None,
        delay_time_level: int = 0,
        delay_time_sec: int | None = None,
        delay_time_ms: int | None = None,
        deliver_time_ms: int | None = None,
    ) -> None:
        self.topic = topic
        self.body = body
        self.packed: tuple[bytes, int, bytes] | None = None  # (body, sysFlag bits, body compressed), by a producer
        self.tags = tags
        self.keys = keys
        self.properties = properties
        self.flag = flag
        self.wait_store_msg_ok = wait_store_msg_ok
        self.sharding_key = sharding_key
        self.delay_time_level = delay_time_level
        self.delay_time_ms = delay_time_ms
        self.deliver_time_ms = deliver_time_ms
        if delay_time_sec is not None:
            if delay_time_ms is not None:
                raise MessageIllegal(
                    "message refused, field delay_time_sec", why="delay_time_ms is set, too", hint="set one of them"
                )
            self.delay_time_ms = delay_time_sec * 1000

    @classmethod
    def of(cls, topic: str, value: object, *, codec: BodyCodec = JSON, **fields: Unpack[MessageFields]) -> "Message":
        """Return a message whose body is ``value``, encoded by ``codec`` (JSON); the fields are those of ``Message``.

        Raises ``MessageIllegal`` for a value that the codec cannot encode.
        """
        return Message(topic, encode_value(value, codec), **fields)

    @classmethod
    def copy_of(cls, source: Any) -> "Message":
        """Return a plain message with the fields of ``source``: see ``copy_fields``."""
        message = object.__new__(Message)
        message.copy_fields(source)
        return message

    def copy_fields(self, source: Any) -> None:
        """Take every field of ``source``, a message or an object with the same fields. What a producer has packed is
        not taken. The one place that copies messages: kinds of messages begin with it instead of ``__init__``.
        """
        self.topic = source.topic
        self.body = source.body
        self.packed = None
        self.tags = source.tags
        self.keys = source.keys
        self.properties = source.properties
        self.flag = source.flag
        self.wait_store_msg_ok = source.wait_store_msg_ok
        self.sharding_key = source.sharding_key
        self.delay_time_level = source.delay_time_level
        self.delay_time_ms = source.delay_time_ms
        self.deliver_time_ms = source.deliver_time_ms

    @property
    def is_timed(self) -> bool:
        """Whether it has a delivery time of its own; a delay level is not one."""
        return self.delay_time_ms is not None or self.deliver_time_ms is not None

    @property
    def keys_text(self) -> str:
        """The value of the KEYS property: keys separated by spaces."""
        keys = self.keys
        return keys if isinstance(keys, str) else " ".join(keys)

    def property_map(self, uniq_key: str = "") -> dict[str, str]:
        """Return all properties as a typed SEND_MESSAGE carries them, WAIT, DELAY and TIMER_* included."""
        result: dict[str, str] = {}
        if uniq_key:
            result[names.UNIQ_KEY] = uniq_key
        if self.tags:
            result[names.TAGS] = self.tags
        keys = self.keys_text
        if keys:
            result[names.KEYS] = keys
        result[names.WAIT] = "true" if self.wait_store_msg_ok else "false"
        if self.delay_time_level:
            result[names.DELAY] = str(self.delay_time_level)
        if self.delay_time_ms is not None:
            result[names.TIMER_DELAY_MS] = str(self.delay_time_ms)
        if self.deliver_time_ms is not None:
            result[names.TIMER_DELIVER_MS] = str(self.deliver_time_ms)
        if self.sharding_key:
            result[names.SHARDING_KEY] = self.sharding_key
        if self.properties:
            for name, value in self.properties.items():
                result.setdefault(name, value)
        return result

    def __repr__(self) -> str:
        return f"Message({self.topic!r}, {len(self.body)} bytes, tags={self.tags!r}, keys={self.keys_text!r})"


class ReceivedMessage:
    """One message from a broker. Keeps the record's bytes and decodes the rarely used fields when asked.

    Made by ``record_columns.received_messages`` and ``record_codec.received_message``, which have checked the record's
    sizes. ``queue_offset`` counts messages in the queue, ``physical_offset`` is bytes in the broker's log.
    """

    __slots__ = (
        "_body",
        "_body_at",
        "_fencing_token",
        "_properties",
        "_properties_at",
        "_record",
        "_tries_here",
        "broker_name",
        "queue_id",
        "queue_offset",
        "topic",
    )

    def __init__(
        self,
        record: bytes,
        broker_name: str,
        topic: str,
        queue_id: int,
        queue_offset: int,
        body_at: int,
        properties_at: int,
    ) -> None:
        """``body_at`` and ``properties_at``: where those begin in ``record``, which ends with the properties."""
        self._record = record
        self.broker_name = broker_name
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self._body_at = body_at
        self._properties_at = properties_at
        self._body: bytes | None = None
        self._properties: dict[str, str] | None = None

    @property
    def record(self) -> bytes:
        """The commit-log record itself."""
        return self._record

    @property
    def raw_body(self) -> bytes:
        """The body as stored: perhaps compressed."""
        at = self._body_at
        return self._record[at : at + _I32.unpack_from(self._record, at - 4)[0]]

    @property
    def body(self) -> bytes:
        """The body as it was sent. Raises ``BodyUnreadable`` if it is compressed and cannot be unpacked."""
        body = self._body
        if body is None:
            record, at = self._record, self._body_at
            if record[SYS_FLAG_AT + 3] & COMPRESSED_FLAG:
                return self.body_within(BODY_BYTES_MAX)
            body = self._body = record[at : at + _I32.unpack_from(record, at - 4)[0]]
        return body

    def body_within(self, bytes_max: int) -> bytes:
        """Return the body as it was sent; a compressed one of more than ``bytes_max`` raises ``BodyUnreadable``.

        ``body`` allows 16 MiB: this is for brokers that take larger messages.
        """
        body = self._body
        if body is None:
            body = self.raw_body
            sys_flag = self.sys_flag
            if sys_flag & COMPRESSED_FLAG:
                body = decompress_body(body, sys_flag, bytes_max)
            self._body = body
        return body

    @overload
    def decode(self, kind: type[_T], codec: BodyCodec = JSON) -> _T: ...
    @overload
    def decode(self, kind: Any, codec: BodyCodec = JSON) -> Any: ...
    def decode(self, kind: Any, codec: BodyCodec = JSON) -> Any:
        """Return the body as a value of type ``kind``: of msgspec or pydantic, ``bytes``, or ``str`` for UTF-8 text.

        Raises ``BodyNotDecoded``, and ``BodyUnreadable`` as ``body`` does.
        """
        body, decoder = self.body, known_decoder(kind, codec)  # type: ignore[arg-type]
        try:
            return decoder(body)
        except Exception as error:
            where = f"{self.topic}/{self.broker_name}/{self.queue_id}/{self.queue_offset}"
            raise not_decoded(where, kind, error) from error

    @property
    def properties(self) -> dict[str, str]:
        """All properties, those of the system included."""
        properties = self._properties
        if properties is None:
            properties = self._properties = decode_properties(self._record[self._properties_at :])
        return properties

    @property
    def tags(self) -> str:
        """The tags, or an empty string."""
        return self.properties.get(names.TAGS, "")

    @property
    def keys(self) -> list[str]:
        """The keys."""
        return self.properties.get(names.KEYS, "").split()

    @property
    def sharding_key(self) -> str | None:
        """The key that selected the queue, if there was one."""
        return self.properties.get(names.SHARDING_KEY)

    @property
    def delay_time_level(self) -> int:
        """The delay level the message was sent with, 0 if none."""
        text = self.properties.get(names.DELAY, "0")
        return int(text) if text.isdecimal() else 0

    @property
    def deliver_time_ms(self) -> int | None:
        """When the broker was to deliver a timed message, ms since 1970; None for one that was not timed."""
        text = self.properties.get(names.TIMER_OUT_MS) or self.properties.get(names.TIMER_DELIVER_MS, "")
        return int(text) if text.isdecimal() else None

    @property
    def msg_id(self) -> str:
        """The id the producer gave (UNIQ_KEY), or the offset id where there is none."""
        return self.properties.get(names.UNIQ_KEY) or self.offset_msg_id

    @property
    def offset_msg_id(self) -> str:
        """The id that says where the record is stored: store host and physical offset."""
        return offset_msg_id(self.store_host_bytes, self.physical_offset)

    @property
    def sys_flag(self) -> int:
        """RocketMQ's sysFlag: compression, transaction type, host families."""
        return int.from_bytes(self._record[36:40], "big", signed=True)

    @property
    def flag(self) -> int:
        """The user's flag."""
        value: int = _I32.unpack_from(self._record, 16)[0]
        return value

    @property
    def physical_offset(self) -> int:
        """Bytes from the start of the broker's log."""
        value: int = _I64.unpack_from(self._record, 28)[0]
        return value

    @property
    def born_timestamp(self) -> int:
        """When the producer made the message, ms since 1970."""
        value: int = _I64.unpack_from(self._record, 40)[0]
        return value

    @property
    def store_timestamp(self) -> int:
        """When the broker stored it, ms since 1970."""
        value: int = _I64.unpack_from(self._record, self._store_timestamp_at)[0]
        return value

    @property
    def _store_timestamp_at(self) -> int:
        return BORN_HOST_AT + (HOST_V6_BYTES if self.sys_flag & BORN_HOST_V6_FLAG else HOST_V4_BYTES)

    @property
    def born_host_bytes(self) -> bytes:
        """The producer's address as the record holds it, 8 or 20 bytes."""
        return self._record[BORN_HOST_AT : self._store_timestamp_at]

    @property
    def store_host_bytes(self) -> bytes:
        """The broker's address as the record holds it, 8 or 20 bytes."""
        at = self._store_timestamp_at + 8
        return self._record[at : at + (HOST_V6_BYTES if self.sys_flag & STORE_HOST_V6_FLAG else HOST_V4_BYTES)]

    @property
    def born_host(self) -> str:
        """The producer's ``ip:port``."""
        return host_text(self.born_host_bytes)

    @property
    def store_host(self) -> str:
        """The broker's ``ip:port``."""
        return host_text(self.store_host_bytes)

    @property
    def reconsume_times(self) -> int:
        """How often the message was delivered again for a retry; in ordered consumption also how often it failed
        here."""
        value: int = _I32.unpack_from(self._record, self._body_at - 16)[0]
        return value + getattr(self, "_tries_here", 0)

    @property
    def fencing_token(self) -> int:
        """The token of the broker's lock under which an ordered queue was read; 0: there is none.

        It grows each time the lock changes hands: storage that keeps the highest token it has seen for a queue can
        refuse a consumer that lost its lock and has not noticed yet.
        """
        token: int = getattr(self, "_fencing_token", 0)
        return token

    def under_lock(self, token: int) -> None:
        """Note the token; the ordered consumer does."""
        self._fencing_token = token

    def tried_here(self, times: int) -> None:
        """Note how often a handler has failed with this message; the ordered consumer does."""
        self._tries_here = times

    @property
    def origin_message_id(self) -> str:
        """Offset message id of the message that this one is a retry of, or empty; ``msg_id`` stays the same anyway."""
        return self.properties.get(names.ORIGIN_MESSAGE_ID, "")

    @property
    def prepared_offset(self) -> int:
        """Physical offset of the half message of a transaction, else 0."""
        value: int = _I64.unpack_from(self._record, self._body_at - 12)[0]
        return value

    @property
    def transaction_type(self) -> int:
        """The transaction bits of the sysFlag."""
        return self.sys_flag & TRANSACTION_MASK

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole record."""
        return len(self._record)

    def __repr__(self) -> str:
        return (
            f"ReceivedMessage({self.topic!r}, broker={self.broker_name!r}, queue={self.queue_id}, "
            f"offset={self.queue_offset}, msg_id={self.msg_id!r}, {len(self.raw_body)} bytes)"
        )
