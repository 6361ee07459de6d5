"""May this group pop that topic, with these numbers?

Lives here: ``PopChecks``, and the errors that answer pops and acknowledgements. Order, codes and texts as RocketMQ's
PopMessageProcessor and AckMessageProcessor, where they have one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pocketmq.auth.session import Session
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.group.message_filter import MessageFilter
from pocketmq.broker.group.subscription_groups import SubscriptionGroups
from pocketmq.broker.pop.pop_queue import Settled
from pocketmq.broker.pull.pull_checks import PullChecks
from pocketmq.broker.request.request_task import Refusal, refusal_of
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.receipt_handle import HandleIllegal, ReceiptHandle, pop_retry_topic, retry_mark
from pocketmq.common.topics import RETRY_PREFIX, TOPIC_LENGTH_MAX

POP_MESSAGES_MAX: Final = 32
"""Messages of one POP_MESSAGE (RocketMQ)."""
INVISIBLE_MS_MAX: Final = 12 * 3_600_000
"""Longest invisible time: the proxy's of RocketMQ (``maxInvisibleTimeMillis``)."""
ATTEMPT_CHARACTERS_MAX: Final = 128
CODE_OF: Final = {Settled.DONE: 0, Settled.ALREADY: 1, Settled.EXPIRED: 2, Settled.UNKNOWN: 3}
"""Numbers of the native answer."""


class PopIllegal(PocketMQError):
    """A number or a name of a pop is out of its range."""

    code = 29  # INVALID_PARAMETER
    default_cause = Cause.BAD_REQUEST


class PopOnSlave(PocketMQError):
    """A slave gives out nothing: what is in flight, its master knows."""

    code = 14  # SERVICE_NOT_AVAILABLE
    default_cause = Cause.NOT_MASTER


class HandleDead(PocketMQError):
    """The message of a handle is no longer in flight under it; nothing has changed."""

    code = 208  # NO_MESSAGE
    default_cause = Cause.BAD_REQUEST


@dataclass(slots=True, eq=False)
class PopChecks:
    """Thread-safe."""

    config: BrokerConfig
    topics: TopicTable
    groups: SubscriptionGroups
    pulls: PullChecks
    is_slave: bool
    must_not_write: Callable[[], bool]
    """Whether this broker hands over, or was replaced."""

    def check(self, group: str, topic: str, queue_id: int, session: Session | None) -> Refusal | None:
        """Say why ``group`` may not pop ``topic`` here."""
        if self.is_slave or self.must_not_write():
            return refusal_of(
                PopOnSlave(
                    "pop refused",
                    why=f"{self.config.broker_name} is no master, or hands over to another one",
                    hint="ask the name server for the master",
                    retry_after_ms=1000,
                )
            )
        refusal = self.pulls.check_group(group, session) or self.pulls.check_queue(topic, max(0, queue_id))
        if refusal is not None:
            return refusal
        retry_topic = pop_retry_topic(group, topic)
        error: PopIllegal | None = None
        if topic.startswith(RETRY_PREFIX):
            error = PopIllegal("pop refused", why=f"{topic[:128]} is a retry topic", hint="pop its topic: both come")
        elif len(retry_topic) > TOPIC_LENGTH_MAX:
            why = f"the retry topic {retry_topic} would have {len(retry_topic)} characters, at most {TOPIC_LENGTH_MAX}"
            error = PopIllegal("pop refused", why=why, hint="shorten the name of the group or of the topic")
        elif self.groups.get(f"{group}_{topic}") is not None:
            error = PopIllegal(
                "pop refused",
                why=f"the group {group}_{topic} has the same retry topic, {retry_topic}",
                hint="delete that group, or pop with another one",
            )
        elif queue_id < -1:
            error = PopIllegal("pop refused", why=f"queueId {queue_id}", hint="-1 is any queue")
        return None if error is None else refusal_of(error)

    @staticmethod
    def check_numbers(count_max: int, invisible_ms: int, attempt_id: str, limit: int) -> PopIllegal | None:
        """Say which number is out of its range."""
        if not 1 <= count_max <= limit:
            return PopIllegal("pop refused", why=f"{count_max} messages", hint=f"ask for 1 to {limit}")
        if len(attempt_id) > ATTEMPT_CHARACTERS_MAX:
            return PopIllegal("pop refused", why=f"an attempt id of {len(attempt_id)} characters")
        return check_invisible(invisible_ms, 1)

    def filter_of(self, expression_type: str, expression: str) -> MessageFilter | Refusal:
        """Return the filter of a pop."""
        return self.pulls.parsed(expression_type, expression or "*")

    def check_handle(self, handle: ReceiptHandle, topic: str, queue_id: int, offset: int) -> None:
        """Raise ``HandleIllegal`` where the fields of a handle and its request disagree. ``topic``: the one that the
        message lies in."""
        why = ""
        if handle.broker != self.config.broker_name:
            why = f"it is of broker {handle.broker[:64]}, and this is {self.config.broker_name}"
        elif handle.queue_id != queue_id or handle.queue_offset != offset:
            own, asked = f"{handle.queue_id}/{handle.queue_offset}", f"{queue_id}/{offset}"
            why = f"it is of queue and offset {own}, the request of {asked}"
        elif handle.retry != retry_mark(topic):
            why = f"its mark is {handle.retry}, and {topic[:128]} has {retry_mark(topic)}"
        elif handle.start_offset > handle.queue_offset:
            why = f"it starts at {handle.start_offset}, behind its message {handle.queue_offset}"
        if why:
            raise HandleIllegal("receipt handle refused", why=why, hint="use the handle of the message as it came")


def check_invisible(invisible_ms: int, least_ms: int) -> PopIllegal | None:
    """Say whether an invisible time is out of its range."""
    if least_ms <= invisible_ms <= INVISIBLE_MS_MAX:
        return None
    return PopIllegal(
        "invisible time refused", why=f"{invisible_ms} ms", hint=f"{least_ms} to {INVISIBLE_MS_MAX} ms are possible"
    )


def dead(result: Settled, handle: ReceiptHandle) -> HandleDead:
    """Return the refusal of a handle that is not in flight."""
    return HandleDead(
        "not acknowledged",
        why=f"message {handle.queue_offset} of queue {handle.queue_id}: {result.value}",
        hint="an unacknowledged message is redelivered; extend its invisible time before it ends",
    )
