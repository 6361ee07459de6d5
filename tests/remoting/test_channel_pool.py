"""Channels by address: shared, refused and repeated connects, and the end of the pool."""

import asyncio
import random

import pytest

from pocketmq.common.clock import ManualClock, SystemClock
from pocketmq.common.events import NullLog
from pocketmq.remoting import channel_pool
from pocketmq.remoting.channel import ChannelConfig, ClientChannel
from pocketmq.remoting.channel_pool import BACKOFF_MS_MAX, ChannelPool
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import (
    ConnectFailed,
)
from pocketmq.remoting.frame import BINARY, JSON, MSGPACK
from tests.remoting.conftest import Run
from tests.remoting.harness import ANNOUNCED, EchoHandler, echo, open_channel, start_server, until
from tests.remoting.test_channel import HEART_BEAT, RocketMQ


@pytest.mark.parametrize("address", ["", "nowhere", "127.0.0.1:http", "127.0.0.1:99999999", "a" * 300 + ":1"])
def test_addresses_that_are_none(run: Run, address: str) -> None:
    """The text names the mistake."""

    async def scenario() -> None:
        channel = ClientChannel(address, clock=SystemClock(), log=NullLog())
        with pytest.raises(ConnectFailed, match="cannot connect"):
            await channel.open()

    run(scenario)


def test_connect_refused_then_backoff_then_connect(run: Run) -> None:
    """The second call fails at once with the retry time; after the delay the server is found again."""

    async def scenario() -> None:
        clock = ManualClock()
        handler = EchoHandler()
        server = await start_server(handler)
        port = server.port
        pool = ChannelPool(clock=clock, log=NullLog(), rng=random.Random(1))
        address = f"127.0.0.1:{port}"
        first = await pool.get(address)
        assert await pool.get(address) is first
        assert pool.peek(address) is first
        await server.stop()
        await until(lambda: first.closed)
        assert pool.peek(address) is None
        with pytest.raises(ConnectFailed, match=address):
            await pool.get(address)
        with pytest.raises(ConnectFailed, match="the next one is due") as caught:
            await pool.get(address)
        assert 0 < caught.value.retry_after_ms <= 20
        for _ in range(12):  # the delay grows, up to its limit
            clock.advance_ms(BACKOFF_MS_MAX)
            with pytest.raises(ConnectFailed, match=r"refused|Connect"):
                await pool.get(address)
        with pytest.raises(ConnectFailed) as caught:
            await pool.get(address)
        assert BACKOFF_MS_MAX // 2 <= caught.value.retry_after_ms <= BACKOFF_MS_MAX
        again = await start_server(handler, port=port)
        clock.advance_ms(BACKOFF_MS_MAX)
        second = await pool.get(address)
        assert second is not first
        assert bytes((await second.request(HEART_BEAT, None, b"again", timeout_ms=5000)).body) == b"again"
        await pool.close()
        with pytest.raises(ConnectFailed, match="pool is closed"):
            await pool.get(address)
        await again.stop()

    run(scenario)


def test_callers_share_one_connect(run: Run) -> None:
    """A cancelled caller does not cancel the connect for the others."""

    async def scenario() -> None:
        handler = EchoHandler()
        server = await start_server(handler)
        pool = ChannelPool(clock=SystemClock(), log=NullLog())
        address = f"127.0.0.1:{server.port}"
        tasks = [asyncio.get_running_loop().create_task(pool.get(address)) for _ in range(20)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        channels = await asyncio.gather(*tasks[1:])
        assert len(set(map(id, channels))) == 1
        assert len(handler.opened) == 1
        assert channels[0].announcement == ANNOUNCED
        await pool.close()
        await server.stop()

    run(scenario)


def test_a_name_server_that_drops_the_first_request_is_found_out_by_a_second(run: Run) -> None:
    """RocketMQ 4.9's name server does not answer unknown codes; it answers a request for a route."""

    async def scenario() -> None:
        rocketmq = RocketMQ()
        rocketmq.drops = {RequestCode.HELLO}
        config = ChannelConfig(hello_probe_after_ms=1)
        channel = ClientChannel(await rocketmq.start(), clock=SystemClock(), log=NullLog(), config=config)
        await channel.open()
        assert await channel.hello() is None
        assert [request.code for request in rocketmq.requests] == [
            RequestCode.HELLO,
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
        ]
        assert channel.serialize_type == JSON
        channel.close()
        await channel.wait_closed()
        await rocketmq.stop()

    run(scenario)


@pytest.mark.parametrize("serialize_type", [JSON, BINARY, MSGPACK])
def test_a_form_of_headers_can_be_forced(run: Run, serialize_type: int) -> None:
    """After the first request, every request and every answer has it."""

    async def scenario() -> None:
        server = await start_server(EchoHandler(echo))
        channel = await open_channel(server, serialize_type=serialize_type)
        response = await channel.request(HEART_BEAT, None, b"x", timeout_ms=5000)
        assert (channel.serialize_type, response.serialize_type) == (serialize_type, serialize_type)
        channel.close()
        await channel.wait_closed()
        await server.stop()

    run(scenario)


def test_a_pool_closes_while_it_connects(run: Run) -> None:
    """A server that never answers hello delays no caller."""

    async def scenario() -> None:
        rocketmq = RocketMQ()
        rocketmq.silent = True
        address = await rocketmq.start()
        pool = ChannelPool(clock=SystemClock(), log=NullLog())
        waiting = asyncio.get_running_loop().create_task(pool.get(address))
        await until(lambda: bool(rocketmq.requests))
        await pool.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await rocketmq.stop()

    run(scenario)


def test_a_pool_holds_a_bounded_number_of_addresses(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses beyond it are refused until the back-off of others is over, or a channel has closed."""

    async def scenario() -> None:
        monkeypatch.setattr(channel_pool, "ADDRESSES_MAX", 3)
        clock = ManualClock()
        server = await start_server(EchoHandler())
        pool = ChannelPool(clock=clock, log=NullLog(), rng=random.Random(1))
        for number in range(3):
            with pytest.raises(ConnectFailed, match="cannot connect"):
                await pool.get(f"127.0.0.1:http{number}")
        with pytest.raises(ConnectFailed, match="holds 3 addresses"):
            await pool.get(f"127.0.0.1:{server.port}")
        clock.advance_ms(BACKOFF_MS_MAX)
        assert not (await pool.get(f"127.0.0.1:{server.port}")).closed
        await pool.close()
        await server.stop()

    run(scenario)
