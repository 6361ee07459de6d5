"""Copies of bytes that recovery cuts off or finds damaged, under ``pocketmq/quarantine``.

Lives here: ``Quarantine``. A copy is durable, with its name, before anything is changed in the log.
"""

from typing import Final

import numpy as np

from pocketmq.common.events import EventLog
from pocketmq.store.checkpoint import StorePaths
from pocketmq.store.commitlog.segment import Segment
from pocketmq.store.commitlog.segment_queue import SegmentQueue
from pocketmq.store.config import StoreConfig
from pocketmq.store.disk.file_system import FileSystem

_COPY_BYTES: Final = 1 << 20


class Quarantine:
    """Keeps at most ``recovery_quarantine_bytes_max`` bytes in one recovery, in files named ``<start>-<end>.bin``."""

    def __init__(
        self, config: StoreConfig, file_system: FileSystem, paths: StorePaths, segments: SegmentQueue, log: EventLog
    ) -> None:
        self._left_bytes = config.recovery_quarantine_bytes_max
        self._file_system = file_system
        self._paths = paths
        self._segments = segments
        self._log = log

    def keep(self, start: int, end: int) -> list[str]:
        """Copy bytes of the log; return the files. Keeps an existing copy, so that a repeated recovery does not lose
        the first one. Raises ``StoreError``.
        """
        directory = self._paths.quarantine
        self._file_system.make_dirs(directory)
        self._file_system.sync_dir(self._paths.own)
        kept: list[str] = []
        at = start
        while at < end:
            segment = self._segments.find(at)
            assert segment is not None
            stop = min(end, segment.end_offset, at + self._left_bytes)
            if stop <= at:
                self._log.error("quarantine_full", from_offset=at, to_offset=end)
                break
            path = f"{directory}/{at:020d}-{stop:020d}.bin"
            if not self._file_system.exists(path):
                self._copy(segment, at, stop, path)
            kept.append(path)
            self._left_bytes -= stop - at
            at = stop
        self._file_system.sync_dir(directory)
        return kept

    def _copy(self, segment: Segment, start: int, stop: int, path: str) -> None:
        temporary = path + ".tmp"
        file = self._file_system.open(temporary, create=True)
        try:
            file.resize(0)
            for at in range(start, stop, _COPY_BYTES):
                view = np.empty(min(_COPY_BYTES, stop - at), np.uint8)
                segment.read_into(at - segment.base_offset, view)
                file.write_at(at - start, view)
            file.sync()
        finally:
            file.close()
        self._file_system.rename(temporary, path)
