"""How far the consumers of a synchronous master see.

Lives here: ``Shown``, the limit of the dispatch.

A consumer that has read a message goes on behind it. If another node is promoted that lacks the message, it stores
another one at the same queue offset, and the consumer skips that one. So a synchronous master shows what enough slaves
have confirmed (RocketMQ 5's controller mode has its confirmOffset for that). While too few slaves follow, or they
confirm nothing for ``slave_timeout``, it asks its name servers whether it still leads, and shows what it had stored
before it asked. A master that stood still and was replaced meanwhile gets no such answer.
"""

from typing import Final, Protocol

from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.runner import Runner, Worker
from pocketmq.store.ha.epochs import Epoch
from pocketmq.store.ha.members import ClaimEpoch
from pocketmq.store.message_store import MessageStore

ASK_EVERY_MS: Final = 50.0
"""While no slave confirms: consumers get messages so much later."""
ASK_AGAIN_MS: Final = 200.0
"""After a refusal, or without an answer."""


class Leader(Protocol):
    """The master's side of replication, as far as this module needs it; quick, any thread."""

    confirmed_offset: int

    @property
    def is_fenced(self) -> bool:
        """Whether another node has replaced this one."""
        ...

    @property
    def is_followed(self) -> bool:
        """Whether as many counted slaves are connected as a send waits for."""
        ...

    @property
    def epoch(self) -> Epoch | None:
        """The epoch of this run."""
        ...


class Shown:
    """The limit of one run's dispatch. ``limit`` and ``moved``: any thread; ``moved`` may dispatch a pass.

    A start finds queue entries of an earlier run that may not be confirmed: until they are, the store's ``reads_wait``
    is set.
    """

    def __init__(self, leader: Leader, store: MessageStore, clock: Clock, log: EventLog, timeout_ms: int) -> None:
        self.claim: ClaimEpoch | None = None
        """Asks the name servers; None without them."""
        self._leader = leader
        self._store = store
        self._clock = clock
        self._log = log
        self._timeout_ns = timeout_ms * 1_000_000
        self._allowed_offset = 0
        self._opens_at = 0
        self._worker: Worker | None = None
        self._is_asleep = True
        self._last_confirmed = -1
        self._waits_from_ns = 0
        self._reported = ""

    def start(self, runner: Runner, *, was_promoted: bool) -> None:
        """Limit the dispatch from now on. ``was_promoted``: this run is the first after another node's, so all nodes
        follow the log as it is."""
        self._worker = runner.start("ha-shown", self.step, first_after_ms=None)
        self._opens_at = self._store.log.committed_offset
        if was_promoted:
            self._allowed_offset = self._opens_at
        self._store.dispatcher.limit = self.limit
        self._store.reads_wait = True
        self.moved()

    def stop(self) -> None:
        """End the limit: the store closes, or opens in another role."""
        worker, self._worker = self._worker, None
        if worker is not None:
            self._store.dispatcher.limit = None
            worker.stop()

    def limit(self) -> int:
        """Return the end of what consumers may see."""
        leader, committed = self._leader, self._store.log.committed_offset
        end = max(leader.confirmed_offset, self._allowed_offset)
        if end < committed:
            if self.claim is None and not leader.is_followed and not leader.is_fenced:
                return committed  # no slave to wait for, no name server to ask
            if self._is_asleep and self._worker is not None:
                self._is_asleep = False
                self._worker.wake()
        return end

    def moved(self) -> None:
        """Show what may be seen since a slave has confirmed, come or gone, or since name servers have answered."""
        store, limit = self._store, self.limit()
        if store.reads_wait and limit >= self._opens_at and not self._leader.is_fenced:
            store.reads_wait = False
        store.short.show_held(limit)
        if store.dispatcher.dispatched_offset < limit:
            store.dispatcher.dispatch_here()

    def fenced(self) -> None:
        """Serve no more reads if consumers could get what is not confirmed."""
        if self._store.dispatched_offset > self._leader.confirmed_offset:
            self._store.reads_wait = True

    def step(self) -> float | None:
        """Ask the name servers while nothing is confirmed; return the ms until the next time."""
        self._is_asleep = True
        leader, end = self._leader, self._store.log.committed_offset
        if leader.is_fenced or max(leader.confirmed_offset, self._allowed_offset) >= end:
            self._last_confirmed = -1
            return None
        self._is_asleep = False
        if leader.is_followed:
            now_ns = self._clock.monotonic_ns()
            if leader.confirmed_offset != self._last_confirmed:
                self._last_confirmed, self._waits_from_ns = leader.confirmed_offset, now_ns
            left_ns = self._waits_from_ns + self._timeout_ns - now_ns
            if left_ns > 0:
                return left_ns / 1_000_000
        epoch, claim = leader.epoch, self.claim
        why = "" if claim is None or epoch is None else claim(epoch.number, epoch.owner)
        if why or leader.is_fenced:
            if why != self._reported:
                self._reported = why
                self._log.warning(
                    "unconfirmed_not_shown",
                    from_offset=max(leader.confirmed_offset, self._allowed_offset),
                    end_offset=end,
                    why=why or "another node leads",
                    hint="consumers get these messages once a slave confirms them, or a majority of the name servers"
                    " says that this master leads",
                )
            return ASK_AGAIN_MS
        self._reported = ""
        self._allowed_offset = end
        self.moved()
        return ASK_EVERY_MS
