"""Brokers of both kinds on one store directory, one after the other.

Lives here: stores that RocketMQ wrote (``RocketMQStores``), a clean stop that is one, our broker on such a directory,
copies, what our SDK reads.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pocketmq.client.blocking import PullConsumer
from pocketmq.common.message import ReceivedMessage
from pocketmq.common.record import COMPRESSED_FLAG
from tests.interop.pocketmq_server import SHORT_WAITS, PocketMQServer
from tests.interop.rocketmq_servers import BROKER_NAME, CLUSTER_NAME, RocketMQServers, rocketmq_servers
from tests.interop.store_content import (
    ORDERS,
    ORDERS_QUEUES,
    POCKETMQ_SIZES,
    ROCKETMQ_SIZES,
    SINGLE,
    Content,
    queues_of,
    write_content,
)
from tests.interop.store_tool import Seen, StoreTool

STOP_S = 60.0
LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""RocketMQ's own levels: messages in its stores wait for these."""
VERSIONS = ("4.9", "5.3")
NO_CHECKS = {"transactionCheckInterval": 3_600_000}
"""RocketMQ leaves the half messages in doubt to us, however slow the machine is."""


@dataclass(slots=True)
class RocketMQStores:
    """Two states of one store of RocketMQ: ``clean`` was closed, ``killed`` went on from there until ``kill -9``."""

    version: str
    broker: str
    clean: Path
    killed: Path
    contents: dict[str, Content]
    """By "clean" and "killed"."""

    def directory(self, state: str) -> Path:
        """Return the directory of a state; copy it before a broker opens it."""
        return self.clean if state == "clean" else self.killed


def stop_cleanly(servers: RocketMQServers) -> None:
    """Stop RocketMQ's broker and assert that it closed its store."""
    process = servers.process("broker").process
    process.terminate()
    process.wait(STOP_S)
    servers.stop_broker()
    assert not (servers.store / "abort").exists(), "RocketMQ did not close its store"


def write_stores(version: str, directory: Path) -> RocketMQStores:
    """Let RocketMQ write both states."""
    with rocketmq_servers(version, directory / "rocketmq", **NO_CHECKS, **ROCKETMQ_SIZES) as servers:
        where = servers.namesrv, servers.broker, servers.broker_name
        with StoreTool(version, *where, directory / "tool") as tool:
            content = write_content(tool, version)
        stop_cleanly(servers)
        shutil.copytree(servers.store, directory / "clean")
        servers.start_broker()
        with StoreTool(version, *where, directory / "tool") as tool:
            sent = tool.call("messages", ORDERS, ORDERS_QUEUES, 20, 9)
            sent += tool.call("delayed", SINGLE, 0, 3, "before-the-kill")
            tool.call("transaction", SINGLE, "UNKNOW", "killed-in-doubt")
            seen = {topic: tool.read(topic, queues) for topic, queues in queues_of(version).items()}
            servers.kill_broker()
        shutil.copytree(servers.store, directory / "killed")
        contents = {"clean": content, "killed": Content([*content.sent, *sent], seen)}
        return RocketMQStores(version, servers.broker, directory / "clean", directory / "killed", contents)


@contextmanager
def pocketmq_on(directory: Path, data_dir: Path, *settings: str, broker: str = "") -> Iterator[PocketMQServer]:
    """Run ``pocketmq standalone`` on a store with the file sizes, names and delay levels of these tests.

    ``broker``: the address that RocketMQ's broker had, so that message ids made from it lead to ours.
    """
    directory.mkdir(parents=True, exist_ok=True)
    same = [f"broker.broker_name={BROKER_NAME}", f"broker.broker_cluster_name={CLUSTER_NAME}"]
    same += [f"store.{name}={value}" for name, value in POCKETMQ_SIZES.items()]
    same += [f"store.message_delay_level={LEVELS}", "metrics.listen_port=0"]
    server = PocketMQServer(directory, (*SHORT_WAITS, *same, *settings))
    server.data_dir, server.broker = data_dir, broker
    try:
        server.start()
        yield server
    finally:
        server.end()


def seen_by_python(message: ReceivedMessage) -> Seen:
    """Return a message as our SDK returns it."""
    return Seen(
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.physical_offset,
        message.size_bytes,
        message.sys_flag,
        message.flag,
        message.born_timestamp,
        message.store_timestamp,
        message.reconsume_times,
        message.prepared_offset,
        message.body,
        dict(message.properties),
    )


def by_place(messages: list[Seen]) -> dict[tuple[str, int, int], Seen]:
    """Return messages by topic, queue and queue offset.

    Without the flag of a compressed body: RocketMQ 5's consumer takes it off with the compression, 4.9's does not.
    """
    return {each.place: replace(each, sys_flag=each.sys_flag & ~COMPRESSED_FLAG) for each in messages}


def read_by_python(namesrv: str, topic: str) -> list[Seen]:
    """Return every message of a topic as our SDK reads it."""
    with PullConsumer(group="store-python-reader", namesrv=namesrv) as consumer:
        return [seen_by_python(each) for each in consumer.stream(topic, start="earliest", stop_at_end=True)]


def files_below(directory: Path) -> dict[str, bytes]:
    """Return relative path → content of every file."""
    files = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def copied(source: Path, target: Path) -> Path:
    """Copy a store that a broker will change."""
    shutil.copytree(source, target)
    return target
