"""A send on its way into a section.

Lives here: ``PendingSend``, made for every send that the short path of ``send_nowait`` does not take.
"""

from asyncio import Future
from dataclasses import dataclass

from pocketmq.client.message.receipts import Receipt
from pocketmq.client.producer.selectors import QueueSelector
from pocketmq.client.sender.section import UNBUILT_EXTRA_BYTES
from pocketmq.common.message import Message


@dataclass(slots=True, eq=False)
class PendingSend:
    """A checked message with its receipt's future (None for oneway sends). Times are monotonic ns.

    ``plain``: fit for a native append. ``own_time``: its timeout is not the producer's. ``ready``: what the message
    waits for before it may enter a section, or None.
    """

    message: Message
    plain: bool
    selector: QueueSelector | None
    oneway: bool
    future: "Future[Receipt] | None"
    started_ns: int
    deadline_ns: int
    own_time: bool
    attempts_max: int
    ready: "Future[None] | None" = None

    @property
    def size_bytes(self) -> int:
        """What it counts for while it is held in memory by itself."""
        return len(self.message.body) + UNBUILT_EXTRA_BYTES
