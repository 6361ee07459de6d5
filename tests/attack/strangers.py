"""Strangers: programs that reach a port and send what no client sends, until their time is over.

Each of ``STRANGERS`` is a blocking function of (ports, seconds, seed). It runs in a process of its own and takes any
answer, or none: what counts is how the attacked process fares. ``edge_requests`` yields requests to every code of the
protocol, with each field of its header missing or at an edge, in all three codecs.
"""

import json
import os
import random
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from pocketmq.remoting.frame import BINARY, JSON, MSGPACK
from pocketmq.remoting.protocol import PROTOCOL
from pocketmq.remoting.protocol.spec import Pool, Spec
from pocketmq.store.ha import wire

TOPIC: Final = "T"
NUMBERS: Final = (0, -1, 1, 2**31 - 1, 2**31, 2**53, 2**63 - 1, -(2**63), 2**63)
TEXTS: Final = ("", "..", "../../escaped", "/escaped", "x\0y", "a" * 127, "a" * 70_000, "\x1b[31m", "%RETRY%", "NaN")
ODD: Final[tuple[Any, ...]] = (None, True, 1e308, [], [[]], {}, [["T", 0, 0]] * 1024)
ODD_TEXTS: Final = ("", "null", "true", "1e999", "-0", "[]", "{}", "9" * 5_000)


@dataclass(frozen=True, slots=True)
class Ports:
    """The attacked ports on loopback."""

    broker: int
    namesrv: int
    ha: int
    http: int


def connect(port: int, *, receive_bytes: int = 0) -> socket.socket:
    """Return a connection that blocks for two seconds at most."""
    made = socket.socket()
    if receive_bytes:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    made.settimeout(2)
    made.connect(("127.0.0.1", port))
    return made


def packed(code: int, opaque: int, fields: list[Any] | None, body: bytes = b"", flag: int = 0) -> bytes:
    """Return a frame with a header in msgpack, whatever the fields."""
    header = msgspec.msgpack.encode([code, opaque, flag, 401, 8, None, fields])
    return framed(MSGPACK, header, body)


def framed(kind: int, header: bytes, body: bytes) -> bytes:
    """Return the frame around a header and a body."""
    return struct.pack(">II", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def in_json(code: int, opaque: int, fields: dict[str, str], body: bytes = b"") -> bytes:
    """Return a frame with a JSON header."""
    header = {"code": code, "opaque": opaque, "flag": 0, "version": 401, "language": "JAVA", "extFields": fields}
    return framed(JSON, json.dumps(header).encode(), body)


def in_binary(code: int, opaque: int, fields: dict[str, str], body: bytes = b"") -> bytes:
    """Return a frame with a header of RocketMQ's binary codec."""
    extra = b"".join(
        struct.pack(">H", len(name.encode())) + name.encode() + struct.pack(">I", len(text.encode())) + text.encode()
        for name, text in fields.items()
    )
    header = struct.pack(">hBhiiI", code & 0x7FFF, 0, 401, opaque, 0, 0) + struct.pack(">I", len(extra)) + extra
    return framed(BINARY, header, body)


def camel(name: str) -> str:
    """Return a field's name on RocketMQ's wire."""
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)


def usual(name: str, kind: Any) -> Any:
    """Return a value of a field that is taken, by its name and type."""
    text = str(kind)
    if "list" in text:
        return [[TOPIC, 0, 0]]
    if "bool" in text:
        return False
    if "int" in text:
        return 0
    return TOPIC if "topic" in name else "somebody"


def edge_requests(rng: random.Random, is_wanted: Callable[[Spec], bool]) -> Iterator[bytes]:
    """Yield each wanted code with each field of its header missing or at an edge, and with bodies that are none."""
    opaque = 0
    bodies = [b"", b"{}", b"[]", b"null", b"\0" * 100, b'{"a":' * 500, rng.randbytes(300), b"\xff" * 5000]
    for code, spec in PROTOCOL.items():
        if not is_wanted(spec):
            continue
        names = spec.request.__struct_fields__ if spec.request else ()
        kinds = spec.request.__annotations__ if spec.request else {}
        whole = [usual(name, kinds.get(name, str)) for name in names]
        texts = {camel(name): str(value) for name, value in zip(names, whole, strict=True)}
        for body in bodies:
            opaque += 1
            yield packed(code, opaque, whole, body)
            yield in_json(code, opaque, texts, body)
            yield in_binary(code, opaque, texts, body)
        yield packed(code, opaque, None)
        yield in_json(code, opaque, {})
        for at, name in enumerate(names):
            yield packed(code, opaque, whole[:at])
            yield in_json(code, opaque, {key: text for key, text in texts.items() if key != camel(name)})
            for value in (*NUMBERS, *TEXTS, *ODD):
                opaque += 1
                yield packed(code, opaque, [*whole[:at], value, *whole[at + 1 :]], rng.choice(bodies))
            for edge in (*map(str, NUMBERS), *TEXTS[:6], *ODD_TEXTS):
                opaque += 1
                fields = {**texts, camel(name): edge}
                yield in_json(code, opaque, fields, rng.choice(bodies))
                if rng.random() < 0.3:
                    yield in_binary(code, opaque, fields, rng.choice(bodies))


def exchange(port: int, frames: list[bytes], rng: random.Random) -> None:
    """Send frames over one connection, reading what comes; leave in the middle at random."""
    with suppress(OSError), connect(port) as peer:
        for frame in frames:
            peer.sendall(frame[: rng.randrange(len(frame))] if rng.random() < 0.01 else frame)
            while select.select([peer], [], [], 0)[0]:
                if not peer.recv(1 << 16):
                    return


def edges(port: int, seconds: float, seed: int, is_wanted: Callable[[Spec], bool]) -> None:
    """Send all edge requests, again and again."""
    rng, end = random.Random(seed), time.monotonic() + seconds
    while time.monotonic() < end:
        frames: list[bytes] = []
        for frame in edge_requests(rng, is_wanted):
            frames.append(frame)
            if len(frames) == 8:
                exchange(port, frames, rng)
                frames = []
            if time.monotonic() > end:
                return


def of_broker(spec: Spec) -> bool:
    """Say whether a code is sent to a broker; the name server's codes are, as well, now and then."""
    return spec.pool is not Pool.CLIENT


def broker_edges(ports: Ports, seconds: float, seed: int) -> None:
    """Every code of the broker with every field at its edges."""
    edges(ports.broker, seconds, seed, of_broker)


def namesrv_edges(ports: Ports, seconds: float, seed: int) -> None:
    """Every code of the name server with every field at its edges."""
    edges(ports.namesrv, seconds, seed, lambda spec: spec.pool is Pool.NAME_SERVER)


def random_frames(ports: Ports, seconds: float, seed: int) -> None:
    """Bytes, and frames around bytes, at all four ports."""
    rng, end = random.Random(seed), time.monotonic() + seconds
    valid = [packed(11, 1, ["g", TOPIC, 0, 0, 32, 0, 0, 0, None, 0]), in_json(310, 1, {"a": "g", "b": TOPIC}, b"x")]
    while time.monotonic() < end:
        port = rng.choice([ports.broker, ports.broker, ports.namesrv, ports.ha, ports.http])
        noise = rng.randbytes(rng.choice([1, 7, 40, 900, 60_000]))
        flipped = bytearray(rng.choice(valid))
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        head = struct.pack(">II", rng.choice([0, 3, 4, len(noise) + 4, 2**31, 2**24]), rng.randrange(2**32))
        exchange(port, [rng.choice([noise, bytes(flipped), head + noise, framed(rng.randrange(5), noise, noise)])], rng)


def half_frames(ports: Ports, seconds: float, seed: int) -> None:
    """Hundreds of connections that announce 16 MiB and send a byte now and then."""
    rng, end = random.Random(seed), time.monotonic() + seconds
    held = []
    with suppress(OSError):
        for number in range(300):
            peer = connect(ports.broker if number % 3 else ports.namesrv)
            peer.sendall(struct.pack(">II", (16 << 20) - 100, MSGPACK << 24 | 60) + b"x" * rng.randrange(200_000))
            held.append(peer)
    while time.monotonic() < end:
        with suppress(OSError):
            rng.choice(held).sendall(b"x")
        time.sleep(0.01)


def silent_readers(ports: Ports, seconds: float, seed: int) -> None:
    """Many requests with long answers, over connections that read nothing."""
    held: list[Any] = []
    end = time.monotonic() + seconds
    code_of = {ports.broker: 21, ports.namesrv: 206}
    for number in range(600):
        port = (ports.broker, ports.namesrv)[number % 2]
        with suppress(OSError):
            peer = connect(port, receive_bytes=4096)
            peer.setblocking(False)
            held.append((peer, in_json(code_of[port], number, {})))
    while time.monotonic() < end:
        for peer, frame in held:
            with suppress(OSError):
                peer.send(frame * 50)
        time.sleep(0.02)


def closed_at_once(ports: Ports, seconds: float, seed: int) -> None:
    """Connections that send a request and are gone, and connections that send nothing."""
    rng, end = random.Random(seed), time.monotonic() + seconds
    pull = in_json(11, 1, pull_fields("gone", 20_000))
    while time.monotonic() < end:
        with suppress(OSError):
            peer = connect(rng.choice([ports.broker, ports.namesrv, ports.ha, ports.http]))
            if rng.random() < 0.7:
                peer.sendall(pull)
            if rng.random() < 0.5:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()


def pull_fields(group: str, suspend_ms: int, queue_id: int = 0, expression: str = "*") -> dict[str, str]:
    """Return the header of a pull that waits at the end of a queue."""
    return {
        "consumerGroup": group,
        "topic": TOPIC,
        "queueId": str(queue_id),
        "queueOffset": "99999999",
        "maxMsgNums": "32",
        "sysFlag": "6",
        "commitOffset": "0",
        "suspendTimeoutMillis": str(suspend_ms),
        "subscription": expression,
        "subVersion": "0",
    }


def oneway_flood(ports: Ports, seconds: float, seed: int) -> None:
    """Requests that want no answer, as fast as the peer takes them."""
    end = time.monotonic() + seconds
    beat = {"clientID": "c" * 1000, "producerDataSet": [{"groupName": f"p{n}"} for n in range(50)]}
    body = json.dumps(beat).encode()
    header = {"code": 34, "opaque": 1, "flag": 2, "version": 401, "language": "JAVA", "extFields": {}}
    chunk = framed(JSON, json.dumps(header).encode(), body) * 20 + packed(9_999, 1, None, b"x" * 1000, 2) * 20
    while time.monotonic() < end:
        with suppress(OSError), connect(ports.broker) as peer:
            while time.monotonic() < end:
                peer.sendall(chunk)


def held_pulls(ports: Ports, seconds: float, seed: int) -> None:
    """Pulls that wait, by the hundred thousand, over a few connections."""
    end = time.monotonic() + seconds
    chunk = b"".join(
        in_json(11, n, pull_fields(f"g{n}" + "x" * 100, 300_000, n % 4, "a || " * 100 + "b")) for n in range(500)
    )
    held = []
    while time.monotonic() < end:
        with suppress(OSError):
            peer = connect(ports.broker)
            peer.settimeout(0.2)
            held.append(peer)
            for _ in range(20):
                peer.sendall(chunk)
        if len(held) > 50:
            held.pop(0).close()


def new_names(ports: Ports, seconds: float, seed: int) -> None:
    """Names that nobody had before: topics, groups, clients, locks, offsets, routes, keys and values."""
    rng, end, number = random.Random(seed), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        with suppress(OSError), connect(ports.broker) as broker, connect(ports.namesrv) as namesrv:
            for _ in range(200):
                number += 1
                name = f"n{number}-{rng.randrange(1 << 30)}".ljust(rng.choice([20, 120]), "x")
                lock = json.dumps(
                    {
                        "consumerGroup": name,
                        "clientId": name,
                        "mqSet": [{"topic": name, "brokerName": "b", "queueId": 0}],
                    }
                ).encode()
                broker.sendall(
                    in_json(15, 1, {"consumerGroup": name, "topic": name, "queueId": "0", "commitOffset": "7"})
                    + in_json(41, 2, {}, lock)
                    + in_json(200, 3, {}, json.dumps({"groupName": name}).encode())
                    + in_json(310, 4, {"a": name, "b": name, "c": "TBW102", "d": "4", "e": "0", "f": "0"}, b"x")
                    + in_json(35, 5, {"clientID": name, "producerGroup": name})
                )
                namesrv.sendall(
                    in_json(100, 1, {"namespace": name, "key": name, "value": name * 50})
                    + in_json(105, 2, {"topic": name})
                    + in_json(30410, 3, {"brokerName": name, "epoch": "1", "owner": name, "address": "127.0.0.1:1"})
                )
                for peer in (broker, namesrv):
                    while select.select([peer], [], [], 0)[0] and peer.recv(1 << 16):
                        pass


def false_slaves(ports: Ports, seconds: float, seed: int) -> None:
    """Handshakes with invented names, frames of every kind with numbers at the edges, and silence."""
    rng, end = random.Random(seed), time.monotonic() + seconds
    held: list[socket.socket] = []
    while time.monotonic() < end:
        with suppress(OSError):
            peer = connect(ports.ha)
            hello = {
                "cluster": rng.choice(["DefaultCluster", "x" * 300, ""]),
                "broker_name": rng.choice(["broker-a", "../x"]),
                "node": rng.choice(["n" * 16, "", "\0", "m" * 10_000]),
                "epochs": rng.choice([[], [[1, "o", 0]] * 5, [[2**62, "o", -1]], [[0, "", 2**63 - 1]]]),
                "promised": rng.choice([[0, ""], [2**53, "x"]]),
            }
            if rng.random() < 0.8:
                peer.sendall(wire.PREAMBLE + wire._framed(wire.HELLO, msgspec.msgpack.encode(hello)))
                kind = rng.choice(sorted(wire.FROM_SLAVE | wire.FROM_MASTER))
                edge = [rng.choice([0, 1, 2**62, 2**63, 2**64 - 1]) for _ in range(3)]
                payload = struct.pack(">QQQ", *edge) + rng.randbytes(rng.choice([0, 4, 100]))
                peer.sendall(struct.pack(">IB", len(payload) + 5, kind) + rng.randbytes(4) + payload)
            held.append(peer)
        if len(held) > 60:
            held.pop(rng.randrange(len(held))).close()


def odd_http(ports: Ports, seconds: float, seed: int) -> None:
    """Lines without end, headers byte by byte, methods that are none, and pages asked for and not read."""
    rng, end = random.Random(seed), time.monotonic() + seconds
    held: list[socket.socket] = []
    pages = ["/metrics", "/health", "/stacks", "/../../etc/passwd", "/" + "a" * 70_000, "/%00", "/metrics?x=\x1b[31m"]
    while time.monotonic() < end:
        with suppress(OSError):
            peer = connect(ports.http, receive_bytes=4096)
            method = rng.choice(["GET", "POST", "\0", "GET" * 5_000])
            lines = f"{method} {rng.choice(pages)} HTTP/1.1\r\nContent-Length: {rng.choice(['-1', '9' * 40, '5'])}\r\n"
            peer.sendall(lines.encode() + (b"\r\n" if rng.random() < 0.7 else b"X: " + b"y" * rng.randrange(90_000)))
            held.append(peer)
        if len(held) > 200:
            held.pop(rng.randrange(len(held))).close()


def idle_connections(ports: Ports, seconds: float, seed: int) -> None:
    """Thousands of connections that stay open and say nothing."""
    held: list[Any] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if len(held) < 3_000:
            with suppress(OSError):
                held.append(connect((ports.broker, ports.namesrv)[len(held) % 2]))
                continue
        time.sleep(0.05)


STRANGERS: Final[dict[str, Callable[[Ports, float, int], None]]] = {
    each.__name__: each
    for each in (
        broker_edges,
        namesrv_edges,
        random_frames,
        half_frames,
        silent_readers,
        closed_at_once,
        oneway_flood,
        held_pulls,
        new_names,
        false_slaves,
        odd_http,
        idle_connections,
    )
}


def main(arguments: list[str]) -> None:
    """Run one stranger: ``NAME SECONDS SEED BROKER NAMESRV HA HTTP``."""
    name, seconds, seed, *ports = arguments
    os.nice(5)
    STRANGERS[name](Ports(*map(int, ports)), float(seconds), int(seed))
