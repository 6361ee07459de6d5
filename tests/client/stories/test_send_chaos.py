"""Brokers that answer at random: every send ends, no resource leaks, keyed messages keep their order."""

import asyncio
import random
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest

from pocketmq.client import Message, NoRoute, Producer, RemotingTooMuchRequestError, SendFailed
from pocketmq.common.errors import Stored
from pocketmq.common.record_columns import received_messages
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.send import NativeAppendResponseHeader

pytestmark = pytest.mark.slow

FACTS = {"cause": "queue_full", "stored": "no", "retry_after_ms": "5"}


class Chaos:
    """Answers of brokers; keeps the stored messages, in order, by queue."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.stored: dict[Any, list[bytes]] = defaultdict(list)
        self.copies: Counter[str] = Counter()

    def __call__(self, connection: Any, request: Any) -> Any:
        kind = self.random.random()
        if kind < 0.25:
            return ResponseCode.SYSTEM_BUSY, "[OVERLOAD]", None, b"", FACTS
        if kind < 0.30:
            return ResponseCode.SYSTEM_BUSY, "no facts", None, b""
        if kind < 0.33:
            return None  # silent, and not stored
        if kind < 0.36:
            connection.abort("chaos")
            return None
        results: Any = []
        body = memoryview(request.body)
        count = sum(each[2] for each in request.header.sections)
        sizes = np.frombuffer(body[: 4 * count], ">u4").astype(np.int64)
        messages = received_messages(memoryview(bytearray(body[4 * count :])), sizes, "b")
        at = 0
        for topic, queue_id, records in request.header.sections:
            if self.random.random() < 0.1:
                results.append((int(ResponseCode.TOPIC_NOT_EXIST), -1, [], "not now"))
            else:
                code = self.random.choice([0, 0, 0, 0, 10, 12])
                results.append((code, 0, [(0, records)], ""))
                for message in messages[at : at + records]:
                    self.stored[id(self), connection.local, topic, queue_id].append(message.body)
                    self.copies[message.msg_id] += 1
            at += records
        if self.random.random() < 0.05:
            return None  # stored, and the answer is lost
        return ResponseCode.SUCCESS, "", NativeAppendResponseHeader(1, results), b""


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (0, 2, 3, 4, 5))])
async def test_every_send_ends_and_nothing_is_left_behind(cluster: Any, seed: int) -> None:
    """Receipts are true, and so are errors that report "not stored"; no byte, permit or token leaks."""
    chaos = {name: Chaos(seed * 10 + number) for number, name in enumerate("abc")}
    for name, each in chaos.items():
        (await cluster.add(name)).answers[RequestCode.NATIVE_APPEND] = each
    cluster.topics["T"] = cluster.topics["U"] = ["a", "b", "c"]
    rng = random.Random(seed)
    options: Any = {
        "retry_another_broker_when_not_store_ok": bool(seed % 2),
        "send_latency_fault_enable": bool(seed % 3),
        "retry_budget_floor": 10 if seed % 2 else 1,
        "in_flight_sends_max": 40,
    }
    async with Producer("g", cluster.namesrv.address, send_msg_timeout_ms=700, **options) as producer:

        async def send(number: int) -> Any:
            await asyncio.sleep(rng.random() * 0.5)
            kind = rng.random()
            timeout_ms = None if rng.random() < 0.7 else rng.randint(50, 900)
            message = Message(rng.choice("TU"), b"%d" % number, sharding_key="k" if kind < 0.3 else "")
            if kind > 0.9:
                return (await producer.send_batch([message, message], timeout_ms=timeout_ms))[0]
            return await producer.send(message, timeout_ms=timeout_ms)

        async with asyncio.timeout(100):
            results = await asyncio.gather(*(send(number) for number in range(250)), return_exceptions=True)
        while all(isinstance(result, BaseException) for result in results):  # on a machine too slow for any message
            results += await asyncio.gather(send(len(results)), return_exceptions=True)
        held, budget = producer.in_flight, producer.retry_budget
        assert (held.bytes_held, held.sends, held.oneways, held.full) == (0, 0, 0, False)
        assert all(bucket.out == 0 for bucket in budget._buckets.values())
    copies = sum((each.copies for each in chaos.values()), Counter[str]())
    receipts = [result for result in results if not isinstance(result, BaseException)]
    assert receipts
    for receipt in receipts:
        assert copies[receipt.msg_id] >= 1
        assert copies[receipt.msg_id] == 1 or receipt.duplicate_possible
    stored_bodies = {body for each in chaos.values() for bodies in each.stored.values() for body in bodies}
    for number, result in enumerate(results):
        if isinstance(result, SendFailed):
            assert result.attempts
            if result.stored is Stored.NO:
                assert b"%d" % number not in stored_bodies
        elif isinstance(result, NoRoute):
            assert "timed out" in str(result)  # a short time may end before the route is there
        elif isinstance(result, BaseException):
            assert isinstance(result, RemotingTooMuchRequestError), repr(result)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (0, 2, 3))])
async def test_pipelined_keyed_sends_keep_their_order(cluster: Any, seed: int) -> None:
    """A queue holds a key's messages in the order of the sends, with possible gaps, whatever was retried."""
    each = Chaos(seed)
    (await cluster.add("a")).answers[RequestCode.NATIVE_APPEND] = each
    cluster.topics["T"] = ["a"]
    rng = random.Random(seed)
    async with Producer("g", cluster.namesrv.address, send_msg_timeout_ms=400, retry_budget_floor=50) as producer:
        futures = []
        for number in range(150):
            futures.append(producer.send_nowait(Message("T", b"%d" % number, sharding_key="k")))
            await asyncio.sleep(rng.choice([0, 0, 0.002, 0.02]))
        async with asyncio.timeout(100):
            await asyncio.gather(*futures, return_exceptions=True)
            while not any(each.stored.values()):  # on a machine too slow for any message
                futures.append(producer.send_nowait(Message("T", b"%d" % len(futures), sharding_key="k")))
                await asyncio.gather(futures[-1], return_exceptions=True)
    order = [int(body) for bodies in each.stored.values() for body in bodies]
    assert order == sorted(order)
    assert len(order) == len(set(order))
