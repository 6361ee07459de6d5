"""The HTTP port of a name server."""

import asyncio
import base64
import json
import re
import socket
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pocketmq.auth.config import AuthConfig
from pocketmq.common.clock import ManualClock
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.http_pages import STALLED_NS
from pocketmq.namesrv.server import NamesrvApp
from pocketmq.remoting.errors import AddressInUse
from pocketmq.remoting.http_server import HttpRequest, MetricsConfig
from tests.broker.metrics.test_metrics import ask, free_port
from tests.promtool import promtool

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"


def named(auth: AuthConfig | None = None, clock: ManualClock | None = None) -> NamesrvApp:
    return NamesrvApp(
        NamesrvConfig(listen_port=0),
        metrics_config=MetricsConfig(listen_port=free_port()),
        auth_config=auth,
        clock=clock,
    )


async def test_the_pages_of_a_name_server() -> None:
    """Valid for Prometheus, and the probes answer; the port is free after the stop."""
    app = named()
    await app.start()
    address = app.metrics_address
    status, body = await ask(address, "/metrics")
    families = {family.name: family for family in text_string_to_metric_families(body.decode())}
    assert status == 200
    assert families["pocketmq_namesrv_brokers"].samples[0].value == 0
    assert families["pocketmq_start_time_seconds"].samples[0].value > 1_700_000_000
    for path in ("/health", "/ready", "/live"):
        status, body = await ask(address, path)
        assert (status, json.loads(body)) == (200, {"status": "ok", "reasons": []})
    await app.stop()
    assert app.metrics_address == ""
    with socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))):
        pass


async def test_the_document_names_each_metric() -> None:
    app = named()
    await app.start()
    assert app._pages is not None
    names = {f"{each.name}{'_total' if each.kind == 'counter' else ''}" for each in app._pages.families()}
    await app.stop()
    section = DOCUMENT.read_text().split("## A name server's HTTP port")[1].split("\n## ")[0]
    assert set(re.findall(r"`(pocketmq_[a-z_]+)`", section)) == names


async def test_prometheus_takes_the_page() -> None:
    app = named()
    await app.start()
    _, body = await ask(app.metrics_address, "/metrics")
    await app.stop()
    code, said = await asyncio.to_thread(promtool, "check", "metrics", text=body.decode())
    assert (code, said) == (0, "")


async def test_strangers_read_the_probes_alone() -> None:
    users = AuthConfig(authentication_enabled=True, init_username="root", init_password="root-secret")
    app = named(users)
    await app.start()
    assert (await ask(app.metrics_address, "/metrics"))[0] == 401
    assert (await ask(app.metrics_address, "/live"))[0] == 200
    root = base64.b64encode(b"root:root-secret").decode()
    assert (await ask(app.metrics_address, "/metrics", f"Authorization: Basic {root}\r\n"))[0] == 200
    await app.stop()


async def test_a_loop_that_stands_still_is_told() -> None:
    clock = ManualClock()
    app = named(clock=clock)
    await app.start()
    pages = app._pages
    assert pages is not None
    clock.advance_ms(STALLED_NS / 1e6 + 1)
    answer = pages._health(HttpRequest("GET", "/live"))
    assert (answer.status, b"event_loop_stalled" in answer.body) == (503, True)
    await app.stop()


async def test_a_port_in_use_stops_the_start() -> None:
    """Nothing listens then."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = MetricsConfig(listen_port=taken.getsockname()[1])
        app = NamesrvApp(NamesrvConfig(listen_port=0), metrics_config=config)
        with pytest.raises(AddressInUse, match=r"metrics\.listen_port"):
            await app.start()
    assert app.port == 0
    await app.stop()
