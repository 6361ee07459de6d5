"""The ledger of pops on disk: what is in flight, and what above the committed offset is acknowledged.

It is written now and then, and after the consumer offsets: so the file of the offsets is never behind it, and an offset
below the snapshot's lowest one was reset by somebody. A crash repeats what was acknowledged since the last snapshot
above the committed offset; it loses nothing, since only the committed offset skips messages.

Lives here: ``PopSnapshot``, the table in the file, and ``PopState``, the service that writes it.
"""

import base64
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from pocketmq.broker.persisted_table import PersistedTable
from pocketmq.broker.pop.pop_ledger import PopLedger
from pocketmq.broker.pop.pop_queue import INVISIBLE_MASK, pack, unpack
from pocketmq.common.clock import SteadyTime
from pocketmq.common.errors import BytesIllegal
from pocketmq.common.events import EventLog
from pocketmq.common.runner import Runner, Worker

POP_FILE: Final = "pocketmq/popState.json"


class QueueState(msgspec.Struct, rename="camel"):
    """One queue. The columns are Base64 of 64-bit numbers, little-endian: offsets in flight, their pop times and
    invisible times in ms."""

    group: str
    topic: str
    queue_id: int
    next_offset: int
    low: int
    offsets: str = ""
    pop_times: str = ""
    invisible: str = ""


class _File(msgspec.Struct, rename="camel"):
    """Its main key is required: a file without it is damaged, not empty."""

    queues: list[QueueState]


def _column(values: list[int]) -> str:
    column = array("q", values)
    if _IS_BIG_ENDIAN:
        column.byteswap()
    return base64.b64encode(column.tobytes()).decode()


def _values(text: str) -> list[int]:
    column = array("q")
    try:
        column.frombytes(base64.b64decode(text, validate=True))
    except ValueError as error:
        raise BytesIllegal("column refused", why=str(error)) from error
    if _IS_BIG_ENDIAN:
        column.byteswap()
    return column.tolist()


_IS_BIG_ENDIAN: Final = array("h", [1]).tobytes()[0] == 0


@dataclass(slots=True, eq=False)
class PopSnapshot:
    """A persisted table with the content that ``prepare`` has made."""

    ledger: PopLedger
    time: SteadyTime
    generation: int = 0
    _content: bytes = b""
    _loaded: list[QueueState] = field(default_factory=list)

    def prepare(self) -> None:
        """Take the content from the ledger now, queue by queue."""
        generation = self.ledger.generation
        queues: list[QueueState] = []
        for queue, next_offset, low, unacked in self.ledger.states():
            if next_offset == low and not unacked:
                continue
            times = [unpack(abs(each)) for each in unacked.values()]
            queues.append(
                QueueState(
                    queue.group,
                    queue.topic,
                    queue.queue_id,
                    next_offset,
                    low,
                    _column(list(unacked)),
                    _column([pop_time for pop_time, _ in times]),
                    _column([invisible_ms for _, invisible_ms in times]),
                )
            )
        self._content = msgspec.json.encode(_File(queues))
        self.generation = generation

    def encode(self) -> bytes:
        """Return the content."""
        return self._content or msgspec.json.encode(_File([]))

    def load(self, content: bytes) -> None:
        """Read a file; raises ``DECODE_ERRORS``. ``restore`` hands it to the ledger."""
        self._loaded = msgspec.json.decode(content, type=_File).queues
        for each in self._loaded:
            if len(_values(each.offsets)) != len(_values(each.pop_times)) or len(_values(each.invisible)) != len(
                _values(each.offsets)
            ):
                raise BytesIllegal("pop state refused", why=f"columns of {each.topic[:80]} differ in length")

    def restore(self, committed: Callable[[str, str, int], int | None], max_offset: Callable[[str, int], int]) -> int:
        """Hand what was loaded to the ledger; return how many messages are in flight. ``committed`` is the offset in
        the table of offsets, ``max_offset`` the end of a queue: what the log has lost is not in flight any more."""
        now_ms = self.time.now_ms()
        for each in self._loaded:
            base = committed(each.group, each.topic, each.queue_id)
            if base is None or base < each.low:
                continue  # deleted, or reset to an earlier offset
            end = max(0, max_offset(each.topic, each.queue_id))
            columns = zip(_values(each.offsets), _values(each.pop_times), _values(each.invisible), strict=True)
            in_flight = {
                offset: pack(pop_time, invisible_ms)
                for offset, pop_time, invisible_ms in columns
                if offset < end and pop_time >= 0 and 0 <= invisible_ms <= INVISIBLE_MASK
            }
            self.ledger.restore(each.group, each.topic, each.queue_id, min(each.next_offset, end), in_flight, now_ms)
        self._loaded = []
        return self.ledger.count


@dataclass(slots=True, eq=False)
class PopState:
    """Loads the ledger at the start and writes it every ``interval_ms``, in a thread of its own."""

    snapshot: PopSnapshot
    file: PersistedTable
    offsets_file: PersistedTable
    ordered_file: PersistedTable
    interval_ms: int
    committed: Callable[[str, str, int], int | None]
    max_offset: Callable[[str, int], int]
    log: EventLog
    take_over: Callable[[], object] = lambda: None
    """Reads what RocketMQ's broker has left; called where there is no file of ours yet."""
    _worker: Worker | None = None

    def open(self) -> None:
        """Load. Blocks; the store is open, and the consumer offsets are loaded. Raises ``CorruptRecord``."""
        self.ordered_file.load()
        is_new = not self.file.load()
        in_flight = self.snapshot.restore(self.committed, self.max_offset)
        if in_flight:
            self.log.info("pops_in_flight", messages=in_flight)
        if is_new:
            self.take_over()
            self.persist()  # not a second time

    def start(self, runner: Runner) -> None:
        """Begin to write."""
        self._worker = runner.start("PopState", self._step, first_after_ms=self.interval_ms)

    def stop(self) -> None:
        """Stop, and write a last time. Blocks."""
        worker, self._worker = self._worker, None
        if worker is not None and worker.stop():
            self.persist()

    def _step(self) -> float:
        try:
            self.persist()
        except Exception as error:
            self.log.error("pop_state_not_written", error=str(error) or repr(error))
        return self.interval_ms

    def persist(self) -> None:
        """Write what has changed. Raises ``StoreError``. Blocks."""
        if self.snapshot.generation != self.snapshot.ledger.generation:
            self.snapshot.prepare()
        self.offsets_file.persist()  # after the snapshot was taken, before it is written
        self.file.persist()
        self.ordered_file.persist()
