"""The results of sends: where a message is stored, and the broker's promise.

Lives here: ``SendStatus``, ``Receipt``, ``SectionOutcome``, which the receipts of one section share, ``ShortOutcome``
in its place on the short path, and the sequences of receipts that a batch returns.
"""

import enum
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, overload

import msgspec

from pocketmq.common.message_id import offset_msg_id
from pocketmq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class SendStatus(enum.Enum):
    """The state of a stored message (RocketMQ SendStatus.java). The first four mean: it is in the broker's log.

    The last is ours: no broker has confirmed it, the client's retry store holds it (``durable.receipt``).
    """

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    STORED_FOR_RETRY = "STORED_FOR_RETRY"


STATUS_OF_CODE: dict[int, SendStatus] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}
"""Response codes that mean the message is stored."""

_DURABILITY = {
    SendStatus.SEND_OK: "stored as the broker's flush and replication settings demand",
    SendStatus.FLUSH_DISK_TIMEOUT: "stored, but the disk did not confirm in time: a power loss may lose it",
    SendStatus.FLUSH_SLAVE_TIMEOUT: "stored, but no slave confirmed in time: losing the master may lose it",
    SendStatus.STORED_FOR_RETRY: "stored by this client alone, to be resent: no broker has confirmed it",
    SendStatus.SLAVE_NOT_AVAILABLE: "stored, but no usable slave is connected: losing the master may lose it",
}
_NO_WAIT = "stored in the broker's memory; the answer did not wait for disk or slaves"
_PAGE_CACHE = "stored in the broker's page cache: it survives the end of the broker's process, a power loss may lose it"
_WRITE_BUFFER = (
    "stored in a write buffer of the broker: the end of its process within the next moment may lose it, "
    "and a power loss may"
)
_BY_FLUSH = {
    ("SYNC_FLUSH", True): "stored and synced to the broker's disk: it survives the end of its process and a power loss",
    ("SYNC_FLUSH", False): _PAGE_CACHE,
    ("ASYNC_FLUSH", True): _PAGE_CACHE,
    ("ASYNC_FLUSH", False): _PAGE_CACHE,
    ("WRITE_BUFFER", True): _WRITE_BUFFER,
    ("WRITE_BUFFER", False): _WRITE_BUFFER,
}
"""What SEND_OK means, by how the broker flushes (``Announcement.flush``) and whether the answer waited for it. The
table behind these words, with the tests that prove it: docs/durability.md.
"""

_REPLICATED = "; {} copies have it, the broker's included: it survives the loss of any one of their machines"
"""Added under a synchronous master that announces ``in_sync_replicas`` above 1 (docs/replication.md)."""


class SectionOutcome:
    """The broker's answer for messages that went to one queue together.

    ``runs``: (physical offset of the first record, records) for each part that lies back to back; ``sizes``: the
    records' bytes, needed only for offset ids inside a run. ``offset_ids`` replaces both when the broker named the ids
    itself.
    """

    __slots__ = (
        "_run_starts",
        "attempts",
        "broker",
        "duplicate_possible",
        "first_queue_offset",
        "flush",
        "in_sync_replicas",
        "offset_ids",
        "queue_id",
        "region",
        "runs",
        "sizes",
        "status",
        "store_host",
        "topic",
        "trace_on",
        "waited",
    )

    def __init__(
        self,
        topic: str,
        broker: str,
        queue_id: int,
        first_queue_offset: int,
        status: SendStatus,
        *,
        attempts: int,
        waited: bool,
        runs: Sequence[tuple[int, int]] = (),
        sizes: Sequence[int] = (),
        store_host: bytes = b"",
        offset_ids: Sequence[str] = (),
        duplicate_possible: bool = False,
        flush: str = "",
        in_sync_replicas: int = 1,
        region: str = "DefaultRegion",
        trace_on: bool = True,
    ) -> None:
        """``flush``: how the broker flushes, as announced; empty if it is not. ``in_sync_replicas``: copies that had
        the messages before SEND_OK, as announced. ``region``, ``trace_on``: for message trace.
        """
        self.region = region
        self.trace_on = trace_on
        self.topic = topic
        self.broker = broker
        self.queue_id = queue_id
        self.first_queue_offset = first_queue_offset
        self.status = status
        self.attempts = attempts
        self.waited = waited
        self.runs = runs
        self.sizes = sizes
        self.store_host = store_host
        self.offset_ids = offset_ids
        self.duplicate_possible = duplicate_possible
        self.flush = flush
        self.in_sync_replicas = in_sync_replicas
        self._run_starts: list[int] | None = None

    def physical_offset(self, index: int) -> int:
        """Return the physical offset of the ``index``-th record of the section, or -1 if the broker did not say."""
        starts = self._run_starts
        if starts is None:
            starts = self._run_starts = []
            first = 0
            for _, count in self.runs:
                starts.append(first)
                first += count
        if not starts:
            return -1
        run = bisect_right(starts, index) - 1
        return self.runs[run][0] + sum(self.sizes[starts[run] : index])

    def offset_msg_id(self, index: int) -> str:
        """Return the offset message id of the ``index``-th record, or an empty string if the broker did not say."""
        if self.offset_ids:
            return self.offset_ids[index] if index < len(self.offset_ids) else ""
        offset = self.physical_offset(index)
        return offset_msg_id(self.store_host, offset) if offset >= 0 and self.store_host else ""


class StoredAt(msgspec.Struct, frozen=True):
    """What the receipts of all messages in one queue have in common, while one connection lasts."""

    topic: str
    queue_id: int
    broker: str
    store_host: bytes
    flush: str
    in_sync_replicas: int
    region: str
    trace_on: bool


class ShortOutcome(msgspec.Struct):
    """A ``SectionOutcome`` of the short path: stored at the first attempt, in one run, with ``SEND_OK``.

    Holds only numbers and names: a receipt must not keep messages, futures or connections alive.
    """

    at: StoredAt
    first_queue_offset: int
    start: int
    sizes: Sequence[int]
    """Bytes of the records: ``start`` is the physical offset of the first."""

    status: ClassVar[SendStatus] = SendStatus.SEND_OK
    attempts: ClassVar[int] = 1
    waited: ClassVar[bool] = True
    duplicate_possible: ClassVar[bool] = False

    topic = property(lambda self: self.at.topic)
    broker = property(lambda self: self.at.broker)
    queue_id = property(lambda self: self.at.queue_id)
    flush = property(lambda self: self.at.flush)
    in_sync_replicas = property(lambda self: self.at.in_sync_replicas)
    region = property(lambda self: self.at.region)
    trace_on = property(lambda self: self.at.trace_on)

    def physical_offset(self, index: int) -> int:
        """Return the physical offset of the ``index``-th record."""
        return self.start + sum(self.sizes[:index])

    def offset_msg_id(self, index: int) -> str:
        """Return the offset message id of the ``index``-th record, or an empty string if the broker's is a name."""
        host = self.at.store_host
        return offset_msg_id(host, self.physical_offset(index)) if host else ""


class Receipt:
    """Proof that one message was stored. Small: the messages of one section share everything but their place in it."""

    __slots__ = ("_index", "_outcome", "_uniq_key")

    def __init__(self, outcome: SectionOutcome | ShortOutcome, index: int, uniq_key: bytes) -> None:
        self._outcome = outcome
        self._index = index
        self._uniq_key = uniq_key

    @property
    def status(self) -> SendStatus:
        """The state of the message; ``durability`` describes it."""
        return self._outcome.status

    @property
    def msg_id(self) -> str:
        """The id that the client gave the message (UNIQ_KEY); it stays the same over retries."""
        return self._uniq_key.decode("ascii")

    @property
    def offset_msg_id(self) -> str:
        """The id that says where the message is stored, or an empty string if the broker did not say."""
        return self._outcome.offset_msg_id(self._index)

    @property
    def physical_offset(self) -> int:
        """Where the message starts in the broker's log, or -1 where only ``offset_msg_id`` says so."""
        return self._outcome.physical_offset(self._index)

    @property
    def topic(self) -> str:
        """The topic."""
        return self._outcome.topic

    @property
    def broker(self) -> str:
        """The name of the broker that stored it."""
        return self._outcome.broker

    @property
    def queue_id(self) -> int:
        """The queue on that broker."""
        return self._outcome.queue_id

    @property
    def queue_offset(self) -> int:
        """The message's number in its queue."""
        return self._outcome.first_queue_offset + self._index

    @property
    def attempts(self) -> int:
        """The number of attempts, usually 1."""
        return self._outcome.attempts

    @property
    def duplicate_possible(self) -> bool:
        """Whether an earlier attempt may have stored the message as well, under the same ``msg_id``."""
        return self._outcome.duplicate_possible

    @property
    def region(self) -> str:
        """The broker's region."""
        return self._outcome.region

    @property
    def trace_on(self) -> bool:
        """Whether the broker wants the message traced."""
        return self._outcome.trace_on

    @property
    def durability(self) -> str:
        """The promise of the broker's answer, in words."""
        outcome = self._outcome
        if outcome.status is not SendStatus.SEND_OK:
            return _DURABILITY[outcome.status]
        by_flush = _BY_FLUSH.get((outcome.flush, outcome.waited))
        words = by_flush or (_DURABILITY[outcome.status] if outcome.waited else _NO_WAIT)
        if outcome.waited and outcome.in_sync_replicas > 1:
            words += _REPLICATED.format(outcome.in_sync_replicas)
        return words

    def __repr__(self) -> str:
        return (
            f"Receipt({self.status.name}, topic={self.topic!r}, broker={self.broker!r}, queue_id={self.queue_id}, "
            f"queue_offset={self.queue_offset}, msg_id={self.msg_id!r}, attempts={self.attempts}"
            f"{', duplicate_possible=True' if self.duplicate_possible else ''})"
        )


class _ReceiptSequence(Sequence[Receipt]):
    """Receipts made on access: most of a large batch are never read."""

    __slots__ = ()

    def _at(self, index: int) -> Receipt:
        raise IndexError(index)

    @overload
    def __getitem__(self, index: int) -> Receipt: ...
    @overload
    def __getitem__(self, index: slice) -> list[Receipt]: ...
    def __getitem__(self, index: int | slice) -> Receipt | list[Receipt]:
        if isinstance(index, slice):
            return [self._at(at) for at in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"receipt {index} of {len(self)}")
        return self._at(at)

    def __iter__(self) -> Iterator[Receipt]:
        return map(self._at, range(len(self)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)!r})"


class SectionReceipts(_ReceiptSequence):
    """The receipts of messages that went to one queue together."""

    __slots__ = ("_outcome", "_uniq_keys")

    def __init__(self, outcome: SectionOutcome, uniq_keys: Sequence[bytes]) -> None:
        self._outcome = outcome
        self._uniq_keys = uniq_keys

    def __len__(self) -> int:
        return len(self._uniq_keys)

    def _at(self, index: int) -> Receipt:
        return Receipt(self._outcome, index, self._uniq_keys[index])


class Receipts(_ReceiptSequence):
    """The receipts of a batch, in the order of its messages; made from those of its parts."""

    __slots__ = ("_bounds", "_parts", "_places")

    def __init__(self, parts: "Sequence[tuple[Sequence[int] | NDArray[np.int64], Sequence[Receipt]]]") -> None:
        """``parts``: the places of messages in the batch, and their receipts; together each place once."""
        self._parts = [receipts for _, receipts in parts]
        self._bounds = [0]
        for places, receipts in parts:
            assert len(places) == len(receipts)
            self._bounds.append(self._bounds[-1] + len(receipts))
        import numpy as np

        self._places: NDArray[np.int64] | None = None
        order = np.concatenate([np.zeros(0, np.int64), *(np.asarray(places, np.int64) for places, _ in parts)])
        if np.count_nonzero(order != np.arange(len(order))):
            self._places = np.empty_like(order)
            self._places[order] = np.arange(len(order))

    def __len__(self) -> int:
        return self._bounds[-1]

    def _at(self, index: int) -> Receipt:
        place = index if self._places is None else int(self._places[index])
        part = bisect_right(self._bounds, place) - 1
        return self._parts[part][place - self._bounds[part]]
