"""Key/value settings of the name server, by namespace.

Lives here: ``KVTable``. In memory only: RocketMQ's ``kvConfig.json`` is not written.
"""

from collections.abc import Mapping
from typing import Final

from pocketmq.common.errors import Cause, PocketMQError

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""Namespace of the queue numbers of ordered topics (RocketMQ NamesrvUtil)."""


class KVTableFull(PocketMQError):
    """The name server keeps as many settings as it may; nothing was changed."""

    default_cause = Cause.MEMORY_LIMIT


class KVTable:
    """Namespace → key → value; bounded in entries and bytes. One thread only."""

    def __init__(self, entries_max: int, size_bytes_max: int) -> None:
        self._entries_max = entries_max
        self._size_bytes_max = size_bytes_max
        self._entries = 0
        self._size_bytes = 0
        self._table: dict[str, dict[str, str]] = {}

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value; raises ``KVTableFull``."""
        old = self.get(namespace, key)
        entries = self._entries + (old is None)
        size_bytes = self._size_bytes + _size(namespace, key, value)
        if old is not None:
            size_bytes -= _size(namespace, key, old)
        if entries > self._entries_max or size_bytes > self._size_bytes_max:
            raise KVTableFull("setting refused", why=f"{self._entries} entries of {self._size_bytes} bytes are kept")
        self._table.setdefault(namespace, {})[key] = value
        self._entries, self._size_bytes = entries, size_bytes

    def get(self, namespace: str, key: str) -> str | None:
        """Return a value, or None."""
        return self._table.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Forget a value; nothing happens when there is none."""
        value = self.get(namespace, key)
        if value is None:
            return
        values = self._table[namespace]
        del values[key]
        if not values:
            del self._table[namespace]
        self._entries -= 1
        self._size_bytes -= _size(namespace, key, value)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """Return all of one namespace, or None when it is empty."""
        return self._table.get(namespace)

    def __len__(self) -> int:
        return self._entries


def _size(namespace: str, key: str, value: str) -> int:
    return len(namespace) + len(key) + len(value)
