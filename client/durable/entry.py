"""One message in the retry store, and its encoding.

Lives here: ``Entry`` (place in the store and payload), ``KeptMessage`` (the payload), its codec, lanes.

Payload: u8 version · u32 CRC-32 of the rest · msgpack array of ``KeptMessage``. The CRC is checked at every read:
stores without checksums of their own must not turn a flipped bit into a message.
"""

import struct
from dataclasses import dataclass, field
from typing import Final

import msgspec

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.durable.errors import EntryUnreadable
from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.common.hashes import crc32
from pocketmq.common.message import Message

VERSION: Final = 1
ENTRY_EXTRA_BYTES: Final = 128
"""Bytes counted for an entry beside its payload: keys and index of a store."""
SEQ_TIME_SHIFT: Final = 20
"""A sequence number is (ms at which the message was kept) << 20 plus a counter that carries: it gives the order, and
the age."""
UNROUTED: Final = ""
"""The broker of the lane of messages whose queue was not known when they were kept."""

_HEAD = struct.Struct(">BI")


class KeptMessage(msgspec.Struct, array_like=True, frozen=True, kw_only=True, gc=False):
    """A message as the store keeps it. Times in ms since 1970.

    ``broker`` and ``queue_id``: the queue chosen for it (``queue_id`` -1: any). ``order_key``: the key whose order it
    keeps, empty for none. ``maybe_stored``: a broker may have stored an earlier attempt, so a resend can be a
    duplicate. ``why``: the error that ended the send. ``plain``: fit for a native append.
    """

    topic: str
    body: bytes
    uniq_key: bytes
    tags: str = ""
    keys: str = ""
    properties: dict[str, str] | None = None
    flag: int = 0
    wait_store_msg_ok: bool = True
    sharding_key: str | None = None
    delay_time_level: int = 0
    deliver_time_ms: int | None = None
    broker: str = ""
    queue_id: int = -1
    order_key: str = ""
    maybe_stored: bool = False
    why: str = ""
    plain: bool = True

    @property
    def is_delayed(self) -> bool:
        """Whether a broker has to deliver it later."""
        return self.delay_time_level != 0 or self.deliver_time_ms is not None

    @property
    def is_timed(self) -> bool:
        """As ``Message.is_timed``, for a record builder."""
        return self.deliver_time_ms is not None

    @property
    def delay_time_ms(self) -> None:
        """None: a relative delay is kept as the absolute ``deliver_time_ms``."""
        return None

    def message(self) -> Message:
        """Return the message as a producer sends it."""
        return Message.copy_of(self)

    @property
    def queue(self) -> MessageQueue | None:
        """The queue chosen for it, or None."""
        return MessageQueue(self.topic, self.broker, self.queue_id) if self.queue_id >= 0 else None


@dataclass(slots=True)
class Entry:
    """One message in a store.

    ``seq`` always grows and is unique in its store. ``lane``: the queue whose order it keeps (``lane_of``); without a
    lane it is resent at ``due_ms``. ``order_key`` is the message's key in its lane. ``attempts``: resends. ``msg_id``:
    given to a store beside the payload, which has it, too; a store need not return it.
    """

    seq: int
    due_ms: int
    attempts: int
    lane: str
    order_key: str
    payload: bytes
    msg_id: str = field(default="", compare=False)

    @property
    def size_bytes(self) -> int:
        """The bytes it counts for."""
        return entry_bytes(len(self.payload), self.order_key)

    @property
    def kept_ms(self) -> int:
        """When the store took it, ms since 1970."""
        return self.seq >> SEQ_TIME_SHIFT


def entry_bytes(payload_bytes: int, order_key: str) -> int:
    """Return the bytes an entry counts for."""
    return payload_bytes + len(order_key) + ENTRY_EXTRA_BYTES


def lane_of(queue: MessageQueue) -> str:
    """Return the lane of messages that go to ``queue`` in order."""
    return f"{queue.topic}\x1f{queue.broker_name}\x1f{queue.queue_id}"


def queue_of(lane: str) -> MessageQueue:
    """Return the queue of a lane; raise ``EntryUnreadable`` if it names none."""
    parts = lane.split("\x1f")
    if len(parts) != 3 or not parts[2].lstrip("-").isdecimal():
        raise EntryUnreadable("lane refused", why=f"{lane[:80]!r} names no queue")
    return MessageQueue(parts[0], parts[1], int(parts[2]))


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(KeptMessage).decode


def encode_kept(message: KeptMessage) -> bytes:
    """Return the payload of an entry."""
    data = _encode(message)
    return _HEAD.pack(VERSION, crc32(data)) + data


def decode_kept(payload: bytes) -> KeptMessage:
    """Return the message in a payload; raise ``EntryUnreadable``."""
    if len(payload) < _HEAD.size:
        raise EntryUnreadable("entry not read", why=f"{len(payload)} bytes are no entry")
    version, checksum = _HEAD.unpack_from(payload)
    if version != VERSION:
        raise EntryUnreadable("entry not read", why=f"version {version}, this program knows {VERSION}")
    data = memoryview(payload)[_HEAD.size :]
    if crc32(data) != checksum:
        raise EntryUnreadable("entry not read", why="its checksum differs", hint="the store was damaged")
    try:
        return _decode(data)
    except DECODE_ERRORS as error:
        raise EntryUnreadable("entry not read", why=str(error)) from error
