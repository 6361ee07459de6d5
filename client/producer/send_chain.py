"""The stages of one producer, sorted by what they override.

Lives here: ``SendChain``.
"""

import asyncio
from asyncio import Future
from collections.abc import Callable, Sequence
from typing import Any

from pocketmq.client.message.receipts import Receipt
from pocketmq.client.producer.pending_send import PendingSend, SendHooks
from pocketmq.client.producer.send_port import SendPort
from pocketmq.client.producer.stages import SectionSettled, SendStage
from pocketmq.client.sender.section import Section
from pocketmq.common.errors import PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.common.message import Message


class SendChain:
    """Stages in the order in which they are called. ``log`` gets their faults.

    A hook that no stage overrides is an empty tuple or None: the producer makes no call for it.
    """

    def __init__(self, stages: Sequence[SendStage], log: EventLog) -> None:
        self.stages = tuple(stages)
        self._log = log
        self._begun: list[SendStage] = []
        in_order = [stage for stage in stages if stage.keeps_order]
        self.keeps_order = bool(in_order)
        """Whether batches with sharding keys are sent message by message."""
        self.entering: tuple[Callable[[PendingSend], Future[None] | None], ...] = _overriding("enter", stages)
        self.entering_batch: tuple[Callable[[list[Message], Future[Sequence[Receipt]]], None], ...]
        self.entering_batch = _overriding("enter_batch", stages)
        self.taking: tuple[Callable[[PendingSend], bool], ...] = _overriding("take", in_order)
        self.placing: tuple[Callable[..., bool], ...] = _overriding("place", in_order)
        self.keeping_unrouted: tuple[Callable[..., bool], ...] = _overriding("unrouted", stages)
        self.cutting: tuple[Callable[[Section], None], ...] = _overriding("cut", stages)
        self.keeping_failed: tuple[Callable[..., bool], ...] = _overriding("failed", stages)
        self.settling: tuple[Callable[[Section, Sequence[Receipt] | Exception], None], ...]
        self.settling = _overriding("settled", stages)

    def passes_plain(self) -> bool:
        """Return whether plain messages whose body is small enough for ``hooks`` meet no stage unless they fail."""
        enters = [stage for stage in self.stages if type(stage).enter is not SendStage.enter]
        seen = self.taking or self.cutting or self.settling or any(stage.body_bytes_max is None for stage in enters)
        return not seen

    def hooks(self, max_message_size: int) -> SendHooks:
        """Return the stages' calls for single sends; no body of more than ``max_message_size`` is sent."""
        sizes = [stage.body_bytes_max for stage in self.stages if stage.body_bytes_max is not None]
        return SendHooks(
            body_bytes_max=min([max_message_size, *sizes]),
            enter=self._enter if self.entering else None,
            take=_first_of(self.taking),
            place=_first_of(self.placing),
            unrouted=self._keep_unrouted if self.keeping_unrouted else None,
        )

    # -- life --------------------------------------------------------------------------------------------------

    def attach(self, port: SendPort) -> None:
        """Attach all stages to their producer."""
        for stage in self.stages:
            stage.attach(port)

    async def start(self) -> None:
        """Start all stages in order."""
        for stage in self.stages:
            self._begun.append(stage)
            await stage.start()

    async def ending(self, timeout_s: float) -> None:
        """Let the stages that have begun finish what they send, the last first."""
        for stage in self._begun[::-1]:
            await stage.ending(timeout_s)

    async def stop(self, timeout_s: float) -> None:
        """Stop the stages that have begun, the last first."""
        while self._begun:
            await self._begun.pop().stop(timeout_s)

    # -- hooks -------------------------------------------------------------------------------------------------

    def _enter(self, send: PendingSend) -> None:
        for enter in self.entering:
            ready = enter(send)
            if ready is not None:
                send.ready = ready if send.ready is None else _both(send.ready, ready)

    def _keep_unrouted(self, send: PendingSend, error: PocketMQError, *, early: bool) -> bool:
        for keep in self.keeping_unrouted:
            try:
                if keep(send, error, early=early):
                    return True
            except Exception as fault:  # its caller must not wait forever
                self._fault(fault)
        return False

    def keep_failed(self, section: Section, error: Exception, done: SectionSettled) -> bool:
        """Offer a failed section to one stage after another; return whether one took it over."""
        for keep in self.keeping_failed:
            try:
                if keep(section, error, done):
                    return True
            except Exception as fault:
                self._fault(fault)
        return False

    def _fault(self, fault: Exception) -> None:
        self._log.error("send_stage_failed", error=repr(fault), exc_info=fault)


def _overriding(hook: str, stages: Sequence[SendStage]) -> tuple[Any, ...]:
    """Return the method ``hook`` of each stage that has one of its own."""
    return tuple(getattr(stage, hook) for stage in stages if getattr(type(stage), hook) is not getattr(SendStage, hook))


def _first_of(calls: tuple[Callable[..., bool], ...]) -> Callable[..., bool] | None:
    """Return a function that calls one after the other until one takes over; None for no calls."""
    if len(calls) <= 1:
        return calls[0] if calls else None
    return lambda *arguments: any(call(*arguments) for call in calls)


def _both(first: "Future[None]", second: "Future[None]") -> "Future[None]":
    async def wait() -> None:
        await asyncio.gather(first, second)

    return asyncio.ensure_future(wait())
