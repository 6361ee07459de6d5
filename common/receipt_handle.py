"""Receipt handles: what a consumer gives back to acknowledge one message that it has popped.

A handle names a message and one delivery of it. Its text is that of RocketMQ 5.3.3's ``ExtraInfoUtil`` (property
``POP_CK``), eight or nine fields with spaces between them:

    startOffset popTime invisibleTime reviveQid retry broker queueId queueOffset [commitLogOffset]

``retry`` says in which topic the message lies: 0 the topic itself, 1 ``%RETRY%group_topic``, 2 ``%RETRY%group+topic``.
Times are ms; ``reviveQid`` is 999 for the messages of ordered pops. A proxy adds the last field.

Lives here: ``ReceiptHandle``; the names of POP's retry topics; the three texts by which the answer to a pop says which
messages it has (``startOffsetInfo``, ``msgOffsetInfo``, ``orderCountInfo``).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.topics import RETRY_PREFIX

NORMAL: Final = "0"
RETRY_V1: Final = "1"
RETRY_V2: Final = "2"
ORDERED_QUEUE: Final = 999
"""The ``reviveQid`` of ordered pops (RocketMQ KeyBuilder.POP_ORDER_REVIVE_QUEUE)."""
HANDLE_CHARACTERS_MAX: Final = 512
_FIELDS: Final = (8, 9)
_LONG_MAX: Final = (1 << 63) - 1
_INT_MAX: Final = (1 << 31) - 1


class HandleIllegal(PocketMQError):
    """A text is no receipt handle, or is one of another broker, group, topic or queue."""

    code = 13  # MESSAGE_ILLEGAL
    default_cause = Cause.BAD_REQUEST


def pop_retry_topic(group: str, topic: str) -> str:
    """Return the topic in which messages of ``topic`` wait that ``group`` did not acknowledge in time."""
    return f"{RETRY_PREFIX}{group}_{topic}"


def pop_retry_topic_v2(group: str, topic: str) -> str:
    """Return RocketMQ's second name of it, which PocketMQ reads and never writes."""
    return f"{RETRY_PREFIX}{group}+{topic}"


def retry_mark(topic: str) -> str:
    """Return the field ``retry`` for messages of a topic, as RocketMQ derives it."""
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


def real_topic(topic: str, group: str, mark: str) -> str:
    """Return the topic in which the messages of ``topic`` with this field ``retry`` lie."""
    if mark == RETRY_V1:
        return pop_retry_topic(group, topic)
    return pop_retry_topic_v2(group, topic) if mark == RETRY_V2 else topic


def first_topic(topic: str, group: str) -> str:
    """Return the topic that a POP retry topic of ``group`` belongs to, or ``topic`` itself."""
    for separator in "_+":
        prefix = f"{RETRY_PREFIX}{group}{separator}"
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return topic


class ReceiptHandle(NamedTuple):
    """One delivery of one message. ``str`` gives its text."""

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_qid: int
    retry: str
    broker: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int = -1
    """Where the record is in the log; -1: the handle does not say."""

    def __str__(self) -> str:
        text = (
            f"{self.start_offset} {self.pop_time} {self.invisible_time} {self.revive_qid} {self.retry} "
            f"{self.broker} {self.queue_id} {self.queue_offset}"
        )
        return text if self.commit_log_offset < 0 else f"{text} {self.commit_log_offset}"

    @classmethod
    def parse(cls, text: str) -> "ReceiptHandle":
        """Return the handle with this text; raises ``HandleIllegal``.

        >>> str(ReceiptHandle.parse("7 1700000000000 60000 0 0 broker-a 3 9"))
        '7 1700000000000 60000 0 0 broker-a 3 9'
        """
        if len(text) > HANDLE_CHARACTERS_MAX:
            raise _illegal(f"{len(text)} characters, at most {HANDLE_CHARACTERS_MAX}")
        fields = text.split(" ")
        if len(fields) not in _FIELDS:
            raise _illegal(f"{len(fields)} fields, not 8 or 9")
        broker = fields[5]
        if fields[4] not in (NORMAL, RETRY_V1, RETRY_V2) or not broker:
            raise _illegal(f"its retry mark is {fields[4][:20]!r} and its broker {broker[:40]!r}")
        longs = [_number(fields[at], _LONG_MAX) for at in (0, 1, 2, 7)]
        ints = [_number(fields[at], _INT_MAX) for at in (3, 6)]
        log_offset = _number(fields[8], _LONG_MAX) if len(fields) == 9 else -1
        return cls(longs[0], longs[1], longs[2], ints[0], fields[4], broker, ints[1], longs[3], log_offset)

    @property
    def is_ordered(self) -> bool:
        """Whether an ordered pop gave it out."""
        return self.revive_qid == ORDERED_QUEUE

    @property
    def expires_ms(self) -> int:
        """When the message becomes visible again, unless its time is changed."""
        return self.pop_time + self.invisible_time

    def real_topic(self, topic: str, group: str) -> str:
        """Return the topic that the message lies in; ``topic`` is the one that ``group`` has popped."""
        return real_topic(topic, group, self.retry)

    def renewed(self, pop_time: int, invisible_time: int, revive_qid: int | None = None) -> "ReceiptHandle":
        """Return the handle that replaces this one after a change of the invisible time (RocketMQ's client does the
        same)."""
        return self._replace(
            start_offset=self.queue_offset,
            pop_time=pop_time,
            invisible_time=invisible_time,
            revive_qid=self.revive_qid if revive_qid is None else revive_qid,
        )


def _number(text: str, limit: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 19) or int(text) > limit:
        raise _illegal(f"{text[:24]!r} is no number from 0 to {limit}")
    return int(text)


def _illegal(why: str) -> HandleIllegal:
    return HandleIllegal("receipt handle refused", why=why, hint="use the handle of the message as it came")


class PoppedQueue(NamedTuple):
    """The messages of one queue in the answer to a pop."""

    topic: str
    """The topic that they lie in."""
    queue_id: int
    start_offset: int
    offsets: Sequence[int]


def start_offset_info(queues: Iterable[PoppedQueue]) -> str:
    """Return ``startOffsetInfo``: ``mark queue startOffset`` of each queue, with ``;`` between them."""
    return ";".join(f"{retry_mark(each.topic)} {each.queue_id} {each.start_offset}" for each in queues)


def msg_offset_info(queues: Iterable[PoppedQueue]) -> str:
    """Return ``msgOffsetInfo``: ``mark queue offset,offset`` of each queue."""
    return ";".join(f"{retry_mark(each.topic)} {each.queue_id} {','.join(map(str, each.offsets))}" for each in queues)


def order_count_info(topic: str, queue_id: int, counts: Mapping[int, int], least: int) -> str:
    """Return the part of ``orderCountInfo`` for one queue: how often each offset was delivered before, where it was,
    and the least of all counts, for old clients."""
    mark = retry_mark(topic)
    parts = [f"{mark} qo{queue_id}%{offset} {count}" for offset, count in counts.items()]
    return ";".join([*parts, f"{mark} {queue_id} {least}"])


def parse_start_offsets(text: str) -> dict[tuple[str, int], int]:
    """Return (mark, queue id) → start offset; raises ``HandleIllegal``."""
    return {(mark, _number(queue, _INT_MAX)): _number(value, _LONG_MAX) for mark, queue, value in _parts(text)}


def parse_msg_offsets(text: str) -> dict[tuple[str, int], list[int]]:
    """Return (mark, queue id) → offsets of the messages; raises ``HandleIllegal``."""
    return {
        (mark, _number(queue, _INT_MAX)): [_number(each, _LONG_MAX) for each in value.split(",")]
        for mark, queue, value in _parts(text)
    }


def parse_order_counts(text: str) -> dict[tuple[int, int], int]:
    """Return (queue id, queue offset) → earlier deliveries of a message of an ordered pop; raises ``HandleIllegal``."""
    counts: dict[tuple[int, int], int] = {}
    for _, key, value in _parts(text):
        if key.startswith("qo"):
            queue, _, offset = key[2:].partition("%")
            counts[_number(queue, _INT_MAX), _number(offset, _LONG_MAX)] = _number(value, _INT_MAX)
    return counts


def _parts(text: str) -> list[list[str]]:
    parts = [part.split(" ") for part in text.split(";")] if text else []
    for part in parts:
        if len(part) != 3:
            raise HandleIllegal("answer to a pop refused", why=f"{' '.join(part)[:80]!r} has not three fields")
    return parts
