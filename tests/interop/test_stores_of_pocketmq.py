"""Directories that our broker wrote, opened by RocketMQ 4.9.7 and 5.3.3, and opened by ours again."""

import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pocketmq.client.blocking import Producer
from pocketmq.common.message import Message
from pocketmq.common.topics import TIMER_TOPIC
from pocketmq.store.consumequeue.consume_queue import ENTRY
from pocketmq.store.offline.reader import StoreReader
from pocketmq.store.offline.verify import verify
from tests.interop.rocketmq_servers import BROKER_NAME, RocketMQServers
from tests.interop.store_content import (
    COMMITTED,
    GROUP,
    INDEX_ENTRIES,
    INDEX_SLOTS,
    ORDERS,
    ORDERS_QUEUES,
    QUEUE_FILE_BYTES,
    QUEUES,
    ROCKETMQ_SIZES,
    SEGMENT_BYTES,
    SINGLE,
    Content,
    write_content,
)
from tests.interop.store_servers import (
    VERSIONS,
    by_place,
    copied,
    files_below,
    pocketmq_on,
    read_by_python,
    stop_cleanly,
)
from tests.interop.store_tool import Seen, StoreTool
from tests.interop.toolchain import start_java, wait_until
from tests.store.rocketmq_vectors import index_contents

STATES = ("clean", "killed")
DUE_S = 60.0
NATIVE = 30
"""Messages of our SDK, in native frames: groups with checksums."""


@dataclass(slots=True)
class PocketMQStores:
    """A store that we closed, and one that was killed; the messages that RocketMQ's client read from each."""

    version: str
    directories: dict[str, Path]
    contents: dict[str, Content]


@pytest.fixture(scope="module", params=VERSIONS)
def stores(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PocketMQStores:
    """Stores that our broker wrote for RocketMQ's client of one version and for our SDK."""
    version, root = request.param, tmp_path_factory.mktemp(f"pocketmq-{request.param}")
    found = PocketMQStores(version, {}, {})
    for state, how in (("clean", signal.SIGTERM), ("killed", signal.SIGKILL)):
        data = root / state
        with (
            pocketmq_on(root / "broker", data, "broker.transaction_time_out=600000") as server,
            StoreTool(version, server.namesrv, server.broker, BROKER_NAME, root / "tool") as tool,
        ):
            content = write_content(tool, version, into_pocketmq=True)
            with Producer(group="store-python", namesrv=server.namesrv) as producer:
                producer.send_batch(
                    Message(ORDERS, b"native %d" % number, tags=f"tag{number % 3}", keys=[f"n{number}", "all"])
                    for number in range(NATIVE)
                )
            content.seen = everything(tool)
            server.end(how)
        assert (data / "abort").exists() == (state == "killed")
        found.directories[state], found.contents[state] = data, content
    return found


@pytest.fixture
def rocketmq(stores: PocketMQStores, tmp_path: Path) -> Iterator[RocketMQServers]:
    """RocketMQ's servers, not started, so that a test can put a store at their place."""
    soon = {"transactionCheckInterval": 2000, "transactionTimeOut": 1000}
    servers = RocketMQServers(stores.version, tmp_path / "rocketmq", {**ROCKETMQ_SIZES, **soon})
    try:
        yield servers
    finally:
        servers.stop()


def everything(tool: StoreTool) -> dict[str, list[Seen]]:
    return {topic: tool.read(topic, queues) for topic, queues in QUEUES.items()}


@pytest.mark.parametrize("state", STATES)
def test_rocketmq_goes_on_with_it_and_we_after_it(
    stores: PocketMQStores, rocketmq: RocketMQServers, state: str, tmp_path: Path
) -> None:
    """RocketMQ has every message at its place, topics, offsets and look-ups; then ours has its messages, undamaged."""
    content = stores.contents[state]
    wanted = {topic: by_place(messages) for topic, messages in content.seen.items()}
    end = verify(StoreReader.open(str(stores.directories[state])), level="full").end_offset
    copied(stores.directories[state], rocketmq.store)
    rocketmq.start()
    with StoreTool(stores.version, rocketmq.namesrv, rocketmq.broker, BROKER_NAME, tmp_path / "tool") as tool:
        for topic, messages in wanted.items():
            found = by_place(tool.read(topic, QUEUES[topic]))
            assert {place: found.get(place) for place in messages} == messages, "RocketMQ cut the log, or reads others"
        for queue_id, offset in COMMITTED.items():
            assert tool.one("offset", GROUP, ORDERS, queue_id)["offset"] == offset
        keyed = [each for each in wanted[ORDERS].values() if "all" in each.properties.get("KEYS", "").split()]
        assert len(tool.call("query", ORDERS, "all")) == min(64, len(keyed))
        assert [row["offset"] for row in tool.call("query", ORDERS, "n7")]
        assert tool.call("topic", "made-by-rocketmq", 1) == []

        def have_come() -> bool:
            tool.call("checks", SINGLE)
            waiting = {b"ten-seconds", b"in-doubt"} | ({b"twelve-seconds"} if stores.version == "5.3" else set())
            return waiting <= {each.body for each in tool.read(SINGLE)}

        wait_until(have_come, DUE_S, "what waited in our store is delivered by RocketMQ")
        tool.call("messages", ORDERS, ORDERS_QUEUES, 30, 11)
        tool.call("batch", ORDERS, 1, 5)
        tool.call("transaction", SINGLE, "COMMIT_MESSAGE", "by-rocketmq")
        tool.call("commit", GROUP, ORDERS, 0, 19)
        time.sleep(4)  # RocketMQ 5 writes the ends of transactions 3 s late
        wanted = {topic: by_place(messages) for topic, messages in everything(tool).items()}
    stop_cleanly(rocketmq)
    report = verify(StoreReader.open(str(rocketmq.store)), level="full")
    assert report.ok, report
    assert report.end_offset > end
    _check_ours_again(stores, rocketmq.store, wanted, tmp_path)


def _check_ours_again(
    stores: PocketMQStores, data: Path, wanted: dict[str, dict[tuple[str, int, int], Seen]], tmp_path: Path
) -> None:
    with pocketmq_on(tmp_path / "broker", data) as server:
        for topic in (ORDERS, SINGLE):
            found = by_place(read_by_python(server.namesrv, topic))
            assert {place: found.get(place) for place in wanted[topic]} == wanted[topic]
        with StoreTool(stores.version, server.namesrv, server.broker, BROKER_NAME, tmp_path / "tool") as tool:
            assert tool.one("offset", GROUP, ORDERS, 0)["offset"] == 19
            tool.call("messages", ORDERS, ORDERS_QUEUES, 5, 12)
            time.sleep(2)  # all that our broker might deliver or check again
            bodies = [each.body for each in tool.read(SINGLE)]
            before = [each.body for each in wanted[SINGLE].values()]
            for body in (b"twelve-seconds", b"soon", b"ten-seconds", b"by-rocketmq", b"in-doubt"):
                # messages delivered by RocketMQ; 4.9 has no timers, so ours come from our own progress
                if stores.version == "5.3" or body not in (b"twelve-seconds", b"soon"):
                    assert bodies.count(body) == before.count(body), body
        log = server.log_text()
    for event in ("log_damaged", "log_group_checksum_differs", "log_tail_cut", "consume_queue_gap", "log_end_lost"):
        assert event not in log
    assert not (data / "pocketmq" / "quarantine").exists()
    assert not (data / "pocketmq" / "damage.json").exists()
    report = verify(StoreReader.open(str(data)), level="full")
    assert report.ok, report
    assert report.group_verified_bytes > 0


@pytest.mark.parametrize("state", STATES)
def test_queues_and_index_that_rocketmq_builds_are_ours(stores: PocketMQStores, state: str, tmp_path: Path) -> None:
    """RocketMQ's store builds our files from our log; only the tags codes of timers differ."""
    root, data = stores.directories[state], copied(stores.directories[state], tmp_path / "data")
    if state == "killed":  # ours are younger than their log: let our store close first
        with pocketmq_on(tmp_path / "broker", data, "broker.transaction_time_out=600000"):
            pass
        root = copied(data, tmp_path / "closed")
    shutil.rmtree(data / "consumequeue")
    shutil.rmtree(data / "index")
    (data / "checkpoint").unlink()
    numbers = (SEGMENT_BYTES, QUEUE_FILE_BYTES, INDEX_SLOTS, INDEX_ENTRIES)
    arguments = (str(data), *map(str, numbers))
    with start_java(f"server-{stores.version}", "StoreRebuild", *arguments, directory=tmp_path / "java") as java:
        assert java.read(60)["end"] > 0
    theirs, ours = files_below(data / "consumequeue"), files_below(root / "consumequeue")
    assert set(theirs) == set(ours)
    for name, content in theirs.items():
        if name.startswith(TIMER_TOPIC):
            mine, other = (np.frombuffer(each, ENTRY) for each in (ours[name], content))
            assert mine[["offset", "size"]].tolist() == other[["offset", "size"]].tolist()
        else:
            assert ours[name] == content, name
    assert index_contents(data / "index") == index_contents(root / "index")
