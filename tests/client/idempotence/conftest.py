"""Stores of marks for these tests; each test gets an empty one."""

import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client.idempotence import MarkStore, MemoryStore
from pocketmq.client.idempotence.redis_store import RedisStore
from pocketmq.client.idempotence.rocksdb_store import RocksStore
from pocketmq.client.idempotence.sql_store import SqlStore
from pocketmq.common.message import Message, ReceivedMessage
from pocketmq.common.record_codec import encode_record, received_message
from tests.servers import mariadb_server, redis_server

__all__ = ["mariadb_server", "redis_server"]

HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])
EMBEDDED = ["memory", "sqlite", "rocksdb"]
ALL = [*EMBEDDED, "redis", pytest.param("mariadb", marks=pytest.mark.slow)]
numbers = itertools.count()


def message_of(body: bytes = b"x", unique_id: str = "", topic: str = "T") -> ReceivedMessage:
    properties = Message(topic, body).property_map(unique_id or f"U{next(numbers)}")
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
    record = encode_record(topic, body, queue_id=0, properties=text, born_timestamp=1, born_host=HOST, store_host=HOST)
    message = received_message(record, "broker-a")
    message.queue_offset = next(numbers)
    return message


@pytest.fixture
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], MarkStore]:
    """Return a function that opens one more client of the same marks for a kind of store."""
    number = next(numbers)

    def make(kind: str) -> MarkStore:
        if kind == "memory":
            return MemoryStore()
        if kind == "sqlite":
            return SqlStore(f"sqlite:///{tmp_path}/marks.db")
        if kind == "rocksdb":
            return RocksStore(tmp_path / "rocks")
        if kind == "redis":
            return RedisStore(request.getfixturevalue("redis_server"), prefix=f"test{number}:")
        return SqlStore(request.getfixturevalue("mariadb_server"), table=f"marks{number}")

    return make


@pytest.fixture
async def store(request: pytest.FixtureRequest, make_store: Any) -> AsyncIterator[MarkStore]:
    """An open store of the kind that the test is parametrized with."""
    made = make_store(request.param)
    await made.open()
    yield made
    await made.close()
