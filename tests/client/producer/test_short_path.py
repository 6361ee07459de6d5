"""The short path of plain messages, with the usual way as its oracle."""

import asyncio
import gc
import os
import random
from typing import Any

import pytest

from pocketmq.client import Message, NotStarted, Producer, RemotingTooMuchRequestError, SendFailed, WrongLoop
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.producer.short_append import ShortAppend
from pocketmq.client.producer.short_targets import RECORDS_MAX
from pocketmq.client.producer.stages import SendStage
from pocketmq.common.errors import MessageIllegal, Stored
from pocketmq.remoting.channel import ClientChannel
from pocketmq.remoting.codec import encode_request
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frame import MSGPACK, PREFIX_BYTES, FrameDecoder, new_scratch
from pocketmq.remoting.frame_budget import FrameBudget
from pocketmq.remoting.protocol.send import NativeAppendResponseHeader
from pocketmq.remoting.short_frames import OPAQUE_MAX, REQUEST_HEAD
from tests.client.producer import short_broker as ways
from tests.client.producer.short_broker import ENDINGS, ShortWorld, end_of, facts_of, per_queue

Send = tuple[Message, dict[str, Any]]


def plain(rng: random.Random, topic: str = "") -> Send:
    """Return a message that the short path takes."""
    body = rng.randbytes(rng.choice([1, 10, 1000, 5000]))
    return Message(topic or rng.choice("TUV"), body, tags=rng.choice(["", "A", "B|C", "ü"])), {}


def other(rng: random.Random) -> Send:
    """Return a message that it must leave alone, some of them illegal."""
    topic, body = rng.choice("TUV"), rng.randbytes(rng.choice([1, 1000]))
    fields: Any = rng.choice(
        [
            {"keys": "k"}, {"keys": ["a", "b"]}, {"properties": {"x": "y"}}, {"sharding_key": "s1"}, {"flag": 7},
            {"sharding_key": "s2", "keys": "k"}, {"wait_store_msg_ok": False}, {"tags": "a\x01b"}, {"tags": 5},
            {"tags": "\ud800"}, {"keys": None}, {"flag": 1 << 40}, {"properties": {"UNIQ_KEY": "x"}},
            {"topic": "bad topic!"}, {"topic": 5}, {"topic": []}, {"topic": "SCHEDULE_TOPIC_XXXX"}, {"body": b""},
            {"body": "text"}, {"body": bytes(3000)},
        ]
    )  # fmt: skip
    return Message(fields.pop("topic", topic), fields.pop("body", body), **fields), {}


def chosen(rng: random.Random) -> Send:
    """Return a plain message whose call has an option."""
    return plain(rng)[0], {"selector": lambda queues, message: queues[rng.randrange(1)]}


def flat(world: ShortWorld) -> list[Any]:
    """Return group, wait, sections and records of all requests. The usual way cuts a frame where the clock moves on."""
    return [
        (group, wait, section, [records.pop(0) for _ in range(section[2])])
        for group, wait, sections, records in world.stored()
        for section in sections
    ]


# ---- bytes and receipts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
async def test_plain_messages_leave_as_on_the_usual_way(seed: int) -> None:
    """The same sections and records in the same order; the receipts are equal in everything public."""
    rng = random.Random(seed)
    turns = [[plain(rng) for _ in range(rng.choice([1, 1, 2, 5, 30]))] for _ in range(25)]
    async with ShortWorld() as short, ShortWorld(wide=True) as wide:
        await short.connect()
        await wide.connect()
        for turn in turns:
            ends = [[end_of(result) for result in await world.results(turn)] for world in (short, wide)]
            assert ends[0] == ends[1]
        assert flat(short) == flat(wide)
        assert (short.taken, wide.taken) == (sum(map(len, turns)), 0)


def order_of(message: Message, options: dict[str, Any]) -> Any:
    """Return what messages have in common that must keep their order in a queue: one section, in one turn."""
    return (
        str(message.topic),
        message.sharding_key,
        message.wait_store_msg_ok,
        "selector" in options,
    )


@pytest.mark.parametrize("seed", range(4))
async def test_any_messages_end_as_on_the_usual_way(seed: int) -> None:
    """Plain or not, legal or not, mixed in one turn: same receipts and errors, same records in each queue, and
    what has an order keeps it. Only frames with different demands may pass each other, as on the usual way."""
    rng = random.Random(seed)
    kinds = [plain, plain, plain, other, chosen]
    turns = [[rng.choice(kinds)(rng) for _ in range(rng.choice([1, 2, 5, 20]))] for _ in range(25)]
    orders: dict[bytes, Any] = {}
    for message, options in (send for turn in turns for send in turn):
        if isinstance(message.body, bytes) and 0 < len(message.body) < 1990:
            message.body = b"%06d" % len(orders) + message.body
            orders[message.body] = order_of(message, options)
    async with ShortWorld(max_message_size=2000) as short, ShortWorld(wide=True, max_message_size=2000) as wide:
        await short.connect()
        await wide.connect()
        for turn in turns:
            ends = [[end_of(result) for result in await world.results(turn)] for world in (short, wide)]
            for (message, _), one, two in zip(turn, *ends, strict=True):
                if one[0] is Receipt:
                    for place in ("queue_offset", "physical_offset", "offset_msg_id"):
                        del one[1][place], two[1][place]
                    assert one[:2] == two[:2]
                else:  # the usual way has two wordings for tags
                    assert one == two or (one[0] is two[0] is MessageIllegal and not str(message.tags).isprintable())
        queues = [per_queue(world) for world in (short, wide)]
        for queue in queues[0].keys() | queues[1].keys():
            records = [[record.body for record in world[queue]] for world in queues]
            assert sorted(records[0]) == sorted(records[1])
            for kind in set(orders.values()):
                bodies = [body for body in records[0] if orders[body] == kind]
                assert bodies == sorted(bodies)
        assert short.taken > 20
        assert short.producer.in_flight_bytes == short.producer.in_flight.sends == 0


async def test_send_nowait_and_send_share_the_turn() -> None:
    """Whatever call brings them, messages of one topic keep their order in one queue."""
    async with ShortWorld() as world:
        await world.connect()

        async def nowait(message: Message) -> Any:
            return await world.producer.send_nowait(message)

        calls = [(nowait if n % 3 else world.producer.send)(Message("T", b"%d" % n)) for n in range(20)]
        await asyncio.gather(*calls)
        ((_, records),) = per_queue(world).items()
        assert [int(record.body) for record in records] == list(range(20))
        assert world.taken == 20


async def test_header_and_prefix_are_what_the_codec_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte for byte behind the opaque, for one section and for many."""
    frames: list[bytes] = []
    request_now = ClientChannel.request_now

    def spy(channel: ClientChannel, opaque: int, entry: Any, frame: bytes) -> None:
        frames.append(frame)
        request_now(channel, opaque, entry, frame)

    async with ShortWorld() as world:
        world.cluster.topics |= {f"topic-{number}": ["b0"] for number in range(150)}
        await world.connect()
        monkeypatch.setattr(ClientChannel, "request_now", spy)
        producer = world.producer
        await producer.send(Message("T", b"x"))
        for topics in (3, 16, 150):
            sends: list[Send] = [(Message(f"topic-{at % topics}", b"%d" % at), {}) for at in range(300)]
            await world.results(sends)
    assert len(frames) == 1 + 3
    for frame in frames:
        (cut,) = FrameDecoder(new_scratch(), FrameBudget(1 << 20)).feed(frame)
        (request,) = [each for each in world.broker.requests if each.body == cut.body]
        made = bytes(encode_request(request.code, OPAQUE_MAX, request.header, serialize_type=MSGPACK)[0])
        assert frame[REQUEST_HEAD.size : PREFIX_BYTES + len(cut.header)] == made[REQUEST_HEAD.size :]
        assert len(request.header.sections) in {1, 3, 16, 150}


# ---- ends ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
async def test_any_end_is_that_of_the_usual_way(seed: int) -> None:
    """Receipts, refusals, lost connections, other forms, garbage: same results, attempts and requests."""
    rng = random.Random(seed)
    plan = [
        ([rng.choice(ENDINGS) for _ in range(rng.randint(1, 2))], [plain(rng, "T") for _ in range(rng.randint(1, 3))])
        for _ in range(12)
    ]
    ends: list[list[Any]] = []
    for wide in (False, True):
        async with ShortWorld(wide=wide, brokers=2, retry_budget_ratio=None) as world:
            await world.connect()
            ends.append([])
            for script, turn in plan:
                for broker in world.brokers:
                    broker.script = list(script)
                ends[-1] += [end_of(result) for result in await world.results(turn)]
            assert world.producer.in_flight_bytes == world.producer.in_flight.sends == 0
            assert world.producer._sender.__len__() == 0
    assert ends[0] == ends[1]


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_frame_with_many_sections_ends_as_on_the_usual_way(ending: Any) -> None:
    """Each section for itself where the broker says so."""
    ends = []
    for wide in (False, True):
        async with ShortWorld(wide=wide, retry_times_when_send_failed=0, retry_times_when_send_async_failed=0) as world:
            await world.connect()
            world.broker.script = [ending]
            turn: list[Send] = [(Message(topic, b"%d" % number), {}) for number, topic in enumerate("TUVTUV")]
            ends.append([end_of(result) for result in await world.results(turn)])
            assert world.producer.in_flight.sends == 0
    assert ends[0] == ends[1]


async def test_an_answer_cut_anywhere_is_no_answer() -> None:
    """The message may have been stored; the next send uses a new connection."""
    async with ShortWorld(retry_times_when_send_failed=0, retry_times_when_send_async_failed=0) as world:
        await world.connect()
        whole = len(world.broker.answer(type("R", (), {"opaque": 1, "header": _Header("T")})))
        for size in range(whole + 1):
            world.broker.script = [ways.cut_at(size)]
            ((result),) = await world.results([(Message("T", b"x"), {})])
            if size == whole:
                assert result.attempts == 1
            else:
                assert isinstance(result, SendFailed)
                assert [attempt.phase for attempt in result.attempts] == ["send"]
                assert result.stored is Stored.UNKNOWN
            (good,) = await world.results([(Message("T", b"y"), {})])
            assert good.status.name == "SEND_OK"


class _Header:
    def __init__(self, topic: str) -> None:
        self.sections = [(topic, 0, 1)]


@pytest.mark.parametrize("wide", [False, True])
async def test_silence_ends_at_the_timeout(wide: bool) -> None:
    """By the sweep of the channel, with the words of the usual way; a late answer changes nothing."""
    async with ShortWorld(wide=wide, send_msg_timeout_ms=300) as world:
        await world.connect()
        world.broker.script = [ways.hold]
        (result,) = await world.results([(Message("T", b"x"), {})])
        assert isinstance(result, SendFailed)
        (attempt,) = result.attempts
        assert (attempt.phase, attempt.stored) == ("send", Stored.UNKNOWN)
        assert "no answer from" in attempt.answer
        ways.release(world.broker)
        (good,) = await world.results([(Message("T", b"y"), {})])
        assert good.attempts == 1


@pytest.mark.parametrize("size", [0, 10, 1_000_000])
async def test_a_frame_that_was_written_in_part_may_have_been_stored(size: int) -> None:
    """It leaves at once, so a connection that is lost in the same turn leaves doubt, however much went out."""
    async with ShortWorld(retry_times_when_send_failed=0, retry_times_when_send_async_failed=0) as world:
        await world.connect()
        world.broker.ending = ways.silent
        (channel,) = {line.channel for line in world.producer._short._targets.lines()}
        written: list[int] = []

        def write(descriptor: int, data: bytes) -> int:
            written.append(len(data))
            channel.close("scripted")
            if not size:
                raise BlockingIOError
            return os.write(descriptor, data[:size])

        channel._output._write = write
        (result,) = await world.results([(Message("T", b"x"), {})])
        assert isinstance(result, SendFailed)
        assert (result.stored, result.attempts[0].phase, len(written)) == (Stored.UNKNOWN, "send", 1)


async def test_many_answers_in_one_read_go_to_their_sends() -> None:
    """In the order of the broker, which need not be that of the sends."""
    async with ShortWorld() as world:
        await world.connect()
        world.broker.ending = ways.hold
        sends: list[Any] = [asyncio.ensure_future(world.producer.send(Message("T", b"%d" % n))) for n in range(3)]
        for number in range(3, 40):
            await until(lambda count=number: len(world.broker.held) >= count - 2)
            sends.append(asyncio.ensure_future(world.producer.send(Message("T", b"%d" % number))))
        await until(lambda: len(world.broker.held) == 38)
        world.broker.held.reverse()
        ways.release(world.broker)
        receipts = await asyncio.gather(*sends)
        for request in world.broker.requests:
            ((_, queue_id, _),) = request.header.sections
            for record in facts_of(request)[3]:
                assert receipts[int(record.body)].queue_id == queue_id
        assert len({(receipt.queue_id, receipt.queue_offset) for receipt in receipts}) == 40


async def until(condition: Any) -> None:
    """Wait for a condition, generously."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


# ---- turns ---------------------------------------------------------------------------------------------------------


async def test_a_turn_is_one_frame() -> None:
    """Of any number of records and topics; the messages of a topic share a queue."""
    async with ShortWorld() as world:
        await world.connect()
        for count in (1, 130, 300, 1000):
            world.broker.requests.clear()
            await world.results([(Message("TUV"[number % 3], b"%d" % number), {}) for number in range(count)])
            (request,) = world.broker.requests
            assert sum(row[2] for row in request.header.sections) == count
            assert len(request.header.sections) == min(count, 3)
            for records in per_queue(world).values():
                numbers = [int(record.body) for record in records]
                assert numbers == sorted(numbers)


async def test_a_turn_that_is_cut_keeps_its_queue() -> None:
    """The first part leaves at once if nothing is in flight; messages of any way follow it, and the next turn takes the
    next queue."""
    async with ShortWorld() as world:
        await world.connect()
        overlap = world.producer._short._overlap
        queues = []
        for _ in range(2):
            overlap.cut_at = 20
            world.broker.requests.clear()
            await world.results([(Message("T", b"%d" % number), {}) for number in range(50)])
            assert [request.header.sections[0][2] for request in world.broker.requests] == [20, 30]
            (((_, queue), records),) = per_queue(world).items()
            assert [int(record.body) for record in records] == list(range(50))
            queues.append(queue)
        assert queues[0] != queues[1]
        overlap.cut_at = 20
        keyed = Message("T", b"x", keys="k")
        results = await world.results([(Message("T", b"%d" % n) if n != 30 else keyed, {}) for n in range(40)])
        assert [result.attempts for result in results] == [1] * 40
        assert world.producer._short._cut == []
        assert world.producer.in_flight.sends == 0


async def test_a_turn_is_not_cut_while_something_is_in_flight() -> None:
    """Then the broker has work already."""
    async with ShortWorld() as world:
        await world.connect()
        world.producer._short._overlap.cut_at = 20
        world.broker.ending = ways.hold
        first = world.producer.send_nowait(Message("U", b"0"))
        await until(lambda: world.broker.held)
        calls = asyncio.ensure_future(world.results([(Message("T", b"%d" % number), {}) for number in range(50)]))
        await until(lambda: len(world.broker.held) == 2)
        ways.release(world.broker)
        await calls
        await first
        assert [request.header.sections[0][2] for request in world.broker.requests] == [1, 50]


async def test_a_long_turn_does_not_wait_for_its_end() -> None:
    """Then the next frame takes the next queue, as on the usual way."""
    async with ShortWorld() as world:
        await world.connect()
        await world.results([(Message("T", b"%d" % number), {}) for number in range(RECORDS_MAX + 5)])
        sections = [request.header.sections[0] for request in world.broker.requests]
        assert [count for _, _, count in sections] == [RECORDS_MAX, 5]
        assert len({queue_id for _, queue_id, _ in sections}) == 2


async def test_large_messages_leave_before_the_turns_end() -> None:
    """Then they count as in flight, so that a limit holds within one turn."""
    async with ShortWorld(in_flight_bytes_max=3 << 20) as world:
        await world.connect()
        world.broker.ending = ways.hold
        futures = [world.producer.send_nowait(Message("T", bytes(600_000))) for _ in range(6)]
        with pytest.raises(RemotingTooMuchRequestError, match="invokeAsyncImpl invoke too fast"):
            world.producer.send_nowait(Message("T", b"x"))
        await until(lambda: len(world.broker.held) == 3)
        ways.release(world.broker)
        await asyncio.gather(*futures)
        assert world.producer.in_flight_bytes == 0


@pytest.mark.parametrize("size", [10, 600_000])
async def test_mixed_ways_keep_the_order_of_a_queue(size: int) -> None:
    """Messages of a key come behind plain ones that were sent before them, and before later ones, also in full
    frames."""
    ends = []
    for wide in (False, True):
        async with ShortWorld(wide=wide) as world:
            await world.connect()
            for first in ("plain", "keyed"):
                turn: list[Send] = []
                for number in range(6):
                    keyed = (number % 2 == 0) == (first == "keyed")
                    message = Message("T", b"%d " % number + bytes(size), sharding_key="k" if keyed else None)
                    turn.append((message, {}))
                await world.results(turn)
            order = {}
            for queue, records in per_queue(world).items():
                order[queue] = [(record.body[:2], b"SHARDING" in record.properties) for record in records]
                for keyed in (True, False):
                    numbers = [body for body, is_keyed in order[queue] if is_keyed is keyed]
                    assert len(numbers) <= 6
            ends.append(order)
    if size == 10:
        assert ends[0] == ends[1]
    assert sum(map(len, ends[0].values())) == 12


async def test_sends_to_a_new_topic_stay_behind_those_that_wait_for_its_route() -> None:
    """The short path takes none while some are parked."""
    async with ShortWorld() as world:
        sends = [asyncio.ensure_future(world.producer.send(Message("T", b"%d" % n))) for n in range(5)]
        await asyncio.sleep(0)
        sends += [asyncio.ensure_future(world.producer.send(Message("T", b"%d" % n))) for n in range(5, 10)]
        await asyncio.gather(*sends)
        ((_, records),) = per_queue(world).items()
        assert [int(record.body) for record in records] == list(range(10))
        assert world.taken == 0


# ---- what takes the usual way --------------------------------------------------------------------------------------


class Sees(SendStage):
    """A stage that sees sections before they leave."""

    def cut(self, section: Any) -> None:
        self.count = getattr(self, "count", 0) + section.count


class Enters(SendStage):
    """A stage that every message enters."""

    def __init__(self) -> None:
        self.count = 0

    def enter(self, send: Any) -> None:
        self.count += 1


class Large(Enters):
    """A stage that only large messages enter."""

    body_bytes_max = 99


@pytest.mark.parametrize(
    "options", [{"stages": [Sees()]}, {"stages": [Enters()]}, {"linger_ms": 1}, {"enable_message_trace": True}]
)
def test_what_a_stage_or_a_linger_must_see_has_no_short_path(options: Any) -> None:
    """Then the producer makes no call for it."""
    producer = Producer("g", "127.0.0.1:1", **options)
    assert (producer._short, producer._add_short, producer._add_nowait) == (None, None, None)


async def test_a_stage_gets_the_messages_that_must_enter() -> None:
    """And no others."""
    stage = Large()
    async with ShortWorld(stages=[stage]) as world:
        await world.connect()
        stage.count = 0
        for size in (99, 100, 99, 100):
            await world.producer.send(Message("T", bytes(size)))
        assert (stage.count, world.taken) == (2, 2)


async def test_sends_with_other_attempts_than_send_nowait_do_not_mix() -> None:
    """A future of ``send_nowait`` has attempts of its own."""
    async with ShortWorld(retry_times_when_send_async_failed=0) as world:
        assert Producer("g", "127.0.0.1:1", retry_times_when_send_async_failed=0)._add_nowait is None
        await world.connect()
        assert (await world.producer.send(Message("T", b"x"))).attempts == 1


async def test_fault_items_choose_past_the_short_path() -> None:
    """While a broker is avoided, the usual way chooses; latencies are noted on both."""
    async with ShortWorld(brokers=2, send_latency_fault_enable=True) as world:
        await world.connect()
        await world.producer.send(Message("T", b"x"))
        assert world.taken == 1
        faults = world.producer.fault_items
        faults.update("b0", 100_000, world.producer._clock.monotonic_ns(), isolation=True, reachable=False)
        receipts = [await world.producer.send(Message("T", b"x")) for _ in range(8)]
        assert {receipt.broker for receipt in receipts} == {"b1"}


async def test_a_moved_broker_and_a_forgotten_route_are_noticed() -> None:
    """The route decides, as on the usual way."""
    async with ShortWorld(brokers=2) as world:
        await world.connect()
        instance = world.producer.instance
        world.cluster.topics["T"] = ["b1"]
        await instance.refresh("T")
        receipts = [await world.producer.send(Message("T", b"x")) for _ in range(4)]
        assert {receipt.broker for receipt in receipts} == {"b1"}
        taken = world.taken
        instance.routes.forget("T")
        assert (await world.producer.send(Message("T", b"x"))).broker == "b1"
        await world.producer.send(Message("T", b"x"))
        assert taken >= 3
        assert world.taken == taken + 1


@pytest.mark.parametrize("serialize_type", ["JSON", "ROCKETMQ"])
async def test_other_headers_take_the_usual_way(serialize_type: str) -> None:
    """The short path writes msgpack only."""
    from pocketmq.client import ClientInstance, ClientOptions

    async with ShortWorld() as world:
        options = ClientOptions(serialize_type=serialize_type)
        instance = ClientInstance(world.cluster.namesrv.address, options=options)
        answers = world.cluster.brokers["b0"].answers

        def store(connection: Any, request: Any) -> Any:
            results = [(0, 5, [(1000, count)], "") for _, _, count in request.header.sections]
            return 0, "", NativeAppendResponseHeader(1, results), b""

        answers[RequestCode.NATIVE_APPEND] = store
        async with Producer("h", instance=instance) as producer:
            for _ in range(3):
                assert (await producer.send(Message("T", b"x"))).queue_offset == 5
            assert producer._short is not None
            assert not producer._short._targets.topics


async def test_what_is_no_message_is_refused_as_usual() -> None:
    """Before any of its fields is read."""
    async with ShortWorld() as world:
        await world.connect()
        for thing in (None, b"x", object()):
            with pytest.raises(MessageIllegal, match="no Message"):
                await world.producer.send(thing)
            with pytest.raises(MessageIllegal, match="no Message"):
                world.producer.send_nowait(thing)
        assert world.taken == 0


async def test_a_topic_with_a_peer_that_does_not_read_takes_the_usual_way() -> None:
    """The channel's limits are worded there."""
    async with ShortWorld() as world:
        await world.connect()
        (channel,) = {line.channel for line in world.producer._short._targets.lines()}
        channel.pause_writing()
        assert (await world.producer.send(Message("T", b"x"))).attempts == 1
        assert world.taken == 0
        channel.resume_writing()
        table = channel._pending
        table.count_max = 0
        with pytest.raises(SendFailed) as caught:
            await world.producer.send(Message("T", b"x"))
        assert {attempt.phase for attempt in caught.value.attempts} == {"local"}
        assert world.producer.in_flight.sends == 0


# ---- life ----------------------------------------------------------------------------------------------------------


async def test_a_cancelled_send_is_still_sent_and_leaves_no_trace() -> None:
    """Its neighbours get their receipts."""
    async with ShortWorld() as world:
        await world.connect()
        world.broker.ending = ways.hold
        sends = [asyncio.ensure_future(world.producer.send(Message("T", b"%d" % n))) for n in range(3)]
        await until(lambda: world.broker.held)
        sends[1].cancel()
        await asyncio.sleep(0)
        ways.release(world.broker)
        results: list[Any] = await asyncio.gather(*sends, return_exceptions=True)
        assert isinstance(results[1], asyncio.CancelledError)
        assert [results[0].queue_offset + 2, results[0].queue_id] == [results[2].queue_offset, results[2].queue_id]
        assert world.producer.in_flight.sends == 0


@pytest.mark.parametrize("wide", [False, True])
async def test_a_stop_waits_for_receipts(wide: bool) -> None:
    """Also for those whose callers gave up, and what waits for the turn's end still leaves."""
    async with ShortWorld(wide=wide) as world:
        await world.connect()
        world.broker.ending = ways.hold
        first = world.producer.send_nowait(Message("T", b"1"))
        await until(lambda: world.broker.held)
        second = world.producer.send_nowait(Message("T", b"2"))
        stopped = asyncio.ensure_future(world.producer.stop())
        await until(lambda: len(world.broker.held) == 2)
        assert not stopped.done()
        first.cancel()
        ways.release(world.broker)
        await stopped
        assert second.result().attempts == 1
        with pytest.raises(NotStarted):
            await world.producer.send(Message("T", b"3"))


@pytest.mark.parametrize("wide", [False, True])
async def test_a_stop_ends_what_has_no_answer(wide: bool) -> None:
    """With the same words, and nothing stays counted."""
    async with ShortWorld(wide=wide, send_msg_timeout_ms=60_000) as world:
        await world.connect()
        world.broker.ending = ways.silent
        future = world.producer.send_nowait(Message("T", b"1"))
        await until(lambda: world.broker.requests)
        short, sender = world.producer._short, world.producer._sender
        await short.drain(0)
        short.close()
        await sender.close()
        with pytest.raises(NotStarted, match="producer stopped before the message was delivered") as caught:
            await future
        assert caught.value.why == "no receipt after 0 failed attempts; the current one may still be carried out"
        assert caught.value.stored is Stored.UNKNOWN
        assert world.producer.in_flight.sends == 0


async def test_another_loop_and_a_plain_thread_are_refused() -> None:
    """As on the usual way."""
    async with ShortWorld() as world:
        await world.connect()

        def elsewhere() -> list[str]:
            names = []
            try:
                world.producer.send_nowait(Message("T", b"x"))
            except WrongLoop:
                names.append("thread")

            async def send() -> None:
                await world.producer.send(Message("T", b"x"))

            try:
                asyncio.run(send())
            except WrongLoop:
                names.append("loop")
            return names

        assert await asyncio.to_thread(elsewhere) == ["thread", "loop"]
        assert world.taken == 0


async def test_receipts_keep_no_messages_alive() -> None:
    """Nor futures, connections or requests."""
    async with ShortWorld() as world:
        await world.connect()
        receipts = await asyncio.gather(*(world.producer.send(Message("T", b"%d" % n * 50)) for n in range(10)))
        seen: set[int] = set()
        reached: list[Any] = [receipts[3]]
        while reached:
            item = reached.pop()
            if id(item) in seen or isinstance(item, type) or callable(item):
                continue
            seen.add(id(item))
            assert not isinstance(item, Message | asyncio.Future | ClientChannel | ShortAppend | dict), item
            assert not isinstance(item, bytes) or len(item) <= 32
            reached += gc.get_referents(item)
        assert len(seen) > 5


async def test_successes_earn_retries_before_they_are_needed() -> None:
    """A retry right after many successes finds the tokens that these have earned."""
    async with ShortWorld(retry_budget_ratio=1.0, retry_budget_floor=0) as world:
        await world.connect()
        before = world.producer.retry_budget.tokens("b0")
        await world.producer.send(Message("T", b"x"))
        assert world.producer.retry_budget.tokens("b0") == before + 1
        world.broker.script = [ways.busy]
        assert (await world.producer.send(Message("T", b"x"))).attempts == 2
