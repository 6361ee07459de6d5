"""The path of one message, from its trace.

Lives here: ``TracePath``: finds the records of a message in the trace topic, and orders them by time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pocketmq.client.admin.query import Asked, MessageFinder
from pocketmq.client.trace.trace_format import TraceRecord, TraceType, decode_records
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.topics import TRACE_TOPIC

TRACE_MESSAGES_MAX = 64
"""Trace messages that one key query returns (RocketMQ's queryMsgTraceById asks for as many)."""


@dataclass(slots=True, frozen=True)
class Consumption:
    """One try to consume. ``after`` is None while it runs, or where its end was not traced; ``before`` where its
    beginning was not.
    """

    before: TraceRecord | None
    after: TraceRecord | None

    @property
    def group(self) -> str:
        """The consumer group, as far as it is known."""
        return (self.before.group if self.before is not None else "") or (self.after.group if self.after else "")

    @property
    def began_ms(self) -> int:
        """When it began, ms since 1970; counted back from its end where only that is known."""
        if self.before is not None:
            return self.before.timestamp_ms
        assert self.after is not None
        return max(self.after.timestamp_ms - self.after.cost_ms, 0)


@dataclass(slots=True)
class TracePath:
    """The recorded steps of one message: ``sends`` (several after a retry), ``stored`` copies in logs,
    ``consumptions``; each in the order of time. ``asked``: the brokers queried.
    """

    msg_id: str
    sends: list[TraceRecord]
    consumptions: list[Consumption]
    stored: list[ReceivedMessage]
    asked: list[Asked]
    is_cut: bool = False
    """Whether there may be more records than one query returns."""

    def __bool__(self) -> bool:
        return bool(self.sends or self.consumptions or self.stored)


def path_of(msg_id: str, records: Iterable[TraceRecord]) -> tuple[list[TraceRecord], list[Consumption]]:
    """Return the sends and consumptions of a message. A trace message that was sent twice counts once."""
    own = list(dict.fromkeys(record for record in records if record.msg_id == msg_id))
    sends = sorted(
        (record for record in own if record.trace_type is TraceType.PUB), key=lambda record: record.timestamp_ms
    )
    afters = {record.request_id: record for record in own if record.trace_type is TraceType.SUB_AFTER}
    consumptions = [
        Consumption(record, afters.pop(record.request_id, None))
        for record in own
        if record.trace_type is TraceType.SUB_BEFORE
    ]
    consumptions += [Consumption(None, after) for after in afters.values()]
    consumptions.sort(key=lambda each: each.began_ms)
    return sends, consumptions


async def find_path(finder: MessageFinder, msg_id: str, trace_topic: str = TRACE_TOPIC, topic: str = "") -> TracePath:
    """Query all brokers of the trace topic, and those of the message's topic for the message itself.

    ``topic``: where the message is, if no send of it was traced. Raises ``NoRoute`` when there is no trace topic.
    """
    found = await finder.by_key(trace_topic, msg_id, max_messages=TRACE_MESSAGES_MAX)
    sends, consumptions = path_of(msg_id, _records(found.messages))
    topics = list(dict.fromkeys([send.topic for send in sends if send.topic] or ([topic] if topic else [])))
    stored: list[ReceivedMessage] = []
    asked = list(found.asked)
    for name in topics:
        there = await finder.by_unique_id(msg_id, [name])
        stored += there.messages
        asked += there.asked
    stored.sort(key=lambda message: message.store_timestamp)
    return TracePath(msg_id, sends, consumptions, stored, asked, len(found.messages) >= TRACE_MESSAGES_MAX)


def _records(messages: Sequence[ReceivedMessage]) -> Iterable[TraceRecord]:
    for message in messages:
        try:
            body = message.body
        except PocketMQError:  # compressed by a client of another kind, and damaged
            continue
        yield from decode_records(body)
