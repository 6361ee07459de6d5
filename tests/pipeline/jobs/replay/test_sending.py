"""Rows arrive in their order, each lane in a queue of its own: in columns, and message by message."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from pocketmq.client import PullConsumer
from pocketmq.client.admin.admin import Admin
from pocketmq.client.staged.chunk_target import AppendTarget, NotSupportedByBrokerError
from pocketmq.common.message import ReceivedMessage
from pocketmq.pipeline.jobs.common.command import JobFailed
from pocketmq.pipeline.jobs.replay.ordering import LANE, WHEN
from pocketmq.pipeline.jobs.replay.pacing import Pace
from pocketmq.pipeline.jobs.replay.sending import Sent, send_all
from pocketmq.testing import PocketBroker

ROWS = 12_000
LANES = 6
QUEUES = 4


@pytest.fixture(scope="module")
def broker() -> Iterator[PocketBroker]:
    """Start one broker for the module."""
    with PocketBroker() as running:
        yield running


def batches(count: int = ROWS, empty: int = -1) -> Iterator[Any]:
    """Yield rows as Spark sorts them: lanes by turns."""
    for start in range(0, count, 5000):
        numbers = range(start, min(start + 5000, count))
        yield pa.record_batch(
            {
                "body": pa.array([None if n == empty else b"%d" % n for n in numbers], pa.binary()),
                "tags": pa.array([f"t{n % 3}" for n in numbers]),
                "properties": pa.array(
                    [[("UNIQ_KEY", "old"), ("n", str(n))] for n in numbers], pa.map_(pa.string(), pa.string())
                ),
                WHEN: pa.array([0] * len(numbers), pa.int64()),
                LANE: pa.array([n % LANES for n in numbers], pa.int32()),
                "key": pa.array(numbers),
            }
        )


def replay(broker: PocketBroker, topic: str, rows: Any, reached: list[Any], **options: Any) -> Sent:
    async def run() -> Sent:
        async with Admin(broker.namesrv) as admin:
            await admin.create_topic(topic, queues=QUEUES)
        given = {"wait_ms": 60_000, "skip_empty": False, **options}
        return await send_all(
            rows, broker.namesrv, topic, Pace(), ["key"], lambda count, key: reached.append((count, key)), **given
        )

    return asyncio.run(run())


def received(broker: PocketBroker, topic: str) -> list[ReceivedMessage]:
    async def read() -> list[ReceivedMessage]:
        async with PullConsumer("reader", broker.namesrv) as consumer:
            return [each async for each in consumer.stream(topic, start="earliest", stop_at_end=True)]

    return asyncio.run(read())


@pytest.mark.parametrize("by_message", [False, True])
def test_rows_of_a_lane_stay_in_their_order(
    broker: PocketBroker, monkeypatch: pytest.MonkeyPatch, by_message: bool
) -> None:
    """Each lane is in one queue; properties of the message that was are left out."""
    if by_message:

        async def refuse(self: AppendTarget, name: str, topic: str) -> Any:
            raise NotSupportedByBrokerError(f"{name} takes no native appends")

        monkeypatch.setattr(AppendTarget, "connection", refuse)
    topic, reached = f"replayed-{by_message}", list[Any]()
    sent = replay(broker, topic, batches(), reached)
    assert (sent.rows, sent.repeated, sent.skipped) == (ROWS, 0, 0)
    assert reached[-1] == (ROWS, [ROWS - 1])
    assert [count for count, _ in reached] == sorted(count for count, _ in reached)
    messages = received(broker, topic)
    by_lane: dict[int, list[ReceivedMessage]] = {}
    for message in sorted(messages, key=lambda each: (each.queue_id, each.queue_offset)):
        by_lane.setdefault(int(message.body) % LANES, []).append(message)
    assert sum(map(len, by_lane.values())) == ROWS
    for lane, found in by_lane.items():
        assert {message.queue_id for message in found} == {lane % QUEUES}
        assert [int(message.body) for message in found] == list(range(lane, ROWS, LANES))
    assert all(message.tags == f"t{int(message.body) % 3}" for message in messages)
    assert all(message.properties["n"] == message.body.decode() for message in messages)
    assert all(message.properties["UNIQ_KEY"] != "old" for message in messages)


def test_rows_without_a_body(broker: PocketBroker) -> None:
    """An error that says how far the replay came; skipped and counted on request."""
    reached = list[Any]()
    with pytest.raises(JobFailed, match=r"1 of the next 5000 rows; 5,000 were sent"):
        replay(broker, "bodies", batches(empty=7000), reached)
    assert reached[-1][0] == 5000
    sent = replay(broker, "skipping", batches(empty=7000), reached, skip_empty=True)
    assert (sent.rows, sent.skipped) == (ROWS, 1)
    assert len(received(broker, "skipping")) == ROWS - 1


def test_a_broker_that_stays_away_ends_the_replay(broker: PocketBroker) -> None:
    """After the wait, and with what to do."""
    with pytest.raises(JobFailed, match=r"waited 300 ms \(--broker-wait-ms\); run it again"):
        asyncio.run(
            send_all(
                batches(10),
                "127.0.0.1:1",
                "t",
                Pace(),
                ["key"],
                lambda count, key: None,
                wait_ms=300,
                skip_empty=False,
            )
        )
