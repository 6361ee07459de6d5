"""A store whose files age and whose disk fills as a test says."""

from pathlib import Path
from typing import Any

from pocketmq.common.clock import ManualClock
from pocketmq.common.logs import CapturedLog
from pocketmq.store.retention.retention import (
    FIRST_ROUND_MS,
)
from tests.store.log_fakes import HookedFileSystem, Stepped

HOUR_MS = 3_600_000
BODY = b"x" * 900


class AgingDisk(HookedFileSystem):
    """The real disk; a test sets its used share and the ages of its files."""

    def __init__(self) -> None:
        super().__init__(self._note)
        self.used = 0.5
        self.total_bytes = 1_000_000
        self.clock = ManualClock()
        self.changed_ms: dict[str, int] = {}
        self.sick: dict[str, Exception] = {}

    def _note(self, operation: str, path: str) -> None:
        if operation in self.sick and "/commitlog" in path:
            raise self.sick[operation]
        if operation in ("store", "write"):
            self.changed_ms[path] = self.clock.now_ms()

    def modified_ms(self, path: str) -> int:
        return self.changed_ms.get(path, self.clock.now_ms())

    def free_bytes(self, path: str) -> tuple[int, int]:
        return round((1 - self.used) * self.total_bytes), self.total_bytes


class Kept(Stepped):
    """A store with several durable segments, past its first minute, with RocketMQ's limits in percent. The disk may
    force them out.
    """

    def __init__(self, root: Path, segments: int = 5, **changes: object) -> None:
        self.disk = AgingDisk()
        changes = {
            "disk_max_used_space_ratio": 75,
            "disk_space_clean_forcibly_ratio": 85,
            "disk_space_warning_level_ratio": 90,
            "clean_file_forcibly_enable": True,
            "delete_when": "",
            **changes,
        }
        super().__init__(root, self.disk, **changes)
        self.disk.clock = self.clock
        self.store.retention._log = self.log = CapturedLog()
        self.store.retention._error_log = self.error_log = CapturedLog()
        self.bodies_put: list[bytes] = []
        self.fill(segments)
        self.clock.advance_ms(FIRST_ROUND_MS)

    def fill(self, segments: int, topic: str = "T") -> None:
        """Append until there are so many segments, then make all of them durable."""
        while len(self.names()) < segments:
            self.bodies_put.append(b"%05d" % len(self.bodies_put) + BODY)
            self.append(self.bodies_put[-1], topic=topic)
        self.store.checkpoint()

    def below(self, end_offset: int, topic: str = "T") -> int:
        """Return how many messages of the topic begin below ``end_offset`` in the log."""
        places = [self.store.physical_offset(topic, 0, at) for at in range(self.store.max_offset(topic, 0))]
        return sum(place is not None and place < end_offset for place in places)

    def removed(self) -> list[dict[str, Any]]:
        """Return the events of removals."""
        events = [*self.log.events, *self.error_log.events]
        return [event for event in events if event["event"] == "segment_removed"]

    def warnings(self) -> list[dict[str, Any]]:
        """Return the warnings about a full disk."""
        return [event for event in self.error_log.events if event["event"] == "disk_filling"]

    def names(self) -> list[int]:
        """Return the offsets of the segments with messages, as files on the disk."""
        end = self.store.log.appended_offset
        return [int(path.name) for path in sorted((self.root / "commitlog").iterdir()) if int(path.name) < end]

    def round(self) -> list[float]:
        """Run one round; return its waits."""
        waits: list[float] = []
        while (wait := self.store.retention.step()) <= 100:
            waits.append(wait)
            self.clock.advance_ms(wait)
        self.clock.advance_ms(wait)
        return waits

    def old(self, hours: float = 73) -> None:
        """Let time pass without writes."""
        self.clock.advance_ms(hours * HOUR_MS)
