"""A real broker on loopback with a small store, and a client that uses remoting's channel only."""

import asyncio
import contextlib
import inspect
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.common.clock import SystemClock
from pocketmq.common.events import NullLog
from pocketmq.common.logs import CapturedLog
from pocketmq.common.message import Message
from pocketmq.common.message_id import UniqueIdGenerator
from pocketmq.common.record_codec import PlainRecordBuilder, decode_record
from pocketmq.remoting.channel_pool import ChannelPool
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.pull import NativePullRequestHeader, PullMessageRequestHeader
from pocketmq.remoting.protocol.send import NativeAppendRequestHeader, SendMessageV2RequestHeader
from pocketmq.store.config import StoreConfig
from pocketmq.store.disk.file_system import FileSystem
from tests.memory import brokers_in_memory, path_in_memory  # noqa: F401, for all tests here

TIMEOUT_MS = 60_000


def store_config(path: Path, **settings: Any) -> StoreConfig:
    """Return settings of a small store."""
    small = {
        "store_path_root_dir": str(path),
        "mapped_file_size_commit_log": 8 << 20,
        "mapped_file_size_consume_queue": 20_000,
        "max_hash_slot_num": 1000,
        "max_index_num": 4000,
        "sync_on_close": False,
    }
    return StoreConfig(**{**small, **settings})


async def eventually(probe: Any) -> Any:
    """Call ``probe`` (plain or async) until its result is true; return that. The test's timeout ends the wait."""
    while True:
        result = probe()
        if inspect.isawaitable(result):
            result = await result
        if result:
            return result
        await asyncio.sleep(0.001)


class Client:
    """One channel to a broker; builds requests as clients do."""

    def __init__(self, pool: Any, address: Any) -> None:
        self.pool = pool
        self.address = address
        self.channel: Any = None
        self.ids = UniqueIdGenerator(SystemClock())
        self.builder = PlainRecordBuilder("DefaultCluster")

    async def connect(self) -> Any:
        self.channel = await self.pool.get(self.address)
        return self

    async def ask(self, code: int, header: Any = None, body: bytes = b"", *, timeout_ms: Any = TIMEOUT_MS) -> Any:
        return await self.channel.request(code, header, body, timeout_ms=timeout_ms)

    def record(
        self,
        topic: str = "T",
        body: bytes = b"hello",
        queue_id: int = 0,
        *,
        tags: str = "",
        keys: Any = (),
        properties: Any = None,
    ) -> bytes:
        message = Message(topic, body, tags=tags, keys=keys, properties=properties)
        return self.builder.build(message, queue_id, self.ids.next().encode(), 1_700_000_000_000)

    async def append(self, *sections: Any, wait: Any = True, mangle: Any = None) -> Any:
        """Append sections of (topic, queue id, records)."""
        records = [record for _, _, part in sections for record in part]
        sizes = b"".join(len(record).to_bytes(4, "big") for record in records)
        header = NativeAppendRequestHeader(
            "producers", wait, [(topic, queue_id, len(part)) for topic, queue_id, part in sections], TIMEOUT_MS
        )
        body = sizes + b"".join(records)
        return await self.ask(RequestCode.NATIVE_APPEND, header, mangle(body) if mangle else body)

    async def put(self, *bodies: Any, topic: str = "T", queue_id: int = 0, tags: str = "") -> Any:
        """Append messages and expect success."""
        records = [self.record(topic, body, queue_id, tags=tags) for body in bodies]
        response = await self.append((topic, queue_id, records))
        assert response.code == 0, response
        assert response.header.results[0][0] == 0, response.header.results
        return response

    async def send(
        self,
        topic: str = "T",
        body: bytes = b"hello",
        queue_id: int = 0,
        *,
        code: int = RequestCode.SEND_MESSAGE_V2,
        **fields: Any,
    ) -> Any:
        """Send one message as RocketMQ does (SEND_MESSAGE)."""
        values = {
            "producer_group": "producers",
            "topic": topic,
            "default_topic": "TBW102",
            "default_topic_queue_nums": 4,
            "queue_id": queue_id,
            "sys_flag": 0,
            "born_timestamp": 1_700_000_000_000,
            "flag": 0,
            **fields,
        }
        return await self.ask(code, SendMessageV2RequestHeader(**values), body)

    async def pull(
        self,
        topic: str = "T",
        queue_id: int = 0,
        offset: int = 0,
        *,
        suspend_ms: Any = 0,
        tags: str = "*",
        count: int = 32,
        group: str = "group",
        sys_flag: Any = None,
        commit: Any = 0,
    ) -> Any:
        """Pull as RocketMQ's clients do."""
        flag = (4 | (2 if suspend_ms else 0)) if sys_flag is None else sys_flag
        header = PullMessageRequestHeader(
            group, topic, queue_id, offset, count, flag, commit, suspend_ms, 0, subscription=tags, expression_type="TAG"
        )
        return await self.ask(RequestCode.PULL_MESSAGE, header)

    async def native_pull(
        self,
        *queues: Any,
        max_bytes: Any = 1 << 20,
        max_messages: Any = 1000,
        suspend_ms: Any = 0,
        expression: Any = "*",
    ) -> Any:
        """Pull several queues."""
        header = NativePullRequestHeader("group", list(queues), max_bytes, max_messages, suspend_ms, expression)
        return await self.ask(RequestCode.NATIVE_PULL, header)

    async def pull_bodies(self, topic: str = "T", queue_id: int = 0, offset: int = 0, wanted: int = 1) -> Any:
        """Pull until ``wanted`` messages have arrived; dispatch follows the append after a moment."""
        bodies: list[bytes] = []
        while len(bodies) < wanted:
            response = await self.native_pull((topic, queue_id, offset), suspend_ms=5000)
            assert response.code == 0, response
            offset = response.header.results[0][1]
            bodies += [record.body for record in records_of(response)]
        return bodies


def records_of(response: Any) -> Any:
    """Decode the records of a native pull."""
    count = sum(result[4] for result in response.header.results)
    body = bytes(response.body)
    sizes = [int.from_bytes(body[at : at + 4], "big") for at in range(0, 4 * count, 4)]
    records, at = [], 4 * count
    for size in sizes:
        records.append(decode_record(body, at))
        assert records[-1].size == size
        at += size
    assert at == len(body)
    return records


def split_records(body: bytes) -> Any:
    """Decode records back to back, as RocketMQ's pull returns them."""
    body, records, at = bytes(body), [], 0
    while at < len(body):
        records.append(decode_record(body, at))
        at += records[-1].size
    return records


class Harness:
    """Starts brokers and clients, and stops them all at the end."""

    def __init__(self, stack: Any, tmp_path: Path) -> None:
        self._stack = stack
        self._tmp_path = tmp_path
        self.log = CapturedLog()

    async def broker(
        self,
        *,
        store: Any = None,
        name: str = "store",
        store_settings: Any = None,
        file_system: FileSystem | None = None,
        **settings: Any,
    ) -> BrokerApp:
        # a machine that is busy with other tests is no reason to refuse a send that waited 200 ms
        patient = {"listen_port": 0, "broker_name": "broker-a", "wait_time_mills_in_send_queue": 60_000}
        config = BrokerConfig(**{**patient, **settings})
        app = BrokerApp(
            config,
            store_config(self._tmp_path / name, **(store_settings or {})),
            store=store,
            log=self.log,
            file_system=file_system,
        )
        await app.start()
        self._stack.push_async_callback(app.stop)
        return app

    async def client(self, app: BrokerApp, on_request: Any = None) -> Client:
        pool = ChannelPool(clock=SystemClock(), log=NullLog(), on_request=on_request)
        self._stack.push_async_callback(pool.close)
        connected: Client = await Client(pool, app.address).connect()
        return connected


@pytest.fixture
async def harness(tmp_path: Path) -> Any:
    """Brokers and clients for one test."""
    async with contextlib.AsyncExitStack() as stack:
        yield Harness(stack, tmp_path)


@pytest.fixture
async def broker(harness: Harness) -> Any:
    """One broker with RocketMQ's defaults."""
    return await harness.broker()


@pytest.fixture
async def client(harness: Harness, broker: BrokerApp) -> Any:
    """A client of ``broker``."""
    return await harness.client(broker)
