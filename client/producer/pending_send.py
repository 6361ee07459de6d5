"""A send on its way into a section.

Lives here: ``PendingSend``, made for every send that the short path of ``send_nowait`` does not take, and
``SendHooks``, the calls of the producer's stages on its way.
"""

from asyncio import Future
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.producer.selectors import QueueSelector
from pocketmq.client.sender.section import unbuilt_bytes
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message import Message


@dataclass(slots=True, eq=False)
class PendingSend:
    """A checked message with its receipt's future (None for oneway sends). Times are monotonic ns.

    ``plain``: fit for a native append. ``own_time``: its timeout is not the producer's. ``ready``: the future to wait
    for before it may enter a section, or None.
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
    def is_queue_chosen(self) -> bool:
        """Whether a key or a selector chooses its queue from all queues of the topic."""
        return self.selector is not None or bool(self.message.sharding_key)

    @property
    def size_bytes(self) -> int:
        """The bytes it counts for while it is held in memory by itself."""
        return unbuilt_bytes(self.message)


class Unrouted(Protocol):
    """May take over a send that found no route."""

    def __call__(self, send: PendingSend, error: PocketMQError, *, early: bool) -> bool:
        """Take it over, or return False (``stages.SendStage.unrouted``)."""
        ...


@dataclass(slots=True, frozen=True)
class SendHooks:
    """The calls of a producer's stages for its single sends; None where no stage has one. ``stages.SendStage`` explains
    each. A body of up to ``body_bytes_max`` bytes may take the short path past all of them.
    """

    body_bytes_max: int
    enter: Callable[[PendingSend], None] | None = None
    take: Callable[[PendingSend], bool] | None = None
    place: Callable[[PendingSend, MessageQueue], bool] | None = None
    unrouted: Unrouted | None = None
