"""A master and its slave as brokers: registration, confirmation, mirrored tables, refusals."""

from typing import Any

import pytest

from pocketmq.broker.ha.slave_sync import MasterRefused, SlaveSync, TablesFrom
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import KVTable, decode_body
from pocketmq.remoting.protocol.ha import HaStatusBody
from pocketmq.remoting.protocol.offset import QueryConsumerOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from pocketmq.remoting.protocol.topic import CreateTopicRequestHeader, DeleteTopicRequestHeader
from pocketmq.store.disk.os_file_system import OsFileSystem
from tests.broker.conftest import Harness, eventually
from tests.broker.ha_cluster import HaCluster

pytestmark = pytest.mark.slow


async def status_of(client: Any) -> HaStatusBody:
    response = await client.ask(RequestCode.HA_STATUS)
    assert response.code == 0, response
    return decode_body(response.body, HaStatusBody)


async def test_a_synchronous_send_is_on_both_before_it_is_answered(ha: HaCluster, harness: Harness) -> None:
    """SEND_OK, and at that moment the slave's log has the bytes; the slave serves them."""
    master, slave = await ha.pair()
    client = await harness.client(master)
    await client.put(b"one")
    end = master.store.committed_offset
    assert slave.store.committed_offset >= end > 0
    reader = await harness.client(slave)
    await eventually(lambda: slave.topics.get("T"))
    assert await reader.pull_bodies() == [b"one"]
    assert master.store.log.read(0, end).tobytes() == slave.store.log.read(0, end).tobytes()
    assert ha.route() == {"0": master.address, "1": slave.address}


async def test_a_pair_finds_each_other_by_names_on_all_addresses(ha: HaCluster, harness: Harness) -> None:
    """As in containers: it listens on 0.0.0.0 and advertises a name; the slave follows, counts and has the tables."""
    master, slave = await ha.pair(bind_address="0.0.0.0", advertise="localhost")
    assert ha.route() == {"0": f"localhost:{master.port}", "1": f"localhost:{slave.port}"}
    assert master.replication.ha_address.startswith("localhost:")
    client = await harness.client(master)
    await client.put(b"one")
    assert slave.store.committed_offset >= master.store.committed_offset > 0
    await eventually(lambda: slave.topics.get("T"))


async def test_a_master_without_its_slave_says_so_at_once(ha: HaCluster, harness: Harness) -> None:
    """SLAVE_NOT_AVAILABLE, and the message is stored."""
    master, _ = await ha.pair()
    client = await harness.client(master)
    await client.put(b"one")
    await ha.stop("s")
    await eventually(lambda: not master.replication.node.status().slaves)
    response = await client.append(("T", 0, [client.record()]))
    assert response.header.results[0][0] == ResponseCode.SLAVE_NOT_AVAILABLE
    assert len(await client.pull_bodies(wanted=2)) == 2


async def test_a_slave_has_its_masters_tables_and_lets_nobody_change_them(ha: HaCluster, harness: Harness) -> None:
    """Topics, groups and offsets are copied, a deleted topic is removed, and changes get RocketMQ's refusals."""
    master, slave = await ha.pair()
    client, at_slave = await harness.client(master), await harness.client(slave)
    header = CreateTopicRequestHeader("Own", "TBW102", 3, 3, 6, "SINGLE_TAG")
    assert (await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)).code == 0
    await client.put(*[b"%d" % number for number in range(9)], topic="Own", queue_id=1)
    commit = UpdateConsumerOffsetRequestHeader("readers", "Own", 1, 7)
    assert (await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit)).code == 0
    await client.pull(topic="Own", group="readers")  # makes the group
    await eventually(lambda: slave.topics.get("Own") and slave.offsets.query("readers", "Own", 1) == 7)
    await eventually(lambda: slave.groups.get("readers"))
    refused = await at_slave.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "from slave broker, please execute it from master broker" in refused.remark
    sent = await at_slave.append(("Own", 0, [at_slave.record("Own")]))
    assert sent.code == ResponseCode.SYSTEM_BUSY
    assert slave.delays is None
    master.topics.delete("Own")
    await eventually(lambda: slave.topics.get("Own") is None)


@pytest.mark.parametrize("damage", [b"reade\xff", b"reade\\udc00", b'":' + b"[" * 100_000])
async def test_a_damaged_table_does_not_end_the_mirroring(
    ha: HaCluster, harness: Harness, monkeypatch: pytest.MonkeyPatch, damage: bytes
) -> None:
    """The slave logs the entries it could not copy, asks again, and then has them."""
    damages = [damage]
    ask = SlaveSync._ask

    async def asked(sync: SlaveSync, channel: Any, code: int, header: Any = None) -> Any:
        body = bytes(await ask(sync, channel, code, header))
        if code == RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG and b"readers" in body and damages:
            body = body.replace(b"readers", damages.pop())
        return body

    monkeypatch.setattr(SlaveSync, "_ask", asked)
    master, slave = await ha.pair()
    client = await harness.client(master)
    await client.put(b"one")
    await client.pull(group="readers")  # makes the group
    await eventually(lambda: slave.groups.get("readers"))
    assert not damages
    (failed,) = [each for each in ha.logs["s"].events if "consumer groups" in str(each.get("error"))]
    assert failed["event"] == "slave_sync_failed"
    assert failed["master"] == master.address


@pytest.mark.parametrize("is_away", [False, True])
async def test_a_topic_that_was_deleted_and_recreated_is_the_same_on_both(
    ha: HaCluster, harness: Harness, is_away: bool
) -> None:
    """Whether the slave learns of it late or is away meanwhile: no old message takes the place of a new one."""
    master, slave = await ha.pair(slave_sync_interval=300, broker_role="ASYNC_MASTER")
    client = await harness.client(master)
    await client.put(*[b"old %d" % number for number in range(5)])
    await eventually(lambda: slave.store.max_offset("T", 0) == 5 and slave.topics.get("T"))
    if is_away:
        await ha.stop("s")
    assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader("T"))).code == 0
    await client.put(b"new 0", b"new 1")
    if is_away:
        slave = await ha.start("s")
    await eventually(lambda: slave.store.max_offset("T", 0) == 2 and slave.topics.get("T"))
    await client.put(b"new 2")
    reader = await harness.client(slave)
    assert await reader.pull_bodies(wanted=3) == [b"new 0", b"new 1", b"new 2"]
    await ha.stop("s")
    slave = await ha.start("s")
    assert slave.store.max_offset("T", 0) == 3


async def test_commits_to_the_slave_reach_the_master_that_comes_back(ha: HaCluster, harness: Harness) -> None:
    """An offset committed while the master was away reaches the master on its return."""
    master, slave = await ha.pair()
    client = await harness.client(master)
    await client.put(*[b"%d" % number for number in range(9)])
    await eventually(lambda: slave.topics.get("T") and slave.store.max_offset("T", 0) == 9)
    await ha.stop("m")
    at_slave = await harness.client(slave)
    commit = UpdateConsumerOffsetRequestHeader("readers", "T", 0, 5)
    assert (await at_slave.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit)).code == 0
    assert await at_slave.pull_bodies(wanted=9) == [b"%d" % number for number in range(9)]
    master = await ha.start("m")
    await eventually(lambda: master.offsets.query("readers", "T", 0) == 5)
    client = await harness.client(master)
    query = QueryConsumerOffsetRequestHeader("readers", "T", 0)
    assert (await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, query)).header.offset == 5


async def test_a_consumer_ahead_of_a_slave_is_not_moved_back(ha: HaCluster, harness: Harness) -> None:
    """Beyond its end a slave answers "nothing yet", where a master would correct the offset."""
    master, slave = await ha.pair()
    client = await harness.client(master)
    await client.put(b"one")
    await eventually(lambda: slave.topics.get("T") and slave.store.max_offset("T", 0) == 1)
    at_slave = await harness.client(slave)
    answer = await at_slave.pull(offset=40)
    assert (answer.code, answer.header.next_begin_offset) == (ResponseCode.PULL_NOT_FOUND, 40)
    native = await at_slave.native_pull(("T", 0, 40))
    assert native.header.results[0][:2] == (ResponseCode.PULL_NOT_FOUND, 40)
    assert (await client.pull(offset=40)).code == ResponseCode.PULL_OFFSET_MOVED


async def test_status_names_both_sides(ha: HaCluster, harness: Harness) -> None:
    """HA_STATUS of the master lists its slave, that of the slave its master."""
    master, slave = await ha.pair()
    at_master = await status_of(await harness.client(master))
    assert (at_master.role, at_master.is_master, at_master.broker_id) == ("SYNC_MASTER", True, 0)
    assert at_master.slaves[0].node_id == slave.replication.node.state.node_id
    assert at_master.ha_address == master.replication.ha_address
    at_slave = await status_of(await harness.client(slave))
    assert (at_slave.role, at_slave.is_master, at_slave.is_connected) == ("SLAVE", False, True)
    assert at_slave.master_address == at_master.ha_address
    assert at_slave.epochs == at_master.epochs
    record = ha.namesrv.epochs.table.get("broker-a")
    assert record is not None
    assert (record.epoch, record.owner, record.address) == (at_master.epoch, at_master.owner, master.address)


async def test_metrics_of_both_sides_are_exported(
    ha: HaCluster, harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metrics, runtime table and health of a master and of its slave."""
    monkeypatch.setattr(OsFileSystem, "free_bytes", lambda self, path: (10**12, 2 * 10**12))
    master, slave = await ha.pair()
    client = await harness.client(master)
    await client.put(b"one")
    assert master.observation._metrics is not None
    assert slave.observation._metrics is not None
    text = b"".join(master.observation._metrics()).decode()
    node_id = slave.replication.node.state.node_id
    assert 'pocketmq_ha_role{role="SYNC_MASTER"} 1.0' in text
    assert f'pocketmq_ha_slave_in_sync{{broker_id="1",slave="{node_id}"}} 1.0' in text
    assert "pocketmq_ha_in_sync_copies 2.0" in text
    assert "pocketmq_ha_waits_served_total 1.0" in text
    at_slave = b"".join(slave.observation._metrics()).decode()
    assert "pocketmq_ha_connected 1.0" in at_slave
    assert "pocketmq_ha_behind_bytes 0.0" in at_slave
    runtime = decode_body((await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body, KVTable).table
    assert (runtime["haRole"], runtime["haInSyncCopies"], runtime["haSlaves"]) == ("SYNC_MASTER", "2", "1")
    assert master.observation.health.report().warnings == []
    await ha.stop("m")
    await eventually(lambda: slave.observation.health.report().warnings == ["slave_follows_nobody"])


async def test_tables_come_only_from_the_node_that_streams_the_log(
    ha: HaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slave uses no other broker at the master's registered address; without a log stream it copies no tables."""
    master, slave = await ha.pair()
    other = await ha.start("o", 0, broker_name="broker-b", broker_role="ASYNC_MASTER")
    other.topics.create("Evil", 1)
    monkeypatch.setattr(slave.replication, "learn_master", lambda ha_address, broker_address: None)
    slave.replication.master.learn(master.replication.ha_address, other.address)
    master.topics.create("Late", 1)
    await eventually(lambda: slave.topics.get("Late"))
    assert slave.topics.get("Evil") is None
    source = slave.replication._tables_from()
    assert source is not None
    assert source.address == master.address
    sync = slave.replication._sync
    assert sync is not None
    with pytest.raises(MasterRefused, match="the log comes from"):
        await sync.sync(TablesFrom(other.address, source.epoch, source.owner))
    await ha.stop("m")
    await eventually(lambda: not slave.replication.has_master)
    assert slave.replication._tables_from() is None
    assert slave.topics.get("Evil") is None
