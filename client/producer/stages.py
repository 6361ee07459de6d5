"""Concerns of a producer beside sending: stages, each readable alone.

Lives here: ``SendStage``, the methods that a stage may override. ``SendChain`` (``send_chain``) sorts the stages of one
producer by what they override: the producer calls nothing else, and without stages it makes no call and no object for
them.

    attach               the producer is made; ``port`` is its inner face
    start, ending, stop  its life: before the first message, when no more come, after the last is settled
    enter, enter_batch   before messages enter: inspect, change or delay them
    take, place          keep a send that another must precede: before its route is looked up, or with its queue
    unrouted             keep a send that found no route
    cut                  a section is closed and about to be sent
    failed keep a section that is no longer retried
    settled              a section has its receipts, or its error

A stage that counts what the brokers of a producer refuse:

    class Refusals(SendStage):
        def __init__(self) -> None:
            self.count: Counter[str] = Counter()

        def settled(self, section: Section, result: Sequence[Receipt] | Exception) -> None:
            if isinstance(result, PocketMQError):
                self.count[result.cause.value] += section.count

    producer = Producer("orders", namesrv, stages=[Refusals()])

Compression (``compression``), message trace (``send_trace``), OpenTelemetry (``send_telemetry``) and durable retry
(``client.durable.retry``) are stages.
"""

from asyncio import Future
from collections.abc import Callable, Sequence

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.producer.pending_send import PendingSend
from pocketmq.client.producer.send_port import SendPort
from pocketmq.client.sender.section import Section
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message import Message

SectionSettled = Callable[[Section, list[Receipt] | Exception], None]
"""Called once with a section that a stage took over, and its receipts or the error of all its messages."""


class SendStage:
    """One concern of a producer; every method is called in its event loop, and must not block.

    ``body_bytes_max``: messages of topic, body and tags alone need not ``enter`` if their body has at most so many
    bytes: they take the short path. 0: every message must enter; None: none need to.

    ``keeps_order``: the stage keeps the order of messages with a sharding key or a selector. Only then are ``take`` and
    ``place`` called, and batches with sharding keys are sent message by message.
    """

    body_bytes_max: int | None = None
    keeps_order: bool = False

    # -- life --------------------------------------------------------------------------------------------------

    def attach(self, port: SendPort) -> None:
        """Become a stage of the producer behind ``port``, at its construction. Raises ``ConfigError`` to refuse it."""

    async def start(self) -> None:
        """Begin, before the first message. If it raises, the producer does not start, and stops what has begun."""

    async def ending(self, timeout_s: float) -> None:
        """Finish the stage's own sends: no caller sends now, and the connections are still open."""

    async def stop(self, timeout_s: float) -> None:
        """End, after the last message is settled; the stage that started last stops first.

        Also called for a stage whose ``start`` failed, or has not returned yet.
        """

    # -- messages ----------------------------------------------------------------------------------------------

    def enter(self, send: PendingSend) -> "Future[None] | None":
        """Take a checked message before it is placed; return a future if it must wait, and its topic behind it.

        ``send.future`` will have its receipt; it is None for a oneway send. Changes to the message are not checked
        again, and ``send.plain`` must stay true of it. ``send.message`` may be replaced by a copy.
        """

    def enter_batch(self, messages: list[Message], future: "Future[Sequence[Receipt]]") -> None:
        """Take the checked messages of a ``send_batch``; ``future`` will have all receipts, or the error.

        A message in the list may be replaced by one that differs in its properties; these are not checked again.
        """

    def take(self, send: PendingSend) -> bool:
        """Take over a send before its route is looked up; return False to let it go on.

        A send taken here or in ``place`` belongs to the stage: it calls ``port.hold(send)`` now and ``port.settle(send,
        result)`` once. Neither is called for oneway sends. The caller of ``send`` gets their exceptions.
        """
        return False

    def place(self, send: PendingSend, queue: MessageQueue) -> bool:
        """Take over a send whose queue a key or a selector has chosen; return False to let it go on. See ``take``."""
        return False

    def unrouted(self, send: PendingSend, error: PocketMQError, *, early: bool) -> bool:
        """Take over a send that found no route; return False to let it fail with ``error``.

        It is held already: the stage calls ``port.settle(send, result)`` once. ``early``: earlier sends to its topic
        still wait for the route. An exception is logged, and the send fails.
        """
        return False

    # -- sections ----------------------------------------------------------------------------------------------

    def cut(self, section: Section) -> None:
        """Take a section that is about to be sent for the first time, resends of the durable retry included."""

    def failed(self, section: Section, error: Exception, done: SectionSettled) -> bool:
        """Take over a section that is no longer retried; return False to let it fail with ``error``.

        The stage calls ``done`` once. Not called for oneway sends, nor for sections that a stage sent by ``port.send``.
        An exception is logged, and the section fails.
        """
        return False

    def settled(self, section: Section, result: Sequence[Receipt] | Exception) -> None:
        """Take the result of a section, after its callers; not of oneway sends. An exception is logged."""
