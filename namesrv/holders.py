"""Whether the broker that holds a place in the table still lives: the name server asks it over its own connection.

Lives here: ``Holders``: one question for each connection at a time, a deadline for each, a bound on those that wait.

A registration or a claim that would take the place of another one is held until the present holder has answered. So
nobody replaces a broker that works, and one whose connection is half open (its host has gone, its container has moved)
keeps nobody out for longer than ``timeout_ms``.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from pocketmq.common.errors import DECODE_ERRORS, Cause, PocketMQError
from pocketmq.remoting.codec import Response
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.body import decode_body
from pocketmq.remoting.protocol.ha import HaStatusBody
from pocketmq.remoting.server import Connection

WAITING_MAX: Final = 64
"""Requests that wait for answers of holders; more are refused at once."""
HOLDER_WAITING_MAX: Final = 8
"""Of them for one holder."""
WAITING_BYTES_MAX: Final = 32 << 20
"""Bytes of their bodies."""


class HolderBusy(PocketMQError):
    """Too many requests wait for answers of the brokers whose places they want; try again."""

    retriable = True
    default_cause = Cause.QUEUE_FULL


@dataclass(slots=True, frozen=True)
class Life:
    """What a holder answered. ``status`` None: it lives, and is RocketMQ's or of a version that reports no status."""

    lives: bool
    status: HaStatusBody | None = None

    def has_promised(self, epoch: int, owner: str) -> bool:
        """Return whether the broker has promised ``owner`` this epoch, or a later one of the same promotion."""
        status = self.status
        return status is not None and status.promised_owner == owner and epoch <= status.promised_epoch

    def gives_way(self, epoch: int, owner: str) -> bool:
        """Return whether a master lets ``owner`` take its place. A master that leads has promised its own epoch to
        itself: that is no reason to give way to another one that says so."""
        status = self.status
        is_own = status is not None and owner.startswith(f"{status.node_id}.")
        return self.has_promised(epoch, owner) and (not is_own or (status is not None and status.is_fenced))


GONE: Final = Life(False)
Done = Callable[[Life], None]


@dataclass(slots=True, eq=False)
class _Question:
    """One connection that was asked, and all that wait for its answer, with the bytes that each keeps."""

    waiting: list[tuple[Done, int]] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None


class Holders:
    """Asks holders. Loop thread. ``timeout_ms``: without an answer by then the holder counts as gone."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._questions: dict[Connection, _Question] = {}
        self._waiting = 0
        self._waiting_bytes = 0

    def ask(self, holder: Connection, size_bytes: int, done: Done) -> None:
        """Call ``done`` once, soon or within the timeout; ``size_bytes``: what the request that waits keeps.

        Raises ``HolderBusy``; then ``done`` is not called.
        """
        question = self._questions.get(holder)
        of_holder = 0 if question is None else len(question.waiting)
        is_full = self._waiting >= WAITING_MAX or of_holder >= HOLDER_WAITING_MAX
        if is_full or self._waiting_bytes + size_bytes > WAITING_BYTES_MAX:
            raise HolderBusy("not decided yet", why=f"{self._waiting} requests wait for answers of brokers")
        self._waiting += 1
        self._waiting_bytes += size_bytes
        if question is not None:
            question.waiting.append((done, size_bytes))
            return
        question = self._questions[holder] = _Question([(done, size_bytes)])
        loop = asyncio.get_running_loop()
        question.timer = loop.call_later(self._timeout_ms / 1000, self._answered, holder, question, GONE)
        holder.request_nowait(
            RequestCode.HA_STATUS,
            None,
            timeout_ms=self._timeout_ms,
            done=lambda result: self._answered(holder, question, _life(result)),
        )

    def _answered(self, holder: Connection, question: _Question, life: Life) -> None:
        if self._questions.get(holder) is not question:
            return
        del self._questions[holder]
        if question.timer is not None:
            question.timer.cancel()
        for done, size_bytes in question.waiting:
            self._waiting -= 1
            self._waiting_bytes -= size_bytes
            done(life)

    def close(self) -> None:
        """Forget all questions; those that wait are not answered."""
        for question in self._questions.values():
            if question.timer is not None:
                question.timer.cancel()
        self._questions.clear()
        self._waiting = self._waiting_bytes = 0


def _life(result: Response | PocketMQError) -> Life:
    if isinstance(result, PocketMQError):
        return GONE
    try:
        return Life(True, decode_body(result.body, HaStatusBody) if result.code == 0 and result.body else None)
    except (PocketMQError, *DECODE_ERRORS):  # it lives, whatever it answers
        return Life(True)
