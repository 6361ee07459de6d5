"""What a producer does to its sends beside sending them: stages, each to be read alone.

Lives here: ``SendStage``, what a stage may override, and ``SendChain``, the stages of one producer.

    enter, enter_batch   before messages enter: look at them, change them, let them wait
    cut                  their section is closed and about to be sent
    settled              their section has its receipts, or its error

A producer calls only what its stages override; without stages it makes no call and no object for them.
"""

import asyncio
from asyncio import Future
from collections.abc import Callable, Sequence

from pocketmq.client.message.receipts import Receipt
from pocketmq.client.producer.pending_send import PendingSend
from pocketmq.client.sender.section import Section
from pocketmq.common.message import Message


class SendStage:
    """One concern of a producer; every method is called in its event loop, and must not block.

    ``body_bytes_max``: messages of topic, body and tags alone need not ``enter`` if their body has at most so many
    bytes: they take the short path. 0: every message must enter; None: none need to.
    """

    body_bytes_max: int | None = None

    async def start(self) -> None:
        """Begin, before the first message."""

    async def stop(self, timeout_s: float) -> None:
        """End, after the last message is settled."""

    def enter(self, send: PendingSend) -> "Future[None] | None":
        """Take a checked message before it is placed; return a future if it must wait, and its topic behind it.

        ``send.future`` will have its receipt; it is None for a oneway send. What is added to the message is not checked
        again, and ``send.plain`` must stay true of it.
        """

    def enter_batch(self, messages: Sequence[Message], future: "Future[Sequence[Receipt]]") -> None:
        """Take the checked messages of a ``send_batch``; ``future`` will have all receipts, or the error."""

    def cut(self, section: Section) -> None:
        """Take a section that is about to be sent for the first time, resends of the durable retry included."""

    def settled(self, section: Section, result: Sequence[Receipt] | Exception) -> None:
        """Take what became of a section, behind its callers; not of oneway sends. What it raises is logged."""


class SendChain:
    """The stages of one producer in the order in which they are called, sorted by what they override."""

    def __init__(self, stages: Sequence[SendStage]) -> None:
        self.stages = tuple(stages)
        self.entering: tuple[Callable[[PendingSend], Future[None] | None], ...] = tuple(
            stage.enter for stage in stages if type(stage).enter is not SendStage.enter
        )
        self.entering_batch: tuple[Callable[[Sequence[Message], Future[Sequence[Receipt]]], None], ...] = tuple(
            stage.enter_batch for stage in stages if type(stage).enter_batch is not SendStage.enter_batch
        )
        self.cutting: tuple[Callable[[Section], None], ...] = tuple(
            stage.cut for stage in stages if type(stage).cut is not SendStage.cut
        )
        self.settling: tuple[Callable[[Section, Sequence[Receipt] | Exception], None], ...] = tuple(
            stage.settled for stage in stages if type(stage).settled is not SendStage.settled
        )

    def body_bytes_max(self, limit: int) -> int:
        """Return up to which size a body may take the short path, ``limit`` at most."""
        return min([limit, *(stage.body_bytes_max for stage in self.stages if stage.body_bytes_max is not None)])

    def enter(self, send: PendingSend) -> None:
        """Let a send pass all stages."""
        for enter in self.entering:
            ready = enter(send)
            if ready is not None:
                send.ready = ready if send.ready is None else _both(send.ready, ready)


def _both(first: "Future[None]", second: "Future[None]") -> "Future[None]":
    async def wait() -> None:
        await asyncio.gather(first, second)

    return asyncio.ensure_future(wait())
