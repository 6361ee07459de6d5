"""Stores that fail on demand, for the tests of this folder."""

import threading
from typing import Any

from pocketmq.client.durable.errors import RetryStoreError
from pocketmq.client.durable.memory_store import MemoryStore
from pocketmq.client.durable.store import Changes, Summary


class FaultyStore(MemoryStore):
    """A memory store. ``write_error``, ``open_error`` and ``read_error`` are raised while they are set.

    ``writes`` has every transaction that was carried out. While ``hang`` is clear, writes wait.
    """

    name = "faulty:"

    def __init__(self) -> None:
        super().__init__()
        self.write_error: RetryStoreError | None = None
        self.open_error: RetryStoreError | None = None
        self.read_error: RetryStoreError | None = None
        self.opened = self.closed = self.renewed = self.repaired = 0
        self.writes: list[Changes] = []
        self.hang = threading.Event()
        self.hang.set()

    def open(self, *, read_only: bool = False) -> Summary:
        self.opened += 1
        if self.open_error is not None:
            raise self.open_error
        return super().open()

    def write(self, changes: Changes) -> None:
        self.hang.wait(30)
        if self.write_error is not None:
            raise self.write_error
        self.writes.append(changes)
        super().write(changes)

    def due(self, *args: Any) -> Any:
        if self.read_error is not None:
            raise self.read_error
        return super().due(*args)

    def keep_alive(self) -> None:
        self.renewed += 1

    def repair(self) -> str:
        self.repaired += 1
        self.open_error = None
        return "repaired"

    def close(self) -> None:
        self.closed += 1
