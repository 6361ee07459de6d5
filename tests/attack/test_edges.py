"""Every request, with each field missing or at an edge, to a real broker and name server in this process.

Whatever comes is answered or closes its connection; nothing is an error of ours, nothing dies, nothing lies outside.
"""

import asyncio
import contextlib
import random
import re
import struct
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.common.logs import CapturedLog
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NamesrvApp
from pocketmq.remoting.protocol.spec import Pool
from tests.attack.strangers import edge_requests
from tests.broker.conftest import store_config

pytestmark = pytest.mark.slow

OURS = re.compile(
    rb"(Key|Type|Value|Attribute|Index|Assertion|Overflow|ZeroDivision|Recursion|Memory|Unicode\w*|OS|Lookup|Runtime)Error"
    rb"|Traceback|struct\.error|NoneType|msgspec\."
)
"""An exception of Python in an answer: a check that is missing. Refusals are ours, with words."""


class Site:
    """A name server and a broker, with their logs."""

    def __init__(self, path: Path) -> None:
        self.log = CapturedLog()
        self.namesrv = NamesrvApp(NamesrvConfig(listen_port=0, epoch_store_dir=str(path / "namesrv")), log=self.log)
        self.path = path

    async def start(self) -> None:
        await self.namesrv.start()
        config = BrokerConfig(listen_port=0, namesrv_addr=f"127.0.0.1:{self.namesrv.port}", topics_max=300)
        self.broker = BrokerApp(config, store_config(self.path / "store"), log=self.log)
        await self.broker.start()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path)
    await made.start()
    yield made
    await made.broker.stop()
    await made.namesrv.stop()


async def answers(port: int, frames: Iterator[bytes]) -> bytes:
    """Send frames, eight over a connection; return all answers. A frame that has none for a second has none."""
    found, waiting = bytearray(), list(frames)
    for first in range(0, len(waiting), 8):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        few = waiting[first : first + 8]
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            writer.writelines(few)
            async with asyncio.timeout(1):
                for _ in few:
                    head = await reader.readexactly(4)
                    found += head + await reader.readexactly(struct.unpack(">I", head)[0])
        writer.close()
    return bytes(found)


@pytest.mark.parametrize("target", ["broker", "name server"])
async def test_no_request_at_the_edges_is_an_error_of_ours(site: Site, target: str) -> None:
    """Codes that the target does not serve are sent to it, too."""
    seed = 7
    of_name_server = target == "name server"
    rng = random.Random(seed)
    everything = edge_requests(rng, lambda spec: spec.pool is not Pool.CLIENT)
    frames = (frame for number, frame in enumerate(everything) if number % 5 == 0)  # a fifth: see make deep for all
    port = site.namesrv.port if of_name_server else site.broker.port
    got = await answers(port, frames)
    assert len(got) > 50_000
    assert struct.unpack(">I", got[:4])[0] < 1 << 20
    found = OURS.search(got)
    assert found is None, got[max(0, found.start() - 300) : found.end() + 200]
    errors = [each for each in site.log.events if each.get("level") == "error" or "exc_info" in each]
    assert not errors
    assert site.broker.supervisor.failures == {}
    assert site.namesrv.supervisor.failures == {}
    assert {each.name for each in site.path.iterdir()} <= {"store", "namesrv"}
