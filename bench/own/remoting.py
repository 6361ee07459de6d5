"""How far the remoting layer is from the floor: echo of 1 KiB over loopback, one and 64 in flight.

    python -m bench.own.remoting [--seconds 2] [--loop uvloop|asyncio] [--json]

Cases, server and client in processes of their own:
  floor     raw BufferedProtocol echo at both ends: what the loop and the kernel allow
  server    pre-built native-append frames against ``RemotingServer`` (decode, handler, encode), raw client
  channel   ``ClientChannel.request_nowait`` against ``RemotingServer``: both ends through the codec

Beside them: encode and decode of one native-append header in one process.
"""

import argparse
import asyncio
import json
import multiprocessing
import statistics
import time
import timeit
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection as Pipe
from typing import Any, cast

from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.events import NullLog
from pocketmq.remoting.bodies import Announcement
from pocketmq.remoting.channel import ClientChannel
from pocketmq.remoting.codec import Request, Response, decode_request, encode_request, encode_response
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frame import FrameDecoder, new_scratch
from pocketmq.remoting.frame_budget import FrameBudget
from pocketmq.remoting.headers import NativeAppendRequestHeader, NativeAppendResponseHeader
from pocketmq.remoting.loop import new_event_loop
from pocketmq.remoting.server import Connection, RemotingServer, ServerConfig

BODY_BYTES = 1024
REQUEST = NativeAppendRequestHeader("bench", True, [("TopicTest", 3, 1)], 3000)
RESPONSE = NativeAppendResponseHeader(1_700_000_000_000, [(0, 123_456, [(1_234_567_890, 1)], "")])
Result = dict[str, Any]


def make_loop(kind: str) -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop() if kind == "asyncio" else new_event_loop()


class RawEcho(asyncio.BufferedProtocol):
    """Writes back what it reads."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._buffer = memoryview(bytearray(256 * 1024))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._transport.write(bytes(self._buffer[:nbytes]))


class AppendHandler:
    """Answers a native append as a broker would, without storing anything."""

    def on_request(self, connection: Connection, request: Request) -> None:
        connection.respond(encode_response(0, request.opaque, request.code, header=RESPONSE))

    def on_open(self, connection: Connection) -> None: ...

    def on_close(self, connection: Connection, reason: str) -> None: ...


def serve(kind: str, loop_kind: str, pipe: Pipe) -> None:
    """Run in a child process: serve until told to stop."""
    loop = make_loop(loop_kind)

    async def main() -> None:
        if kind == "floor":
            server = await loop.create_server(RawEcho, "127.0.0.1", 0)
            pipe.send(server.sockets[0].getsockname()[1])
        else:
            remoting = RemotingServer(
                ServerConfig(), AppendHandler(), announce=lambda c: Announcement(), log=NullLog(), clock=SystemClock()
            )
            await remoting.start()
            pipe.send(remoting.port)
        await loop.run_in_executor(None, pipe.recv)

    loop.run_until_complete(main())


class Load:
    """Keeps ``in_flight`` requests on their way for a time; notes count and latencies."""

    def __init__(self, in_flight: int, seconds: float, send: Callable[[], None], done: asyncio.Future[None]) -> None:
        self._send = send
        self._done = done
        self._in_flight = in_flight
        self._started_ns = time.perf_counter_ns()
        self._until_ns = self._started_ns + int(seconds * 1e9)
        self._sent_ns: list[int] = []
        self._next = 0
        self.latencies_ns: list[int] = []

    def start(self) -> None:
        for _ in range(self._in_flight):
            self._sent_ns.append(time.perf_counter_ns())
            self._send()

    def answered(self, count: int) -> None:
        now_ns = time.perf_counter_ns()
        for _ in range(count):  # answers come in order here
            self.latencies_ns.append(now_ns - self._sent_ns[self._next])
            self._next += 1
        if now_ns >= self._until_ns:
            if not self._done.done():
                self._done.set_result(None)
            return
        for _ in range(count):
            self._sent_ns.append(time.perf_counter_ns())
            self._send()

    def result(self) -> Result:
        elapsed_s = (time.perf_counter_ns() - self._started_ns) / 1e9
        cuts = statistics.quantiles(self.latencies_ns, n=1000)
        return {
            "per_s": round(len(self.latencies_ns) / elapsed_s),
            "p50_us": round(cuts[499] / 1000, 1),
            "p99_us": round(cuts[989] / 1000, 1),
        }


class RawClient(asyncio.BufferedProtocol):
    """Sends pre-built bytes; counts answers by size (floor) or by frame."""

    def __init__(self, message: bytes, decode: bool) -> None:
        self._message = message
        self._scratch = new_scratch()
        self._decoder = FrameDecoder(self._scratch, FrameBudget()) if decode else None
        self._out: list[bytes] = []
        self._rest = 0
        self.load: Load

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def send(self) -> None:
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.append(self._message)

    def _flush(self) -> None:
        self.transport.write(b"".join(self._out))
        self._out = []

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._decoder.get_buffer() if self._decoder else self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        if self._decoder:
            self.load.answered(len(self._decoder.buffer_updated(nbytes)))
        else:
            count, self._rest = divmod(self._rest + nbytes, len(self._message))
            self.load.answered(count)


async def drive(case: str, port: int, in_flight: int, seconds: float) -> Result:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    if case == "channel":
        channel = ClientChannel(f"127.0.0.1:{port}", clock=SystemClock(), log=NullLog())
        await channel.open()
        await channel.hello()
        body = bytes(BODY_BYTES)

        def answered(result: Response | PocketMQError) -> None:
            assert isinstance(result, Response) or done.done(), result
            load.answered(1)

        def send() -> None:
            channel.request_nowait(RequestCode.NATIVE_APPEND, REQUEST, body, timeout_ms=3000, done=answered)

        load = Load(in_flight, seconds, send, done)
        load.start()
        await done
        result = load.result()
        channel.close()
        await channel.wait_closed()
        return result
    if case == "server":
        message = b"".join(encode_request(RequestCode.NATIVE_APPEND, 7, REQUEST, bytes(BODY_BYTES)))
    else:
        message = bytes(BODY_BYTES)
    transport, client = await loop.create_connection(lambda: RawClient(message, case == "server"), "127.0.0.1", port)
    load = Load(in_flight, seconds, client.send, done)
    client.load = load
    load.start()
    await done
    result = load.result()
    transport.close()
    await asyncio.sleep(0)
    return result


def run_case(case: str, loop_kind: str, in_flight: int, seconds: float) -> Result:
    """Start a server process, load it, stop it; return rate and latencies."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(case, loop_kind, theirs), daemon=True)
    process.start()
    port = ours.recv()
    loop = make_loop(loop_kind)
    try:
        return loop.run_until_complete(drive(case, port, in_flight, seconds))
    finally:
        loop.close()
        ours.send(None)
        process.join(5)


def header_cost() -> Result:
    """Encode and decode one native-append request header with one section."""
    body = b"x"
    (frame,) = FrameDecoder(new_scratch(), FrameBudget()).feed(
        b"".join(encode_request(RequestCode.NATIVE_APPEND, 7, REQUEST, body))
    )
    count = 20_000
    encode = timeit.repeat(lambda: encode_request(RequestCode.NATIVE_APPEND, 7, REQUEST, body), number=count, repeat=7)
    decode = timeit.repeat(lambda: decode_request(frame), number=count, repeat=7)
    return {
        "encode_us": round(statistics.median(encode) / count * 1e6, 2),
        "decode_us": round(statistics.median(decode) / count * 1e6, 2),
    }


def run(seconds: float = 1.5, loop_kind: str = "uvloop") -> Iterator[Result]:
    """Yield one result a case; the first key names it."""
    yield {"case": "native append header", **header_cost()}
    for in_flight in (1, 64):
        for case in ("floor", "server", "channel"):
            figures = run_case(case, loop_kind, in_flight, seconds)
            yield {"case": case, "in_flight": in_flight, "body_bytes": BODY_BYTES, "loop": loop_kind, **figures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--loop", choices=["uvloop", "asyncio"], default="uvloop")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for result in run(options.seconds, options.loop):
        print(json.dumps(result) if options.json else "  ".join(f"{key}={value}" for key, value in result.items()))


if __name__ == "__main__":
    main()
