"""Ordered push consumption: 16 queues under the broker's locks, and what a stop costs those that wait.

Conditions of every row: messages of 1 KiB with a sharding key in one topic of 16 queues, read from the page cache, the
consumer in this process and the broker (with the name server) in another; offsets persisted every 5 s. The handlers
check the order of their queue, and nothing else; a row counts only if it holds.
"""

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from bench.base.harness import Row, fill, in_loop, own_broker, scaled
from bench.own.client.consume import ROUNDS, SIZE_BYTES, best, consume, hand_over
from pocketmq.client import Message, PushConsumer

QUEUES = 16
KEYS = 997
COUNT = scaled(300_000, 30_000)


async def _consume(namesrv: str, kind: str, number: int) -> Row:
    next_offset = [0] * QUEUES
    wrong = 0

    def subscribe(consumer: PushConsumer, saw: Callable[[int], None]) -> None:
        def check(message: Any) -> None:
            nonlocal wrong
            wrong += message.queue_offset != next_offset[message.queue_id]
            next_offset[message.queue_id] = message.queue_offset + 1
            saw(1)

        async def handle(message: Any) -> None:
            check(message)

        async def handle_batch(messages: list[Any]) -> None:
            for message in messages:
                check(message)

        if kind == "async":
            consumer.subscribe("ordered", ordered=True)(handle)
        else:
            consumer.subscribe_batch("ordered", max_messages=1000, ordered=True)(handle_batch)

    group = f"bench-ordered-{kind}-{number}"
    row = await consume(f"ordered, {kind} handler", namesrv, group, QUEUES, COUNT, subscribe)
    if wrong:
        raise AssertionError(f"{wrong} messages out of order")
    return row


async def _cases(namesrv: str) -> list[Row]:
    body = bytes(SIZE_BYTES)
    for topic, count in (("ordered", COUNT), ("ordered-few", QUEUES)):

        def make(number: int, topic: str = topic) -> Message:
            return Message(topic, body, sharding_key=f"k{number % KEYS}")

        await fill(namesrv, topic, QUEUES, count, make)
    rows = []
    for kind in ("async", "batch"):

        def one(number: int, kind: str = kind) -> Coroutine[Any, Any, Row]:
            return _consume(namesrv, kind, number)

        rows.append(await best(one))
    case = "ordered, graceful stop"
    return rows + [await hand_over(case, namesrv, "ordered-few", each, QUEUES, ordered=True) for each in range(ROUNDS)]


def run() -> Iterator[Row]:
    """Yield every case; of the throughputs the best of the rounds."""
    with own_broker() as broker:
        yield from in_loop(_cases(broker.namesrv))
