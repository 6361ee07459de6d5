"""The servers of ``tests.servers``, and stores of every kind."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from pocketmq.client.durable.memory_store import MemoryStore
from pocketmq.client.durable.opening import StoreOptions, open_url
from pocketmq.client.durable.store import RetryStore
from pocketmq.common.clock import SystemClock
from tests.servers import mariadb_server, postgres_server, redis_server

__all__ = ["mariadb_server", "postgres_server", "redis_server"]

SERVERS = {"redis": "redis_server", "mysql": "mariadb_server", "postgresql": "postgres_server"}
KINDS = ["memory", "rocksdb", "sqlite", *SERVERS]
_names = itertools.count()


@pytest.fixture(params=KINDS)
def store_url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    """Return the URL of an empty store of each kind."""
    return url_of(request.param, request, tmp_path)


def url_of(kind: str, request: pytest.FixtureRequest, tmp_path: Any) -> str:
    name = f"t{next(_names)}"
    if kind == "memory":
        return "memory:"
    if kind == "rocksdb":
        return f"rocksdb://{tmp_path / name}"
    if kind == "sqlite":
        return f"sqlite:///{tmp_path / 'retry.db'}?name={name}"
    server = request.getfixturevalue(SERVERS[kind])
    return f"{server}?name={name}"


@pytest.fixture
def new_store(store_url: str) -> Callable[..., RetryStore]:
    """Make objects for the same store; those in memory are one object, since memory is all they have."""
    memory = MemoryStore()

    def make(**options: Any) -> RetryStore:
        if store_url == "memory:":
            return memory
        return open_url(store_url, StoreOptions(**{"lease_ms": 300, **options}), SystemClock())

    return make
