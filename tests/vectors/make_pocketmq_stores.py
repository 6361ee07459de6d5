"""Record small stores of one version of PocketMQ, in every store mode, stopped cleanly and killed.

    git worktree add --detach /tmp/old 11179eb
    PYTHONPATH=/tmp/old/src python tests/vectors/make_pocketmq_stores.py tests/vectors/pocketmq-11179eb

The version on ``PYTHONPATH`` writes the stores, through its own broker and client. Only import paths that are public,
or that have been the same since 11179eb, are used here, so the script runs with later versions as well.

Each ``store-<mode>-<state>.zip`` holds the broker's directory and ``seen.json``: every message as the version itself
read it back, the topics, groups and offsets, and what was pending.
"""

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from pocketmq.client import (
    ConsumeFromWhere,
    Later,
    LocalTransactionState,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    TransactionProducer,
)
from pocketmq.client.admin import Admin
from pocketmq.client.named_transaction import NamedTransactions
from pocketmq.common.body_codec import decompress_body
from pocketmq.common.record import COMPRESSED_FLAG
from pocketmq.common.record_codec import decode_record
from pocketmq.testing.broker import PocketBroker

MODES: dict[str, dict[str, Any]] = {
    "mapped": {"append_mode": "mapped"},
    "written": {"append_mode": "written"},
    "pool": {"transient_store_pool_enable": True},
    "sync": {"flush_disk_type": "SYNC_FLUSH"},
}
STATES = ("clean", "killed")
SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log": 16_384,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 50,
    "max_index_num": 200,
}
OTHERS: dict[str, Any] = {"checkpoint_interval": 3000, "flush_delay_offset_interval": 300, "sync_on_close": True}
BROKER: dict[str, Any] = {"broker_name": "old", "flush_consumer_offset_interval": 300}
HOUR_MS = 3_600_000
SETTLE_S = 7.0
"""Level 2 (5 s) is delivered, tables and progress are written, a checkpoint lies behind and messages after it."""
BODY_BYTES_MAX = 1 << 20
_ALWAYS = (2026, 1, 1, 0, 0, 0)


async def write_messages(namesrv: str) -> None:
    """Write every kind of message that a store can hold."""
    async with Admin(namesrv) as admin, Producer("makers", namesrv) as producer:
        for topic, queues in (("orders", 4), ("single", 1), ("grown", 2), ("shrunk", 4), ("gone", 2), ("staged", 2)):
            await admin.create_topic(topic, queues=queues)
        for number in range(60):
            await producer.send(order(number))
        await producer.send_batch(
            [Message("single", b"batch %d" % at, tags="batch", keys=f"b{at}") for at in range(10)]
        )
        await producer.send(Message("single", b"compressed " * 900, keys="large"))
        rows = pa.table({"body": [b"row %d" % at for at in range(8)], "topic": ["single"] * 8, "tags": ["arrow"] * 8})
        await producer.send_arrow(rows)
        for topic, created, changed in (("grown", 2, 4), ("shrunk", 4, 2)):
            for at in range(created * 2):
                await producer.send(Message(topic, b"before %d" % at))
            await admin.create_topic(topic, read_queues=4, write_queues=changed)
            for at in range(changed * 2):
                await producer.send(Message(topic, b"after %d" % at))
        await producer.send(Message("gone", b"deleted with its topic"))
        await admin.delete_topic("gone")
        await producer.send(Message("single", b"level 1", delay_time_level=1))
        await producer.send(Message("single", b"in 400 ms", delay_time_ms=400))
        for at in range(3):
            await producer.send(Message("single", b"level 18, %d" % at, delay_time_level=18, keys=f"late{at}"))
        await producer.send(Message("single", b"level 17", delay_time_level=17))
        await producer.send(Message("single", b"in an hour", delay_time_ms=HOUR_MS))
        await producer.send(Message("single", b"in two days", delay_time_ms=48 * HOUR_MS, tags="far"))


def order(number: int) -> Message:
    """Return a message with all fields a user can set."""
    return Message(
        "orders",
        b"order %d " % number * (1 + number % 7),
        tags=f"t{number % 3}" if number % 4 else "",
        keys=[f"k{number}", "each"] if number % 2 else (),
        properties={"number": str(number), "grüße": "schön"},
        flag=number,
        sharding_key=f"s{number % 9}",
    )


def decide(state: LocalTransactionState, message: Message) -> LocalTransactionState:
    """Take no local action and return ``state``."""
    return state


async def write_transactions(namesrv: str) -> None:
    """Write half messages that were committed, rolled back, or wait for a decision; staged transactions likewise."""
    async with TransactionProducer("payers", namesrv, check=lambda message: None) as producer:
        for body, state in (
            (b"committed", LocalTransactionState.COMMIT_MESSAGE),
            (b"rolled back", LocalTransactionState.ROLLBACK_MESSAGE),
            (b"in doubt 0", LocalTransactionState.UNKNOW),
            (b"in doubt 1", LocalTransactionState.UNKNOW),
        ):
            await producer.send_in_transaction(Message("single", body, keys="paid"), partial(decide, state))
    async with NamedTransactions("etl", namesrv) as transactions:

        async def stage(sequence: int, first: int, attempt: str) -> Any:
            writer = transactions.writer("job", sequence, topic="staged", attempt=attempt)
            bodies = [b"row %d" % at for at in range(first, first + 20)]
            await writer.write(pa.RecordBatch.from_pydict({"body": bodies, "sharding_key": [str(at) for at in bodies]}))
            return await writer.close()

        assert await transactions.commit("job", 0, [await stage(0, 0, "a0")])
        await transactions.abort([await stage(1, 1000, "dropped")])
        await stage(1, 20, "a1")


async def consume(namesrv: str) -> None:
    """Commit offsets of two groups; leave one message in a retry topic, one waiting to get there, one dead letter."""
    done: list[bytes] = []
    failures = {b"order 1 ": 2, b"order 2 ": 18, b"order 3 ": -1}
    billing = PushConsumer("billing", namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    audit = PushConsumer("audit", namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)

    @billing.subscribe("orders")
    def bill(message: ReceivedMessage) -> Later | None:
        done.append(message.body)
        level = next((level for start, level in failures.items() if message.body.startswith(start)), None)
        return None if level is None else Later(delay_level=level)

    @audit.subscribe("single", ordered=True)
    def look(message: ReceivedMessage) -> None:
        done.append(message.body)

    async with asyncio.timeout(30):
        await audit.start()
        while b"compressed " * 900 not in done:  # noqa: ASYNC110 (the handler runs in a thread)
            await asyncio.sleep(0.05)
        await audit.stop()
        await billing.start()
        while sum(body.startswith(b"order") for body in done) < 60:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await billing.stop()


async def write_last(namesrv: str) -> None:
    """Write messages behind the last checkpoint."""
    async with Producer("makers", namesrv) as producer:
        for number in range(60, 80):
            await producer.send(order(number))


def messages(broker: PocketBroker) -> list[dict[str, Any]]:
    """Read every queue, including those of the system."""
    store, found = broker.app.store, []
    for topic, queue_id, first, end in sorted(store.queues()):
        for at in range(first, end):
            got = store.get(topic, queue_id, at, max_messages=1, max_bytes=1 << 20)
            record = decode_record(got.body.tobytes())
            body = record.body
            if record.sys_flag & COMPRESSED_FLAG:
                body = decompress_body(body, record.sys_flag, BODY_BYTES_MAX)
            found.append(
                {
                    "topic": record.topic,
                    "queue_id": record.queue_id,
                    "queue_offset": record.queue_offset,
                    "physical_offset": record.physical_offset,
                    "flag": record.flag,
                    "sys_flag": record.sys_flag,
                    "born_timestamp": record.born_timestamp,
                    "store_timestamp": record.store_timestamp,
                    "reconsume_times": record.reconsume_times,
                    "prepared_offset": record.prepared_offset,
                    "body": base64.b64encode(body).decode(),
                    "properties": record.property_map(),
                }
            )
            assert (topic, queue_id, at) == (record.topic, record.queue_id, record.queue_offset)
    return found


def tables(broker: PocketBroker) -> dict[str, Any]:
    """Return topics (read and write queues, permissions), groups, offsets and pending messages."""
    app = broker.app
    topics, _ = app.topics.snapshot()
    assert app.transactions is not None
    return {
        "now_ms": time.time_ns() // 1_000_000,
        "topics": {name: [each.read_queue_nums, each.write_queue_nums, each.perm] for name, each in topics.items()},
        "groups": sorted(app.groups.names()),
        "offsets": {
            group: {topic: app.offsets.of(group, topic) for topic in app.offsets.topics_of(group)}
            for group in sorted(app.offsets.groups())
        },
        "halves": [half.queue_offset for half in app.transactions.table.pending()],
    }


def make(mode: str, state: str, directory: Path) -> None:
    """Write one store and the messages read from it; end this process with SIGKILL if ``state`` asks for it."""
    store = {**SIZES, **OTHERS, **MODES[mode]}
    with PocketBroker(broker=BROKER, store=store, data_dir=directory / "store") as broker:
        asyncio.run(write_messages(broker.namesrv))
        asyncio.run(write_transactions(broker.namesrv))
        asyncio.run(consume(broker.namesrv))
        time.sleep(SETTLE_S)
        asyncio.run(write_last(broker.namesrv))
        time.sleep(1.0)
        assert broker.app.store.committed_offset == broker.app.store.appended_offset
        seen = {"store": {**SIZES, **MODES[mode]}, **tables(broker), "messages": messages(broker)}
        text = json.dumps(seen, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        (directory / "seen.json").write_text(text)
        if state == "killed":
            os.kill(os.getpid(), signal.SIGKILL)


def pack(directory: Path, path: Path) -> None:
    """Write the archive; equal content gives equal bytes."""
    files = {f"store/{each.relative_to(directory / 'store')}": each for each in (directory / "store").rglob("*")}
    files["seen.json"] = directory / "seen.json"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, file in sorted(files.items()):
            if file.is_file():
                archive.writestr(zipfile.ZipInfo(name, _ALWAYS), file.read_bytes(), zipfile.ZIP_DEFLATED, 9)


def main() -> None:
    """Make all stores below the given directory, each in its own process."""
    if sys.argv[1] == "--one":
        make(sys.argv[2], sys.argv[3], Path(sys.argv[4]))
        return
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for mode in MODES:
        for state in STATES:
            with tempfile.TemporaryDirectory(prefix="pocketmq-vector-") as directory:
                ended = subprocess.run([sys.executable, __file__, "--one", mode, state, directory], check=False)
                assert ended.returncode == (0 if state == "clean" else -signal.SIGKILL), (mode, state, ended)
                path = target / f"store-{mode}-{state}.zip"
                pack(Path(directory), path)
                print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
