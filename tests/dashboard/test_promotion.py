"""A slave of a real synchronous pair is promoted by the form of the page."""

import asyncio
import contextlib
from pathlib import Path

import httpx
import pytest

from pocketmq.client import Message, Producer
from pocketmq.dashboard.options import DashboardOptions
from tests.broker.ha_cluster import HaCluster
from tests.dashboard.serving import serving, text_of, token_of

NAME = "broker-a"


@pytest.mark.slow
async def test_a_slave_is_promoted_after_the_name_was_typed(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        cluster = HaCluster(stack, tmp_path)
        await cluster.start_name_server()
        master, slave = await cluster.pair()
        async with Producer("shop", cluster.namesrv.address) as producer:
            for at in range(20):
                await producer.send(Message("orders", b"%d" % at))
        options = DashboardOptions(namesrv=cluster.namesrv.address, interval_s=0.1, allow_writes=True)
        served = stack.enter_context(serving(options))
        await asyncio.to_thread(_promote, served.client(), master.address, slave.address)
        assert cluster.route()["0"] == slave.address
        async with Producer("shop", cluster.namesrv.address) as producer:
            await producer.send(Message("orders", b"after"))
        page = await asyncio.to_thread(served.client().get, "/messages?topic=orders&key=")
        assert page.text.count("/message?id=") == 21


def _promote(browser: httpx.Client, master: str, slave: str) -> None:
    page = browser.get("/replication")
    text = text_of(page)
    assert f"{master} SYNC_MASTER leads" in text
    assert f"{slave} SLAVE" in text
    fields = {"token": token_of(page), "to": slave, "confirm": NAME}
    assert browser.post(f"/replication/{NAME}/promote", data={**fields, "confirm": "no"}).status_code == 400
    answer = browser.post(f"/replication/{NAME}/promote", data=fields)
    assert answer.status_code == 303, text_of(answer)
    after = text_of(browser.get("/replication"))
    assert f"{slave} is SYNC_MASTER of {NAME} in epoch" in after
    assert f"{slave} SYNC_MASTER leads" in after
    assert f"{master} SLAVE" in after
