"""A cluster for the stories of several brokers."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.ha_cluster import HaCluster


@pytest.fixture
async def ha(tmp_path: Path) -> AsyncIterator[HaCluster]:
    """A cluster with a name server; its brokers are stopped with it."""
    async with contextlib.AsyncExitStack() as stack:
        cluster = HaCluster(stack, tmp_path)
        await cluster.start_name_server()
        yield cluster
