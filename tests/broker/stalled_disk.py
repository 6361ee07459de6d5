"""A real disk on which appends to the commit log stand still while a gate is shut."""

import threading

from pocketmq.store.errors import StoreFull
from tests.store.log_fakes import HookedFileSystem


class StalledDisk(HookedFileSystem):
    """Give it to ``BrokerApp(file_system=...)``. Reads, other files and the table files go on."""

    def __init__(self) -> None:
        super().__init__(self._hook)
        self._gate = threading.Event()
        self._gate.set()
        self._lock = threading.Lock()
        self.waiting = 0
        """Appends that stand still now."""
        self.full_at = ""
        """Paths with this text in them cannot be written: the disk is full."""

    def shut(self) -> None:
        """Let the next append to the log wait."""
        self._gate.clear()

    def open_gate(self) -> None:
        """Let all go on."""
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
