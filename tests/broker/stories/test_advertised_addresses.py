"""Clients on two networks reach one broker, each at the address of its side. Loopback has many addresses: each stands
for a network."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.client import Admin, ClientInstance, ClientOptions, Message, Producer, PullConsumer
from pocketmq.client.admin.query import MessageFinder
from pocketmq.common.errors import PocketMQError
from pocketmq.common.logs import CapturedLog
from pocketmq.common.message_id import offset_msg_id
from pocketmq.common.record import encode_host
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NamesrvApp
from tests.broker.conftest import store_config
from tests.servers import free_port

OUTSIDE = "127.0.0.2"


class Sides:
    """A name server and a broker, each with a listener on either side."""

    def __init__(self, stack: contextlib.AsyncExitStack, path: Path) -> None:
        self._stack = stack
        self._path = path
        self.log = CapturedLog()
        self.outside_port = free_port()
        self.namesrv_outside = f"{OUTSIDE}:{free_port()}"
        self.namesrv: NamesrvApp
        self.broker: BrokerApp

    async def start(self, **settings: Any) -> None:
        self.namesrv = NamesrvApp(NamesrvConfig(listen_port=0, listeners=f"outside={self.namesrv_outside}"))
        await self.namesrv.start()
        self._stack.push_async_callback(self.namesrv.stop)
        config = BrokerConfig(
            **{
                "listen_port": 0,
                "namesrv_addr": self.namesrv.address,
                "listeners": f"{OUTSIDE}:{self.outside_port}",
                "advertise": f"127.0.0.1;outside={OUTSIDE}:{self.outside_port}",
                **settings,
            }
        )
        self.broker = BrokerApp(config, store_config(self._path), log=self.log)
        await self.broker.start()
        self._stack.push_async_callback(self.broker.stop)

    def local_addresses(self) -> set[str]:
        """Return this broker's end of each connection of a client."""
        assert self.broker._server is not None
        return {connection.local for connection in self.broker._server.connections}


@pytest.fixture
async def sides(tmp_path: Path) -> AsyncIterator[Sides]:
    async with contextlib.AsyncExitStack() as stack:
        yield Sides(stack, tmp_path)


async def test_each_side_gets_the_address_of_its_listener(sides: Sides) -> None:
    """Routes and the list of brokers alike; sends and reads go there."""
    await sides.start()
    inside, outside = sides.broker.address, f"{OUTSIDE}:{sides.outside_port}"
    assert inside == f"127.0.0.1:{sides.broker.port}"
    for namesrv, address in ((sides.namesrv.address, inside), (sides.namesrv_outside, outside)):
        async with Admin(namesrv) as admin:
            assert await admin.masters() == {"broker-a": address}
        async with Producer(group="p", namesrv=namesrv) as producer:
            await producer.send(Message("T", address.encode()))
            assert sides.local_addresses() == {address}
    async with PullConsumer(group="c", namesrv=sides.namesrv_outside) as consumer:
        bodies = {each.body.decode() async for each in consumer.stream("T", start="earliest", stop_at_end=True)}
    assert bodies == {inside, outside}


async def test_a_broker_that_names_no_address_for_a_listener_is_given_as_to_all(sides: Sides) -> None:
    await sides.start(advertise="", listeners="")
    async with Admin(sides.namesrv_outside) as admin:
        assert await admin.masters() == {"broker-a": sides.broker.address}


async def test_a_message_of_a_broker_with_a_name_is_found_by_its_id(sides: Sides) -> None:
    """The id has the number of the host; name servers have the name."""
    await sides.start(bind_address="0.0.0.0", advertise="localhost", listeners="")
    assert sides.broker.address == f"localhost:{sides.broker.port}"
    assert [each["hint"] for each in sides.log.events if each["event"] == "loopback_advertised"]
    async with Admin(sides.namesrv.address) as admin, Producer(group="p", namesrv=sides.namesrv.address) as producer:
        receipt = await producer.send(Message("T", b"x"))
        [message] = (await MessageFinder(admin).by_offset_id(receipt.offset_msg_id)).messages
        assert (message.body, message.store_host) == (b"x", f"127.0.0.1:{sides.broker.port}")
        elsewhere = encode_host("127.0.0.3", sides.broker.port)
        other = await MessageFinder(admin).by_offset_id(offset_msg_id(elsewhere, message.physical_offset))
        assert [(each.found, each.remark) for each in other.asked] == [(0, "the message there has another id")]


@pytest.mark.parametrize("way", ["mapped", "namesrv-host", "environment"])
async def test_a_client_reaches_a_broker_that_advertises_what_it_cannot_reach(
    sides: Sides, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker advertises 127.0.0.9, where nobody listens: for the client it is the loopback of another machine."""
    await sides.start(advertise="127.0.0.9", listeners="")
    port = sides.broker.port
    given: dict[str, Any] = {
        "mapped": {f"127.0.0.9:{port}": f"127.0.0.1:{port}"},
        "namesrv-host": "namesrv-host",
        "environment": "",
    }
    if way == "environment":
        monkeypatch.setenv("POCKETMQ_BROKER_ADDRESSES", "*=namesrv-host")
    options = ClientOptions(broker_addresses=given[way])
    instance = ClientInstance(sides.namesrv.address, options=options)
    async with Producer(group="p", instance=instance) as producer, Admin(instance=instance) as admin:
        receipt = await producer.send(Message("T", b"x"))
        assert await admin.masters() == {"broker-a": f"127.0.0.1:{port}"}
        assert len((await MessageFinder(admin).by_offset_id(receipt.offset_msg_id)).messages) == 1
    plain = ClientInstance(sides.namesrv.address, options=ClientOptions(broker_addresses={"10.0.0.1": "10.0.0.2"}))
    async with Producer(group="p", instance=plain) as producer:
        with pytest.raises(PocketMQError, match=rf"127\.0\.0\.9:{port}"):
            await producer.send(Message("T", b"y"), timeout_ms=500)
