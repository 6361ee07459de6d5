"""Push consumption: handlers that do nothing, a hundred consumers that join at once, a stop that hands queues over.

Conditions of every row: messages of 1 KiB in one topic of 8 queues, read from the page cache, the consumer in this
process and the broker (with the name server) in another; offsets persisted every 5 s.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from bench.base.harness import Row, fill, in_loop, own_broker, scaled
from pocketmq.client import ClientInstance, ConsumeFromWhere, Message, PushConsumer

SIZE_BYTES = 1024
QUEUES = 8
COUNT = scaled(400_000, 40_000)
ROUNDS = scaled(3, 1)
CONSUMERS = scaled(100, 20)
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


async def consume(
    case: str, namesrv: str, group: str, queues: int, count: int, subscribe: Callable[[PushConsumer, Any], None]
) -> Row:
    """Time from the first to the last message of a group of its own; ``subscribe(consumer, saw)`` sets its handler."""
    consumer = PushConsumer(group, namesrv, consume_from_where=FIRST)
    seen, begin, end = 0, 0.0, asyncio.Event()

    def saw(number: int) -> None:
        nonlocal seen, begin
        if not seen:
            begin = time.perf_counter()
        seen += number
        if seen >= count:
            end.set()

    subscribe(consumer, saw)
    cpu_s = time.process_time()
    async with consumer:
        await end.wait()
        elapsed_s = time.perf_counter() - begin
        cpu_s = time.process_time() - cpu_s
    return {
        "case": case,
        "messages_per_s": round(count / elapsed_s),
        "client_cpu_us": round(cpu_s / count * 1e6, 2),
        "size_bytes": SIZE_BYTES,
        "queues": queues,
        "count": count,
    }


async def best(measure: Callable[[int], Coroutine[Any, Any, Row]]) -> Row:
    """Return the best of ``ROUNDS``."""
    return max([await measure(number) for number in range(ROUNDS)], key=lambda row: float(str(row["messages_per_s"])))


def member(namesrv: str, group: str, topic: str, number: int, *, ordered: bool = False) -> PushConsumer:
    """Return one member of a group, with a client of its own and a handler that does nothing."""
    instance = ClientInstance(namesrv, instance_name=f"{group}-{number}")
    consumer = PushConsumer(group, instance=instance, consume_from_where=FIRST)
    consumer.subscribe(topic, ordered=ordered)(_nothing)
    return consumer


async def hand_over(case: str, namesrv: str, topic: str, number: int, queues: int, *, ordered: bool = False) -> Row:
    """Time from the call of ``stop`` until the other member of the group has the queues (and their locks)."""
    group = f"bench-hand-{topic}-{number}"
    stays, leaves = (member(namesrv, group, topic, each, ordered=ordered) for each in range(2))
    await stays.start()
    await leaves.start()
    while len(stays.assigned) != queues // 2 or len(leaves.assigned) != queues // 2:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    begin = time.perf_counter()
    stopping = asyncio.create_task(leaves.stop())
    while len(stays.assigned) != queues:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    handed_ms = (time.perf_counter() - begin) * 1000
    await stopping
    await stays.stop()
    return {"case": case, "handed_over_ms": round(handed_ms, 1), "queues": queues // 2}


async def _settle(namesrv: str, topic: str, queues: int) -> Row:
    """Time from the first start until every queue has exactly one reader and every consumer its share."""
    members = [member(namesrv, "bench-settle", topic, number) for number in range(CONSUMERS)]
    share = queues // CONSUMERS
    begin = time.perf_counter()
    await asyncio.gather(*(each.start() for each in members))
    while time.perf_counter() - begin < 60:
        held = [queue for each in members for queue in each.assigned]
        if len(held) == queues == len(set(held)) and all(len(each.assigned) == share for each in members):
            break
        await asyncio.sleep(0.01)
    settled_s = time.perf_counter() - begin
    await asyncio.gather(*(each.stop() for each in members))
    return {"case": f"{CONSUMERS} consumers join at once", "settle_s": round(settled_s, 2), "queues": queues}


def _subscribe(kind: str, consumer: PushConsumer, saw: Callable[[int], None]) -> None:
    async def handle(message: Any) -> None:
        saw(1)

    async def handle_batch(messages: list[Any]) -> None:
        saw(len(messages))

    if kind == "async":
        consumer.subscribe("push")(handle)
    elif kind == "batch":
        consumer.subscribe_batch("push", max_messages=1000)(handle_batch)
    else:
        loop = asyncio.get_running_loop()
        consumer.subscribe("push")(lambda message: loop.call_soon_threadsafe(saw, 1) and None)


async def _nothing(message: Any) -> None:
    pass


async def _cases(namesrv: str) -> list[Row]:
    body = bytes(SIZE_BYTES)
    wide = 2 * CONSUMERS
    for topic, queues, count in (("push", QUEUES, COUNT), ("quiet", QUEUES, QUEUES), ("wide", wide, wide)):
        await fill(namesrv, topic, queues, count, lambda _, topic=topic: Message(topic, body))  # type: ignore[misc]
    rows = []
    for kind in ("async", "batch", "plain"):

        def one(number: int, kind: str = kind) -> Coroutine[Any, Any, Row]:
            group = f"bench-{kind}-{number}"
            case = f"push, {kind} handler"
            return consume(case, namesrv, group, QUEUES, COUNT, lambda made, saw: _subscribe(kind, made, saw))

        rows.append(await best(one))
    for topic, state in (("quiet", "drained"), ("push", "backlog")):
        case = f"graceful stop, queues handed over, {state}"
        rows += [await hand_over(case, namesrv, topic, number, QUEUES) for number in range(ROUNDS)]
    return [*rows, await _settle(namesrv, "wide", wide)]


def run() -> Iterator[Row]:
    """Yield every case; of the throughputs the best of the rounds."""
    with own_broker() as broker:
        yield from in_loop(_cases(broker.namesrv))
