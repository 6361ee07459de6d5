"""Directories that RocketMQ wrote, in ``pocketmq log`` and in our broker: closed ones and ones of a killed broker."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from pocketmq.cli.log.app import build_app
from pocketmq.client.admin.admin import Admin
from pocketmq.client.blocking import Producer
from pocketmq.common.message import Message
from pocketmq.common.topics import TIMER_TOPIC
from pocketmq.store.config import StoreConfig
from pocketmq.store.consumequeue.consume_queue import ENTRY
from pocketmq.store.message_store import MessageStore
from pocketmq.store.offline.reader import StoreReader
from pocketmq.store.offline.verify import verify
from tests.interop.store_content import (
    COMMITTED,
    FOR_CONSUMERS,
    GROUP,
    ORDERS,
    ORDERS_QUEUES,
    POCKETMQ_SIZES,
    SINGLE,
    Content,
)
from tests.interop.store_servers import (
    VERSIONS,
    RocketMQStores,
    by_place,
    copied,
    files_below,
    pocketmq_on,
    read_by_python,
    write_stores,
)
from tests.interop.store_tool import StoreTool
from tests.interop.toolchain import wait_until
from tests.interop.vectors import LEFT_OUT, as_rows, same_messages, write_vector
from tests.store.rocketmq_vectors import index_contents, unpacked

STATES = ("clean", "killed")
DUE_S = 60.0


@pytest.fixture(scope="module", params=VERSIONS)
def stores(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RocketMQStores:
    """Write stores with one version of RocketMQ."""
    return write_stores(request.param, tmp_path_factory.mktemp(f"stores-{request.param}"))


def run(*arguments: object) -> Any:
    result = CliRunner().invoke(build_app(), [str(each) for each in arguments])
    assert result.exit_code == 0, f"{arguments}: {result.output[-2000:]} {result.exception!r}"
    return result.stdout


@pytest.mark.parametrize("state", STATES)
def test_every_log_command_reads_it_and_changes_nothing(stores: RocketMQStores, state: str, tmp_path: Path) -> None:
    """Each command of docs/offline.md succeeds and finds the messages of RocketMQ's consumers."""
    root, content = stores.directory(state), stores.contents[state]
    before = files_below(root)
    report = json.loads(run("verify", root, "--full", "--json"))
    assert report["ok"]
    assert (report["written_by"], report["is_open"]) == ("RocketMQ", state == "killed")
    assert report["queues"]["good"] == report["queues"]["entries"] >= len(content.messages)
    assert report["index"]["checked"] == report["index"]["entries"] > 0
    rows = [json.loads(line) for line in run("dump", root, "--limit", 0, "--format", "json").splitlines()]
    assert {(row["topic"], row["queue_id"], row["queue_offset"]) for row in rows} >= set(by_place(content.messages))
    for what in ("segments", "queues", "index", "checkpoint", "config"):
        assert run("dump", root, "--what", what)
    run("export", root, tmp_path / "out.jsonl")
    exported = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(exported) == len(rows) == report["records"]
    run("export", root, tmp_path / "store", "--format", "log")
    assert verify(StoreReader.open(str(tmp_path / "store")), level="full").ok
    assert "nothing" in run("repair", root)
    assert files_below(root) == before


@pytest.mark.parametrize("state", STATES)
def test_a_broker_of_ours_goes_on_with_it(stores: RocketMQStores, state: str, tmp_path: Path) -> None:
    """Messages, topics, group offsets, look-ups; new messages follow; waiting ones arrive; producers are checked."""
    data, content = copied(stores.directory(state), tmp_path / "data"), stores.contents[state]
    with pocketmq_on(tmp_path / "broker", data, broker=stores.broker) as server:
        _check_messages(server.namesrv, content)
        asyncio.run(_check_admin(server.namesrv, stores, content))
        with Producer(group="store-python", namesrv=server.namesrv) as producer:
            receipt = producer.send(Message(ORDERS, b"behind"))
        known = [each.queue_offset for each in content.seen[ORDERS] if each.queue_id == receipt.queue_id]
        assert receipt.queue_offset == max(known) + 1
        with StoreTool(stores.version, server.namesrv, server.broker, "rocketmq-a", tmp_path / "tool") as tool:
            in_doubt = {b"in-doubt"} | ({b"killed-in-doubt"} if state == "killed" else set())
            waiting = {b"ten-seconds"} | ({b"twelve-seconds"} if stores.version == "5.3" else set())
            waiting |= {b"before-the-kill"} if state == "killed" else set()

            def have_come() -> bool:
                tool.call("checks", SINGLE)
                return in_doubt | waiting <= {each.body for each in tool.read(SINGLE)}

            wait_until(have_come, DUE_S, f"{in_doubt | waiting} in {SINGLE}")
            assert len(tool.call("checks", SINGLE)) == len(in_doubt)
            bodies = [each.body for each in tool.read(SINGLE)]
            # RocketMQ repeats deliveries of its last seconds, at its own restarts as well: after a kill, timers always.
            once = (set(bodies) - {b"twelve-seconds"}) if state == "clean" else in_doubt
            assert {body: bodies.count(body) for body in once} == dict.fromkeys(once, 1), bodies
            assert b"rolled-back" not in bodies
            assert b"two-hours" not in bodies
            assert b"in-an-hour" not in bodies
    report = verify(StoreReader.open(str(data)), level="full")
    assert report.ok, report


def _check_messages(namesrv: str, content: Content) -> None:
    for topic in FOR_CONSUMERS:
        found, wanted = by_place(read_by_python(namesrv, topic)), by_place(content.seen[topic])
        assert {place: found.get(place) for place in wanted} == wanted
        if topic == ORDERS:
            assert set(found) == set(wanted)


async def _check_admin(namesrv: str, stores: RocketMQStores, content: Content) -> None:
    async with Admin(namesrv=namesrv) as admin:
        described = await admin.describe_topic(ORDERS)
        assert len(described.queues) == ORDERS_QUEUES
        group = await admin.describe_group(GROUP, topic=ORDERS)
        committed = {each.queue.queue_id: each.consumer_offset for each in group.queues}
        assert {queue_id: committed[queue_id] for queue_id in COMMITTED} == COMMITTED
        keyed = [each for each in content.seen[ORDERS] if "all" in each.properties.get("KEYS", "").split()]
        assert len(await admin.query_messages(ORDERS, "all", max_messages=64)) == min(64, len(keyed))
        for each in keyed[:3]:
            single = each.properties["KEYS"].split()[1]  # with an umlaut
            messages = await admin.query_messages(ORDERS, single)
            assert each.place in {(found.topic, found.queue_id, found.queue_offset) for found in messages}
        for row in [row for row in content.sent if row["topic"] == ORDERS][:3]:
            message = await admin.view_message(row["offset_id"])
            assert (message.queue_id, message.queue_offset) == (row["queue"], row["offset"])


@pytest.mark.parametrize("state", STATES)
def test_queues_and_index_that_we_build_are_rocketmqs(stores: RocketMQStores, state: str, tmp_path: Path) -> None:
    """Without ``consumequeue/`` and ``index/`` our store builds the same files, except for those named here."""
    root, data = stores.directory(state), copied(stores.directory(state), tmp_path / "data")
    shutil.rmtree(data / "consumequeue")
    shutil.rmtree(data / "index")
    store = MessageStore(StoreConfig(store_path_root_dir=str(data), **POCKETMQ_SIZES))
    store.open()
    store.show_all()
    store.close()
    theirs, ours = files_below(root / "consumequeue"), files_below(data / "consumequeue")
    timers = {name for name in theirs if name.startswith(TIMER_TOPIC)}
    assert {name: ours.get(name) for name in theirs if name not in timers} == {
        name: data for name, data in theirs.items() if name not in timers
    }
    assert set(ours) == set(theirs)
    assert bool(timers) == (stores.version == "5.3")
    for name in timers:  # offset and size equal RocketMQ's; our tags code is the timer's due time
        for mine, other in zip(_entries(ours[name]), _entries(theirs[name]), strict=True):
            assert mine[:2] == other[:2]
    assert index_contents(data / "index") == index_contents(root / "index")


def _entries(data: bytes) -> list[tuple[int, int, int]]:
    return [(offset, size, code) for offset, size, code in np.frombuffer(data, ENTRY).tolist()]


@pytest.mark.parametrize("state", STATES)
def test_the_recorded_store_is_what_rocketmq_writes(stores: RocketMQStores, state: str, tmp_path: Path) -> None:
    """``tests/vectors`` holds RocketMQ's present output, except for times, addresses, ids and their derivatives."""
    if write_vector(stores, state):
        pytest.skip("recorded anew")
    recorded = unpacked(stores.version, state, tmp_path)
    assert same_messages(recorded.seen) == same_messages(as_rows(stores.contents[state].messages))
    for name in ("config", f"consumequeue/{ORDERS}"):
        wanted = {path for path in files_below(stores.directory(state) / name) if not path.endswith(LEFT_OUT)}
        assert set(files_below(recorded.directory / name)) == wanted
