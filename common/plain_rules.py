"""The rules for plain records of a native append, and the check of one record.

Lives here: ``PlainRules``, what a native append is made of, the scalar check, the cache of property strings.
Not here: the check of whole appends (``common.plain_check``), whether the topic exists (``broker.native_append``).

A plain record: V1; total size as in the frame; queue and topic of its section; sysFlag without transaction bits and
with the host bits of the announced family; reconsume times and prepared offset 0; a body within the limit, with its
CRC; lengths that add up; properties in UTF-8, none twice, with the broker's CLUSTER, without WAIT, DELAY, TIMER_*,
TRAN_MSG and REAL_*.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from pocketmq.common.errors import MessageIllegal
from pocketmq.common.properties import CLUSTER, KEYS, PROPERTIES_BYTES_MAX, TAGS, UNIQ_KEY, is_plain_forbidden
from pocketmq.common.record import BODY_AT, CRC_MASK, HOST_V6_EXTRA, HOSTS_V6_MASK, MAGIC_V1, PLAIN_SYS_FLAGS
from pocketmq.common.record_group import UNIQ_PREFIX, UNIQ_PROPERTY_BYTES, RecordGroup, cut_keys, tags_code_of
from pocketmq.common.topics import plain_topic_error

# total size, magic, CRC, queue id, sysFlag, reconsume times, prepared offset, body length
_PLAIN_V4 = struct.Struct(">3Ii20xi32xiqi")
_PLAIN_V6 = struct.Struct(">3Ii20xi56xiqi")
_LAST: Final = UNIQ_PROPERTY_BYTES - 1


@dataclass(slots=True, frozen=True)
class PlainRules:
    """What a broker asks of plain records. ``family``: 4 or 6, of both hosts. Limits in bytes."""

    cluster: bytes
    message_size_max: int = 4 << 20
    """Largest body (RocketMQ maxMessageSize)."""
    family: int = 4
    record_extra_max: int = 65_536
    """What a record may add to the largest body (RocketMQ CommitLog)."""


@dataclass(slots=True)
class NativeSection:
    """The next ``count`` records of a native append are for this queue."""

    topic: str
    queue_id: int
    count: int


@dataclass(slots=True)
class CheckedSections:
    """One verdict per section, None for good; ``group`` holds the good sections in order, None if there is none."""

    errors: list[str | None]
    group: RecordGroup | None = None


class PlainIllegal(Exception):
    """Carries why a record is refused."""


class PropertyTailCache:
    """Remembers property bytes (without UNIQ_KEY and KEYS) that are allowed, and their tags code.

    Bounded in count and bytes a piece; when full it starts again: producers repeat few of them. Belongs to one cluster.
    """

    __slots__ = ("_codes", "cluster", "count_max", "tail_bytes_max")

    def __init__(self, cluster: bytes, *, count_max: int = 4096, tail_bytes_max: int = 1024) -> None:
        self.cluster = cluster
        self.count_max = count_max
        self.tail_bytes_max = tail_bytes_max
        self._codes: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._codes)

    def get(self, tail: bytes) -> int | None:
        """Return the tags code of an allowed tail seen before, or None."""
        return self._codes.get(tail)

    def put(self, tail: bytes, tags_code: int) -> None:
        """Remember an allowed tail."""
        if len(tail) <= self.tail_bytes_max:
            if len(self._codes) >= self.count_max:
                self._codes.clear()
            self._codes[tail] = tags_code


@dataclass(slots=True)
class PlainFacts:
    """What the check learns of each record; filled by either path."""

    tags_codes: list[int] = field(default_factory=list)
    uniq_keys: list[bytes] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)


def check_frame(buffer_bytes: int, count: int, total: int, smallest: int, sections: Sequence[NativeSection]) -> None:
    """Raise ``MessageIllegal`` unless ``count`` sizes, in sum ``total``, fill the buffer and counts fill the sizes."""
    named = 0
    for section in sections:
        if section.count < 1:
            raise _nonsense(f"a section of {section.count} records")
        named += section.count
    if named != count:
        raise _nonsense(f"sections name {named} records, but there are {count} sizes")
    if count == 0:
        raise _nonsense("no section")
    if total != buffer_bytes or smallest < 0:
        raise _nonsense(f"sizes add up to {total}, but there are {buffer_bytes} bytes of records")


def _nonsense(why: str) -> MessageIllegal:
    return MessageIllegal("native append refused", why=why)


def section_error(section: NativeSection) -> str | None:
    """Say what is wrong with a section's own topic or queue."""
    if not 0 <= section.queue_id <= 0x7FFF_FFFF:
        return f"queue id {section.queue_id} is impossible"
    return plain_topic_error(section.topic)


class PlainChecker:
    """The scalar check, set up for one broker's rules."""

    __slots__ = ("body_at", "body_max", "cache", "cluster", "fields", "host_bits", "record_max")

    def __init__(self, rules: PlainRules, cache: PropertyTailCache) -> None:
        assert cache.cluster == rules.cluster
        v6 = rules.family == 6
        self.cache = cache
        self.cluster = rules.cluster.decode("utf-8", "replace")
        self.body_max = rules.message_size_max
        self.record_max = rules.message_size_max + rules.record_extra_max
        self.body_at = BODY_AT + (2 * HOST_V6_EXTRA if v6 else 0)
        self.host_bits = HOSTS_V6_MASK if v6 else 0
        self.fields = _PLAIN_V6 if v6 else _PLAIN_V4

    def check(self, view: memoryview, start: int, size: int, queue_id: int, topic: bytes, facts: PlainFacts) -> None:
        """Add one record to ``facts``, or raise ``PlainIllegal``. ``topic`` is the length byte and the name."""
        body_at = self.body_at
        if not body_at + 3 <= size <= self.record_max:
            raise PlainIllegal(f"size {size} is not within {body_at + 3} to {self.record_max}")
        total, magic, crc, queue, sys_flag, reconsume_times, prepared_offset, body_length = self.fields.unpack_from(
            view, start
        )
        if total != size:
            raise PlainIllegal(f"its size field says {total}, the frame {size}")
        if magic != MAGIC_V1:
            raise PlainIllegal(f"magic 0x{magic:08X}, not 0x{MAGIC_V1:08X}")
        if sys_flag & ~PLAIN_SYS_FLAGS != self.host_bits:
            raise PlainIllegal(
                f"sysFlag 0x{sys_flag & 0xFFFFFFFF:x} is not that of a plain record with host bits 0x{self.host_bits:x}"
            )
        if queue != queue_id:
            raise PlainIllegal(f"queue id {queue}, but its section says {queue_id}")
        if reconsume_times or prepared_offset:
            raise PlainIllegal(f"reconsume times {reconsume_times} and prepared offset {prepared_offset} must be 0")
        body_start = start + body_at
        if not 0 <= body_length <= self.body_max:
            raise PlainIllegal(f"body of {body_length} bytes, more than {self.body_max}")
        body_end = body_start + body_length
        topic_end = body_end + len(topic)
        end = start + size
        if topic_end + 2 > end:
            raise PlainIllegal(f"body of {body_length} bytes and topic do not fit in {size} bytes")
        if view[body_end:topic_end] != topic:
            raise PlainIllegal("topic differs from that of its section")
        property_start = topic_end + 2
        property_length = view[topic_end] << 8 | view[topic_end + 1]
        if property_length > PROPERTIES_BYTES_MAX or property_start + property_length != end:
            raise PlainIllegal(f"properties of {property_length} bytes do not end at size {size}")
        actual = crc32(view[body_start:body_end]) & CRC_MASK
        if actual != crc:
            raise PlainIllegal(f"body CRC 0x{actual:08X}, the record says 0x{crc:08X}")
        self._check_properties(view[property_start:end].tobytes(), facts)

    def _check_properties(self, text: bytes, facts: PlainFacts) -> None:
        """Judge a property string: by the cache when it begins with a usual UNIQ_KEY, else by parsing it."""
        uniq_key = text[len(UNIQ_PREFIX) : _LAST]
        if text.find(2) == _LAST and text.startswith(UNIQ_PREFIX) and uniq_key.isascii():
            code, keys = self.judge_tail(text, uniq_key)
        else:
            code, uniq_key, keys = self._parse(text)
        facts.tags_codes.append(code)
        facts.uniq_keys.append(uniq_key)
        facts.keys.append(keys)

    def judge_tail(self, text: bytes, uniq_key: bytes) -> tuple[int, bytes | None]:
        """Return (tags code, KEYS) of a property string that begins with UNIQ_KEY, or raise ``PlainIllegal``."""
        cache = self.cache
        tail = text[UNIQ_PROPERTY_BYTES:]
        code = cache.get(tail)
        if code is not None:
            return code, None
        keys: bytes | None = None
        cut = cut_keys(tail)
        if cut is not None:
            tail, keys = cut
            code = cache.get(tail)
            if code is not None and keys.isascii():
                return code, keys
        code, parsed_uniq_key, parsed_keys = self._parse(text)
        if parsed_uniq_key == uniq_key and parsed_keys == keys:
            cache.put(tail, code)
        return code, parsed_keys

    def _parse(self, data: bytes) -> tuple[int, bytes, bytes | None]:
        """Return (tags code, UNIQ_KEY, KEYS) of an allowed property string, or raise ``PlainIllegal``."""
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise PlainIllegal("properties are not UTF-8") from None
        found: dict[str, str] = {}
        for pair in text.split("\x02"):
            name, _, value = pair.partition("\x01")
            if not name or not value:
                continue
            if name in found:
                raise PlainIllegal(f"property {name[:64]} is given twice")
            if is_plain_forbidden(name):
                raise PlainIllegal(f"property {name[:64]} is not for plain records")
            found[name] = value
        cluster = found.get(CLUSTER)
        if cluster != self.cluster:
            raise PlainIllegal(
                f"property {CLUSTER} is missing" if cluster is None else f"property {CLUSTER} names another cluster"
            )
        keys = found.get(KEYS)
        return (
            tags_code_of(found.get(TAGS, "")),
            found.get(UNIQ_KEY, "").encode(),
            None if keys is None else keys.encode(),
        )


def topic_field(topic: str) -> bytes:
    """Return a V1 record's length byte and topic; the name is a legal one."""
    return len(topic).to_bytes(1, "big") + topic.encode("ascii")
