"""Events of staged transactions, and the records of the log that carry them.

Lives here: the events, ``encode_event``, ``read_event``, the messages of a staged chunk (``staged_messages``).

All records are in queue 0 of ``rmq_sys_pocketmq_named_transactions``, so that the order of that queue is the order of
the events. The body of such a record::

    u32 length of the event · u32 its CRC · the event as msgpack · of a Staged event: the chunk (``chunk_payload``)

A chunk is one record, however many messages it holds: staging a million messages costs a few hundred records. The
event comes first, so that a start reads the first 2 KiB of a chunk and not all of it.
"""

import struct
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from pocketmq.common.errors import DECODE_ERRORS, CorruptRecord, MessageIllegal
from pocketmq.common.hashes import crc32
from pocketmq.common.record import SYS_FLAG_AT, TAGS, TRANSACTION_COMMIT, TRANSACTION_MASK, body_at, encode_properties
from pocketmq.common.record_codec import decode_record, encode_record
from pocketmq.common.record_columns import Bytes, windows
from pocketmq.common.record_group import RecordGroup, RecordMeta, record_meta, tags_code_of
from pocketmq.common.topics import STAGED_TOPIC

SNAPSHOT_TAG: Final = "snapshot"
SNAPSHOT_CODE: Final = tags_code_of(SNAPSHOT_TAG)
"""The tags code of the last record of a snapshot: a start searches for it in the consume queue."""
EVENT_BYTES_MAX: Final = 1 << 20
"""An event above this is neither written nor read."""
PREPARE_SPARE_BYTES: Final = 1024
"""A prepare record must be smaller by this, so that its transaction can be committed."""
HEAD_BYTES: Final = 2048
"""The first read of a record: enough for most events."""
RECORD_EXTRA_BYTES: Final = 4096
"""Most bytes that the record of a chunk has beside the messages."""

_LENGTHS = struct.Struct(">II")
_U32 = struct.Struct(">I")
_PREPARED_BYTES: Final = 12
"""From the prepared offset to the body: the offset itself, and the length of the body."""

Sections = list[tuple[str, int, int]]
MakeGroup = Callable[[Bytes, NDArray[Any], Sections], RecordGroup | None]
"""(private memory with the records, their sizes, their sections) -> the group."""
Manifest = list[tuple[str, int]]
"""(attempt, number of its chunks): all of a transaction, in order."""


class Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A change of a transaction."""

    transactional_id: str
    version: int


class Staged(Event, frozen=True, tag="staged"):
    """A chunk; its messages follow the event."""

    attempt: str
    index: int
    rows: int
    topics: list[str]
    homes: list[tuple[str, int]] = []
    """Of each topic: its identity, and the highest queue id in the chunk."""


class Prepared(Event, frozen=True, tag="sealed"):
    """The transaction has these parts on this broker, and waits for the commit of ``coordinator``."""

    token: str
    coordinator: str
    participants: list[str]
    manifest: Manifest
    epoch: int = 0
    """The queue offset of the coordinator's own record, in which it is 0; of one coordinator the highest one counts."""


class Committed(Event, frozen=True, tag="committed"):
    """The transaction will be delivered, whatever happens."""

    manifest: Manifest
    participants: list[str]
    keep_hours: int
    token: str = ""
    """Of the prepare that was committed."""


class Delivered(Event, frozen=True, tag="delivered"):
    """Its first ``chunks`` chunks, except ``lost`` of them, are in their queues, before this event in the log."""

    chunks: int
    lost: int = 0


class Dropped(Event, frozen=True, tag="dropped"):
    """These attempts, and with ``unprepared`` the prepare, are dropped."""

    attempts: list[str]
    unprepared: bool = False


class BrokersAdded(Event, frozen=True, tag="enlisted"):
    """The brokers that may know this transactional id from now on."""

    brokers: list[str]
    keep_hours: int


class DoneEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Of a snapshot: a commit."""

    version: int
    store_ms: int
    keep_hours: int
    participants: list[str]
    token: str = ""
    lost: int = 0


class IdDone(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Of a snapshot: the remembered state of a transactional id."""

    transactional_id: str
    done: list[DoneEntry]
    brokers: list[str] = []
    brokers_ms: int = 0
    brokers_keep_hours: int = 0


class Snapshot(msgspec.Struct, frozen=True, array_like=True, tag="snapshot"):
    """Part of the state remembered at one moment. The parts are consecutive; ``parts`` is their number in the last
    one, else 0. ``from_offset``: the queue has all that is open or undelivered from there on.
    """

    ids: list[IdDone]
    parts: int
    from_offset: int


AnyEvent = Staged | Prepared | Committed | Delivered | Dropped | BrokersAdded | Snapshot
_encode = msgspec.msgpack.Encoder().encode
_encode_sections = msgspec.msgpack.Encoder().encode
_decode_sections = msgspec.msgpack.Decoder(Sections).decode
_decode = msgspec.msgpack.Decoder(AnyEvent).decode


def encode_event(event: AnyEvent, payload: bytes | memoryview, now_ms: int, host: bytes) -> tuple[bytes, RecordMeta]:
    """Return the record of an event. Raises ``MessageIllegal`` for one that could not be read again."""
    text = _encode(event)
    limit = EVENT_BYTES_MAX - (PREPARE_SPARE_BYTES if isinstance(event, Prepared) else 0)
    if len(text) > limit:
        raise MessageIllegal(
            "staged transaction refused",
            why=f"its {type(event).__name__} event has {len(text)} bytes, at most {limit} are allowed",
            hint="fewer parts in one commit, or shorter names of attempts and brokers",
        )
    properties = {TAGS: SNAPSHOT_TAG} if isinstance(event, Snapshot) and event.parts else {}
    record = encode_record(
        STAGED_TOPIC,
        b"".join((_LENGTHS.pack(len(text), crc32(text)), text, payload)),
        queue_id=0,
        properties=encode_properties(properties),
        born_timestamp=now_ms,
        born_host=host,
        store_host=host,
    )
    return record, record_meta(STAGED_TOPIC, 0, 0, properties)


def encoded_bytes(done: IdDone) -> int:
    """Return the bytes of a transactional id in a snapshot."""
    return len(_encode(done))


def event_bytes(head: bytes) -> int:
    """Return how many bytes of a record are needed to read its event. Raises ``CorruptRecord``."""
    start = _event_start(head)
    length = _LENGTHS.unpack_from(head, start)[0]
    if length > EVENT_BYTES_MAX:
        raise CorruptRecord("no event of a staged transaction", why=f"it has {length} bytes")
    return start + _LENGTHS.size + int(length)


def read_event(head: bytes) -> AnyEvent:
    """Return the event of a record, from its first ``event_bytes`` or more. Raises ``CorruptRecord``."""
    start = _event_start(head)
    length, crc = _LENGTHS.unpack_from(head, start)
    text = head[start + _LENGTHS.size : start + _LENGTHS.size + length]
    if len(text) != length or crc32(text) != crc:
        raise CorruptRecord("no event of a staged transaction", why="its bytes do not match their checksum")
    try:
        event: AnyEvent = _decode(text)
        return event
    except DECODE_ERRORS as error:
        raise CorruptRecord("no event of a staged transaction", why=str(error)) from error


def _event_start(head: bytes) -> int:
    if len(head) > SYS_FLAG_AT + 4:
        start = body_at(head[SYS_FLAG_AT + 3])
        if len(head) >= start + _LENGTHS.size:
            return start
    raise CorruptRecord("no event of a staged transaction", why=f"only {len(head)} bytes of its record are there")


def chunk_payload(sections: Sequence[tuple[str, int, int]], sizes: bytes | memoryview, group: RecordGroup) -> bytes:
    """Return the bytes after a Staged event: its sections (topic, queue id, count), the sizes of its records, and the
    records.
    """
    text = _encode_sections(list(sections))
    return b"".join((_U32.pack(len(text)), text, sizes, group.buffer.data))


def staged_messages(
    record: bytes, rows: int, physical_offset: int, done: Collection[int], make: MakeGroup | None = None
) -> RecordGroup | None:
    """Return the messages of a whole chunk record, except those in ``done`` (as ``delivered_of`` returns them), as they
    are delivered: transaction type COMMIT, and as prepared offset the place of the chunk plus that of the message in
    it, which is unique. None if none is left. Raises ``CorruptRecord``.

    ``make``: builds a group faster than from the records alone, or gives up with None.
    """
    body = memoryview(decode_record(record).body)[event_bytes(record) - _event_start(record) :]
    try:
        at = _U32.size + _U32.unpack_from(body)[0]
        sections = _decode_sections(body[_U32.size : at])
    except (struct.error, *DECODE_ERRORS) as error:
        raise CorruptRecord("no chunk of a staged transaction", why=str(error)) from error
    sizes = np.frombuffer(body[at : at + 4 * rows], ">u4")
    data = np.frombuffer(bytearray(body[at + 4 * rows :]), np.uint8)
    if len(data) == 0:
        return None
    group = None if make is None else make(data, sizes, sections)
    if group is None:
        group = RecordGroup.from_log(data)
    flags = group.starts + (SYS_FLAG_AT + 3)
    bodies = body_at(int(data[SYS_FLAG_AT + 3]))  # all have the same family: the broker checked it
    data[flags] = data[flags] & (0xFF & ~TRANSACTION_MASK) | TRANSACTION_COMMIT
    places = (group.starts + physical_offset).astype(">i8").view("V8")
    windows(data, 8)[group.starts + (bodies - _PREPARED_BYTES)] = places
    if done:
        left = [row for row, place in enumerate(group.starts.tolist()) if place + physical_offset not in done]
        if not left:
            return None
        group = RecordGroup.from_log(np.concatenate([group.record(row) for row in left]))
    return group


def delivered_of(group: RecordGroup, physical_offset: int, size_bytes: int) -> set[int]:
    """Return the prepared offsets of the records in ``group`` that are messages of the chunk at this place."""
    flags = group.buffer[group.starts + (SYS_FLAG_AT + 3)]
    found: set[int] = set()
    for row in np.flatnonzero((flags & TRANSACTION_MASK) == TRANSACTION_COMMIT).tolist():
        at = int(group.starts[row]) + body_at(int(flags[row])) - _PREPARED_BYTES
        place = int.from_bytes(group.buffer[at : at + 8].tobytes(), "big")
        if physical_offset <= place < physical_offset + size_bytes:
            found.add(place)
    return found
