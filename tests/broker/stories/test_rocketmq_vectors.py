"""Our broker on stores that RocketMQ 4.9.7 and 5.3.3 wrote, as recorded: tables and waiting messages."""

import asyncio
from pathlib import Path

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.common.record_codec import decode_record
from pocketmq.store.config import StoreConfig
from tests.store.rocketmq_vectors import FOLDERS, SIZES, STATES, Vector, unpacked


@pytest.fixture(params=[(version, state) for version in FOLDERS for state in STATES], ids=lambda each: "-".join(each))
def vector(request: pytest.FixtureRequest, tmp_path: Path) -> Vector:
    """One recorded store, unpacked."""
    version, state = request.param
    return unpacked(version, state, tmp_path)


async def test_tables_offsets_and_what_waited_are_taken_over(vector: Vector) -> None:
    """Topics, groups, group offsets; delays and timers that are due since are delivered; half messages stay open."""
    config = BrokerConfig(broker_name="rocketmq-a", listen_port=0)
    broker = BrokerApp(config, StoreConfig(store_path_root_dir=str(vector.directory), **SIZES))
    await broker.start()
    try:
        for topic, queues in (("orders", 4), ("single", 1), ("%RETRY%billing", 1), ("%DLQ%billing", 1)):
            found = broker.topics.get(topic)
            assert found is not None
            assert (found.read_queue_nums, found.write_queue_nums) == (queues, queues)
        assert broker.offsets.of("billing", "orders") == {0: 17, 1: 5}
        assert broker.groups.get("billing") is not None
        assert broker.transactions is not None
        assert len(broker.transactions.table) == (1 if vector.state == "clean" else 2)
        known = {each["body"] for each in vector.of("single")}
        due = {b"one-second", b"ten-seconds"}
        if vector.version == "5.3":
            due |= {b"soon", b"twelve-seconds"}
        if vector.state == "killed":
            due |= {b"before-the-kill"}
        async with asyncio.timeout(60):
            while not due <= set(bodies := single_bodies(broker)):  # noqa: ASYNC110 (another thread delivers)
                await asyncio.sleep(0.02)
        assert b"committed" in bodies
        assert b"rolled-back" not in bodies
        if (
            vector.state == "clean"
        ):  # no message that RocketMQ had delivered is repeated, except the timer of its last second
            once = (known & due) - {b"twelve-seconds"}
            assert {body: bodies.count(body) for body in once} == dict.fromkeys(once, 1)
    finally:
        await broker.stop()


def single_bodies(broker: BrokerApp) -> list[bytes]:
    """Return the bodies of the topic of all delayed messages."""
    store = broker.store
    end = store.max_offset("single", 0)
    each = [store.get("single", 0, at, max_messages=1, max_bytes=1 << 20).body.tobytes() for at in range(end)]
    return [decode_record(record).body for record in each]
