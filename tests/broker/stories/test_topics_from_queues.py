"""Topics of the master's last moment: in the promoted slave's log, but not in its mirrored table."""

import pytest

from pocketmq.client.admin.admin import Admin
from pocketmq.client.admin.ha_admin import HaAdmin
from pocketmq.client.admin.promotion import promote
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.topic import CreateTopicRequestHeader, DeleteTopicRequestHeader
from tests.broker.conftest import Harness, eventually
from tests.broker.ha_cluster import HaCluster

pytestmark = pytest.mark.slow


async def test_a_topic_of_the_last_moment_is_there_after_the_promotion(ha: HaCluster, harness: Harness) -> None:
    """Recreated from its queues, readable, in the route, on disk; topics deleted before stay deleted."""
    master, slave = await ha.pair()
    client = await harness.client(master)
    for topic in ("Gone", "Known"):
        header = CreateTopicRequestHeader(topic, "TBW102", 2, 2, 6, "SINGLE_TAG")
        assert (await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)).code == 0
        response = await client.append((topic, 1, [client.record(topic, b"x", 1)]))
        assert response.header.results[0][0] == 0
    await eventually(lambda: slave.topics.get("Gone") and slave.topics.get("Known"))
    await eventually(lambda: slave.store.max_offset("Gone", 1) == 1)
    assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader("Gone"))).code == 0
    await eventually(lambda: slave.topics.get("Gone") is None and not slave.store.max_offset("Gone", 1))
    await slave.replication.stop_asking()  # the master dies within a second of the next sends
    header = CreateTopicRequestHeader("Late", "TBW102", 4, 4, 6, "SINGLE_TAG")
    assert (await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)).code == 0
    response = await client.append(("Late", 2, [client.record("Late", b"late", 2)]))
    assert response.header.results[0][0] == 0, "confirmed by the slave"
    await ha.stop("m")
    assert slave.topics.get("Late") is None
    async with Admin(ha.namesrv.address) as admin:
        await promote(HaAdmin(admin), "broker-a")
    made = slave.topics.get("Late")
    assert made is not None
    assert (made.read_queue_nums, made.write_queue_nums, made.perm) == (4, 4, 6)
    assert slave.topics.get("Gone") is None
    (event,) = [event for event in ha.logs["s"].events if event["event"] == "topics_made_again"]
    assert event["topics"] == ["Late"]
    reader = await harness.client(slave)
    assert len(await reader.pull_bodies(topic="Late", queue_id=2)) == 1
    await eventually(lambda: "Late" in ha.namesrv.routes.topics())
    assert '"Late"' in (ha.directory("s") / "config" / "topics.json").read_text()
    assert not slave.replication.node.state.tables_due, "an ordinary start looks no more"


async def test_an_ordinary_start_makes_no_topic(ha: HaCluster, harness: Harness) -> None:
    """A deletion interrupted by a crash stays one: the table counts, not the queues."""
    master = await ha.start("m", 0, broker_role="ASYNC_MASTER")
    client = await harness.client(master)
    await client.put(b"one")
    master.topics.delete("T")
    await ha.stop("m")
    master = await ha.start("m")
    assert master.store.max_offset("T", 0) == 1
    assert master.topics.get("T") is None
