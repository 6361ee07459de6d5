"""One round of pulls over all brokers that hold the queues: read the available messages, else wait for the first broker
that has some.

Lives here: ``next_round``, used by polls and streams alike.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.pull.pull_wire import PullResult, PullWire
from pocketmq.client.pull.subscription import Subscription
from pocketmq.remoting.codes import ResponseCode

QUEUES_PER_PULL_MAX = 1024
"""Queues in one native pull (BrokerConfig.native_pull_queues_max); more take turns."""
TYPED_PAUSE_S = 0.1
"""Pause after a round in which RocketMQ brokers had nothing: they hold pulls of one queue only, and no short ones."""


@dataclass(slots=True)
class Round:
    """The result of a round. ``before`` and ``after``: positions of the queues pulled, in offsets."""

    results: list[PullResult] = field(default_factory=list)
    before: dict[MessageQueue, int] = field(default_factory=dict)
    after: dict[MessageQueue, int] = field(default_factory=dict)

    @property
    def moved(self) -> bool:
        """Whether any position changed: messages were found or skipped, or an offset was corrected."""
        return self.before != self.after

    def take(self, results: Sequence[PullResult]) -> None:
        """Add one broker's answer."""
        for result in results:
            self.results.append(result)
            for queue in result.queues:
                if queue.code != ResponseCode.PULL_NOT_FOUND:
                    self.after[queue.queue] = queue.next_offset


async def next_round(
    wire: PullWire,
    positions: Mapping[MessageQueue, int],
    queues: Sequence[MessageQueue],
    subscription: Subscription | None,
    *,
    max_messages: int,
    max_bytes: int,
    suspend_ms: int,
    turn: int = 0,
) -> Round:
    """Pull from every broker once; if there are no messages, wait up to ``suspend_ms`` until one broker has some.

    With one broker that is a single request. ``max_messages`` holds per broker that takes native pulls.
    """
    by_broker: dict[str, list[tuple[MessageQueue, int]]] = {}
    for queue in queues:
        by_broker.setdefault(queue.broker_name, []).append((queue, positions[queue]))
    for name, asked in by_broker.items():
        if len(asked) > QUEUES_PER_PULL_MAX:
            first = turn * QUEUES_PER_PULL_MAX % len(asked)
            by_broker[name] = (asked[first:] + asked[:first])[:QUEUES_PER_PULL_MAX]
    done = Round()
    for asked in by_broker.values():
        done.before.update(asked)
    done.after.update(done.before)

    def pull(name: str, hold_ms: int) -> Any:
        return wire.pull(
            name, by_broker[name], subscription, max_messages=max_messages, max_bytes=max_bytes, suspend_ms=hold_ms
        )

    names = list(by_broker)
    if len(names) == 1:
        results = await pull(names[0], suspend_ms)
        done.take(results)
        await _pause(done, suspend_ms)
        return done
    answers = await asyncio.gather(*(pull(name, 0) for name in names), return_exceptions=True)
    errors = [answer for answer in answers if isinstance(answer, BaseException)]
    for answer in answers:
        if not isinstance(answer, BaseException):
            done.take(answer)
    if errors and not done.moved:
        raise errors[0]
    if done.moved or suspend_ms <= 0:
        return done
    tasks = [asyncio.ensure_future(pull(name, suspend_ms)) for name in names]
    try:
        waiting = set(tasks)
        while waiting and not done.moved:
            finished, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in finished:
                done.take(task.result())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await _pause(done, suspend_ms)
    return done


async def _pause(done: Round, suspend_ms: int) -> None:
    """Pause briefly if nothing came and a broker may not have held its pull: the caller pulls again."""
    if suspend_ms and not done.moved and any(result.sizes is None for result in done.results):
        await asyncio.sleep(min(TYPED_PAUSE_S, suspend_ms / 1000))
