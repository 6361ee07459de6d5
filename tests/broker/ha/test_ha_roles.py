"""Roles of a broker: the fence, promises, promotion, demotion, remembered state."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.ha.ha_roles import role_settings
from pocketmq.client.admin.admin import Admin
from pocketmq.client.admin.ha_admin import HaAdmin
from pocketmq.client.admin.promotion import promote
from pocketmq.common.epochs import PROMOTION_STEP
from pocketmq.common.errors import ConfigError
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import decode_body
from pocketmq.remoting.protocol.ha import (
    HaDemoteRequestHeader,
    HaEpochRequestHeader,
    HaHoldRequestHeader,
    HaPromiseRequestHeader,
    HaPromoteRequestHeader,
    HaStatusBody,
)
from pocketmq.store.config import StoreConfig
from tests.broker.conftest import Harness, eventually
from tests.broker.ha_cluster import HaCluster


@pytest.fixture
async def ha(tmp_path: Path) -> AsyncIterator[HaCluster]:
    """A cluster with a name server."""
    async with contextlib.AsyncExitStack() as stack:
        cluster = HaCluster(stack, tmp_path)
        await cluster.start_name_server()
        yield cluster


async def ask_promise(client: Any, epoch: int, owner: str, address: str = "") -> Any:
    header = HaPromiseRequestHeader("broker-a", epoch, owner, address)
    response = await client.ask(RequestCode.HA_PROMISE, header)
    assert response.code == 0, response
    return response.header


async def followed(harness: Harness) -> BrokerApp:
    """Start a broker that a slave has followed, so that a promotion may replace it."""
    app = await harness.broker()
    app.replication.node.state.note_slaves({"bb": 0})
    return app


async def status_of(client: Any) -> HaStatusBody:
    return decode_body((await client.ask(RequestCode.HA_STATUS)).body, HaStatusBody)


async def append_code(client: Any) -> int:
    """Append one record; return the code of its section, or of the frame."""
    response = await client.append(("T", 0, [client.record()]))
    return int(response.header.results[0][0]) if response.code == 0 else int(response.code)


async def test_a_master_that_promises_another_ones_epoch_stores_nothing_more(harness: Harness) -> None:
    """Durably: the same after a restart; and the refusal names the new master and the remedy."""
    app = await followed(harness)
    client = await harness.client(app)
    await client.put(b"before")
    end = app.store.committed_offset
    answer = await ask_promise(client, PROMOTION_STEP, "bb.1", "10.0.0.2:10911")
    assert (answer.granted, answer.epoch, answer.owner, answer.end_offset) == (True, PROMOTION_STEP, "bb.1", end)
    response = await client.send()
    assert response.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "was replaced by 10.0.0.2:10911 in epoch 1000000" in response.remark
    assert response.extra["cause"] == "fenced_by_epoch"
    assert await append_code(client) == ResponseCode.SERVICE_NOT_AVAILABLE
    assert app.observation.health.report().reasons == ["fenced_by_epoch"]
    assert app.store.committed_offset == end
    assert await client.pull_bodies() == [b"before"]
    assert any(event["event"] == "fenced" for event in harness.log.events)
    await app.stop()
    await app.start()
    client = await harness.client(app)
    assert await append_code(client) == ResponseCode.SERVICE_NOT_AVAILABLE
    status = await status_of(client)
    assert (status.is_fenced, status.is_master, status.fenced_by_address) == (True, False, "10.0.0.2:10911")
    lower = await ask_promise(client, 5, "cc.1")
    assert (lower.granted, lower.epoch) == (False, PROMOTION_STEP)


async def test_a_fenced_master_that_is_promoted_again_leads(harness: Harness) -> None:
    """The way back after an unfinished promotion."""
    app = await followed(harness)
    client = await harness.client(app)
    await client.put(b"one")
    await ask_promise(client, PROMOTION_STEP, "bb.1")
    own = f"{(await status_of(client)).node_id}.back"
    promote = HaPromoteRequestHeader("broker-a", 2 * PROMOTION_STEP, own, "ASYNC_MASTER")
    refused = await client.ask(RequestCode.HA_PROMOTE, promote)
    assert refused.code != 0
    assert "this broker has not promised itself epoch" in refused.remark
    assert (await ask_promise(client, 2 * PROMOTION_STEP, own)).granted
    assert (await client.ask(RequestCode.HA_PROMOTE, promote)).code == 0
    address = app.address
    await eventually(lambda: running(app) and app.replication.node.fenced_by is None)
    assert app.address == address
    client = await harness.client(app)
    await client.put(b"two")
    status = await status_of(client)
    assert (status.epoch, status.owner, status.is_master) == (2 * PROMOTION_STEP, own, True)
    assert await client.pull_bodies(wanted=2) == [b"one", b"two"]


@pytest.mark.parametrize("epoch", [(1 << 53) - 1, 1 << 52, 3 * PROMOTION_STEP])
async def test_a_promise_far_beyond_what_is_known_is_refused(harness: Harness, epoch: int) -> None:
    """Else one request would fence the broker for good: no promotion could be above it. Also to itself."""
    app = await followed(harness)
    client = await harness.client(app)
    for owner in ("bb.1", f"{(await status_of(client)).node_id}.x"):
        refused = await client.ask(RequestCode.HA_PROMISE, HaPromiseRequestHeader("broker-a", epoch, owner))
        assert refused.code != 0
        assert f"epoch {epoch} is beyond {3 * PROMOTION_STEP - 1}; 1 is the newest" in refused.remark
    await client.put(b"goes on")
    assert (await ask_promise(client, 3 * PROMOTION_STEP - 1, "bb.1")).granted


async def test_a_broker_without_replicas_promises_no_epoch_of_another(harness: Harness) -> None:
    """No other broker has its log, so none can replace it; it continues, also after a restart."""
    app = await harness.broker()
    client = await harness.client(app)
    asked = HaPromiseRequestHeader("broker-a", PROMOTION_STEP, "bb.1", "10.0.0.2:10911")
    refused = await client.ask(RequestCode.HA_PROMISE, asked)
    assert refused.code != 0
    assert "broker-a runs without replicas" in refused.remark
    await client.put(b"goes on")
    await app.stop()
    await app.start()
    await (await harness.client(app)).put(b"and on")


async def test_an_epoch_that_leaves_no_room_is_never_promised(harness: Harness) -> None:
    """A name server with a damaged epoch stops its master, but not for good: the next start leads."""
    app = await followed(harness)
    node = app.replication.node
    assert node.fence((1 << 53) - 1, "bb.1", "10.0.0.2:10911")
    assert await append_code(await harness.client(app)) == ResponseCode.SERVICE_NOT_AVAILABLE
    assert node.state.promised_epoch == 1
    await app.stop()
    await app.start()
    await (await harness.client(app)).put(b"goes on")


def running(app: BrokerApp) -> bool:
    return app._running is not None and app._registration is not None


async def test_a_hold_ends_by_itself_or_on_request(harness: Harness) -> None:
    """While it lasts sends are refused with the reason, and nothing is stored."""
    app = await harness.broker()
    client = await harness.client(app)
    assert (await client.ask(RequestCode.HA_HOLD, HaHoldRequestHeader("broker-a", 30_000))).code == 0
    response = await client.send()
    assert (response.code, response.extra["cause"]) == (ResponseCode.SERVICE_NOT_AVAILABLE, "not_master")
    assert "is being handed over" in response.remark
    assert (await client.ask(RequestCode.HA_HOLD, HaHoldRequestHeader("broker-a", 0))).code == 0
    await client.put(b"on")
    assert (await client.ask(RequestCode.HA_HOLD, HaHoldRequestHeader("broker-a", 20))).code == 0
    await eventually(lambda: not app.replication.node.is_held)
    await client.put(b"and on")


async def test_orders_for_another_name_or_a_leading_master_are_refused(harness: Harness) -> None:
    """Nothing changes, and the text has the reason."""
    app = await harness.broker()
    client = await harness.client(app)
    wrong = await client.ask(RequestCode.HA_DEMOTE, HaDemoteRequestHeader("broker-z", 1))
    assert "this is broker-a" in wrong.remark
    leading = await client.ask(RequestCode.HA_DEMOTE, HaDemoteRequestHeader("broker-a", 1))
    assert "is led by this broker" in leading.remark
    bad_role = await client.ask(RequestCode.HA_PROMOTE, HaPromoteRequestHeader("broker-a", 1, "x.1", "SLAVE"))
    assert "is no role of a master" in bad_role.remark
    assert (await ask_promise(client, 0, "x.1")).granted is False
    await client.put(b"fine")


@pytest.mark.slow
async def test_a_role_that_was_given_wins_over_the_settings(ha: HaCluster, harness: Harness) -> None:
    """Switched by hand: both keep their new roles over a restart, and the log reports the overridden settings."""
    master, slave = await ha.pair()
    client = await harness.client(master)
    await client.put(b"one")
    at_slave = await harness.client(slave)
    own = f"{(await status_of(at_slave)).node_id}.x"
    assert (await ask_promise(client, PROMOTION_STEP, own, slave.address)).granted
    assert (await ask_promise(at_slave, PROMOTION_STEP, own, slave.address)).granted
    await slave.change_role("SYNC_MASTER", 0)
    await master.change_role("SLAVE", 1)
    await eventually(lambda: master.replication.has_master)
    await ha.stop("m")
    await ha.stop("s")
    slave = await ha.start("s")
    master = await ha.start("m")
    assert slave.role.store_config.broker_role == "SYNC_MASTER"
    assert master.role.is_slave
    assert any(event["event"] == "role_overridden" for event in ha.logs["m"].events)
    await eventually(lambda: master.replication.has_master and slave.replication.node.status().slaves)
    client = await harness.client(slave)
    await client.put(b"two")
    assert ha.route() == {"0": slave.address, "1": master.address}


@pytest.mark.slow
async def test_the_name_server_fences_a_master_that_did_not_hear(ha: HaCluster, harness: Harness) -> None:
    """The new claim closes its connection; it registers again at once, is fenced, and stores nothing more."""
    master, slave = await ha.pair()
    await eventually(lambda: ha.namesrv.epochs.table.get("broker-a"))
    at_slave = await harness.client(slave)
    own = f"{(await status_of(at_slave)).node_id}.x"
    await slave.replication.stop_asking()
    header = HaEpochRequestHeader("broker-a", PROMOTION_STEP, own, slave.address, "SYNC_MASTER", last_epoch=1)
    async with Admin(ha.namesrv.address) as admin:
        (before,) = (await HaAdmin(admin).claim(header)).values()
        assert "lives" in str(before), "the slave has not promised itself the epoch"
        assert (await ask_promise(at_slave, PROMOTION_STEP, own, slave.address)).granted
        stranger = structs.replace(header, address="127.0.0.1:9", owner="ee.1")
        (foreign,) = (await HaAdmin(admin).claim(stranger)).values()
        assert "lives" in str(foreign), "it is no slave of this master"
        (after,) = (await HaAdmin(admin).claim(header)).values()
        assert after is True
    await slave.change_role("SYNC_MASTER", 0)
    await eventually(lambda: master.replication.node.fenced_by)
    assert await append_code(await harness.client(master)) == ResponseCode.SERVICE_NOT_AVAILABLE
    await eventually(lambda: ha.route() == {"0": slave.address})


async def test_a_master_promises_nothing_to_a_node_that_is_no_slave_of_it(ha: HaCluster, harness: Harness) -> None:
    """It leads on; its slave's node id is taken."""
    master, slave = await ha.pair()
    client = await harness.client(master)
    with pytest.raises(AssertionError, match="is no slave that this master has counted"):
        await ask_promise(client, PROMOTION_STEP, "ee.1", "127.0.0.1:9")
    assert master.replication.node.fenced_by is None
    assert await append_code(client) == ResponseCode.SUCCESS
    node_id = slave.replication.node.state.node_id
    assert (await ask_promise(client, PROMOTION_STEP, f"{node_id}.1", slave.address)).granted


@pytest.mark.slow
async def test_what_only_the_old_master_has_is_cut_and_kept_aside(ha: HaCluster, harness: Harness) -> None:
    """Asynchronous: it stored alone, a slave was promoted meanwhile, it follows. The new master's log is untouched."""
    master, slave = await ha.pair(broker_role="ASYNC_MASTER")
    client = await harness.client(master)
    await client.put(b"both")
    await eventually(lambda: slave.store.committed_offset == master.store.committed_offset)
    common = master.store.committed_offset
    await ha.stop("s")
    await client.put(b"lost", b"lost too")
    await ha.stop("m")
    slave = await ha.start("s")
    async with Admin(ha.namesrv.address) as admin:
        done = await promote(HaAdmin(admin), "broker-a", role="ASYNC_MASTER")
        assert (done.master.address, done.planned) == (slave.address, False)
        client = await harness.client(slave)
        await client.put(b"new")
        master = await ha.start("m")
        await eventually(lambda: master.replication.node.fenced_by)
        await HaAdmin(admin).demote(master.address, "broker-a", 1)
        await eventually(lambda: running(master) and master.role.is_slave and master.replication.has_master)
        await eventually(lambda: running(master) and master.store.committed_offset == slave.store.committed_offset)
    end = slave.store.committed_offset
    assert end > common
    assert master.store.log.read(0, end).tobytes() == slave.store.log.read(0, end).tobytes()
    await eventually(lambda: master.store.max_offset("T", 0) == 2)
    reader = await harness.client(master)
    assert await reader.pull_bodies(wanted=2) == [b"both", b"new"]
    kept = [path.read_bytes() for path in (ha.directory("m") / "pocketmq" / "quarantine").rglob("*") if path.is_file()]
    assert any(b"lost too" in content for content in kept)


@pytest.mark.slow
async def test_a_word_of_loss_reaches_the_state_once(ha: HaCluster, harness: Harness) -> None:
    """A slave that is ordered to accept a loss starts again, follows, and is strict again afterwards."""
    master, slave = await ha.pair()
    await (await harness.client(master)).put(b"one")
    async with Admin(ha.namesrv.address) as admin:
        await HaAdmin(admin).demote(slave.address, "broker-a", 1, accept_loss=True)
        await eventually(lambda: any(event["event"] == "role_changed" for event in ha.logs["s"].events))
        await eventually(lambda: slave.replication.has_master)
    assert slave.store.committed_offset == master.store.committed_offset


def test_roles_and_ids_must_fit() -> None:
    """Impossible settings are refused before the broker stops."""
    config, store_config = BrokerConfig(), StoreConfig(transient_store_pool_enable=True)
    chosen = role_settings(config, store_config, "SLAVE", 2)
    assert (chosen.config.broker_id, chosen.is_slave) == (2, True)
    assert not chosen.store_config.transient_store_pool_enable
    for role, broker_id in (("SLAVE", 0), ("SYNC_MASTER", 1), ("MASTER", 0)):
        with pytest.raises(ConfigError):
            role_settings(config, store_config, role, broker_id)
    with pytest.raises(ConfigError):
        role_settings(config, StoreConfig(in_sync_replicas=1), "SYNC_MASTER", 0)
