"""Rules for the logs and receipts of a replicated group.

Lives here: ``LogBytes`` (a commit log on disk), ``places_of`` (every message in it), ``missing``,
``split_reigns``, ``recovered_end``.
"""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from pocketmq.common.record_codec import decode_record, is_blank_at, record_size_at
from pocketmq.store.config import StoreConfig
from pocketmq.store.message_store import MessageStore
from tests.e2e.load import SEND_OK, TOPIC, Sent
from tests.e2e.nodes import POOL, SEGMENT_BYTES, SETTINGS
from tests.torture.kill_daemon import body_of

FAR_NS: Final = 1 << 63
Place = tuple[int, int, int]
"""(queue id, queue offset, physical offset)."""


@dataclass(slots=True, frozen=True)
class LogBytes:
    """The bytes [``start``, ``end``) of a log."""

    start: int
    data: bytes

    @property
    def end(self) -> int:
        """Return the offset where it ends."""
        return self.start + len(self.data)

    def part(self, start: int, end: int) -> bytes:
        """Return the bytes [``start``, ``end``)."""
        return self.data[start - self.start : end - self.start]


def read_log(store: Path, end: int) -> LogBytes:
    """Return a log up to ``end`` from its files, which may still be written behind that."""
    files = sorted(path for path in (store / "commitlog").iterdir() if path.name.isdigit())
    start = int(files[0].name) if files else end
    parts: list[bytes] = []
    at = start
    for path in files:
        if at >= end:
            break
        assert int(path.name) == at, f"{path} is not at {at}"
        wanted = min(SEGMENT_BYTES, end - at)
        with path.open("rb") as file:
            data = file.read(wanted)
        assert len(data) == wanted, f"{path} ends at {len(data)}, the log at {end}"
        parts.append(data)
        at += SEGMENT_BYTES
    data = b"".join(parts)
    assert start + len(data) == end, f"{store}: [{start}, {start + len(data)}), not up to {end}"
    return LogBytes(start, data)


def compare(slave: LogBytes, master: LogBytes) -> int:
    """Fail unless ``slave`` is a byte prefix of ``master`` (from where both begin); return the bytes compared."""
    assert slave.end <= master.end, f"the slave ends at {slave.end}, its master at {master.end}"
    start = max(slave.start, master.start)
    one, other = slave.part(start, slave.end), master.part(start, slave.end)
    if one != other:
        at = next(index for index in range(len(one)) if one[index] != other[index])
        raise AssertionError(f"the logs differ from {start + at} on, of [{start}, {slave.end})")
    return len(one)


def places_of(log: LogBytes) -> dict[int, set[Place]]:
    """Return where each message of the topic lies, by number. Fails on unknown messages and changed bytes."""
    found: dict[int, set[Place]] = {}
    at, data = 0, log.data
    while at < len(data):
        if is_blank_at(data, at):
            at = (at + log.start) // SEGMENT_BYTES * SEGMENT_BYTES + SEGMENT_BYTES - log.start
            continue
        record = decode_record(data, at)
        assert record.physical_offset == log.start + at, f"the record at {log.start + at} is one of another place"
        if record.topic == TOPIC:
            number = int(record.body.split(b":", 1)[0])
            assert record.body == body_of(number), f"message {number} has changed"
            found.setdefault(number, set()).add((record.queue_id, record.queue_offset, record.physical_offset))
        at += record_size_at(data, at)
    assert at == len(data), f"a record is cut off at {log.end}"
    return found


def missing(sent: Iterable[Sent], found: Mapping[int, set[Place]]) -> list[Sent]:
    """Return the messages that were answered with SEND_OK and are not at their confirmed places."""
    return [
        each
        for each in sent
        if each.status == SEND_OK
        and (each.queue_id, each.queue_offset, each.physical_offset) not in found.get(each.number, ())
    ]


@dataclass(slots=True, frozen=True)
class Reign:
    """A master, and when its promotion was ordered (0: it was there from the beginning)."""

    address: str
    begun_ns: int


def split_reigns(sent: Iterable[Sent], reigns: Sequence[Reign]) -> list[Sent]:
    """Return evidence of two masters at once: SEND_OK of a master for a send that was made after a later master had
    already answered SEND_OK. ``reigns`` are in their order; an address may appear twice.
    """
    confirmed = [each for each in sent if each.status == SEND_OK]
    first_ok_ns = [
        min(
            (
                each.answered_ns
                for each in confirmed
                if each.address == reign.address and reign.begun_ns <= each.sent_ns < end_ns
            ),
            default=FAR_NS,
        )
        for reign, end_ns in zip(reigns, [*(reign.begun_ns for reign in reigns[1:]), FAR_NS], strict=True)
    ]
    split: list[Sent] = []
    for each in confirmed:
        own = [
            number
            for number, reign in enumerate(reigns)
            if reign.address == each.address and reign.begun_ns <= each.answered_ns
        ]
        if not own or any(after_ns < each.sent_ns for after_ns in first_ok_ns[own[-1] + 1 :]):
            split.append(each)
    return split


def recovered_end(store: Path, copy: Path, settings: Mapping[str, object]) -> LogBytes:
    """Open a copy of a store that a kill left, as its next start does; return its log after the recovery."""
    shutil.copytree(store, copy)
    try:
        values = {
            key.partition(".")[2]: value
            for key, value in {**SETTINGS, **settings}.items()
            if key.startswith("store.") and key not in POOL  # write buffers are the original's
        }
        opened = MessageStore(
            msgspec.convert(values | {"store_path_root_dir": str(copy), "sync_on_close": False}, StoreConfig)
        )
        report = opened.open()
        try:
            assert (report.damaged, report.suspect) == ([], []), report
            end = opened.committed_offset
        finally:
            opened.close()
        return read_log(copy, end)
    finally:
        shutil.rmtree(copy)
