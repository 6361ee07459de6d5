"""A message of a work queue.

Lives here: ``PoppedMessage``; ``ReceiptExpired``.
"""

from pocketmq.client.errors import ClientError
from pocketmq.common.errors import Cause
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.receipt_handle import ReceiptHandle


class ReceiptExpired(ClientError):
    """A message was not acknowledged, or not given more time: its own time was over, or somebody else has it by now.

    Nothing has changed; the message is redelivered, to this consumer or another one.
    """

    default_cause = Cause.TIMEOUT


class PoppedMessage(ReceivedMessage):
    """A message that is invisible to others until its time is over.

    ``receipt`` is its present handle, which changes with ``extend``. ``attempt`` counts deliveries from 1 on.
    """

    __slots__ = ("attempt", "invisible_ms", "is_settled", "popped_ns", "receipt")

    def __init__(
        self, message: ReceivedMessage, topic: str, receipt: ReceiptHandle, attempt: int, popped_ns: int
    ) -> None:
        """``topic``: the one that was popped, also of a message that comes from its retry topic. ``popped_ns``: when
        the pop was asked for, monotonic."""
        super().__init__(
            message._record,
            message.broker_name,
            topic,
            message.queue_id,
            message.queue_offset,
            message._body_at,
            message._properties_at,
        )
        self.receipt = receipt
        self.attempt = attempt
        self.popped_ns = popped_ns
        self.invisible_ms = receipt.invisible_time
        self.is_settled = False

    def renewed(self, pop_time: int, invisible_ms: int, revive_qid: int, asked_ns: int) -> None:
        """Take the handle of a changed invisible time."""
        self.receipt = self.receipt.renewed(pop_time, invisible_ms, revive_qid)
        self.invisible_ms = invisible_ms
        self.popped_ns = asked_ns

    def left_ms(self, now_ns: int) -> float:
        """Return how long the message stays invisible, at least: the broker began to count later."""
        return self.invisible_ms - (now_ns - self.popped_ns) / 1e6
