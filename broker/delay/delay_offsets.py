"""How far each delay level has been delivered.

Lives here: ``DelayOffsets``, its table and the JSON of ``config/delayOffset.json``.
"""

import threading

import msgspec


class _OffsetsFile(msgspec.Struct, rename="camel"):
    offset_table: dict[int, int]  # required: a file without it is damaged, not empty


class DelayOffsets:
    """Level → next offset of its queue. Thread-safe: one thread advances it, others read and persist it.

    The file gets the state of the last ``settle``: call that only when everything delivered is durable.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._table: dict[int, int] = {}
        self._settled: dict[int, int] = {}
        self.generation = 0

    def get(self, level: int) -> int:
        """Return the offset of a level; 0 before its first delivery."""
        return self._table.get(level, 0)

    def settled(self, level: int) -> int:
        """Return the offset of a level at the last ``settle``."""
        return self._settled.get(level, 0)

    def put(self, level: int, offset: int) -> None:
        """Move a level."""
        with self._lock:
            self._table[level] = offset

    def table(self) -> dict[int, int]:
        """Return a copy."""
        with self._lock:
            return dict(self._table)

    def settle(self, table: dict[int, int]) -> None:
        """Make ``table``, an earlier ``table()``, the state to write next."""
        with self._lock:
            if table != self._settled:
                self._settled = table
                self.generation += 1

    def encode(self) -> bytes:
        """Return the content of ``delayOffset.json`` (RocketMQ DelayOffsetSerializeWrapper)."""
        with self._lock:
            return msgspec.json.encode(_OffsetsFile(dict(sorted(self._settled.items()))))

    def mirror(self, table: dict[int, int]) -> None:
        """Copy a master's progress, and write it next."""
        with self._lock:
            self._table = dict(table)
        self.settle(dict(table))

    def load(self, content: bytes) -> None:
        """Take over a ``delayOffset.json``; raises ``DECODE_ERRORS``.

        Offsets are not checked here: ``LevelQueue.correct`` moves each into its queue, and logs that.
        """
        loaded = msgspec.json.decode(content, type=_OffsetsFile, strict=False)
        with self._lock:
            self._table = loaded.offset_table
            self._settled = dict(self._table)
