"""A group's offsets: the known ones, those not yet persisted, and the start of a new queue.

Lives here: ``OffsetTable`` (memory), ``ConsumeFromWhere``, ``GroupStart`` and the parsing of start positions, the
file of broadcast groups.
"""

import datetime
import enum
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.errors import OffsetIllegal
from pocketmq.common.errors import DECODE_ERRORS, ConfigError

if TYPE_CHECKING:
    from pathlib import Path

QUEUE_OFFSET_MAX = (1 << 63) - 1


class ConsumeFromWhere(enum.Enum):
    """Where a group starts in a queue for which it has no offset (ConsumeFromWhere.java)."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class OffsetTable:
    """Offsets by queue, and which of them changed since they were last persisted. Offsets count messages."""

    __slots__ = ("_dirty", "_offsets")

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self._dirty: set[MessageQueue] = set()

    def get(self, queue: MessageQueue) -> int | None:
        """Return the next offset to consume, or None."""
        return self._offsets.get(queue)

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None:
        """Set an offset; ``increase_only`` ignores one behind the known offset."""
        check_offset(offset)
        known = self._offsets.get(queue)
        if known == offset or (increase_only and known is not None and offset < known):
            return
        self._offsets[queue] = offset
        self._dirty.add(queue)

    def loaded(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset that is already persisted."""
        self._offsets[queue] = offset
        self._dirty.discard(queue)

    def dirty(self) -> dict[MessageQueue, int]:
        """Return the offsets to persist; pass them to ``persisted`` when that is done."""
        return {queue: self._offsets[queue] for queue in self._dirty}

    def persisted(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Count these as persisted, unless they moved on meanwhile."""
        for queue, offset in offsets.items():
            if self._offsets.get(queue) == offset:
                self._dirty.discard(queue)

    def forget(self, queue: MessageQueue) -> None:
        """Drop a queue that was given up."""
        self._offsets.pop(queue, None)
        self._dirty.discard(queue)

    def all(self) -> dict[MessageQueue, int]:
        """Return every known offset."""
        return dict(self._offsets)


def check_offset(offset: object) -> int:
    """Return ``offset`` or raise ``OffsetIllegal`` unless it is a whole number from 0 to 2^63-1."""
    if type(offset) is not int or not 0 <= offset <= QUEUE_OFFSET_MAX:
        raise OffsetIllegal("offset refused", why=f"{offset!r} is no queue offset", hint="use a number from 0 on")
    return offset


StartPosition = Literal["earliest", "latest", "committed"] | int | datetime.datetime
"""A word, a time as ms since 1970, or a datetime with a time zone."""
FirstStart = Literal["earliest", "latest"] | int | datetime.datetime
"""A ``StartPosition`` for a group that has committed nothing."""


def start_timestamp_ms(start: StartPosition) -> int | None:
    """Return the ms since 1970 that ``start`` names, or None for a word; raise ``OffsetIllegal`` for anything else."""
    if isinstance(start, datetime.datetime):
        if start.tzinfo is None:
            raise OffsetIllegal(
                "start refused", why=f"{start!r} has no time zone", hint="use datetime(..., tzinfo=timezone.utc) or ms"
            )
        return int(start.timestamp() * 1000)
    if type(start) is int and 0 <= start < 2**63:
        return start
    if start in ("earliest", "latest", "committed"):
        return None
    raise OffsetIllegal(
        "start refused", why=f"{start!r}", hint='use "earliest", "latest", "committed", a datetime or ms since 1970'
    )


CLOCKS_DIFFER_MS: Final = 5_000
"""How far the clocks of broker and client may be apart. The latest of a topic that a reader has waited for begins so
long before the wait: its first message may be the one that made the topic."""


class GroupStart(NamedTuple):
    """Where a group starts in a queue for which it has no offset.

    ``timestamp_ms``: None, half an hour before now. ``exact``: also in a queue that still has its first
    message in memory, where RocketMQ begins at 0.
    """

    where: ConsumeFromWhere
    timestamp_ms: int | None = None
    exact: bool = False


def group_start(start: object, where: object, default: ConsumeFromWhere, timestamp_ms: int | None = None) -> GroupStart:
    """Return what ``start``, or RocketMQ's ``where`` with its ``timestamp_ms``, says; ``default`` if both are None.

    Raise ``ConfigError`` for both, and for anything that is neither.
    """
    if where is not None and not isinstance(where, ConsumeFromWhere):
        hint = f"use start={where!r}" if where in _WHERE else 'use start="earliest", "latest" or a datetime'
        raise ConfigError("consumer refused", why=f"consume_from_where={where!r}", hint=hint)
    if start is None:
        return GroupStart(where or default, timestamp_ms)
    if where is not None or timestamp_ms is not None:
        raise ConfigError(
            "consumer refused", why="start and consume_from_where are both given", hint="they say the same: use start"
        )
    if isinstance(start, str) and start in _WHERE:
        return GroupStart(_WHERE[start], exact=True)
    hint = 'use "earliest", "latest", a datetime with a time zone or ms since 1970'
    if isinstance(start, str | bool) or not isinstance(start, int | datetime.datetime):
        raise ConfigError("consumer refused", why=f"start={start!r}", hint=hint)
    try:
        return GroupStart(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, start_timestamp_ms(start), exact=True)
    except OffsetIllegal as error:
        raise ConfigError("consumer refused", why=error.why, hint=hint) from None


_WHERE = {
    "earliest": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    "latest": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
}


class BroadcastOffsetFile:
    """The offsets of a broadcast group: one JSON file of this client, as RocketMQ's LocalFileOffsetStore, with a
    backup.

    Blocking; callers run it off their event loop. A file that cannot be read counts as the backup, then as empty: a
    broadcast group without offsets starts as a new one does.
    """

    def __init__(self, directory: "Path") -> None:
        self._path = directory / "offsets.json"
        self._backup = directory / "offsets.json.bak"

    def load(self) -> dict[MessageQueue, int]:
        """Return the saved offsets."""
        import json

        for path in (self._path, self._backup):
            try:
                document = json.loads(path.read_text("utf-8"))
                return {
                    MessageQueue(str(each["topic"]), str(each["brokerName"]), int(each["queueId"])): check_offset(
                        each["offset"]
                    )
                    for each in document["offsetTable"]
                }
            except (*DECODE_ERRORS, OSError, ValueError, OverflowError, KeyError, TypeError, OffsetIllegal):
                continue
        return {}

    def save(self, offsets: Iterable[tuple[MessageQueue, int]]) -> None:
        """Write all offsets: to a new file that then takes the place of the old one, which stays as backup."""
        import json

        self._path.parent.mkdir(parents=True, exist_ok=True)
        table = [
            {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id, "offset": offset}
            for queue, offset in offsets
        ]
        fresh = self._path.with_suffix(".json.tmp")
        with fresh.open("w", encoding="utf-8") as file:
            json.dump({"offsetTable": table}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        if self._path.exists():
            os.replace(self._path, self._backup)
        os.replace(fresh, self._path)
