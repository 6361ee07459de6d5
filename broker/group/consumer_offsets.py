"""The committed offsets of consumer groups.

Lives here: ``ConsumerOffsets``, their table, and the JSON of ``consumerOffset.json``.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from pocketmq.broker.topic.topic_table import OnIllegal, TableFull
from pocketmq.common.bounds import bounded
from pocketmq.common.events import EventLog, NullLog
from pocketmq.common.limits import text_bytes
from pocketmq.common.topics import GroupIllegal, check_group_name
from pocketmq.store.disk.queue_paths import QUEUE_ID_MAX, QUEUE_OFFSET_MAX, topic_error

SEPARATOR: Final = "@"
"""Between topic and group in a key (RocketMQ ConsumerOffsetManager)."""
_OFFSET_MAX: Final = (1 << 63) - 1
_QUEUE_ID_MAX: Final = (1 << 31) - 1
SKIPPED_LOGGED_MAX: Final = 20
GROUP_BYTES: Final = 512
"""One group of a topic without its names: a dict, and an entry in another (CPython 3.11, 64 bit)."""
ENTRY_BYTES: Final = 160
"""The offset of one queue, with its share of a growing dict."""
SIZE_BYTES_MAX: Final = 256 << 20


class _OffsetsFile(msgspec.Struct, rename="camel"):
    offset_table: dict[str, dict[int, int]]  # required: a file without it is damaged, not empty


@bounded("committed offsets in bytes", limit="size_bytes_max", size="size_bytes", unit="bytes")
@bounded(
    "committed offsets",
    limit="entries_max",
    size="__len__",
    entry_bytes=ENTRY_BYTES,
    setting="broker.consumer_offsets_max",
)
class ConsumerOffsets:
    """``topic@group`` → queue id → next offset to consume. Thread-safe.

    At most ``entries_max`` (topic, group, queue) entries of ``size_bytes_max`` bytes: a commit that needs more raises
    ``TableFull``. What a file or a master holds is taken whole. A commit may move an offset back (a reset does);
    RocketMQ only logs it.
    """

    def __init__(self, entries_max: int, log: EventLog | None = None, *, size_bytes_max: int = SIZE_BYTES_MAX) -> None:
        self.entries_max = entries_max
        self.size_bytes_max = size_bytes_max
        self._log: EventLog = NullLog() if log is None else log
        self._entries = 0
        self._keys_bytes = 0
        self._table: dict[str, dict[int, int]] = {}
        self._lock = threading.Lock()
        self.generation = 0
        self.on_first: Callable[[], None] | None = None
        """Called after the first commit of a group in a topic, in the thread that commits."""

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Remember ``offset``; raises ``TableFull``."""
        key = f"{topic}{SEPARATOR}{group}"
        is_first = False
        with self._lock:
            queues = self._table.get(key)
            if queues is None or queue_id not in queues:
                if self._entries >= self.entries_max:
                    raise TableFull(
                        "offset not committed",
                        why=f"{self._entries} offsets are kept",
                        hint="raise broker.consumer_offsets_max",
                    )
                growth_bytes = ENTRY_BYTES + (_key_bytes(key) if queues is None else 0)
                if self.size_bytes + growth_bytes > self.size_bytes_max:
                    raise TableFull(
                        "offset not committed",
                        why=f"the offsets of groups take {self.size_bytes} bytes",
                        hint="delete groups that are gone: pocketmq group delete",
                    )
                self._entries += 1
                if queues is None:
                    queues = self._table[key] = {}
                    self._keys_bytes += _key_bytes(key)
                    is_first = True
            queues[queue_id] = offset
            self.generation += 1
        if is_first and self.on_first is not None:
            self.on_first()

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the committed offset, or None."""
        queues = self._table.get(f"{topic}{SEPARATOR}{group}")
        return None if queues is None else queues.get(queue_id)

    def of(self, group: str, topic: str) -> dict[int, int]:
        """Return a copy of queue id → offset."""
        with self._lock:
            return dict(self._table.get(f"{topic}{SEPARATOR}{group}", {}))

    def topics_of(self, group: str) -> list[str]:
        """Return the topics in which ``group`` has offsets."""
        return [topic for topic, each in map(_split, self._keys()) if each == group]

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups with offsets in ``topic``."""
        return [group for each, group in map(_split, self._keys()) if each == topic]

    def topics_by_group(self) -> dict[str, list[str]]:
        """Return group → the topics in which it has offsets, in one pass over the table."""
        found: dict[str, list[str]] = {}
        for topic, group in map(_split, self._keys()):
            found.setdefault(group, []).append(topic)
        return found

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield (topic, group) of each group in each topic."""
        return map(_split, self._keys())

    def _keys(self) -> list[str]:
        """Copy the keys, so that no commit waits while they are split."""
        with self._lock:
            return list(self._table)

    def groups_behind(self, ends: Mapping[tuple[str, int], int]) -> list[str]:
        """Return, sorted, the groups with offsets in one of these topics that have not committed up to the given end of
        each (topic, queue id). A queue without a commit counts as unread.
        """
        queues_of: dict[str, list[tuple[int, int]]] = {}
        for (topic, queue_id), end in ends.items():
            queues_of.setdefault(topic, []).append((queue_id, end))
        with self._lock:
            table = list(self._table.items())
        behind: set[str] = set()
        for key, offsets in table:
            topic, group = _split(key)
            if any(offsets.get(queue_id, 0) < end for queue_id, end in queues_of.get(topic, ())):
                behind.add(group)
        return sorted(behind)

    def remove_topic(self, topic: str) -> None:
        """Forget every offset in ``topic``."""
        self._remove(lambda each, group: each == topic)

    def remove_group(self, group: str) -> None:
        """Forget every offset of ``group``."""
        self._remove(lambda topic, each: each == group)

    def _remove(self, chosen: Callable[[str, str], bool]) -> None:
        with self._lock:
            for key in [key for key in self._table if chosen(*_split(key))]:
                self._entries -= len(self._table.pop(key))
                self._keys_bytes -= _key_bytes(key)
                self.generation += 1

    def groups(self) -> set[str]:
        """Return the groups that have offsets."""
        return {group for _, group in map(_split, self._keys())}

    def __len__(self) -> int:
        return self._entries

    @property
    def size_bytes(self) -> int:
        """The table's memory, estimated from above."""
        return self._keys_bytes + ENTRY_BYTES * self._entries

    def encode(self) -> bytes:
        """Return the content of ``consumerOffset.json``.

        msgspec encodes in one C call that holds the GIL, so the table cannot change meanwhile, and no commit waits for
        a lock.
        """
        return msgspec.json.encode(_OffsetsFile(self._table))

    def mirror(self, content: bytes, on_illegal: OnIllegal) -> dict[str, dict[int, int]]:
        """Copy a master's offsets, as its ``encode`` returned them, and return the copied ones. Offsets of groups that
        the master does not have stay (RocketMQ SlaveSynchronize). An entry that no commits could have made, or for
        which there is no room, goes to ``on_illegal`` and is left out. Raises ``DECODE_ERRORS``.
        """
        masters = msgspec.json.decode(content, type=_OffsetsFile, strict=False).offset_table
        taken: dict[str, dict[int, int]] = {}
        with self._lock:
            for key, queues in masters.items():
                known = self._table.get(key, {})
                if known != queues:
                    why = _mirror_error(key, queues)
                    entries = self._entries + len(queues) - len(known)
                    if why is None and entries > max(self._entries, self.entries_max):
                        why = f"{self._entries} offsets are kept: raise broker.consumer_offsets_max"
                    if why is not None:
                        on_illegal(key, why)
                        continue
                    self._entries = entries
                    self._keys_bytes += 0 if key in self._table else _key_bytes(key)
                    self._table[key] = dict(queues)
                    self.generation += 1
                taken[key] = queues
        return taken

    def clamp(self, max_offset: Callable[[str, int], int]) -> int:
        """Move offsets behind the end of their queue back to it, or the group would skip the next messages; return how
        many were moved."""
        changed = 0
        with self._lock:
            for key, queues in self._table.items():
                topic, _ = _split(key)
                for queue_id, offset in queues.items():
                    end = max_offset(topic, queue_id)
                    if offset > end:
                        queues[queue_id] = end
                        changed += 1
            self.generation += changed
        return changed

    def load(self, content: bytes) -> None:
        """Add the offsets of a ``consumerOffset.json``; raises ``DECODE_ERRORS``.

        An impossible offset or queue id is left out and logged: RocketMQ does not check commits, so its files and their
        backups may hold -1, which must not stop the start. The group then has no offset in that queue, which is what -1
        means.
        """
        loaded = msgspec.json.decode(content, type=_OffsetsFile, strict=False)
        skipped: list[str] = []
        for key, queues in loaded.offset_table.items():
            bad = [
                queue_id
                for queue_id, offset in queues.items()
                if not (0 <= offset <= _OFFSET_MAX and 0 <= queue_id <= _QUEUE_ID_MAX)
            ]
            skipped += [f"{key[:128]} queue {queue_id}: {queues.pop(queue_id)}" for queue_id in bad]
        if skipped:
            self._log.error(
                "consumer_offsets_skipped",
                entries=len(skipped),
                offsets=skipped[:SKIPPED_LOGGED_MAX],
                what_to_do="check where these groups resume: pocketmq group describe; reset offsets that are wrong",
            )
        with self._lock:
            for key, queues in loaded.offset_table.items():
                self._entries += len(queues) - len(self._table.get(key, {}))
                self._keys_bytes += 0 if key in self._table else _key_bytes(key)
                self._table[key] = queues


def _mirror_error(key: str, queues: dict[int, int]) -> str | None:
    """Return why no commits could have made these offsets, or None."""
    topic, group = _split(key)
    why = topic_error(topic)
    if why is not None:
        return why
    try:
        check_group_name(group)
    except GroupIllegal as error:
        return error.why
    for queue_id, offset in queues.items():
        if not (0 <= queue_id <= QUEUE_ID_MAX and 0 <= offset <= QUEUE_OFFSET_MAX):
            return f"offset {offset} of queue {queue_id}"
    return None


def _key_bytes(key: str) -> int:
    return GROUP_BYTES + text_bytes(key)


def _split(key: str) -> tuple[str, str]:
    topic, _, group = key.partition(SEPARATOR)
    return topic, group
