"""The short path of small sends, with the wide one as its oracle."""

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.send import short_routes
from pocketmq.common.clock import SystemClock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message import Message
from pocketmq.common.message_id import UniqueIdGenerator
from pocketmq.common.record import decode_properties
from pocketmq.common.record_codec import PlainRecordBuilder, decode_record
from pocketmq.common.topics import TopicConfig
from pocketmq.remoting.codec import decode_response_of, encode_request
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frame import FRAME_BYTES_MAX, Frame, FrameDecoder, new_scratch
from pocketmq.remoting.frame_budget import FrameBudget
from pocketmq.remoting.protocol.send import NativeAppendRequestHeader
from pocketmq.remoting.server_config import ServerConfig
from pocketmq.store.errors import DiskError
from tests.broker.conftest import eventually, store_config
from tests.broker.stalled_disk import StalledDisk
from tests.profiles import tries
from tests.sim.seeds import base_seed

TOPICS = ("A", "B", "C")
OPAQUE_FROM = 1 << 20
HELLO = RequestCode.HELLO
IDS = UniqueIdGenerator(SystemClock())
BUILDER = PlainRecordBuilder("DefaultCluster")


def frame_of(opaque: int, sections: list[tuple[str, int, list[bytes]]], *, oneway: bool = False) -> bytes:
    """Return one native append."""
    records = [record for _, _, part in sections for record in part]
    header = NativeAppendRequestHeader("g", True, [(topic, queue, len(part)) for topic, queue, part in sections], 3000)
    body = b"".join(len(record).to_bytes(4, "big") for record in records) + b"".join(records)
    return b"".join(encode_request(RequestCode.NATIVE_APPEND, opaque, header, body, oneway=oneway))


def record_of(topic: str, queue_id: int, body: bytes, **fields: Any) -> bytes:
    """Return a plain record."""
    return BUILDER.build(Message(topic, body, **fields), queue_id, IDS.next().encode(), 1_700_000_000_000)


FIRST = {(topic, queue_id): record_of(topic, queue_id, b"first") for topic in TOPICS for queue_id in range(4)}


class Peer:
    """One socket to one broker."""

    def __init__(self, app: BrokerApp) -> None:
        self.app = app
        self._reader: Any = None
        self._writer: Any = None
        self._decoder: Any = None

    async def exchange(self, data: bytes, last: int, hello: int = -1) -> list[tuple[Any, ...]]:
        """Write bytes; return what is answered up to the request ``last``, or to the end of the connection."""
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.app.port)
            self._decoder = FrameDecoder(new_scratch(), FrameBudget(2 * FRAME_BYTES_MAX))
        self._writer.write(data)
        seen: list[tuple[Any, ...]] = []
        while True:
            try:
                got = await self._reader.read(65_536)
            except ConnectionError:
                got = b""
            if not got:
                self.close()
                return [*sorted(seen), ("closed",)]
            seen += [self.row_of(frame, hello) for frame in self._decoder.feed(got)]
            if last < 0 or any(row[0] == last for row in seen):
                return sorted(seen)

    def write(self, data: bytes) -> None:
        """Write some bytes."""
        self._writer.write(data)

    def row_of(self, frame: Frame, hello: int) -> tuple[Any, ...]:
        """Return an answer as the tests compare it: opaque, code and what follows."""
        response = decode_response_of(frame, lambda opaque: HELLO if opaque == hello else RequestCode.NATIVE_APPEND)
        assert response is not None
        header: Any = response.header
        results = None if header is None else header.results
        extra = {name: value for name, value in response.extra.items() if name != "stages"}
        return (response.opaque, response.code, response.remark, str(results), str(extra))

    def close(self) -> None:
        """Close the socket; the next exchange opens another one."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


@dataclass
class Both:
    """The same bytes go to a broker with the short path and to one without it."""

    short: Peer
    wide: Peer
    opaque: int = OPAQUE_FROM

    @property
    def served(self) -> int:
        """Requests that the short path has served."""
        path = self.short.app._run.short_path
        assert path is not None
        return path.drain.served + (0 if path.here is None else path.here.served)

    def plain(self, opaque: int, body: bytes) -> bytes:
        """Return a plain frame."""
        return frame_of(opaque, [("A", 0, [record_of("A", 0, body)])])

    async def alike(self, make: Callable[[int], bytes]) -> list[tuple[Any, ...]]:
        """Send the frame that ``make`` returns for an opaque, and a plain one behind it; both brokers must answer
        alike.

        A refusal may leave after the answer of a later frame: the send thread posts it when its drain ends. It has
        when it answers another frame, and HELLO is answered behind everything that was posted by then."""
        self.opaque += 4
        plain, next_plain, hello = range(self.opaque + 1, self.opaque + 4)
        steps = [
            (make(self.opaque) + self.plain(plain, b"behind"), plain),
            (self.plain(next_plain, b"next"), next_plain),
            (b"".join(encode_request(HELLO, hello)), hello),
        ]

        async def all_steps(peer: Peer) -> list[tuple[Any, ...]]:
            seen: list[tuple[Any, ...]] = []
            for data, last in steps:
                seen += await peer.exchange(data, last, hello)
                if seen[-1] == ("closed",):
                    break
            return sorted(row for row in seen if row[0] not in (next_plain, hello))

        ours, theirs = await asyncio.gather(all_steps(self.short), all_steps(self.wide))
        assert ours == theirs
        return ours


async def start(path: Path, *, short: bool, **settings: Any) -> BrokerApp:
    """Start a broker whose topics exist on disk and have been sent to."""
    app = BrokerApp(
        BrokerConfig(listen_port=0, short_path_enable=short, wait_time_mills_in_send_queue=60_000),
        store_config(path, **settings),
    )
    await app.start()
    peer = Peer(app)
    for topic in TOPICS:
        for queue_id in range(4):
            await peer.exchange(frame_of(1 + queue_id, [(topic, queue_id, [FIRST[topic, queue_id]])]), 1 + queue_id)
    peer.close()
    return app


MODES: dict[str, dict[str, Any]] = {
    "written": {"append_mode": "written"},
    "mapped": {"append_mode": "mapped"},
    "anonymous": {"transient_store_pool_enable": True, "transient_store_pool_path": "anonymous"},
    "surviving": {"transient_store_pool_enable": True},
}


@pytest.fixture(params=list(MODES))
async def both(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Both]:
    """Two brokers with the same topics."""
    apps = [await start(tmp_path / name, short=name == "short", **MODES[request.param]) for name in ("short", "wide")]
    peers = Both(Peer(apps[0]), Peer(apps[1]))
    assert apps[1]._run.short_path is None
    yield peers
    for peer, app in zip((peers.short, peers.wide), apps, strict=True):
        peer.close()
        await app.stop()


def stored(app: BrokerApp) -> list[tuple[Any, ...]]:
    """Return what the log holds, without the two fields that differ: hosts and store time."""
    rows = []
    for group in app.store.log.walk(app.store.log.min_offset, app.store.log.committed_offset):
        for index in range(len(group)):
            record = decode_record(bytes(group.record(index)))
            rows.append(
                (
                    record.topic,
                    record.queue_id,
                    record.queue_offset,
                    record.physical_offset,
                    record.sys_flag,
                    record.born_timestamp,
                    bytes(record.body),
                    tuple(sorted(decode_properties(record.properties).items())),
                )
            )
    return rows


async def same_stores(both: Both) -> None:
    """Both logs hold the same messages, visible in the same queues."""
    short, wide = both.short.app, both.wide.app
    for app in (short, wide):
        await asyncio.to_thread(app.store.show_all)
    rows = await asyncio.to_thread(stored, short)
    assert rows == await asyncio.to_thread(stored, wide)
    assert sorted(short.store.queues()) == sorted(wide.store.queues())
    for topic, queue_id, first, end in short.store.queues():
        ours = short.store.read_entries(topic, queue_id, first, end - first)
        assert ours.tobytes() == wide.store.read_entries(topic, queue_id, first, end - first).tobytes()
    for row in random.Random(1).sample(rows, min(20, len(rows))):
        key = dict(row[-1])["UNIQ_KEY"]
        for app in (short, wide):
            found = await asyncio.to_thread(app.store.query, row[0], key, 0, 1 << 60, 4)
            assert [decode_record(each).physical_offset for each in found] == [row[3]], (row, app is short)


def plain_sections(rng: random.Random, records_max: int) -> list[tuple[str, int, list[bytes]]]:
    """Return one to four sections of plain records."""
    sections = []
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        topic, queue_id = rng.choice(TOPICS), rng.randrange(4)
        bodies = [rng.randbytes(rng.choice((0, 1, 100, 1024, 3000))) for _ in range(rng.randint(1, records_max))]
        sections.append(
            (topic, queue_id, [record_of(topic, queue_id, body or b"x", tags=rng.choice(("", "a"))) for body in bodies])
        )
    return sections


def framed(sections: list[tuple[str, int, list[bytes]]], opaque: int) -> bytes:
    """Return a frame of these sections."""
    return frame_of(opaque, sections)


def odd_frame(seed: int, opaque: int) -> bytes:
    """Return a frame that is nearly plain, or was once."""
    rng = random.Random(seed)
    sections = plain_sections(rng, 3)
    topic, queue_id, records = sections[0]
    kind = rng.randrange(10)
    if kind == 0:
        records[0] = record_of(topic, queue_id, b"keys", keys=("k1", "k2"))
    elif kind == 1:
        records[0] = record_of(topic, queue_id, b"props", properties={"colour": "blå"})
    elif kind == 2:
        records[0] = record_of(topic, (queue_id + 1) % 4, b"another queue")
    elif kind == 3:
        records[0] = record_of(rng.choice(("B", "AA")), queue_id, b"another topic")
    elif kind == 4:
        sections[0] = (topic, rng.choice((4, 99, -1)), records)
    elif kind == 5:
        sections[0] = (rng.choice(("NEW", "%RETRY%g", "SCHEDULE_TOPIC_XXXX", "bad topic", "")), queue_id, records)
    elif kind == 6:
        return frame_of(opaque, sections, oneway=True)
    data = bytearray(frame_of(opaque, sections))
    header_end = 8 + (struct.unpack_from(">I", data, 4)[0] & 0xFFFFFF)
    if kind == 7:  # anywhere behind the length, but not in code and opaque: other pairs answer in
        # an order of their own, and the answer would be missed
        at = rng.choice([4, 5, 6, 7, 8, *range(17, header_end)])
        data[at] ^= 1 << rng.randrange(8)
    elif kind >= 8:
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(header_end, len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


@pytest.mark.scaled
async def test_plain_frames_go_the_short_way_and_are_stored_alike(both: Both) -> None:
    """Answers, log, queues and index are those of the wide way."""
    rng = random.Random(7)
    for _ in range(tries(60, 1000)):
        sections = plain_sections(rng, 6)
        answers = await both.alike(partial(framed, sections))
        assert [row[1] for row in answers] == [0, 0]
    assert both.served > 60
    await same_stores(both)


@pytest.mark.scaled
async def test_odd_frames_get_the_words_of_the_wide_way(both: Both) -> None:
    """And plain ones around them are served; nothing odd is stored that the wide way would refuse."""
    first = base_seed()
    for seed in range(first, first + tries(250, 20_000)):
        try:
            await both.alike(partial(odd_frame, seed))
        except AssertionError as error:
            raise AssertionError(f"frame of seed {seed}") from error
    assert both.served > 0
    await same_stores(both)


@pytest.mark.scaled
async def test_frames_of_one_read_are_served_in_their_order(both: Both) -> None:
    """Short and wide ones mixed: offsets follow the order of the bytes."""
    rng = random.Random(3)
    for _ in range(tries(20, 400)):
        kinds = [rng.random() < 0.7 for _ in range(rng.randint(2, 100))]

        def make(opaque: int, kinds: list[bool] = kinds) -> bytes:
            frames = []
            for number, is_plain in enumerate(kinds):
                record = record_of("A", 0, b"%d" % number, keys=() if is_plain else ("k",))
                frames.append(frame_of(OPAQUE_FROM * 2 + number, [("A", 0, [record])]))
            return b"".join(frames)

        await both.alike(make)
    await same_stores(both)


async def test_a_unique_key_behind_other_properties_is_found(both: Both) -> None:
    """Where our client puts the key such a record has letters of another property."""
    key = IDS.next().encode()
    plain, properties = record_of("A", 0, b"x"), b"TAGS\x01%b\x02UNIQ_KEY\x01%b\x02CLUSTER\x01DefaultCluster\x02"
    end = properties % (b"t" * 60, key)
    record = plain[: plain.index(b"\x01A") + 2] + len(end).to_bytes(2, "big") + end
    record = len(record).to_bytes(4, "big") + record[4:]
    rows = await both.alike(lambda opaque: frame_of(opaque, [("A", 0, [record])]))
    assert [row[1] for row in rows] == [0, 0]
    for app in (both.short.app, both.wide.app):
        assert len(await asyncio.to_thread(app.store.query, "A", key.decode(), 0, 1 << 60, 4)) == 1
    await same_stores(both)


@pytest.mark.parametrize("both", ["written", "mapped"], indirect=True)  # in buffers a queue waits for its commit
async def test_remembered_headers_are_bounded_in_bytes(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header with many sections takes the memory of many: the table starts again earlier."""
    path = both.short.app._run.short_path
    assert path is not None
    monkeypatch.setattr(short_routes, "ROUTES_BYTES_MAX", path.routes._bytes + 20_000)
    served, before = both.served, len(path.routes.known)
    for count in range(1, 30):
        sections = [("B", 0, [record_of("B", 0, b"x")]) for _ in range(count)]
        assert {row[1] for row in await both.alike(partial(framed, sections))} == {0}
    assert both.served == served + 3 * 29
    assert len(path.routes.known) < before + 29


@pytest.mark.scaled
async def test_frames_that_arrive_in_pieces_are_served_alike(both: Both) -> None:
    """Wherever the bytes are cut: what a read leaves of a frame is at the start of the next one."""
    rng = random.Random(base_seed())
    for _ in range(tries(8, 200)):
        frames = []
        for number in range(rng.randint(3, 30)):
            body, keys = rng.randbytes(rng.choice((1, 100, 1024, 5000))), () if rng.random() < 0.8 else ("k",)
            frames.append(frame_of(OPAQUE_FROM * 2 + number, [("A", 0, [record_of("A", 0, body, keys=keys)])]))
        data, last = b"".join(frames), OPAQUE_FROM * 2 + len(frames) - 1
        cuts = sorted(rng.randrange(1, len(data)) for _ in range(rng.randint(1, 12)))
        seen = []
        for peer in (both.short, both.wide):
            await peer.exchange(b"".join(encode_request(HELLO, 7)), 7, 7)  # connected
            for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
                peer.write(data[start:end])
                for _ in range(rng.randrange(4)):
                    await asyncio.sleep(0)
            answers = await peer.exchange(b"", last)
            while len(answers) < len(frames):
                answers += await peer.exchange(b"", -1)
            seen.append(sorted(answers))
        assert seen[0] == seen[1]
    assert both.served > 0
    await same_stores(both)


async def test_a_topic_that_changes_closes_the_gate(both: Both) -> None:
    """Permission, deletion, creation: the next frame is judged anew."""
    record = record_of("B", 1, b"x")

    async def answer() -> int:
        rows = await both.alike(lambda opaque: frame_of(opaque, [("B", 1, [record])]))
        return int(rows[0][1])

    assert await answer() == 0
    for perm, code in ((4, 16), (6, 0)):
        for peer in (both.short, both.wide):
            config = peer.app.topics.get("B")
            assert config is not None
            peer.app.topics.put(type(config)(topic_name="B", read_queue_nums=4, write_queue_nums=4, perm=perm))
        assert await answer() == code
    served = both.served
    while both.served == served:  # until the test's timeout; a busy page cache sends single frames the wide way
        assert await answer() == 0


async def test_what_was_checked_while_queues_are_removed_is_checked_again(both: Both) -> None:
    """It may hold a queue that has gone; then no entry of it would be put at once any more."""
    store, seen = both.short.app.store, []
    before = store.gate.generation
    await asyncio.to_thread(store.log.forget_queues, "A", lambda end: seen.append(store.gate.generation))
    assert before < seen[0] < store.gate.generation


def fill_disk(app: BrokerApp, on: bool) -> None:
    """Let the disk count as full, or not."""
    app.store.retention.flags.set_disk_full(on)


def hold_sends(app: BrokerApp, on: bool) -> None:
    """Hold sends back, as a planned switch does, or take them again."""
    app.replication.node.hold(60_000 if on else 0)


@pytest.mark.parametrize("change", [fill_disk, hold_sends])
async def test_what_forbids_sends_closes_the_gate(both: Both, change: Callable[[BrokerApp, bool], None]) -> None:
    """Sends are refused with the words of the wide way, and taken again when it is over."""

    def make(opaque: int) -> bytes:
        return frame_of(opaque, [("A", 2, [record_of("A", 2, b"x")])])

    apps = (both.short.app, both.wide.app)
    for app in apps:
        change(app, True)
    assert 0 not in {row[1] for row in await both.alike(make)}
    for app in apps:
        change(app, False)
    assert {row[1] for row in await both.alike(make)} == {0}


@pytest.mark.parametrize("both", ["written", "mapped"], indirect=True)  # a copy into a write buffer cannot fail
async def test_a_failed_write_is_worded_by_the_wide_way(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """And leaves nothing: the next message gets the same offsets."""
    served = both.served
    segment = both.short.app.store.log.writer.active
    assert segment is not None
    place = both.short.app.store.log.appended_offset
    real, failures = type(segment).store, [1]

    def store(self: Any, position: int, data: Any) -> None:
        if failures and self is segment:
            failures.pop()
            raise DiskError("write failed", why="a test says so")
        real(self, position, data)

    monkeypatch.setattr(type(segment), "store", store)
    rows = await both.alike(lambda opaque: frame_of(opaque, [("C", 0, [record_of("C", 0, b"x")])]))
    assert [row[1] for row in rows] == [0, 0]
    assert both.short.app.store.log.appended_offset > place
    assert not failures
    assert both.served >= served
    await same_stores(both)


async def test_sums_reach_the_statistics(both: Both) -> None:
    """Messages, bytes and puts of short sends are counted as those of wide ones."""
    for _ in range(5):
        await both.alike(lambda opaque: frame_of(opaque, plain_sections(random.Random(5), 3)))
    ours, theirs = both.short.app.counters.totals, both.wide.app.counters.totals
    await eventually(lambda: (ours.put, ours.put_bytes) == (theirs.put, theirs.put_bytes))
    await eventually(lambda: both.short.app.observation.put_times.total == both.wide.app.observation.put_times.total)


async def test_second_descriptors_are_limited(tmp_path: Path) -> None:
    """Beyond the limit the loop writes the answers; a connection that ends makes room."""
    config = ServerConfig(direct_writers_max=1)
    app = BrokerApp(BrokerConfig(listen_port=0), store_config(tmp_path), server_config=config)
    await app.start()
    server = app._server
    assert server is not None
    first, second, third = Peer(app), Peer(app), Peer(app)

    async def send(peer: Peer) -> None:
        for opaque in range(OPAQUE_FROM, OPAQUE_FROM + 3):
            await peer.exchange(frame_of(opaque, [("A", 0, [FIRST["A", 0]])]), opaque)

    def writers() -> int:
        return sum(connection.direct is not None for connection in server.connections)

    while not writers():  # the queue's first messages are wide, until it has been dispatched
        await send(first)
    await send(second)
    assert (server.direct_writers, writers()) == (1, 1)
    first.close()
    await eventually(lambda: len(server.connections) == 1)
    assert server.direct_writers == 0
    await send(third)
    await send(second)
    assert (server.direct_writers, writers()) == (1, 1)
    second.close()
    third.close()
    await app.stop()
    assert server.direct_writers == 0


async def test_a_record_too_short_for_ipv6_is_left_at_the_end_of_the_read_buffer(tmp_path: Path) -> None:
    """Its fields would lie beyond the buffer."""
    app = BrokerApp(BrokerConfig(listen_port=0, bind_address="::1"), store_config(tmp_path))
    try:
        await app.start()
    except PocketMQError:
        pytest.skip("no IPv6 on this machine")
    path = app._run.short_path
    assert path is not None
    app.topics.put(TopicConfig(topic_name="A"))
    checks = path.routes._checks[0]
    checks.check("A", 0)
    checks.confirm()
    app.store.consume_queues.get_or_create("A", 0)
    view = path._view
    frame = frame_of(OPAQUE_FROM, [("A", 0, [(91).to_bytes(4, "big") + bytes(87)])])
    at = len(view) - len(frame)
    path._view = view[at:]
    path._view[:] = frame
    connection: Any = SimpleNamespace(remote_host=bytes(20), is_v6=True, quota=None)
    assert path.take(connection, len(frame)) == 0
    assert len(path.routes.known) == 1
    await app.stop()


async def test_reads_do_not_wait_for_a_stalled_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues answer as if the disk worked; a key query says that it may lack the newest messages."""
    disk = StalledDisk()
    settings = store_config(tmp_path, os_page_cache_busy_timeout_mills=20)
    app = BrokerApp(BrokerConfig(listen_port=0), settings, file_system=disk)
    await app.start()
    assert app._run.short_path is not None
    monkeypatch.setattr(app._run.short_path.drain, "settle", lambda: None)
    peer, other = Peer(app), Peer(app)
    opaque = OPAQUE_FROM
    while not app.store.short.waiting:  # the first ones are wide
        opaque += 1
        await peer.exchange(frame_of(opaque, [("A", 0, [FIRST["A", 0]])]), opaque)
    sent = opaque - OPAQUE_FROM
    disk.shut()
    opaque += 1
    stalled = asyncio.create_task(other.exchange(frame_of(opaque, [("A", 0, [FIRST["A", 0]])]), opaque))
    await eventually(lambda: disk.waiting)
    await asyncio.to_thread(app.store.show_all)
    assert app.store.max_offset("A", 0) == sent
    _, index = await asyncio.to_thread(app.store.find, "A", "k", 0, 1 << 60, 1)
    assert not index.complete
    assert not stalled.done()
    disk.open_gate()
    await stalled
    _, index = await asyncio.to_thread(app.store.find, "A", "k", 0, 1 << 60, 1)
    assert index.complete
    for each in (peer, other):
        each.close()
    await app.stop()
