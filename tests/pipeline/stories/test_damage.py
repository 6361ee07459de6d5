"""Damaged messages through a broker: found, named by topic, queue and offset, and skipped where the user says so."""

import asyncio
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pocketmq.client import Message, Producer, PullConsumer
from pocketmq.client.admin.admin import Admin
from pocketmq.client.pull.pull_wire import PullResult, PullWire
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.pipeline.errors import DataLost
from pocketmq.pipeline.source.positions import QueueRange
from pocketmq.pipeline.source.range_reader import ReadPlan, read_ranges
from pocketmq.pipeline.source.source import PocketMQSource
from pocketmq.testing import PocketBroker

COUNT = 100
BAD = (0, 41, 42, 99)


@pytest.fixture(scope="module")
def broker() -> Iterator[PocketBroker]:
    """Start one broker."""
    with PocketBroker() as running:
        yield running


def fill(broker: PocketBroker, topic: str) -> None:
    """Send ``COUNT`` numbered messages, every second one with the tag A, to a topic of one queue."""

    async def run() -> None:
        async with Admin(broker.namesrv) as admin:
            await admin.create_topic(topic, queues=1)
        async with Producer(group="test", namesrv=broker.namesrv) as producer:
            await producer.send_batch(
                [Message(topic, b"%06d of " % n + topic.encode(), tags="AB"[n % 2]) for n in range(COUNT)]
            )

    asyncio.run(run())


def damage(broker: PocketBroker, topic: str, kind: str, numbers: tuple[int, ...] = BAD) -> None:
    """Change stored records behind the broker's back: a bit of the body, or zeros over the head."""
    segment = min(Path(broker.data_dir, "commitlog").iterdir())
    log = segment.read_bytes()
    file = os.open(segment, os.O_RDWR)
    try:
        for number in numbers:
            body = log.index(b"%06d of " % number + topic.encode())
            if kind == "body":
                os.pwrite(file, bytes([log[body] ^ 1]), body)
            else:
                os.pwrite(file, bytes(40), body - 88)
    finally:
        os.close(file)


def plan_of(broker: PocketBroker, **changed: Any) -> ReadPlan:
    plan = ReadPlan(broker.namesrv, "test", ("body",), 4_000, 10_000, 300, False, "")
    return replace(plan, **changed)


def numbers_read(plan: ReadPlan, topic: str) -> list[int]:
    """Return the numbers that a task reads."""
    batches = read_ranges(plan, [QueueRange(topic, "pocket", 0, 0, COUNT)], {})
    return [int(body.as_py()[:6]) for batch in batches for body in batch.column("body")]


def reported(text: str, topic: str) -> int:
    """Return how many messages of a topic notes call lost."""
    return sum(map(int, re.findall(rf"{topic} queue 0 of pocket: (\d+) messages lost: .* damaged; ", text)))


@pytest.mark.parametrize("kind", ["body", "head"])
@pytest.mark.parametrize("tags", ["", "A", "B"])
def test_a_task_names_a_damaged_message_or_skips_it(
    broker: PocketBroker, capfd: pytest.CaptureFixture[str], kind: str, tags: str
) -> None:
    """Bits in bodies, zeros over heads; with and without a filter of tags."""
    topic = f"rotten-{kind}{tags}"
    fill(broker, topic)
    everything = {n for n in range(COUNT) if not tags or "AB"[n % 2] == tags}
    plan = plan_of(broker, tags=tags)
    assert set(numbers_read(plan, topic)) == everything
    damage(broker, topic, kind)
    first = min(everything & set(BAD))
    with pytest.raises(DataLost, match=rf"{topic} queue 0 of pocket: .*offset {first if kind == 'body' else ''}"):
        numbers_read(replace(plan, fail_on_data_loss=True), topic)
    capfd.readouterr()
    assert numbers_read(plan, topic) == sorted(everything - set(BAD))
    assert reported(capfd.readouterr().err, topic) == len(everything & set(BAD))


def test_bodies_that_are_not_checked_pass(broker: PocketBroker) -> None:
    """``checkCrcs=false`` reads what is there; and a query that reads no body has nothing to check."""
    fill(broker, "unchecked")
    damage(broker, "unchecked", "body")
    plan = plan_of(broker, fail_on_data_loss=True, check_crcs=False)
    assert len(numbers_read(plan, "unchecked")) == COUNT
    ranges = [QueueRange("unchecked", "pocket", 0, 0, COUNT)]
    batches = read_ranges(replace(plan, columns=("queue_offset",), check_crcs=True), ranges, {})
    assert sum(map(len, batches)) == COUNT


def test_the_option_reaches_the_tasks(broker: PocketBroker) -> None:
    """Bodies are checked unless the option says otherwise."""
    fill(broker, "optional")
    damage(broker, "optional", "body")
    options = {"namesrv": broker.namesrv, "subscribe": "optional"}

    def count(**more: str) -> int:
        source = PocketMQSource({**options, **more})
        reader = source.reader(source.schema())
        return sum(len(batch) for task in reader.partitions() for batch in reader.read(task))

    with pytest.raises(DataLost, match="checkCrcs=false"):
        count()
    assert count(checkCrcs="false") == COUNT
    assert count(failOnDataLoss="false") == COUNT - len(BAD)


def test_an_answer_of_rocketmq_goes_on_behind_a_damaged_head(
    broker: PocketBroker, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no sizes: nothing behind the damage can be read, so the task pulls again behind it."""
    fill(broker, "unsized")
    pull = PullWire.pull

    async def without_sizes(self: PullWire, name: str, positions: Any, *args: Any, **more: Any) -> list[PullResult]:
        [result] = await pull(self, name, positions, *args, **more)
        if result.sizes is None or not len(result.sizes):
            return [result]
        body = bytearray(result.body)
        ends = np.cumsum(result.sizes).tolist()
        for row, start in enumerate([0, *ends[:-1]]):
            if positions[0][1] + row in BAD:
                body[start : start + 40] = bytes(40)
        queues = [replace(queue, count=-1) for queue in result.queues]
        return [replace(result, body=memoryview(body), sizes=None, queues=queues)]

    monkeypatch.setattr(PullWire, "pull", without_sizes)
    assert numbers_read(plan_of(broker), "unsized") == sorted(set(range(COUNT)) - set(BAD))
    assert reported(capfd.readouterr().err, "unsized") == len(BAD)
    with pytest.raises(DataLost, match=r"unsized queue 0 of pocket: offset 0: .*magic 0x00000000"):
        numbers_read(plan_of(broker, fail_on_data_loss=True), "unsized")


@pytest.mark.parametrize("kind", ["body", "head"])
def test_poll_arrow_refuses_a_damaged_message(broker: PocketBroker, kind: str) -> None:
    """The messages before it are returned; then the error names its offset, and the caller can go past it."""
    topic = f"polled-{kind}"
    fill(broker, topic)
    damage(broker, topic, kind, (60,))

    async def run() -> None:
        async with PullConsumer("test", broker.namesrv) as consumer:
            [queue] = await consumer.queues(topic)
            if kind == "head":  # the broker ends its answer before it, and refuses the next pull
                assert len(await consumer.poll_arrow(topic, columns=["body"])) == 60
            with pytest.raises(PocketMQError, match=rf"{topic} queue 0.*offset 60") as caught:
                await consumer.poll_arrow(topic, columns=["body"])
            assert caught.value.cause is Cause.CORRUPT
            await consumer.seek_offset(queue, 61)
            assert len(await consumer.poll_arrow(topic, columns=["body"])) == COUNT - 61
        async with PullConsumer("other", broker.namesrv, check_crc=False) as consumer:
            if kind == "body":
                assert len(await consumer.poll_arrow(topic, columns=["body"])) == COUNT

    asyncio.run(run())
