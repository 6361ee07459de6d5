"""``PocketBroker`` is a real broker, and it changes nothing in the interpreter."""

import asyncio
import gc
import logging
import signal
import socket
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
import structlog

from pocketmq.client import Message, Producer, PullConsumer
from pocketmq.common.errors import ConfigError
from pocketmq.common.logs import CapturedLog
from pocketmq.testing import PocketBroker
from pocketmq.testing.broker import NotRunning


async def send(broker: PocketBroker, topic: str, *bodies: bytes) -> None:
    async with Producer(group="test", namesrv=broker.namesrv) as producer:
        for body in bodies:
            await producer.send(Message(topic, body, sharding_key="k"))


async def receive(broker: PocketBroker, topic: str) -> list[bytes]:
    async with PullConsumer(group="test", namesrv=broker.namesrv) as consumer:
        return [message.body async for message in consumer.stream(topic, start="earliest", stop_at_end=True)]


async def test_messages_go_through_the_real_broker() -> None:
    async with PocketBroker() as broker:
        await send(broker, "T", b"one", b"two")
        assert await receive(broker, "T") == [b"one", b"two"]
        assert (broker.data_dir / "commitlog").is_dir()
        assert broker.namesrv.startswith("127.0.0.1:")
        assert broker.address.startswith("127.0.0.1:")


def test_the_caller_needs_no_loop_and_gets_none() -> None:
    with PocketBroker() as broker:
        assert asyncio.run(_send_and_receive(broker)) == [b"x"]
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()


async def _send_and_receive(broker: PocketBroker) -> list[bytes]:
    await send(broker, "T", b"x")
    return await receive(broker, "T")


async def test_a_restart_keeps_messages_and_ports() -> None:
    with PocketBroker() as broker:
        before = broker.namesrv, broker.address
        await send(broker, "T", b"kept")
        broker.restart()
        assert (broker.namesrv, broker.address) == before
        assert await receive(broker, "T") == [b"kept"]


async def test_many_at_once_do_not_meet() -> None:
    with PocketBroker() as one, PocketBroker() as other:
        await send(one, "T", b"one")
        await send(other, "T", b"other")
        assert await receive(one, "T") == [b"one"]
        assert await receive(other, "T") == [b"other"]


def test_the_data_directory_goes_unless_it_was_given(tmp_path: Path) -> None:
    with PocketBroker() as broker:
        own = broker.data_dir
        assert own.is_dir()
    assert not own.exists()
    with PocketBroker(data_dir=tmp_path / "d"):
        pass
    assert (tmp_path / "d" / "commitlog").is_dir()


def test_settings_are_those_given_and_a_wrong_name_is_refused() -> None:
    with PocketBroker(broker={"broker_name": "x"}, store={"flush_disk_type": "SYNC_FLUSH"}) as broker:
        assert broker.app.config.broker_name == "x"
    with pytest.raises(ConfigError, match="did you mean 'flush_disk_type'"):
        PocketBroker(store={"flushDiskTyp": "SYNC_FLUSH"})


def test_outside_its_with_block_there_is_nothing() -> None:
    broker = PocketBroker()
    with pytest.raises(NotRunning):
        _ = broker.namesrv
    with broker:
        pass
    with pytest.raises(NotRunning):
        _ = broker.address
    broker.stop()


def test_a_start_that_fails_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    threads = set(threading.enumerate())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Exception, match=str(port)):
            PocketBroker(broker={"listen_port": port}).start()
    assert set(threading.enumerate()) <= threads  # one of an earlier broker may have ended meanwhile


async def test_a_start_that_fails_says_why_to_async_with_too() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Exception, match=str(port)):
            async with PocketBroker(broker={"listen_port": port}):
                pass


async def test_a_cancellation_at_any_moment_stops_it() -> None:
    """This also holds while it starts; the caller sees the cancellation."""

    async def use() -> None:
        async with PocketBroker():
            await asyncio.sleep(10)

    before = threading.enumerate()
    for delay_s in (0, 0.001, 0.003, 0.01, 0.05):
        task = asyncio.create_task(use())
        await asyncio.sleep(delay_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert set(threading.enumerate()) <= set(before)


def test_events_can_be_captured() -> None:
    log = CapturedLog()
    with PocketBroker(log=log):
        pass
    assert log.events


def interpreter() -> dict[str, Any]:
    """Return everything that a library could change in its user's interpreter."""
    return {
        "switch interval": sys.getswitchinterval(),
        "recursion limit": sys.getrecursionlimit(),
        "policy": type(asyncio.get_event_loop_policy()),
        "signals": [
            signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD)
        ],
        "wakeup fd": signal.set_wakeup_fd(-1),
        "root handlers": list(logging.getLogger().handlers),
        "root level": logging.getLogger().level,
        "logging disabled": logging.root.manager.disable,
        "structlog": structlog.is_configured(),
        "filters": list(warnings.filters),
        "excepthook": sys.excepthook,
        "thread excepthook": threading.excepthook,
        "unraisablehook": sys.unraisablehook,
        "gc": (gc.isenabled(), gc.get_threshold()),
        "trace": (sys.gettrace(), threading.gettrace()),
        "threads": set(threading.enumerate()),
        "environment": dict(__import__("os").environ),
        "umask": __import__("os").umask(0o022),
        "directory": __import__("os").getcwd(),
    }


def test_nothing_is_changed_in_the_interpreter() -> None:
    """The state is the same while it runs (apart from threads) and afterwards."""
    before = interpreter()
    with PocketBroker() as broker:
        during = interpreter()
        asyncio.run(_send_and_receive(broker))
    assert {**during, "threads": before["threads"]} == before
    assert interpreter() == before


async def test_nothing_is_left_behind_by_async_with_either() -> None:
    before = interpreter()
    async with PocketBroker():
        assert interpreter()["switch interval"] == before["switch interval"]
    assert interpreter() == before


def test_descriptors_are_closed() -> None:
    with PocketBroker():
        pass
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with PocketBroker() as broker:
            asyncio.run(_send_and_receive(broker))
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
