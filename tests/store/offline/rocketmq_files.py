"""A store as RocketMQ writes it, packed field by field from its documented layout, without our codecs."""

import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path

SEGMENT_BYTES = 16_384
QUEUE_FILE_BYTES = 20 * 50
SLOTS, ENTRIES = 20, 80
V1, V2, BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
HOST_V4 = bytes([10, 1, 2, 3]) + struct.pack(">i", 10911)
HOST_V6 = bytes(range(16)) + struct.pack(">i", 10911)
BEGIN_MS = 1_600_000_000_000


def java_hash(text: str) -> int:
    value = 0
    for unit in struct.unpack(f">{len(text)}H", text.encode("utf-16-be")):
        value = (value * 31 + unit) & 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value


@dataclass
class Sent:
    """One stored message and its place."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    body: bytes
    tags: str
    keys: list[str]
    stored_ms: int


@dataclass
class RocketStore:
    """Build it message by message, then ``write``."""

    root: Path
    first_segment: int = 0
    sent: list[Sent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log: dict[int, bytearray] = {}
        self.at = self.first_segment * SEGMENT_BYTES
        self.next: dict[tuple[str, int], int] = {}

    def put(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        *,
        tags: str = "",
        keys: tuple[str, ...] = (),
        v6: bool = False,
        sys_flag: int = 0,
    ) -> Sent:
        pairs = {"KEYS": " ".join(keys), "TAGS": tags, "WAIT": "true"}
        properties = "\x02".join(f"{k}\x01{v}" for k, v in pairs.items() if v).encode()  # 4.9: no last separator
        name = topic.encode()
        magic = V2 if len(name) > 127 else V1
        host = HOST_V6 if v6 else HOST_V4
        queue_offset = self.next.get((topic, queue_id), 0)
        stored_ms = BEGIN_MS + len(self.sent) * 1500
        named = struct.pack(">H", len(name)) if magic == V2 else struct.pack(">B", len(name))
        size = 48 + 2 * len(host) + 8 + 16 + len(body) + len(named) + len(name) + 2 + len(properties)
        base = self.at - self.at % SEGMENT_BYTES
        if size + 8 > base + SEGMENT_BYTES - self.at:
            left = base + SEGMENT_BYTES - self.at
            self._write(struct.pack(">II", left, BLANK))
            self.at = base + SEGMENT_BYTES
        record = struct.pack(
            ">IIIiiqqiq",
            size,
            magic,
            zlib.crc32(body) & 0x7FFF_FFFF,
            queue_id,
            7,
            queue_offset,
            self.at,
            sys_flag | (0x30 if v6 else 0),
            stored_ms - 5,
        )
        record += host + struct.pack(">q", stored_ms) + host + struct.pack(">iqi", 0, 0, len(body)) + body
        record += named + name + struct.pack(">H", len(properties)) + properties
        assert len(record) == size
        sent = Sent(topic, queue_id, queue_offset, self.at, size, body, tags, list(keys), stored_ms)
        self._write(record)
        self.at += size
        self.sent.append(sent)
        self.next[topic, queue_id] = queue_offset + 1
        return sent

    def _write(self, data: bytes) -> None:
        base = self.at - self.at % SEGMENT_BYTES
        segment = self.log.setdefault(base, bytearray(SEGMENT_BYTES))
        segment[self.at - base : self.at - base + len(data)] = data

    def write(self, *, abort: bool = False, index: bool = True) -> Path:
        log = self.root / "commitlog"
        log.mkdir(parents=True)
        for base, data in self.log.items():
            (log / f"{base:020d}").write_bytes(data)
        queues: dict[tuple[str, int], bytearray] = {}
        for sent in self.sent:
            entries = queues.setdefault((sent.topic, sent.queue_id), bytearray())
            entries += struct.pack(">qiq", sent.physical_offset, sent.size, java_hash(sent.tags))
        for (topic, queue_id), data in queues.items():
            directory = self.root / "consumequeue" / topic / str(queue_id)
            directory.mkdir(parents=True)
            for start in range(0, len(data), QUEUE_FILE_BYTES):
                part = bytes(data[start : start + QUEUE_FILE_BYTES])
                (directory / f"{start:020d}").write_bytes(part.ljust(QUEUE_FILE_BYTES, b"\0"))
        if index:
            self._write_index()
        last_ms = self.sent[-1].stored_ms
        times = struct.pack(">5q", last_ms, last_ms, last_ms, 0, 0)
        (self.root / "checkpoint").write_bytes(times.ljust(4096, b"\0"))
        (self.root / "config").mkdir()
        (self.root / "config" / "topics.json").write_text('{"topicConfigTable":{}}')
        (self.root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:5}}}')  # fastjson
        (self.root / "lock").write_text("lock")
        if abort:
            (self.root / "abort").touch()
        return self.root

    def _write_index(self) -> None:
        rows = [(sent, key) for sent in self.sent for key in sent.keys]
        directory = self.root / "index"
        directory.mkdir()
        for number, start in enumerate(range(0, len(rows), ENTRIES - 1)):
            part = rows[start : start + ENTRIES - 1]
            slots, entries, used = [0] * SLOTS, b"", 0
            begin = part[0][0].stored_ms
            for at, (sent, key) in enumerate(part, 1):
                hashed = abs(java_hash(f"{sent.topic}#{key}"))
                slot = hashed % SLOTS
                used += slots[slot] == 0
                seconds = (sent.stored_ms - begin) // 1000
                entries += struct.pack(">iqii", hashed, sent.physical_offset, seconds, slots[slot])
                slots[slot] = at
            first, last = part[0][0], part[-1][0]
            data = struct.pack(
                ">qqqqii",
                begin,
                last.stored_ms,
                first.physical_offset,
                last.physical_offset,
                used,
                len(part) + 1,
            )
            data += struct.pack(f">{SLOTS}i", *slots) + bytes(20) + entries
            size = 40 + 4 * SLOTS + 20 * ENTRIES
            (directory / f"2020091312260{number:04d}").write_bytes(data.ljust(size, b"\0"))


def some_messages(root: Path, count: int = 150, first_segment: int = 0) -> RocketStore:
    """Two topics, a long name (V2), IPv6, tags, keys, several segments, queue files and index files."""
    store = RocketStore(root, first_segment)
    for number in range(count):
        topic = "%RETRY%" + "g" * 140 if number % 10 == 9 else ("Orders" if number % 3 else "Payments")
        store.put(
            topic,
            number % 2,
            b"body %d " % number * (number % 23),
            tags=f"t{number % 4}" if number % 4 else "",
            keys=(f"k{number}",) if number % 2 else (),
            v6=number % 7 == 0,
        )
    return store


def tree(root: Path) -> dict[str, bytes]:
    """Return every file below a directory with its content."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
