"""The dashboard of ``standalone``: a process of its own, which serves, is logged, and ends with its parent."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from pocketmq.cli.daemon.dashboard_child import DashboardChild, DashboardConfig, tls_options
from pocketmq.common.errors import ConfigError
from pocketmq.common.logs import CapturedLog
from pocketmq.remoting.security.tls_config import TlsConfig
from pocketmq.testing import PocketBroker
from tests.cli.conftest import Daemon
from tests.servers import free_port

WAIT_S = 60


async def until(log: CapturedLog, name: str) -> dict[str, Any]:
    """Return the first event of this name."""
    async with asyncio.timeout(WAIT_S):
        while True:
            for event in log.events:
                if event["event"] == name:
                    return event
            await asyncio.sleep(0.02)


async def answers(url: str) -> int:
    """Return the status of a page, 0 if nothing listens there."""
    async with httpx.AsyncClient(trust_env=False, timeout=WAIT_S) as client:
        try:
            return (await client.get(url)).status_code
        except httpx.TransportError:
            return 0


@pytest.mark.slow
async def test_it_serves_until_it_is_stopped() -> None:
    log = CapturedLog()
    async with PocketBroker() as broker:
        child = DashboardChild(DashboardConfig(listen_port=free_port()), broker.namesrv, log, is_open=False)
        await child.start()
        url = (await until(log, "dashboard_serving"))["url"]
        assert await answers(url) == 200
        await child.stop()
        assert await answers(url) == 0
        await child.stop()
    assert not [event for event in log.events if event["event"] == "dashboard_ended"]


@pytest.mark.slow
async def test_one_that_cannot_start_is_a_warning() -> None:
    log = CapturedLog()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = DashboardConfig(listen_port=taken.getsockname()[1])
        child = DashboardChild(config, "127.0.0.1:1", log, is_open=False)
        await child.start()
        ended = await until(log, "dashboard_ended")
        assert ended["code"] == 3
        assert "another process uses the port" in ended["last_words"]
        await child.stop()


@pytest.mark.soak
@pytest.mark.slow
def test_a_killed_standalone_takes_its_dashboard_along(start_daemon: Callable[..., Daemon]) -> None:
    port = free_port()
    daemon = start_daemon("standalone", "--namesrv-port", "0", "--broker-port", "0", "--dashboard-port", str(port))
    url = f"http://127.0.0.1:{port}/alive"

    async def until_it_is(status: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while True:
                if await answers(url) == status:
                    return
                await asyncio.sleep(0.05)

    asyncio.run(until_it_is(200))
    os.kill(daemon.process.pid, signal.SIGKILL)
    daemon.process.wait(WAIT_S)
    asyncio.run(until_it_is(0))


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({}, []),
        ({"server_cert_path": "s.pem"}, []),
        ({"server_cert_path": "s.pem", "server_mode": "enforcing"}, ["--tls"]),
        ({"server_cert_path": "s.pem", "server_mode": "disabled", "enable": True}, []),
        (
            {
                "server_cert_path": "s.pem",
                "enable": True,
                "client_trust_cert_path": "ca.pem",
                "client_server_name": "broker.example.org",
                "client_cert_path": "inner.pem",
            },
            ["--tls", "--tls-ca", "ca.pem", "--tls-server-hostname", "broker.example.org"],
        ),
    ],
)
def test_it_speaks_tls_where_the_servers_do(given: dict[str, Any], options: list[str]) -> None:
    """The servers' own client certificate, which may name a super user, is not among the options."""
    assert tls_options(TlsConfig(**given)) == options


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_that_is_none_stops_the_start(port: int) -> None:
    with pytest.raises(ConfigError, match="bad setting"):
        DashboardConfig(listen_port=port)
