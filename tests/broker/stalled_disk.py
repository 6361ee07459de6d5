"""A real disk on which appends to the commit log block while a gate is shut."""

import threading

from pocketmq.store.errors import StoreFull
from tests.store.log_fakes import HookedFileSystem


class StalledDisk(HookedFileSystem):
    """For ``BrokerApp(file_system=...)``. Reads, and writes to other files, continue."""

    def __init__(self) -> None:
        super().__init__(self._hook)
        self._gate = threading.Event()
        self._gate.set()
        self._lock = threading.Lock()
        self.waiting = 0
        """Appends that are blocked now."""
        self.full_at = ""
        """Paths with this text in them cannot be written: the disk is full."""

    def shut(self) -> None:
        """Block the next append to the log."""
        self._gate.clear()

    def open_gate(self) -> None:
        """Release all appends."""
        self._gate.set()

    def _hook(self, operation: str, path: str) -> None:
        if self.full_at and self.full_at in path:
            raise StoreFull("not written", why="the disk is full", hint="free some space")
        if operation in ("store", "write") and "/commitlog/" in path and not self._gate.is_set():
            with self._lock:
                self.waiting += 1
            try:
                self._gate.wait(60)
            finally:
                with self._lock:
                    self.waiting -= 1
