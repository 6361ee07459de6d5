"""The next attempt after a failed one: which broker, after which pause, with which token, for how long.

Lives here: ``AttemptPlan``: combines one producer's retry policy, retry budget, fault items and the order of keyed
sends.
"""

import asyncio
import random

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.connection.route import RouteTable, TopicRoute
from pocketmq.client.errors import Attempt
from pocketmq.client.message.receipts import SendStatus
from pocketmq.client.sender.queue_choice import QueueChooser
from pocketmq.client.sender.retry import ATTEMPT_MS_MIN, Decision, RetryPolicy, is_queue_unknown
from pocketmq.client.sender.retry_budget import Room
from pocketmq.client.sender.retry_gate import RetryGate
from pocketmq.client.sender.section import Section
from pocketmq.common.clock import Clock
from pocketmq.common.errors import Cause, Stored

OVERTAKEN = "it was overtaken: a later message for its queue has been sent meanwhile"
NOT_SURE = "its queue was chosen, and the broker did not say that nothing was stored: a retry could break the order"


class AttemptPlan:
    """Decides about the attempts of one producer. Belongs to its event loop."""

    def __init__(
        self,
        policy: RetryPolicy,
        gate: RetryGate,
        chooser: QueueChooser,
        routes: RouteTable,
        clock: Clock,
        rng: random.Random,
        *,
        retry_another_broker_when_not_store_ok: bool = False,
    ) -> None:
        self.policy = policy
        self.gate = gate
        self.budget = gate.budget
        self.chooser = chooser
        self.faults = chooser.faults
        self._not_store_ok = retry_another_broker_when_not_store_ok
        self._routes = routes
        self._clock = clock
        self._random = rng
        self._orders: dict[MessageQueue, int] = {}
        self._order = 0

    # -- before an attempt -------------------------------------------------------------------------------------

    def until_ns(self, section: Section, now_ns: int) -> int:
        """Return the time limit of the attempt that starts now."""
        may_move = section.may_move and len(section.attempts) + 1 < section.attempts_max and self.others(section)
        if not may_move and self.policy.attempt_timeout_ms is None:
            return section.deadline_ns
        left_ms = section.left_ms(now_ns)
        limit_ms = self.policy.attempt_ms(left_ms, may_move)
        return section.deadline_ns if limit_ms >= left_ms else now_ns + int(limit_ms * 1_000_000)

    def others(self, section: Section) -> bool:
        """Return whether the topic has another broker."""
        route = self._routes.get(section.queue.topic)
        if route is None or not route.write_queues:
            return False
        queues = route.write_queues  # sorted by broker: the first and the last differ if any do
        name = section.queue.broker_name
        return queues[0].broker_name != name or queues[-1].broker_name != name

    async def prepare(self, section: Section, route: TopicRoute) -> Decision:
        """Prepare a section for a further attempt: choose a queue, wait out the pause, take a token."""
        attempts = section.attempts
        last = attempts[-1].broker
        queue_unknown = is_queue_unknown(attempts[-1])
        charged = any(attempt.offered and not is_queue_unknown(attempt) for attempt in attempts)
        while True:
            if section.may_move:
                barred = self._barred(route) if charged else set()
                if section.doubtful is not None:
                    barred |= {attempt.broker for attempt in attempts}
                queue = self.chooser.again(route, {attempt.broker for attempt in attempts}, last, barred)
                if queue is None:
                    return self._nowhere(section, barred)
                if queue_unknown and route.borrowed:  # name servers do not know the topic yet: every topic has queue 0
                    queue = MessageQueue(queue.topic, queue.broker_name, 0)
                section.queue, section.queue_id = queue, queue.queue_id
            elif charged and self.budget.room(section.queue.broker_name) is Room.EMPTY:
                return self._nowhere(section, {section.queue.broker_name})
            broker = section.queue.broker_name
            here = [attempt for attempt in attempts if attempt.broker == broker]
            if here and not queue_unknown:  # a broker not tried yet, or with a wrong queue, is tried at once
                left_ms = section.left_ms(self._clock.monotonic_ns())
                pause_ms = self.policy.pause_ms(len(here), here[-1].retry_after_ms, left_ms, self._random)
                if pause_ms is None:
                    why = f"{broker} asked to wait {here[-1].retry_after_ms} ms"
                    why += f", longer than the {max(left_ms, 0):.0f} ms that are left of this send"
                    return Decision(False, why, here[-1].answer_code < 0)
                await asyncio.sleep(pause_ms / 1000)
            if not charged:
                return Decision(True)
            try:
                entered = await self.gate.enter(broker, section.left_ms(self._clock.monotonic_ns()))
            except TimeoutError:
                return Decision(False, f"no time is left: other retries to {broker} are not answered", True)
            if entered:
                section.charged = broker
                return Decision(True)

    def _barred(self, route: TopicRoute) -> set[str]:
        if self.budget.free:
            return set()
        return {name for name in route.write_brokers() if self.budget.room(name) is Room.EMPTY}

    @staticmethod
    def _nowhere(section: Section, barred: set[str]) -> Decision:
        if section.doubtful is not None:
            return Decision(False, "no other broker can be tried")
        return Decision(False, f"the retry budget is empty: too many retries in vain ({', '.join(sorted(barred))})")

    # -- after an attempt --------------------------------------------------------------------------------------

    def answered(self, broker: str, sent_ns: int, now_ns: int) -> None:
        """Note an answer that confirms storage: its latency shows whether the broker is slow."""
        faults = self.faults
        if faults is not None:
            latency_ms = (now_ns - sent_ns) / 1e6
            if latency_ms >= faults.slow_ms or faults.avoided:
                faults.update(broker, latency_ms, now_ns)

    def delivered(self, section: Section) -> None:
        """Give the token of a retry back: it succeeded."""
        if section.charged:
            broker, section.charged = section.charged, ""
            self.gate.leave(broker, in_vain=False)

    def failed(self, section: Section, attempt: Attempt, now_ns: int) -> Decision:
        """Record a failed attempt, and decide whether there is another one."""
        section.attempts.append(attempt)
        if section.charged:
            broker, section.charged = section.charged, ""
            self.gate.leave(broker, in_vain=attempt.offered)
        if self.faults is not None:
            self._note_fault(attempt, now_ns)
        left_ms = section.left_ms(now_ns)
        if section.may_move and left_ms >= ATTEMPT_MS_MIN and self._is_first_queue_unknown(section):
            return Decision(True)  # beside the attempts that are allowed: the route was wrong, no broker failed
        attempts_max = section.attempts_max
        in_vain = sum(map(_reached_nobody, section.attempts))
        if in_vain == len(section.attempts) or not self.others(section):  # they restart, or start: waiting helps
            attempts_max += in_vain
        decision = self.policy.decide(section.attempts, attempts_max, left_ms)
        if decision.again and not section.may_move:
            if not self._surely_not_stored(section):
                return Decision(False, NOT_SURE)
            if self.overtaken(section):
                return Decision(False, OVERTAKEN)
        return decision

    def wants_better(self, section: Section, status: SendStatus) -> bool:
        """Return whether a stored message also goes to another broker (``retryAnotherBrokerWhenNotStoreOK``)."""
        return (
            self._not_store_ok
            and status is not SendStatus.SEND_OK
            and section.may_move
            and not section.oneway
            and self.others(section)
        )

    def _note_fault(self, attempt: Attempt, now_ns: int) -> None:
        """Isolate a broker that failed (DefaultMQProducerImpl.sendDefaultImpl).

        Not for an answer about the message itself, whose code is not retried, and not for limits of this client.
        """
        assert self.faults is not None
        if attempt.phase in ("connect", "send"):
            self.faults.update(attempt.broker, attempt.elapsed_ms, now_ns, isolation=True, reachable=False)
        elif attempt.phase == "answer" and attempt.answer_code in self.policy.retry_response_codes:
            self.faults.update(attempt.broker, attempt.elapsed_ms, now_ns, isolation=True)
        elif attempt.phase == "stored":
            self.faults.update(attempt.broker, attempt.elapsed_ms, now_ns)

    # -- the order of a chosen queue ---------------------------------------------------------------------------

    def entered(self, section: Section) -> None:
        """Number a section whose queue was chosen by key or by the user."""
        self._order += 1
        section.order = self._orders[section.queue] = self._order

    def overtaken(self, section: Section) -> bool:
        """Return whether a later section for its queue has been handed over since."""
        return self._orders.get(section.queue) != section.order

    def left(self, section: Section) -> None:
        """Forget a settled section's number."""
        if self._orders.get(section.queue) == section.order:
            del self._orders[section.queue]

    @staticmethod
    def _is_first_queue_unknown(section: Section) -> bool:
        *before, last = section.attempts
        return is_queue_unknown(last) and not any(map(is_queue_unknown, before))

    @staticmethod
    def _surely_not_stored(section: Section) -> bool:
        return all(
            attempt.stored is Stored.NO and (attempt.phase != "answer" or attempt.cause is not None)
            for attempt in section.attempts
        )


def _reached_nobody(attempt: Attempt) -> bool:
    """Return whether no broker served it: none was connected, or it was about to end."""
    return attempt.cause is Cause.SHUTTING_DOWN or attempt.phase == "connect"
