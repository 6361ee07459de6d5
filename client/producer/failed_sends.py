"""What a producer asks of the component that keeps failed sends and resends them.

Lives here: the protocol ``FailedSends``; ``client.durable`` implements it.
"""

from collections.abc import Callable
from typing import Protocol

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.producer.pending_send import PendingSend
from pocketmq.client.producer.section_port import SendPort
from pocketmq.client.sender.section import Section
from pocketmq.common.errors import PocketMQError

SectionSettled = Callable[[Section, list[Receipt] | Exception], None]
"""Called once with a section that was taken, and its receipts or the error of all its messages."""
SendSettled = Callable[[PendingSend, Receipt | PocketMQError], None]
"""Called once with a send that was taken, and its receipt or error."""


class FailedSends(Protocol):
    """Belongs to one producer from ``start`` to ``stop``. Each ``take`` returns whether it took over."""

    @property
    def keeps_order(self) -> bool:
        """Whether later messages of a key stay behind those that wait; a batch with keys is then sent one by one."""
        ...

    def attach(self, port: SendPort) -> None:
        """Become the component of the producer behind ``port``."""
        ...

    async def start(self) -> None:
        """Open what keeps the messages, and begin to resend."""
        ...

    async def stop_resending(self, timeout_s: float) -> None:
        """First part of a stop: resend nothing more, and wait for what is in flight."""
        ...

    async def quiesce(self, timeout_s: float) -> None:
        """Second part: let ordered sends in memory leave, then keep what is left of them."""
        ...

    async def stop(self) -> None:
        """Last part: write what was handed over, and close."""
        ...

    def take_behind(self, send: PendingSend) -> bool:
        """Take a send whose key waits, before its route is looked up."""
        ...

    def send_in_order(self, send: PendingSend, queue: MessageQueue) -> bool:
        """Take a send with an order, whose queue was chosen."""
        ...

    def take_parked(self, send: PendingSend, error: PocketMQError, settle: SendSettled, *, early: bool) -> bool:
        """Take a send that found no route. ``early``: earlier sends to its topic still wait for the route."""
        ...

    def take_section(self, section: Section, error: Exception, done: SectionSettled) -> bool:
        """Take a section that is not tried any more."""
        ...
