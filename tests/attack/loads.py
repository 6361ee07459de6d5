"""The loads of a hostile or broken peer, one function each: python -m tests.attack.loads NAME PORT SECONDS.

Each runs in a process of its own against one broker, for about so many seconds, and obeys no refusal.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Self

from pocketmq.common.record import PGROUP, TRAN_MSG, encode_properties
from pocketmq.remoting.codec import decode_response_of, encode_request
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import WrongDirection
from pocketmq.remoting.frame import FRAME_BYTES_MAX, JSON, SCRATCH_BYTES, FrameDecoder, new_scratch
from pocketmq.remoting.frame_budget import FrameBudget
from pocketmq.remoting.protocol.authenticate import AuthenticateRequestHeader
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.client import ConsumerData, HeartbeatData, SubscriptionData
from pocketmq.remoting.protocol.group import GetBrokerConsumeStatsRequestHeader
from pocketmq.remoting.protocol.offset import UpdateConsumerOffsetRequestHeader
from pocketmq.remoting.protocol.pull import NativePullRequestHeader
from pocketmq.remoting.protocol.send import SendMessageV2RequestHeader
from pocketmq.remoting.security.credentials import Credentials
from pocketmq.remoting.security.signature import sign
from pocketmq.remoting.string_map import WRITERS
from tests.broker.raw_client import RawClient

MIB: Final = 1 << 20
SCRATCH: Final = new_scratch()


class Peer(RawClient):
    """A connection that does not mind being closed."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        return self

    async def _read(self) -> None:
        """As ``RawClient``, without the requests that a broker sends."""
        decoder = FrameDecoder(SCRATCH, FrameBudget(FRAME_BYTES_MAX + SCRATCH_BYTES))
        with contextlib.suppress(OSError):
            while data := await self._reader.read(65_536):
                for frame in decoder.feed(data):
                    with contextlib.suppress(WrongDirection):
                        response = decode_response_of(frame, self._codes.get)
                        if response is not None:
                            self.answers[response.opaque] = response
                self._news.set()
        self._writer.close()

    async def ask(self, code: int, header: Any = None, body: bytes = b"") -> Any:
        """Return the answer to a request, or None when the connection is closed or nothing came for 10 s."""
        try:
            opaque = self.post(code, header, body)
            await self.drain()
            async with asyncio.timeout(10):
                return await self.answer(opaque)
        except (TimeoutError, OSError):
            return None


async def wide_filters(port: int, until_s: float) -> None:
    """Six consumers pull a thousand queues with filters of hundreds of comparisons that match nothing."""
    async with Peer(port) as filler:
        for number in range(3000):
            filler.post_send(b"x", topic=f"Wide{number % 4}", queue_id=number // 4 % 4)
            if not number % 100:
                await filler.drain()
        await filler.ask(RequestCode.HELLO)
    wide = " OR ".join(f"a{number} = 'x'" for number in range(500))
    wider = " OR ".join(f"a > {number}" for number in range(1700))
    queues = [(f"Wide{number % 4}", number // 4 % 4, 0) for number in range(16)]

    async def one(seed: int) -> None:
        async with Peer(port) as peer:
            while time.monotonic() < until_s:
                for asked, expression in ((queues * 64, wide), (queues, wider), (queues, wide)):
                    header = NativePullRequestHeader(f"g{seed}", asked, 4 * MIB, 1000, 0, expression, "SQL92")
                    await peer.ask(RequestCode.NATIVE_PULL, header)

    await asyncio.gather(*(one(seed) for seed in range(6)))


async def flood_of_filters(port: int, until_s: float) -> None:
    """One connection queues hundreds of such pulls at once, again and again."""
    async with Peer(port) as filler:
        for number in range(3000):
            filler.post_send(b"x", topic="Wide0", queue_id=number % 4)
        await filler.ask(RequestCode.HELLO)
    wide = " OR ".join(f"a{number} = 'x'" for number in range(500))
    queues = [("Wide0", number, 0) for number in range(4)]
    while time.monotonic() < until_s:
        async with Peer(port) as peer:
            header = NativePullRequestHeader("g", queues, 4 * MIB, 1000, 0, wide, "SQL92")
            for _ in range(300):
                peer.post(RequestCode.NATIVE_PULL, header)
            await peer.drain()
            await asyncio.sleep(1)


async def long_texts(port: int, until_s: float) -> None:
    """Heartbeats with a client id, a filter or thousands of topics that fill a frame."""
    count = 0
    async with contextlib.AsyncExitStack() as stack:
        peers = [Peer(port, JSON) for _ in range(4)]
        for peer in peers:
            await stack.enter_async_context(peer)
        while time.monotonic() < until_s:
            for peer in peers:
                count += 1
                text = str(count).ljust(15 * MIB, "x")
                long_id = HeartbeatData(client_id=text)
                long_filter = _heartbeat(f"me{count}", f"g{count}", [SubscriptionData(topic="T", sub_string=text)])
                many = [SubscriptionData(topic=f"T{n}-{count}", sub_string="y" * 3000) for n in range(600)]
                for body in (encode_body(long_id), long_filter, _heartbeat(f"you{count}", f"h{count}", many)):
                    await peer.ask(RequestCode.HEART_BEAT, None, body)


async def wide_heartbeats(port: int, until_s: float) -> None:
    """A client of 30 groups with 4,000 topics each."""
    topics = [SubscriptionData(topic=f"T{number}", sub_string="*") for number in range(4000)]
    data = [ConsumerData(group_name=f"wide{number}", subscription_data_set=topics) for number in range(30)]
    body = encode_body(HeartbeatData(client_id="wide", consumer_data_set=data))
    async with Peer(port, JSON) as peer:
        while time.monotonic() < until_s:
            await peer.ask(RequestCode.HEART_BEAT, None, body)


def _heartbeat(client_id: str, group: str, subscriptions: list[SubscriptionData]) -> bytes:
    data = ConsumerData(group_name=group, subscription_data_set=subscriptions)
    return encode_body(HeartbeatData(client_id=client_id, consumer_data_set=[data]))


async def joins(port: int, until_s: float) -> None:
    """Three thousand consumers join one group; one and a half thousand leave and come again."""
    began_s = time.monotonic()
    async with contextlib.AsyncExitStack() as stack:
        peers: list[Peer] = []
        for number in range(3000):
            peer = Peer(port)
            await stack.enter_async_context(peer)
            peers.append(peer)
            peer.post(RequestCode.HEART_BEAT, None, _heartbeat(f"c{number}", "crowd", [SubscriptionData(topic="T")]))
        for peer in peers:
            await peer.answer(1)
        print(f"joined in {time.monotonic() - began_s:.1f} s")
        await asyncio.sleep(until_s - time.monotonic())


async def invented_halves(port: int, until_s: float) -> None:
    """Half messages of groups that no producer belongs to."""
    async with Peer(port) as peer:
        group = 0
        while time.monotonic() < until_s:
            group += 1
            properties = encode_properties({TRAN_MSG: "true", PGROUP: f"invented{group % 50}"}).decode()
            header = SendMessageV2RequestHeader("producers", "T", "TBW102", 4, 0, 4, 1_700_000_000_000, 0, properties)
            opaques = [peer.post(RequestCode.SEND_MESSAGE_V2, header, b"half") for _ in range(500)]
            await peer.drain()
            last = await peer.answer(opaques[-1])
        print(last.code, last.remark)


async def refused_headers(port: int, until_s: float) -> None:
    """Frames that are a header of 16 MiB, of a kind that is refused."""
    length = 16 * MIB - 4
    header = b"\xdd" + (length - 5).to_bytes(4, "big") + b"\x01" * (length - 5)
    frame = (length + 4).to_bytes(4, "big") + (2 << 24 | (length & 0xFFFFFF)).to_bytes(4, "big") + header
    while time.monotonic() < until_s:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(frame)
            await writer.drain()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2):
                    await reader.read(1)
            writer.close()


async def empty_batches(port: int, until_s: float) -> None:
    """Batches of 60,000 and of 10,000 messages without a body."""
    one = (22).to_bytes(4, "big") + b"\0" * 18  # size, magic, crc, flag, body length, properties length
    header = SendMessageV2RequestHeader("producers", "T", "TBW102", 4, 0, 0, 1_700_000_000_000, 0, "", batch=True)
    async with Peer(port) as peer:
        while time.monotonic() < until_s:
            for count in (60_000, 10_000):
                answer = await peer.ask(RequestCode.SEND_MESSAGE_V2, header, one * count)
        print(None if answer is None else (answer.code, answer.remark))


async def admin_walks(port: int, until_s: float) -> None:
    """Offsets of thousands of invented groups, and requests that walk over all groups, topics and clients."""
    codes = (
        (RequestCode.GET_ALL_CONSUMER_OFFSET, None),
        (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, None),
        (RequestCode.GET_ALL_TOPIC_CONFIG, None),
        (RequestCode.GET_BROKER_CONSUME_STATS, GetBrokerConsumeStatsRequestHeader(False)),
    )

    async def walk() -> None:
        async with Peer(port) as peer:
            while time.monotonic() < until_s:
                for code, header in codes:
                    await peer.ask(code, header)

    async with Peer(port) as filler:
        await filler.answer(filler.post_send(b"x", topic="Walked"))
        for number in range(20_000):
            filler.post(
                RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader(f"w{number}", "Walked", 0, 0)
            )
            if not number % 500:
                await filler.drain()
    await asyncio.gather(*(walk() for _ in range(4)))


async def idle_connections(port: int, until_s: float) -> None:
    """As many connections as the broker takes, which then say nothing."""
    writers: list[asyncio.StreamWriter] = []
    with contextlib.suppress(OSError):
        while len(writers) < 10_000:
            writers.append((await asyncio.open_connection("127.0.0.1", port))[1])
    print(len(writers))
    await asyncio.sleep(until_s - time.monotonic())


ELSEWHERE: Final = "127.0.0.2"
"""The address of a load that shares none with the bystander."""


async def wrong_signatures(port: int, until_s: float) -> None:
    """RocketMQ's requests with wrong signatures, thousands a read; a connection that ends is followed by the next."""
    keys = Credentials("bystander", "not-its-secret")
    header = GetBrokerConsumeStatsRequestHeader(False)
    frames = b""
    for opaque in range(500):
        extra = sign(keys, WRITERS[type(header)](header), b"")
        code = RequestCode.GET_BROKER_CONSUME_STATS
        frames += b"".join(encode_request(code, opaque, header, serialize_type=JSON, extra=extra))
    sent = connections = 0

    async def one() -> None:
        nonlocal sent, connections
        while time.monotonic() < until_s:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(ELSEWHERE, 0))
                connections += 1
                while not reader.at_eof() and time.monotonic() < until_s:
                    writer.write(frames)
                    await writer.drain()
                    sent += 500
                    await reader.read(1 << 20)
                writer.close()

    await asyncio.gather(*(one() for _ in range(20)))
    print(f"{sent} wrong signatures, {connections} connections")


async def wrong_proofs(port: int, until_s: float) -> None:
    """As fast as connections can be made: each says hello and proves itself with the wrong secret, without waiting."""
    proof = AuthenticateRequestHeader(user="bystander", nonce="n" * 16, proof="0" * 64)
    frames = b"".join(encode_request(RequestCode.HELLO, 1)) + b"".join(
        encode_request(RequestCode.AUTHENTICATE, 2, proof)
    )
    connections = 0

    async def one() -> None:
        nonlocal connections
        while time.monotonic() < until_s:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(ELSEWHERE, 0))
                connections += 1
                writer.write(frames)
                await reader.read()
                writer.close()

    await asyncio.gather(*(one() for _ in range(50)))
    print(f"{connections} wrong proofs")


async def sends_over_the_limit(port: int, until_s: float) -> None:
    """A client that sends as fast as it can, whatever it is told."""
    sent = 0
    while time.monotonic() < until_s:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(ELSEWHERE, 0))
            header = SendMessageV2RequestHeader("producers", "Over", "TBW102", 4, 0, 0, 1_700_000_000_000, 0)
            frames = b"".join(
                b"".join(encode_request(RequestCode.SEND_MESSAGE_V2, n, header, b"x")) for n in range(500)
            )
            reading = asyncio.create_task(_read_all(reader))
            while time.monotonic() < until_s and not reading.done():
                writer.write(frames)
                sent += 500
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(until_s - time.monotonic()):
                        await writer.drain()
            writer.close()
            await reading
    print(f"{sent} sends")


async def _read_all(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        while await reader.read(1 << 20):
            pass


PROTECTED: Final[dict[str, object]] = {
    "auth__authentication_enabled": True,
    "auth__init_username": "bystander",
    "auth__init_password": "bystander-secret",
}
SETTINGS: Final[dict[str, dict[str, object]]] = {
    "wrong_signatures": PROTECTED,
    "wrong_proofs": PROTECTED,
    "sends_over_the_limit": {"limits__address_messages_in_per_second": 1_000},
}
"""Settings of the broker for a load, beside the usual ones."""
LOADS: Final[dict[str, Callable[[int, float], Awaitable[None]]]] = {
    load.__name__: load
    for load in (
        wide_filters,
        flood_of_filters,
        long_texts,
        wide_heartbeats,
        joins,
        invented_halves,
        refused_headers,
        empty_batches,
        idle_connections,
        admin_walks,
        wrong_signatures,
        wrong_proofs,
        sends_over_the_limit,
    )
}


def main() -> None:
    """Run one load."""
    name, port, seconds = sys.argv[1:]
    asyncio.run(LOADS[name](int(port), time.monotonic() + float(seconds)))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
