"""The short path of RocketMQ's clients, with the wide one as its oracle."""

import asyncio
import json
import random
import re
import struct
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.common.record import decode_properties
from pocketmq.common.record_codec import decode_record
from pocketmq.remoting.codec import decode_response, encode_request, peek_response
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frame import BINARY, JSON, MSGPACK, PREFIX, Frame
from pocketmq.remoting.protocol.send import SendMessageRequestHeader
from pocketmq.remoting.string_map import wire_names
from tests.broker.send.test_short_path import IDS, TOPICS, Both, Peer, fill_disk, hold_sends, start
from tests.profiles import tries
from tests.sim.seeds import base_seed

SEND, SEND_V2 = int(RequestCode.SEND_MESSAGE), int(RequestCode.SEND_MESSAGE_V2)
LONG = dict(zip("abcdefghijklmn", wire_names(SendMessageRequestHeader).values(), strict=True))
BORN_HOST, STORE_TIME, STORE_HOST = slice(48, 56), slice(56, 64), slice(64, 72)
Fields = dict[str, Any]


class RocketMQPeer(Peer):
    """A peer that compares the answers to RocketMQ's requests byte for byte."""

    def row_of(self, frame: Frame, hello: int) -> tuple[Any, ...]:
        """Return what must be equal: all bytes, but for the broker's address, and for times in a refusal."""
        if frame.serialize_type == MSGPACK:
            return super().row_of(frame, hello)
        _, opaque, code = peek_response(frame)
        if code:
            response = decode_response(frame, SEND)
            extra = {name: value for name, value in response.extra.items() if name != "stages"}
            remark = re.sub(r"\d+ ms ahead", "ahead", response.remark)
            return (opaque, code, remark, str(response.header), str(extra))
        host = self.app.store.store_host.hex().upper().encode()
        return (opaque, code, frame.serialize_type, bytes(frame.header).replace(host, b"host"), bytes(frame.body))


def properties_of(*others: str, key: str = "") -> str:
    """Return properties as RocketMQ's Java client writes them."""
    return "\x02".join((f"UNIQ_KEY\x01{key or IDS.next()}", "WAIT\x01true", *others)) + "\x02"


def fields_of(rng: random.Random) -> Fields:
    """Return the fields of a plain send to one of the topics."""
    others = rng.choice(((), (), ("TAGS\x01a",), ("TAGS\x01b", "colour\x01blå"), ("__SHARDINGKEY\x01s",)))
    return {
        "a": rng.choice(("g", "group")),
        "b": rng.choice(TOPICS),
        "c": "TBW102",
        "d": "4",
        "e": str(rng.randrange(4)),
        "f": rng.choice(("0", "0", "1", "2")),
        "g": str(1_700_000_000_000 + rng.randrange(10**9)),
        "h": rng.choice(("0", "0", "7", "-1")),
        "i": properties_of(*others),
        "j": "0",
        "k": "false",
        "m": "false",
    }


def frame_of(kind: int, code: int, opaque: int, fields: Fields, body: bytes, flag: int = 0, **others: Any) -> bytes:
    """Return one request as RocketMQ's clients write it."""
    if code == SEND:
        fields = {LONG.get(name, name): value for name, value in fields.items()}
    if kind == JSON:
        command = {"code": code, "extFields": fields, "flag": flag, "language": "JAVA", "opaque": opaque}
        command |= {"serializeTypeCurrentRPC": "JSON", "version": 401} | others
        header = json.dumps(command, separators=(",", ":"), ensure_ascii=opaque % 2 == 0).encode(
            "utf-8", "surrogatepass"
        )
    else:
        packed = b""
        for name, value in fields.items():
            data = str(value).encode("utf-8", "surrogatepass")
            packed += struct.pack(">h", len(name.encode())) + name.encode() + struct.pack(">i", len(data)) + data
        header = struct.pack(">hBhiiii", code, 0, 401, opaque, flag, 0, len(packed)) + packed
    return PREFIX.pack(4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def plain_frame(rng: random.Random, opaque: int) -> bytes:
    """Return a plain send."""
    body = rng.randbytes(rng.choice((1, 100, 1024, 3000)))
    return frame_of(rng.choice((JSON, BINARY)), rng.choice((SEND, SEND_V2)), opaque, fields_of(rng), body)


NUMBERS = (
    "+4",
    " 4",
    "4.0",
    "1e3",
    "٤",
    "²",
    "4_0",
    "00",
    "-1",
    "4",
    "99",
    "",
    "9" * 20,
    "2147483648",
    "-2147483649",
    "0x1",
)
ODD_PROPERTIES: tuple[Callable[[], str], ...] = (
    lambda: "",
    lambda: "TAGS\x01a",
    lambda: properties_of("KEYS\x01k1 k2"),
    lambda: properties_of("DELAY\x0117"),
    lambda: properties_of("DELAY\x010"),
    lambda: properties_of("TIMER_DELIVER_MS\x0199999999999999"),
    lambda: properties_of("WAIT\x01false"),
    lambda: properties_of("CLUSTER\x01mine", "MSG_REGION\x01mine", "TRACE_ON\x01x"),
    lambda: properties_of("REAL_TOPIC\x01A", "REAL_QID\x010"),
    lambda: properties_of("TAGS\x01a", "TAGS\x01b"),
    lambda: properties_of("empty\x01", "\x01empty", "none", ""),
    lambda: properties_of(f"UNIQ_KEY\x01{IDS.next()}"),
    lambda: properties_of(key="short"),
    lambda: properties_of(key=IDS.next() + "0"),
    lambda: properties_of(key=IDS.next()[:31] + "é"),
    lambda: properties_of(key=IDS.next()[:31] + "\x02"),
    lambda: properties_of(key=IDS.next()[:20] + "\x02DELAY\x0117\x02ab"),
    lambda: "TAGS\x01a\x02" + properties_of(),
    lambda: "X" + properties_of(),
    lambda: properties_of().rstrip("\x02"),
    lambda: f"UNIQ_KEY\x01{IDS.next()}",
    lambda: f"UNIQ_KEY\x01{IDS.next()}x\x02TAGS\x01a\x02",
    lambda: properties_of("lone\x01\ud800"),
    lambda: properties_of('quoted\x01"\\/\n\t', "zero\x01\x00"),
    lambda: properties_of("percent\x01%s%d%b"),
    lambda: properties_of("long\x01" + "x" * 1200),
    lambda: properties_of("longer\x01" + "x" * 33_000),
    lambda: properties_of("é" * 9 + "\x01å"),
)


def odd_frame(seed: int, opaque: int) -> bytes:
    """Return a send that is nearly plain, or was once."""
    rng = random.Random(seed)
    kind, code, flag = rng.choice((JSON, BINARY)), rng.choice((SEND, SEND_V2)), 0
    fields, body = fields_of(rng), rng.randbytes(rng.choice((1, 100, 2000)))
    others: Fields = {}
    odd = rng.randrange(14)
    if odd <= 1:
        fields["i"] = rng.choice(ODD_PROPERTIES)()
    elif odd == 2:
        fields[rng.choice("defghj")] = rng.choice(NUMBERS)
    elif odd == 3:
        fields["g"] = rng.choice((*NUMBERS, "170000000000", "1" * 14, "+170000000000", "-170000000000", "٤" * 13))
    elif odd == 4:
        del fields[rng.choice(list(fields))]
    elif odd == 5:
        fields |= rng.choice(({"z": "1"}, {"l": "16"}, {"n": "broker"}, {"l": "x"}, {"Signature": "s"}, {"topic": "B"}))
    elif odd == 6:
        fields["b"] = rng.choice(
            ("NEW", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", "bad topic", "", "töpic", "x" * 200, "TBW102")
        )
    elif odd == 7:
        fields[rng.choice("km")] = rng.choice(("true", "TRUE", "1", "0", "", "no"))
    elif odd == 8:
        flag = rng.choice((1, 2, 3, 4, -1))
    elif odd == 9:
        code = rng.choice((320, 36))  # codes of other pairs are answered in an order of their own
    elif odd == 10:
        fields["f"] = rng.choice(("4", "8", "12", "16", "32", "48", "257", "3"))
    elif odd == 11 and kind == JSON:
        fields[rng.choice("defh")] = rng.choice((0, 1, 1.0, True, None, [], {}))
        others = rng.choice(({}, {"remark": "r"}, {"version": 1e3}, {"language": 3}, {"language": "XX"}, {"more": 1}))
    elif odd == 12:  # the fields in another order
        names = list(fields)
        rng.shuffle(names)
        fields = {name: fields[name] for name in names}
    data = bytearray(frame_of(kind, code, opaque, fields, body, flag, **others))
    header_end = 8 + (struct.unpack_from(">I", data, 4)[0] & 0xFFFFFF)
    if odd == 11 and kind == BINARY:  # a field twice
        (size,) = struct.unpack_from(">i", data, 25)
        again = b"\x00\x01" + rng.choice((b"g", b"i", b"b")) + b"\x00\x00\x00\x0d" + b"1" * 13
        data[header_end:header_end] = again
        struct.pack_into(">i", data, 25, size + len(again))
        length, word = PREFIX.unpack_from(data)
        PREFIX.pack_into(data, 0, length + len(again), word + len(again))
    if odd == 13:
        # Not the opaque: its answer would be missed. Not the code: other pairs answer in an order of their own.
        first, last = (data.index(b",", 8), data.index(b'"opaque"')) if kind == JSON else (10, 13)
        places = [*range(first, last), *range(last + (20 if kind == JSON else 4), header_end)]
        for _ in range(rng.choice((1, 1, 2))):
            data[rng.choice((4, *places))] ^= 1 << rng.randrange(8)
    return bytes(data)


@pytest.fixture(params=["written", "mapped", "SYNC_FLUSH"])
async def both(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Both]:
    """Two brokers with the same topics."""
    mode = request.param
    settings = {"flush_disk_type": mode} if mode == "SYNC_FLUSH" else {"append_mode": mode}
    apps = [await start(tmp_path / name, short=name == "short", **settings) for name in ("short", "wide")]
    peers = Both(RocketMQPeer(apps[0]), RocketMQPeer(apps[1]))
    yield peers
    for peer, app in zip((peers.short, peers.wide), apps, strict=True):
        peer.close()
        await app.stop()


def stored(app: BrokerApp) -> list[bytes]:
    """Return the records of the log, without the three fields that differ."""
    rows = []
    for group in app.store.log.walk(app.store.log.min_offset, app.store.log.committed_offset):
        for index in range(len(group)):
            record = bytearray(group.record(index))
            for part in (BORN_HOST, STORE_TIME, STORE_HOST):
                record[part] = bytes(8)
            rows.append(bytes(record))
    return rows


async def same_stores(both: Both) -> None:
    """Both logs hold the same bytes, in the same queues and under the same keys."""
    short, wide = both.short.app, both.wide.app
    for app in (short, wide):
        await asyncio.to_thread(app.store.show_all)
    rows = await asyncio.to_thread(stored, short)
    theirs = await asyncio.to_thread(stored, wide)
    assert len(rows) == len(theirs)
    for ours, other in zip(rows, theirs, strict=True):
        assert ours == other
    for topic, queue_id, first, end in short.store.queues():
        if topic in TOPICS:  # the entries of what waits hold a time
            ours = short.store.read_entries(topic, queue_id, first, end - first).tobytes()
            assert ours == wide.store.read_entries(topic, queue_id, first, end - first).tobytes()
    for data in random.Random(1).sample(rows, min(40, len(rows))):
        record = decode_record(data)
        key = decode_properties(record.properties).get("UNIQ_KEY")
        if key is not None:
            found = [
                await asyncio.to_thread(app.store.query, record.topic, key, 0, 1 << 60, 4) for app in (short, wide)
            ]
            ours_at, theirs_at = ([decode_record(each).physical_offset for each in rows] for rows in found)
            assert ours_at == theirs_at
            assert record.physical_offset in ours_at or len(ours_at) == 4  # some odd frames share a key


@pytest.mark.scaled
async def test_plain_sends_go_the_short_way_and_are_stored_alike(both: Both) -> None:
    """Answers and records are those of the wide way, byte for byte."""
    served = both.served
    count = tries(100, 2000)
    for seed in range(count):
        answers = await both.alike(partial(plain_frame, random.Random(seed)))
        assert [row[1] for row in answers] == [0, 0]
    assert both.served - served == 3 * count  # each with two native ones behind it
    await same_stores(both)


@pytest.mark.scaled
async def test_odd_sends_get_the_words_of_the_wide_way(both: Both) -> None:
    """Whatever is not plain is answered and stored as if there were no short path."""
    first = base_seed()
    for seed in range(first, first + tries(300, 20_000)):
        data: list[bytes] = []

        def make(opaque: int, seed: int = seed, data: list[bytes] = data) -> bytes:
            data.append(data[0] if data else odd_frame(seed, opaque))
            return data[0]

        try:
            await both.alike(make)
        except AssertionError as error:
            raise AssertionError(f"frame of seed {seed}: {data[0]!r}") from error
    await same_stores(both)


async def test_each_odd_kind_of_properties(both: Both) -> None:
    """The first time, when its template is made, and the next one; in both serializations."""
    rng = random.Random(2)
    for odd in ODD_PROPERTIES:
        for kind in (JSON, BINARY) * 2:
            data: list[bytes] = []

            def make(opaque: int, odd: Any = odd, kind: int = kind, data: list[bytes] = data) -> bytes:
                if not data:
                    data.append(frame_of(kind, SEND_V2, opaque, fields_of(rng) | {"i": odd()}, b"odd"))
                return data[0]

            await both.alike(make)
    await same_stores(both)


@pytest.mark.scaled
async def test_sends_of_one_read_are_served_in_their_order(both: Both) -> None:
    """Plain and odd ones to one queue: offsets follow the order of the bytes."""
    rng = random.Random(3)
    for _ in range(tries(10, 200)):
        kinds = [(rng.random() < 0.7, rng.choice((JSON, BINARY))) for _ in range(rng.randint(2, 100))]
        frames = []
        for number, (is_plain, kind) in enumerate(kinds):
            fields = fields_of(rng) | {"b": "A", "e": "0"}
            if not is_plain:
                fields["i"] = properties_of("KEYS\x01k")
            frames.append(frame_of(kind, SEND_V2, (1 << 21) + number, fields, b"%d" % number))
        await both.alike(lambda opaque, frames=frames: b"".join(frames))  # type: ignore[misc]
    await same_stores(both)


@pytest.mark.parametrize("change", [fill_disk, hold_sends])
async def test_what_forbids_sends_closes_the_gate(both: Both, change: Callable[[BrokerApp, bool], None]) -> None:
    """Sends are refused with the words of the wide way, and taken again when it is over."""
    fields = fields_of(random.Random(1))
    apps = (both.short.app, both.wide.app)
    for kind in (JSON, BINARY):
        for closed in (False, True, False):
            for app in apps:
                change(app, closed)
            rows = await both.alike(lambda opaque, kind=kind: frame_of(kind, SEND_V2, opaque, fields, b"x"))  # type: ignore[misc]
            assert (0 in {row[1] for row in rows}) is not closed


async def test_large_and_empty_bodies(both: Both) -> None:
    """Bodies up to the limit of a frame in one read, and none at all."""
    rng = random.Random(9)
    for size in (0, 1, 60_000, 200_000):
        for kind in (JSON, BINARY):
            frame = partial(frame_of, kind, SEND_V2)
            fields, body = fields_of(rng), rng.randbytes(size)
            await both.alike(lambda opaque, frame=frame, fields=fields, body=body: frame(opaque, fields, body))  # type: ignore[misc]
    await same_stores(both)


def long_key() -> str:
    """Return an id as a Java client makes it on a host with a public IPv6 address: 28 bytes in hex."""
    return "FD00" + 20 * "0" + IDS.next()


async def test_ids_of_an_ipv6_host_go_the_short_way(both: Both) -> None:
    """Their 56 characters are stored, answered and found as on the wide way, beside usual ones with the same tags."""
    rng = random.Random(11)
    served = both.served
    for number in range(40):
        key = long_key() if number % 4 < 3 else IDS.next()
        tail = ("", "\x02WAIT\x01true\x02", "\x02TAGS\x01a")[number % 3]
        fields = fields_of(rng) | {"i": f"UNIQ_KEY\x01{key}{tail}"}
        frame = partial(frame_of, (JSON, BINARY)[number % 2], SEND_V2)
        rows = await both.alike(lambda opaque, frame=frame, fields=fields: frame(opaque, fields, b"x"))  # type: ignore[misc]
        assert [row[1] for row in rows] == [0, 0]
    assert both.served - served == 3 * 40
    await same_stores(both)


async def test_a_shorter_id_at_the_end_is_not_taken_for_a_known_kind(both: Both) -> None:
    """Without a separator behind it, the rest of the properties is that of a usual id."""
    rng = random.Random(12)
    for cut in (0, 1, 20, 30):
        for key in (IDS.next(), long_key()):
            for kind in (JSON, BINARY):
                fields = fields_of(rng) | {"i": f"UNIQ_KEY\x01{key[: len(key) - cut]}"}
                frame = partial(frame_of, kind, SEND_V2)
                await both.alike(lambda opaque, frame=frame, fields=fields: frame(opaque, fields, b"x"))  # type: ignore[misc]
    await same_stores(both)


async def test_other_requests_in_json_pass(both: Both) -> None:
    """A request that is no send is left to its processor."""
    data = b"".join(encode_request(RequestCode.GET_BROKER_RUNTIME_INFO, 5, serialize_type=JSON))
    for peer in (both.short, both.wide):
        rows = await peer.exchange(data, 5)
        assert rows[0][:2] == (5, 0)


async def test_what_cannot_be_appended_here_goes_the_wide_way(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request of a task is complete: the wide way stores the same record and gives the same answer."""
    path = both.short.app._run.short_path
    assert path is not None
    monkeypatch.setattr(path.drain, "_append", lambda frames, now_ns: (0, now_ns, now_ns))
    served = both.served
    rng = random.Random(4)
    for _ in range(20):
        rows = await both.alike(partial(plain_frame, rng))
        assert [row[1] for row in rows] == [0, 0]
    assert both.served == served
    await same_stores(both)
