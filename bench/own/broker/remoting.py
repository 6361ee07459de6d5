"""How far the remoting layer is from the floor: 1 KiB over loopback, one and 64 in flight.

Requests of a native append from ``ClientChannel`` to a ``RemotingServer`` in a process of its own that stores nothing:
both ends through frames and codec. The echo floor is that of ``pocketmq bench``. Beside them: encode and decode of one
native-append header in one process.
"""

import asyncio
import statistics
import tempfile
import timeit
from collections.abc import Iterator
from pathlib import Path

from bench.base.channel_load import ChannelLoad, open_channel
from bench.base.harness import Row, in_loop, scaled, served, tails
from pocketmq.cli.bench import floors
from pocketmq.common.clock import SystemClock
from pocketmq.common.events import NullLog
from pocketmq.remoting.codec import Request, decode_request, encode_request, encode_response
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frame import FrameDecoder, new_scratch
from pocketmq.remoting.frame_budget import FrameBudget
from pocketmq.remoting.protocol.hello import Announcement
from pocketmq.remoting.protocol.send import NativeAppendRequestHeader, NativeAppendResponseHeader
from pocketmq.remoting.server import Connection, RemotingServer, ServerConfig

BODY_BYTES = 1024
SECONDS = scaled(1.5, 0.3)
REQUEST = NativeAppendRequestHeader("bench", True, [("TopicTest", 3, 1)], 3000)
RESPONSE = NativeAppendResponseHeader(1_700_000_000_000, [(0, 123_456, [(1_234_567_890, 1)], "")])


class AppendHandler:
    """Answers a native append as a broker would, without storing anything."""

    def on_request(self, connection: Connection, request: Request) -> None:
        connection.respond(encode_response(0, request.opaque, request.code, header=RESPONSE))

    def on_open(self, connection: Connection) -> None: ...

    def on_close(self, connection: Connection, reason: str) -> None: ...


async def serve() -> None:
    """Serve until the process is ended; print the port first."""
    server = RemotingServer(
        ServerConfig(), AppendHandler(), announce=lambda _: Announcement(), log=NullLog(), clock=SystemClock()
    )
    await server.start()
    print(server.port, flush=True)
    await asyncio.Event().wait()


async def drive(port: int) -> list[Row]:
    """Load it."""
    body = bytes(BODY_BYTES)
    load = ChannelLoad(await open_channel(f"127.0.0.1:{port}"), lambda _: (RequestCode.NATIVE_APPEND, REQUEST, body))
    rows: list[Row] = []
    for in_flight in (1, 64):
        row = await load.run(in_flight, seconds=SECONDS)
        rows.append({"case": "channel", "in_flight": in_flight, "per_s": round(row.rate), **tails(row)})
    await load.close()
    return rows


def header_cost() -> Row:
    """Encode and decode one native-append request header with one section."""
    frame_bytes = b"".join(encode_request(RequestCode.NATIVE_APPEND, 7, REQUEST, b"x"))
    (frame,) = FrameDecoder(new_scratch(), FrameBudget()).feed(frame_bytes)
    count = scaled(20_000, 2_000)
    encode = timeit.repeat(lambda: encode_request(RequestCode.NATIVE_APPEND, 7, REQUEST, b"x"), number=count, repeat=7)
    decode = timeit.repeat(lambda: decode_request(frame), number=count, repeat=7)
    return {
        "case": "native append header",
        "encode_us": round(statistics.median(encode) / count * 1e6, 2),
        "decode_us": round(statistics.median(decode) / count * 1e6, 2),
    }


def run() -> Iterator[Row]:
    """Yield the header's cost, the floors, the loads."""
    yield header_cost()
    with tempfile.TemporaryDirectory() as directory:
        for floor in in_loop(floors.measure(Path(directory), quick=True)):
            yield {"floor": floor.name, "per_s": round(floor.rate), "p50_ms": floor.p50_ms and round(floor.p50_ms, 4)}
    with served(__name__) as (_, port):
        yield from in_loop(drive(int(port)))


if __name__ == "__main__":
    in_loop(serve())
