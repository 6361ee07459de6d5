"""Messages that travel together.

Lives here: ``Section`` (messages for one queue, all or nothing), ``Frame`` (sections for one broker), the body of a
native append. Pure: nothing here sends or waits.
"""

import struct
from asyncio import Future
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol

from pocketmq.client.arrow.packed import PackedRecords
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.errors import Attempt
from pocketmq.common.message import Message
from pocketmq.remoting.codec import Body

if TYPE_CHECKING:
    from pocketmq.client.message.receipts import Receipt, SectionOutcome

FRAME_BYTES_TARGET = 1 << 20
"""A frame is closed when it holds this much: larger ones only add latency."""
UNBUILT_EXTRA_BYTES = 256
"""Bytes counted for a message without a record beside its body, properties and keys."""

BODY_OF: Final = attrgetter("body")
_PROPERTIES_OF: Final = attrgetter("properties")
_KEYS_OF: Final = attrgetter("keys")


def unbuilt_bytes(message: Message) -> int:
    """Return about how many bytes a message without a record takes in a frame: its texts count a byte a character."""
    size = len(message.body) + UNBUILT_EXTRA_BYTES
    if message.properties:
        size += sum(len(name) + len(value) + 2 for name, value in message.properties.items())
    if message.keys:
        size += len(message.keys) if isinstance(message.keys, str) else sum(map(len, message.keys))
    return size


def unbuilt_sizes(messages: Sequence[Message]) -> list[int]:
    """Return ``unbuilt_bytes`` of each message; cheap where they have nothing but a body."""
    if any(map(_PROPERTIES_OF, messages)) or any(map(_KEYS_OF, messages)):
        return list(map(unbuilt_bytes, messages))
    return [size + UNBUILT_EXTRA_BYTES for size in map(len, map(BODY_OF, messages))]


BuildRecord = Callable[[Message, int, bytes, int], bytes]
"""``PlainRecordBuilder.build``: (message, queue id, uniq key, born ms) -> record."""


class Rows(Protocol):
    """Messages that exist as columns only (``arrow_records``)."""

    size_bytes: int
    """What the rows hold in memory."""

    def __len__(self) -> int: ...

    def records(self, cluster: str, family: int, queue_id: int, born_ms: int) -> "list[bytes] | PackedRecords":
        """Return the rows as plain records."""
        ...

    def messages(self) -> list[Message]:
        """Return the rows as messages, for a broker that takes no records."""
        ...


class Section:
    """Messages that go to one queue together, all or nothing.

    ``records`` is parallel to ``messages``, ``uniq_keys`` and ``futures``; it stays empty while the kind of broker is
    unknown (``build`` is None). Rows have ``ids`` in place of ``uniq_keys``, and may become ``packed`` records.
    ``alike``: the common tags of messages that have nothing else but a body; None: not known to be alike.
    Messages are kept until their receipts: a retry may go to another kind of broker.
    ``futures`` is empty for oneway sends and where ``batch_future`` takes all receipts at once. Times are monotonic ns,
    ``born_ms`` wall time.

    ``may_move``: a retry may choose another queue; where it may not, ``order`` numbers the sections of the queue.
    ``permits``: how many sends are held as in flight. ``charged``: the broker whose retry token is out, or empty.
    ``half``: its messages are halves of transactions. ``is_resend``: the durable retry sends it.
    ``doubtful``: the first outcome that was stored with a status other than SEND_OK, while a better one is sought.
    """

    __slots__ = (
        "alike",
        "attempts",
        "attempts_max",
        "batch_future",
        "born_ms",
        "build",
        "charged",
        "deadline_ns",
        "doubtful",
        "frame",
        "futures",
        "half",
        "ids",
        "is_resend",
        "key",
        "may_move",
        "messages",
        "oneway",
        "order",
        "packed",
        "permits",
        "plain",
        "queue",
        "queue_id",
        "records",
        "rows",
        "size_bytes",
        "started_ns",
        "uniq_keys",
        "wait",
    )

    def __init__(
        self,
        key: Any,
        queue: MessageQueue,
        *,
        build: BuildRecord | None,
        started_ns: int,
        deadline_ns: int,
        born_ms: int,
        attempts_max: int,
        may_move: bool = True,
        plain: bool = True,
        wait: bool = True,
        oneway: bool = False,
        half: bool = False,
        is_resend: bool = False,
    ) -> None:
        self.half = half
        self.is_resend = is_resend
        self.key = key
        self.queue = queue
        self.queue_id = queue.queue_id
        self.build = build
        self.started_ns = started_ns
        self.deadline_ns = deadline_ns
        self.born_ms = born_ms
        self.attempts_max = attempts_max
        self.may_move = may_move
        self.plain = plain
        self.wait = wait
        self.oneway = oneway
        self.frame: Frame | None = None
        self.messages: list[Message] = []
        self.uniq_keys: list[bytes] = []
        self.ids: Sequence[bytes] | None = None
        self.records: list[bytes] = []
        self.packed: PackedRecords | None = None
        self.futures: list[Future[Receipt]] = []
        self.batch_future: Future[Sequence[Receipt]] | None = None
        self.rows: Rows | None = None
        self.alike: str | None = None
        self.attempts: list[Attempt] = []
        self.size_bytes = 0
        self.permits = 0
        self.order = 0
        self.charged = ""
        self.doubtful: SectionOutcome | None = None

    @property
    def count(self) -> int:
        """How many messages."""
        return len(self.all_ids)

    @property
    def all_ids(self) -> Sequence[bytes]:
        """The unique id of each message."""
        return self.uniq_keys if self.ids is None else self.ids

    def record_sizes(self) -> list[int]:
        """Return the bytes of each record."""
        return list(map(len, self.records)) if self.packed is None else self.packed.sizes.tolist()

    def unpack(self) -> None:
        """Become a section of messages, for a broker that takes no records."""
        self.records = []
        self.packed = None
        if self.rows is not None:
            self.messages = self.rows.messages()
            self.rows = None
        if self.ids is not None:
            self.uniq_keys = list(self.ids)
            self.ids = None

    def left_ms(self, now_ns: int) -> float:
        """Return the rest of the caller's timeout."""
        return (self.deadline_ns - now_ns) / 1e6

    def measure(self) -> int:
        """Set and return ``size_bytes``, what the section holds in memory."""
        if self.rows is not None:
            self.size_bytes = self.rows.size_bytes
        elif self.records:
            self.size_bytes = sum(map(len, self.records))
        else:
            self.size_bytes = sum(unbuilt_sizes(self.messages))
        return self.size_bytes

    def split(self) -> "list[Section]":
        """Return one section per message; together they hold as many bytes and permits, and the attempts so far."""
        parts: list[Section] = []
        for index, (message, uniq_key) in enumerate(zip(self.messages, self.uniq_keys, strict=True)):
            part = Section(
                None,
                self.queue,
                build=None,
                started_ns=self.started_ns,
                deadline_ns=self.deadline_ns,
                born_ms=self.born_ms,
                attempts_max=self.attempts_max,
                may_move=self.may_move,
                plain=self.plain,
                wait=self.wait,
                oneway=self.oneway,
                half=self.half,
                is_resend=self.is_resend,
            )
            part.messages.append(message)
            part.uniq_keys.append(uniq_key)
            part.futures += self.futures[index : index + 1]
            part.attempts += self.attempts
            part.doubtful = self.doubtful
            part.size_bytes = self.size_bytes // self.count
            part.permits = self.permits // self.count
            parts.append(part)
        parts[0].size_bytes += self.size_bytes % self.count
        parts[0].permits += self.permits % self.count
        parts[0].charged = self.charged
        return parts


class Frame:
    """Sections of one broker that travel together. ``wait``, ``oneway`` and ``half`` belong to the frame as a whole."""

    __slots__ = ("broker_name", "half", "oneway", "sections", "size_bytes", "wait")

    def __init__(self, broker_name: str, wait: bool, oneway: bool, half: bool) -> None:
        self.broker_name = broker_name
        self.wait = wait
        self.oneway = oneway
        self.half = half
        self.sections: list[Section] = []
        self.size_bytes = 0


def native_body(sections: Sequence[Section]) -> Body:
    """Return the body of a native append: u32 sizes of all records, then the records."""
    if sections[0].packed is not None:  # columns travel alone
        return sections[0].packed.body()
    parts: list[bytes] = [b""]
    for section in sections:
        parts += section.records
    sizes = list(map(len, parts))
    parts[0] = struct.pack(f">{len(sizes) - 1}I", *sizes[1:])
    return b"".join(parts)
