"""What one flipped bit in a store may do, by field.

Lives here: the table ``FIELDS`` and ``OTHER_FILES``, the small store, the flips and their verdicts.

Outcomes for a message in the middle of the log:

- ``damaged``: this message is not readable any more, its place is kept, the start reports it and copies its bytes;
- ``suspect``: the message is readable, perhaps changed in this field, and the start reports its group;
- ``unnoticed``: as ``suspect``, but nobody can know;
- ``elsewhere``: it shows up in another place, or hides other messages; nobody can know.

The last message of a log that was not closed: where the table says ``damaged`` it is cut off as a torn tail, with a
copy and a report. All other messages are always there.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pocketmq.common.errors import PocketMQError
from pocketmq.common.record_codec import record_spans
from tests.sim.checkers import ROOT, Ledger, SimStore, close_quietly, fresh_disk, read_all
from tests.sim.crash_file_system import CrashFileSystem

FIELDS: Final[dict[str, tuple[frozenset[str], frozenset[str]]]] = {
    name: (frozenset(with_checksum.split()), frozenset(without.split()))
    for name, with_checksum, without in (
        # field, with a group checksum, without one
        ("total size", "damaged", "damaged"),
        ("magic", "damaged", "damaged"),
        ("body CRC", "damaged", "damaged"),
        ("queue id", "damaged", "elsewhere"),
        ("flag", "suspect", "unnoticed"),
        ("queue offset", "damaged", "elsewhere"),
        ("physical offset", "damaged", "damaged"),
        ("sysFlag", "damaged suspect", "damaged unnoticed elsewhere"),  # host bits, compression, transaction
        ("born timestamp", "suspect", "unnoticed"),
        ("born host", "suspect", "unnoticed"),
        ("store timestamp", "suspect", "unnoticed"),
        ("store host", "suspect", "unnoticed"),
        ("reconsume times", "suspect", "unnoticed"),
        ("prepared offset", "suspect", "unnoticed"),
        ("body length", "damaged", "damaged"),
        ("body", "damaged", "damaged"),
        ("topic length", "damaged", "damaged"),
        ("topic", "damaged", "damaged elsewhere"),
        ("properties length", "damaged", "damaged"),
        ("properties", "suspect damaged", "unnoticed damaged"),  # damaged: the last byte of the log became zero
    )
}
OTHER_FILES: Final[dict[str, frozenset[str]]] = {
    "checksums": frozenset({"harmless"}),  # the entry has its own check; its bytes are checked record by record
    "pocketmq": frozenset({"harmless"}),  # positions have a CRC; without them recovery begins further back
    "checkpoint": frozenset({"harmless"}),  # used only where there are no positions
    "consumequeue": frozenset({"harmless", "refused"}),  # refused: the read raises a typed error, no wrong message
    "index": frozenset({"harmless", "not found"}),  # a key may be missing; a message found has the key
}
_HEADER: Final = (
    ("total size", 4),
    ("magic", 4),
    ("body CRC", 4),
    ("queue id", 4),
    ("flag", 4),
    ("queue offset", 8),
    ("physical offset", 8),
    ("sysFlag", 4),
    ("born timestamp", 8),
    ("born host", 8),
    ("store timestamp", 8),
    ("store host", 8),
    ("reconsume times", 4),
    ("prepared offset", 8),
    ("body length", 4),
)
LOG: Final = f"{ROOT}/commitlog/{0:020d}"


@dataclass(slots=True)
class Small:
    """A small store: five messages of one queue, a group each. ``bounds``: the start of each record, and the end."""

    files: CrashFileSystem
    ledger: Ledger
    bounds: list[int]


def small_store(*, checksums: bool, clean: bool = False) -> Small:
    """Return it after a kill, or after a clean stop."""
    ledger = Ledger()
    sim = SimStore(fresh_disk(), ledger, group_checksums=checksums)
    bounds = [0]
    for size in (9, 0, 30, 5, 12):
        sim.clock.advance_ms(1)
        sim.append([size], key=f"key{size}")
        bounds.append(sim.store.appended_offset)
    sim.store.dispatcher.catch_up()
    if clean:
        sim.close()
    elif checksums:
        sim.step("flush-commit-log")
        sim.store.components.flush.write_checksums()
    ledger.only_kills = False  # bits flip
    return Small(sim.files.after_kill(), ledger, bounds)


def field_at(record: bytes, at: int) -> str:
    """Return the field that contains a byte of a record."""
    begin = 0
    for name, length in _HEADER:
        if at < begin + length:
            return name
        begin += length
    spans = record_spans(memoryview(record))
    for name, end in (
        ("body", spans.topic_start - 1),
        ("topic length", spans.topic_start),
        ("topic", spans.topic_start + spans.topic_length),
        ("properties length", spans.property_start),
    ):
        if at < end:
            return name
    return "properties"


def flipped(files: CrashFileSystem, path: str, bit: int) -> CrashFileSystem:
    """Return a copy of the disk with one bit changed."""
    copy = files.after_kill()
    copy.inode(path).data[bit // 8] ^= 1 << bit % 8
    return copy


def check_log_bit(small: Small, bit: int, *, checksums: bool) -> None:
    """Flip one bit of the log, recover, and assert the table's verdict; with checksums also that the rest is there."""
    at = bit // 8
    number = next(number for number, end in enumerate(small.bounds[1:]) if at < end)
    start, end = small.bounds[number], small.bounds[number + 1]
    record = small.files.inode(LOG).data[start:end].tobytes()
    field = field_at(record, at - start)
    allowed = FIELDS[field][0 if checksums else 1]
    ledger = small.ledger
    bodies = {place[2]: body for place, body in ledger.kill_safe.items()}
    sim = SimStore(flipped(small.files, LOG, bit), ledger, group_checksums=checksums)
    report = sim.report
    readable = read_all(sim.store)
    found = {record.queue_offset: record for record in readable.get(("A", 0), [])}
    is_last = number == len(small.bounds) - 2
    if "elsewhere" in allowed and (set(readable) != {("A", 0)} or {o: r.body for o, r in found.items()} != bodies):
        outcome = "elsewhere"
    else:
        others = {offset: body for offset, body in bodies.items() if offset != number}
        assert {offset: found[offset].body for offset in others if offset in found} == others, f"{field}: bit {bit}"
        assert set(readable) <= {("A", 0)}, f"{field}: bit {bit} made {set(readable)}"
        gone = [(part.start, part.end) for part in report.damaged] == [(start, end)]
        if gone or (is_last and report.cut_bytes):
            assert number not in found
            assert report.quarantined
            if is_last and not gone:
                assert report.end_offset == start
            outcome = "damaged"
        else:
            assert report.damaged == []
            assert report.cut_bytes == 0
            is_suspect = [(part.start, part.end) for part in report.suspect] == [(start, end)]
            outcome = "suspect" if is_suspect else "unnoticed"
            if number in found:
                assert found[number].body == bodies[number]
            else:
                assert field == "sysFlag", f"{field}: bit {bit}"  # a transaction bit: it left its queue
    assert outcome in allowed, f"{field}: bit {bit} of message {number}: {outcome}, not {set(allowed)}"
    close_quietly(sim)


def check_other_bit(small: Small, path: str, bit: int) -> None:
    """Flip one bit of another file, open the store, and assert that no message is lost, changed or invented."""
    kind = path.removeprefix(ROOT + "/").split("/")[0]
    allowed = OTHER_FILES[kind]
    bodies = {place[2]: body for place, body in small.ledger.kill_safe.items()}
    sim = SimStore(flipped(small.files, path, bit), small.ledger)
    outcome = "harmless"
    try:
        found = {record.queue_offset: record.body for record in read_all(sim.store).get(("A", 0), [])}
        assert found == bodies, f"{path}: bit {bit}"
    except PocketMQError:
        outcome = "refused"
    for size in (9, 0, 30, 5, 12):
        records = sim.store.query("A", f"key{size}", 0, 1 << 60, 10)
        assert len(records) <= 1
        if not records:
            outcome = "not found" if outcome == "harmless" else outcome
    assert outcome in allowed, f"{path}: bit {bit}: {outcome}"
    close_quietly(sim)


def used_bits(files: CrashFileSystem, every: int = 1, first: int = 0) -> Iterator[tuple[str, int]]:
    """Yield (path, bit) of the bytes of all files except the log that are not padding; each ``every``-th."""
    count = first
    for path, data in sorted(files.image(ROOT).items()):
        kind = path.removeprefix(ROOT + "/").split("/")[0]
        if kind not in OTHER_FILES:
            continue
        used = len(data.rstrip(b"\0"))
        for bit in range(used * 8):
            if count % every == 0:
                yield path, bit
            count += 1


def record_header_is_whole() -> bool:
    """Return whether the table of header fields covers the header; a test asserts it."""
    return sum(length for _, length in _HEADER) == struct.calcsize(">88x")
