"""Messages for any time: from the queue of the timer topic to their delivery.

Lives here: ``TimerQueue``: reads new timers, keeps the next ones in the wheel, delivers due ones; the progress from
which a restart resumes.

The consume queue of the timer topic is the journal: its tags codes are due times, so all timers can be found again from
the log, and the wheel needs no files. Progress is the key of the last delivery: every timer up to it was delivered,
except a few that arrived later with an earlier time, which are persisted one by one. A restart reads the queue from the
first block that may hold a timer beyond that key: a million pending timers are 20 MB.
"""

import base64
import threading
from typing import Annotated, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from pocketmq.broker.delay.delivery import BATCH_MAX, Deliverer
from pocketmq.broker.delay.timer_wheel import BEFORE_ALL, Entries, Key, Timers, TimerWheel
from pocketmq.common.events import EventLog
from pocketmq.common.topics import TIMER_TOPIC
from pocketmq.remoting.protocol.body import LONG_MAX
from pocketmq.store.config import StoreConfig
from pocketmq.store.consumequeue.consume_queue import BLANK_SIZE, ENTRY, ENTRY_BYTES
from pocketmq.store.disk.queue_paths import QUEUE_OFFSET_MAX
from pocketmq.store.message_store import MessageStore

BLOCK_ENTRIES: Final = 1 << 16
"""Entries of one block: the latest due time of each block is remembered, so that old blocks are not read again."""
READS_PER_RUN: Final = 2
ALL_ENTRIES: Final = (1 << 31) - 1


class TimerState(msgspec.Struct, rename="camel"):
    """The content of the progress file. ``rest``: entries with a key up to (``due_ms``, ``physical_offset``) that still
    wait, in base64. Queue offsets: ``read_offset`` is behind the last entry read; below ``low_offset`` all are
    delivered.
    """

    read_offset: int = 0
    low_offset: int = 0
    due_ms: int = -1
    physical_offset: int = -1
    rest: str = ""


class _TimerFile(msgspec.Struct, rename="camel"):
    """``TimerState`` with every field required: a file without one of them is damaged."""

    read_offset: Annotated[int, msgspec.Meta(ge=0)]
    low_offset: Annotated[int, msgspec.Meta(ge=0)]
    due_ms: Annotated[int, msgspec.Meta(ge=-1)]
    physical_offset: Annotated[int, msgspec.Meta(ge=-1)]
    rest: str


class TimerProgress:
    """The state of the last ``settle``, for a ``PersistedTable``. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.state = TimerState()
        self.generation = 0

    def settle(self, state: TimerState) -> None:
        """Make ``state`` the state to write next: everything it counts as delivered is durable."""
        with self._lock:
            if state != self.state:
                self.state = state
                self.generation += 1

    def mirror(self, content: bytes) -> None:
        """Copy a master's progress, and write it next; raises ``DECODE_ERRORS``, also for impossible numbers."""
        masters = msgspec.json.decode(content, type=TimerState)
        for name, low, number, high in (
            ("readOffset", 0, masters.read_offset, QUEUE_OFFSET_MAX),
            ("lowOffset", 0, masters.low_offset, QUEUE_OFFSET_MAX),
            ("dueMs", -1, masters.due_ms, LONG_MAX),
            ("physicalOffset", -1, masters.physical_offset, LONG_MAX),
        ):
            if not low <= number <= high:
                raise msgspec.ValidationError(f"{name} is {number}, not {low} to {high}")
        self.load(content)
        with self._lock:
            self.generation += 1

    def encode(self) -> bytes:
        """Return the content of the file."""
        with self._lock:
            return msgspec.json.encode(self.state)

    def load(self, content: bytes) -> None:
        """Take over a file's content; raises ``DECODE_ERRORS``."""
        found = msgspec.json.decode(content, type=_TimerFile)
        state = TimerState(found.read_offset, found.low_offset, found.due_ms, found.physical_offset, found.rest)
        try:
            rest = base64.b64decode(state.rest, validate=True)
        except ValueError as error:
            raise msgspec.ValidationError(f"rest is no base64: {error}") from error
        if len(rest) % ENTRY_BYTES:
            raise msgspec.ValidationError(f"rest has {len(rest)} bytes")
        with self._lock:
            self.state = state


class TimerQueue:
    """All pending timers. Belongs to the delivery thread; statistics may be read from any thread.

    Holds: every timer below ``read_offset`` in the queue was delivered, or is in the wheel, or lies beyond its horizon.
    """

    def __init__(self, config: StoreConfig, store: MessageStore, deliverer: Deliverer, log: EventLog) -> None:
        entries_max = config.timer_memory_bytes_max // ENTRY_BYTES
        self.wheel = TimerWheel(entries_max, count_seconds=config.timer_congest_num_each_slot < ALL_ENTRIES)
        self.read_offset = 0
        self.pending = 0
        self.next_due_ms = 0
        self._store = store
        self._deliverer = deliverer
        self._log = log
        self._last: Key = BEFORE_ALL
        self._corrected: dict[int, tuple[int, int]] = {}  # physical offset → (size, due) of entries that lie
        self._block_due: dict[int, int] = {}  # number of a block → its latest due time
        self._not_before_ms = 0

    @property
    def max_offset(self) -> int:
        """Offset behind the last stored timer."""
        return self._store.max_offset(TIMER_TOPIC, 0)

    # ---- progress

    def open(self, state: TimerState) -> None:
        """Resume from ``state``: read the waiting timers into the wheel."""
        self._last = (state.due_ms, state.physical_offset)
        rest: Entries = np.frombuffer(base64.b64decode(state.rest), ENTRY)
        low, high = self._store.min_offset(TIMER_TOPIC, 0), self.max_offset
        self.read_offset = min(max(state.read_offset, low), high)
        if self.read_offset != state.read_offset:
            self._log.error("timer_offset_corrected", offset=state.read_offset, min_offset=low, max_offset=high)
        start = min(max(state.low_offset, low), self.read_offset)
        self._read_again(start, self._last)
        rest = rest[rest["offset"].astype(np.int64) < self._store.committed_offset]
        self._add_pending(rest)
        for offset, size, due in rest.tolist():
            self._corrected[offset] = (size, due)
        self._log.info("timers_opened", pending=self.pending, read_offset=self.read_offset, from_offset=start)

    def state(self) -> TimerState:
        """Return the current progress."""
        rest = self.wheel.up_to(self._last)
        packed = rest.tobytes()
        if self._corrected:
            known = set(rest["offset"].tolist())
            lying = [(offset, *rest_of) for offset, rest_of in self._corrected.items() if offset not in known]
            packed += np.array(lying, ENTRY).tobytes()
        return TimerState(self.read_offset, self._low_offset(), *self._last, base64.b64encode(packed).decode())

    def _low_offset(self) -> int:
        """Return the offset below which every timer has a key up to the last delivery; forget the blocks below it."""
        if len(self.wheel) == 0 and self.wheel.horizon is None:  # nothing waits
            self._block_due.clear()
            return self.read_offset
        for block in sorted(self._block_due):
            if self._block_due[block] >= self._last[0]:
                return min(block * BLOCK_ENTRIES, self.read_offset)
            del self._block_due[block]
        return self.read_offset

    # ---- reading

    def _read_again(self, start: int, beyond: Key) -> None:
        """Add the timers of [``start``, ``read_offset``) with a key beyond the last delivery and from ``beyond`` on."""
        offset = start
        pending = 0
        while offset < self.read_offset:
            count = min(BLOCK_ENTRIES - offset % BLOCK_ENTRIES, self.read_offset - offset)
            entries = self._store.read_entries(TIMER_TOPIC, 0, offset, count)
            if len(entries) == 0:
                self._log.error("timer_entries_missing", offset=offset, end_offset=self.read_offset)
                break
            self._note_block(offset, entries)
            due = entries["tags_code"].astype(np.int64)
            physical = entries["offset"].astype(np.int64)
            waits = _not_blank(entries)
            for key, inclusive in ((self._last, False), (beyond, True)):
                later = due > key[0]
                same = due == key[0]
                if same.any():
                    later |= same & ((physical >= key[1]) if inclusive and key != self._last else (physical > key[1]))
                waits &= later
            pending += int(np.count_nonzero(waits))
            self.wheel.add(entries[waits])
            offset += len(entries)
        if beyond == self._last:
            self.pending += pending

    def _read_new(self) -> bool:
        """Add newly stored timers; return whether there may be more."""
        high = self.max_offset
        for _ in range(READS_PER_RUN):
            if self.read_offset >= high:
                return False
            low = self._store.min_offset(TIMER_TOPIC, 0)
            if self.read_offset < low:
                self._log.error("timer_offset_corrected", offset=self.read_offset, min_offset=low, max_offset=high)
                self.read_offset = low
            count = min(BLOCK_ENTRIES - self.read_offset % BLOCK_ENTRIES, high - self.read_offset)
            entries = self._store.read_entries(TIMER_TOPIC, 0, self.read_offset, count)
            if len(entries) == 0:
                return False
            self._note_block(self.read_offset, entries)
            self._add_pending(entries[_not_blank(entries)])
            self.read_offset += len(entries)
        return self.read_offset < high

    def _add_pending(self, entries: Entries) -> None:
        self.pending += len(entries)
        self.wheel.add(entries)

    def _note_block(self, offset: int, entries: Entries) -> None:
        block = offset // BLOCK_ENTRIES
        latest = int(entries["tags_code"].max())
        self._block_due[block] = max(latest, self._block_due.get(block, -1))

    # ---- delivering

    def run(self, steady_ms: int, now_ms: int) -> tuple[float | None, bool]:
        """Read new timers, deliver one batch of due ones. Return (ms until the next is due, 0 if more may be due now,
        None if none waits; whether new timers were found)."""
        before = self.read_offset
        more = self._read_new()
        found = self.read_offset != before
        if self.wheel.wants_more:
            low = self._low_offset()  # before the lift: after it nothing seems to wait
            horizon = self.wheel.lift_horizon()
            self._read_again(low, horizon)
            lying = [
                (offset, size, due_ms)
                for offset, (size, due_ms) in self._corrected.items()
                if (due_ms, offset) >= horizon
            ]
            if lying:
                self.wheel.add(np.array(lying, ENTRY))
        horizon_now = self.wheel.horizon
        if horizon_now is not None and horizon_now <= self._last:  # the clock was set back: better twice than never
            self._last = (horizon_now[0], horizon_now[1] - 1)
        if steady_ms < self._not_before_ms:
            return min(float(self._not_before_ms - steady_ms), 1000.0), found
        wait_ms = self._deliver(steady_ms, now_ms)
        return (0.0 if more else wait_ms), found

    def _deliver(self, steady_ms: int, now_ms: int) -> float | None:
        timers = self.wheel.peek(now_ms, BATCH_MAX)
        if len(timers):
            self.next_due_ms = int(timers.due[0])
            timers = timers.part(0, self._deliverer.batch_of(timers.sizes))
            delivery = self._deliverer.deliver(timers.physical, timers.sizes, now_ms)
            if delivery.retry_ms:
                self._not_before_ms = steady_ms + delivery.retry_ms
                return float(delivery.retry_ms)
            self._delivered(timers, delivery.later)
            return 0.0
        due_ms = self.wheel.next_due_ms()
        self.next_due_ms = due_ms or 0
        return None if due_ms is None else max(1.0, float(due_ms - now_ms))

    def _delivered(self, timers: Timers, later: list[tuple[int, int]]) -> None:
        self.pending -= self.wheel.take(timers)
        self._last = max(self._last, (int(timers.due[-1]), int(timers.physical[-1])))
        # Entries whose tags code is not a due time, as in a store that RocketMQ has written:
        rows: list[tuple[int, int, int]] = []
        waiting = set()
        for at, due_ms in later:
            offset, size = int(timers.physical[at]), int(timers.sizes[at])
            if self._corrected.get(offset) == (size, due_ms) and int(timers.due[at]) != due_ms:
                waiting.add(offset)  # it is in the wheel already
            else:
                rows.append((offset, size, due_ms))
        if self._corrected:
            for offset in timers.physical.tolist():
                if offset not in waiting:
                    self._corrected.pop(offset, None)
        if rows:
            self._corrected.update((offset, (size, due_ms)) for offset, size, due_ms in rows)
            self._add_pending(np.array(rows, ENTRY))


def _not_blank(entries: Entries) -> NDArray[np.bool_]:
    wanted: NDArray[np.bool_] = entries["size"] != BLANK_SIZE
    return wanted
