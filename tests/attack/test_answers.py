"""A false broker and a false name server: the answers of real ones, changed. The client goes on when they end."""

import asyncio
import contextlib
import random
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.client import Message, Producer, PullConsumer
from pocketmq.common.errors import PocketMQError
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NamesrvApp
from pocketmq.remoting.frame import MSGPACK
from tests.broker.conftest import store_config

pytestmark = pytest.mark.slow

ROUNDS = 12
Lie = Callable[[random.Random, bytes], bytes]


def flipped(rng: random.Random, frame: bytes) -> bytes:
    """Change a bit anywhere."""
    changed = bytearray(frame)
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(rng: random.Random, frame: bytes) -> bytes:
    """Announce the whole and send a part: the rest never comes."""
    return frame[: rng.randrange(len(frame))]


def noise(rng: random.Random, frame: bytes) -> bytes:
    """Answer with random bytes of a right length."""
    return frame[:8] + rng.randbytes(len(frame) - 8)


def other_body(rng: random.Random, frame: bytes) -> bytes:
    """Keep the header; the body is absurd."""
    header_bytes = struct.unpack(">I", frame[4:8])[0] & 0xFFFFFF
    body = rng.choice([b"", b"{}", b"[]", b"null", b"\0" * 999, b'{"brokerDatas":7}', b"[" * 3000, rng.randbytes(500)])
    head = frame[4 : 8 + header_bytes]
    return struct.pack(">I", len(head) + len(body)) + head + body


def edge_fields(rng: random.Random, frame: bytes) -> bytes:
    """Put numbers of the edges into the fields of a msgpack header."""
    word, body_at = struct.unpack(">I", frame[4:8])[0], 8 + (struct.unpack(">I", frame[4:8])[0] & 0xFFFFFF)
    if word >> 24 != MSGPACK:
        return flipped(rng, frame)
    header = msgspec.msgpack.decode(frame[8:body_at])
    if not isinstance(header[6], list) or not header[6]:
        return frame
    edge = rng.choice([-1, 0, 2**31, 2**63 - 1, -(2**63), None, "", [], [[0] * 9] * 2000])
    header[6][rng.randrange(len(header[6]))] = edge
    packed = msgspec.msgpack.encode(header)
    head = struct.pack(">I", word & 0xFF000000 | len(packed)) + packed
    return struct.pack(">I", len(head) + len(frame) - body_at) + head + frame[body_at:]


def twice(rng: random.Random, frame: bytes) -> bytes:
    """Answer each request two times."""
    return frame * 2


LIES: list[Lie] = [flipped, cut, noise, other_body, edge_fields, twice]
SILENT: list[Lie] = [cut, other_body]
"""These leave requests without an answer: the client waits for its timeouts."""


class Liar:
    """Between a client and a real server: passes requests on, and changes some of the answers while ``lie`` is set."""

    def __init__(self, port: int, seed: int) -> None:
        self._port = port
        self._rng = random.Random(seed)
        self._writers: set[asyncio.StreamWriter] = set()
        self.renamed = (b"-", b"-")
        self.lie: Lie | None = None
        self.lies = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.close()
        await asyncio.sleep(0)

    def cut_all(self) -> None:
        """End all connections: a client that waits for the rest of an answer would wait for its timeout."""
        for writer in list(self._writers):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers |= {writer, back}
        passing = asyncio.ensure_future(self._requests(reader, back))
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await there.readexactly(4)
                frame = head + await there.readexactly(struct.unpack(">I", head)[0])
                frame = frame.replace(*self.renamed)
                if self.lie is not None and self._rng.random() < 0.5:
                    self.lies += 1
                    frame = self.lie(self._rng, frame)
                writer.write(frame)
        passing.cancel()
        for each in (writer, back):
            each.close()
            self._writers.discard(each)

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
        writer.close()


class Cluster:
    """A name server and a broker, each behind a liar; the name server's liar names the broker's liar."""

    async def start(self, path: Path) -> None:
        self.namesrv = NamesrvApp(NamesrvConfig(listen_port=0))
        await self.namesrv.start()
        self.broker = BrokerApp(
            BrokerConfig(listen_port=0, namesrv_addr=f"127.0.0.1:{self.namesrv.port}"), store_config(path)
        )
        await self.broker.start()
        self.false_broker, self.false_namesrv = Liar(self.broker.port, 2), Liar(self.namesrv.port, 1)
        await self.false_broker.start()
        await self.false_namesrv.start()
        names = (b":%d" % self.broker.port, b":%d" % self.false_broker.port)
        assert len(names[0]) == len(names[1])
        self.false_namesrv.renamed = names

    async def stop(self) -> None:
        for each in (self.false_broker, self.false_namesrv, self.broker, self.namesrv):
            await each.stop()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    made = Cluster()
    await made.start(tmp_path)
    yield made
    await made.stop()


async def one_round(producer: Producer, consumer: PullConsumer, number: int) -> None:
    """Send and poll; errors of ours are what a lie may cause, any other would end an application."""
    with contextlib.suppress(PocketMQError):
        await producer.send(Message("T", b"%d" % number), timeout_ms=300)
    with contextlib.suppress(PocketMQError):
        await consumer.poll("T", timeout_ms=50)


@pytest.mark.parametrize(
    "lie",
    [pytest.param(lie, id=lie.__name__, marks=[pytest.mark.soak] if lie in SILENT else []) for lie in LIES],
)
async def test_a_client_outlives_absurd_answers(cluster: Cluster, lie: Lie) -> None:
    """While answers lie there are errors; when they end, the same producer and consumer go on."""
    namesrv = f"127.0.0.1:{cluster.false_namesrv.port}"
    async with Producer("p", namesrv=namesrv) as producer, PullConsumer("c", namesrv=namesrv) as consumer:
        await producer.send(Message("T", b"first"))
        liars = (cluster.false_broker, cluster.false_namesrv)
        for number in range(ROUNDS):
            for liar in liars:
                liar.lie = lie
            await one_round(producer, consumer, number)
            if number % 2:
                producer.instance.invalidate_route("T")
                for liar in liars:
                    liar.cut_all()
        assert cluster.false_broker.lies + cluster.false_namesrv.lies > 3
        for liar in liars:
            liar.lie = None
            liar.cut_all()
        consumer.instance.invalidate_route("T")  # a false one would be believed until the next look, up to 30 s later
        bodies: set[bytes] = set()
        while not any(body.startswith(b"after") for body in bodies):  # a lie may have moved the consumer too far
            with contextlib.suppress(PocketMQError):
                await producer.send(Message("T", b"after %d" % len(bodies)), timeout_ms=1000)
                bodies |= {message.body for message in await consumer.poll("T", timeout_ms=200)}
        assert producer.instance.supervisor.failures == {}
