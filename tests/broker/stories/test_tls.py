"""A name server and a broker that take TLS only, with certificates of one CA."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import ConfigError
from pocketmq.common.events import NullLog
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NamesrvApp
from pocketmq.remoting.channel import ClientChannel
from pocketmq.remoting.channel_pool import ChannelPool
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import ConnectFailed
from pocketmq.remoting.security.client_security import NO_SECURITY, TLS, ClientSecurity, client_security
from pocketmq.remoting.security.tls_config import TlsConfig
from pocketmq.store.config import StoreConfig
from tests.broker.conftest import Client, eventually
from tests.broker.ha_cluster import HaCluster
from tests.remoting.protected_servers import CERTIFICATES

CA = str(CERTIFICATES / "ca.pem")
ENFORCING = TlsConfig(
    server_mode="enforcing",
    server_cert_path=str(CERTIFICATES / "server.pem"),
    enable=True,
    client_trust_cert_path=CA,
)


class Servers:
    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self._folder = folder
        self._stack = stack

    async def name_server(self, tls: TlsConfig = ENFORCING) -> NamesrvApp:
        server = NamesrvApp(NamesrvConfig(listen_port=0), tls_config=tls)
        await server.start()
        self._stack.push_async_callback(server.stop)
        return server

    async def broker(self, namesrv_addr: str, tls: TlsConfig = ENFORCING, **config: Any) -> BrokerApp:
        store = StoreConfig(store_path_root_dir=str(self._folder / "store"), mapped_file_size_commit_log=1 << 22)
        broker = BrokerApp(BrokerConfig(listen_port=0, namesrv_addr=namesrv_addr, **config), store, tls_config=tls)
        await broker.start()
        self._stack.push_async_callback(broker.stop)
        return broker


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[Servers]:
    async with AsyncExitStack() as stack:
        yield Servers(tmp_path, stack)


async def can_ask(address: str, security: ClientSecurity) -> bool:
    channel = ClientChannel(address, clock=SystemClock(), log=NullLog(), security=security)
    try:
        await channel.open()
        await channel.hello()
        await channel.request(RequestCode.GET_BROKER_RUNTIME_INFO, None, timeout_ms=30_000)
    except ConnectFailed:
        return False
    channel.close()
    await channel.wait_closed()
    return True


async def test_a_broker_registers_over_tls_and_serves_nothing_else(servers: Servers) -> None:
    name_server = await servers.name_server()
    broker = await servers.broker(name_server.address)
    assert broker.not_registered == {}
    assert name_server.routes.addresses()
    trusts = client_security(None, TLS(ca=CA))
    for address in (name_server.address, broker.address):
        assert await can_ask(address, trusts)
        assert not await can_ask(address, NO_SECURITY)


async def test_a_plain_broker_cannot_register_where_tls_is_enforced(servers: Servers) -> None:
    name_server = await servers.name_server()
    broker = await servers.broker(name_server.address, TlsConfig())
    assert list(broker.not_registered) == [name_server.address]
    assert not name_server.routes.addresses()


async def test_a_broker_does_not_register_at_a_stranger(servers: Servers) -> None:
    """Its certificate is of another CA."""
    name_server = await servers.name_server()
    tls = TlsConfig(enable=True, client_trust_cert_path=str(CERTIFICATES / "other_ca.pem"))
    broker = await servers.broker(name_server.address, tls)
    assert "certificate" in broker.not_registered[name_server.address]
    assert not name_server.routes.addresses()


async def test_a_bad_certificate_stops_the_start(servers: Servers, tmp_path: Path) -> None:
    """No port is open before it is read."""
    tls = TlsConfig(server_cert_path=str(tmp_path / "none.pem"))
    with pytest.raises(ConfigError, match="TLS not started"):
        await servers.name_server(tls)
    with pytest.raises(ConfigError, match="TLS not started"):
        await servers.broker("", tls)
    assert not (tmp_path / "store").exists()


async def test_a_slave_follows_over_tls_and_both_show_certificates(tmp_path: Path) -> None:
    """Its log from the HA port, its tables from the broker's port, its route from the name server; a SYNC master
    confirms a message only when the slave has it. Long enough for several records of TLS."""
    async with AsyncExitStack() as stack:
        cluster = HaCluster(stack, tmp_path)
        cluster.tls = msgspec.structs.replace(
            ENFORCING,
            server_trust_cert_path=CA,
            server_need_client_auth="require",
            client_cert_path=str(CERTIFICATES / "client.pem"),
        )
        await cluster.start_name_server()
        master, slave = await cluster.pair()
        shows = client_security(None, TLS(ca=CA, cert=str(CERTIFICATES / "client.pem")))
        pool = ChannelPool(clock=SystemClock(), log=NullLog(), security=shows)
        stack.push_async_callback(pool.close)
        client = await Client(pool, master.address).connect()
        for size in (1, 300_000, 2_000_000):
            await client.put(b"x" * size)
        end = master.store.log.committed_offset
        await eventually(lambda: slave.store.log.appended_offset == end)
        await eventually(lambda: slave.topics.get("T") is not None)
        (status,) = master.replication.node.status().slaves
        assert status.ack_offset == end


async def test_a_slave_without_tls_gets_nothing_of_an_enforcing_master(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        cluster = HaCluster(stack, tmp_path)
        await cluster.start_name_server()
        cluster.tls = msgspec.structs.replace(ENFORCING, enable=False)
        master = await cluster.start("m", 0, broker_role="ASYNC_MASTER")
        cluster.tls = TlsConfig()
        slave = await cluster.start("s", 1)
        follower = slave.replication.node.slave
        assert follower is not None
        await eventually(lambda: follower.status().last_error)
        assert not master.replication.node.status().slaves
        assert not slave.replication.has_master
