"""A producer's reaction to refusals, silence and doubt: retries, order, budget, deadlines, against scripted brokers."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pocketmq.client import (
    LATENCY_TABLE_4_9,
    LATENCY_TABLE_5_3,
    RETRY_RESPONSE_CODES_4_9,
    ClientInstance,
    ClientOptions,
    Message,
    Producer,
    RemotingTooMuchRequestError,
    SendFailed,
    SendStatus,
    SendTimeout,
)
from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import Cause, Stored
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.protocol.send import NativeAppendResponseHeader, SendMessageResponseHeader
from tests.client.scripted import NATIVE, TYPED, silent, store

BUSY_TEXT = "[OVERLOAD]system busy, start flow control for a while"
FACTS = {"cause": "queue_full", "stored": "no", "retry_after_ms": "30", "stages": "queue_wait=0.02"}


def store_as(code: int) -> Any:
    """Return an answer that stores with this status."""

    def answer(connection: Any, request: Any) -> Any:
        results = [(code, 5, [(1000, count)], "") for _, _, count in request.header.sections]
        return ResponseCode.SUCCESS, "", NativeAppendResponseHeader(1, results), b""

    return answer


def busy(connection: Any, request: Any) -> Any:
    return ResponseCode.SYSTEM_BUSY, BUSY_TEXT, None, b"", FACTS


def times(count: int, first: Any, then: Any) -> Any:
    """Answer with ``first`` so many times, then with ``then``."""
    left = [count]

    def answer(connection: Any, request: Any) -> Any:
        left[0] -= 1
        return (first if left[0] >= 0 else then)(connection, request)

    return answer


def native_sections(cluster: Any) -> int:
    """Count the sections that the brokers got: several may share a request."""
    requests = [each for server in cluster.brokers.values() for each in server.requests if each.code == NATIVE]
    return sum(len(request.header.sections) for request in requests)


def native_requests(cluster: Any) -> int:
    return sum(server.codes().count(NATIVE) for server in cluster.brokers.values())


class MuteServer:
    """Accepts connections and never answers."""

    address = ""

    async def start(self) -> None:
        self._writers: list[asyncio.StreamWriter] = []
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        while await reader.read(65_536):
            pass

    async def stop(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await self._server.wait_closed()


@pytest.fixture
async def mute() -> AsyncIterator[MuteServer]:
    server = MuteServer()
    await server.start()
    yield server
    await server.stop()


# -- the content of a refusal ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("native", [1, 0])
async def test_what_the_broker_said_is_in_the_attempt(cluster: Any, native: int) -> None:
    """Cause, stored, retry-after and stages are in it, for native and typed refusals alike."""
    server = await cluster.add("a", native=native)
    server.answers[NATIVE] = server.answers[TYPED] = busy
    cluster.topics["T"] = ["a"]
    async with Producer("g", cluster.namesrv.address, retry_times_when_send_failed=0) as producer:
        with pytest.raises(SendFailed) as caught:
            await producer.send(Message("T", b"x"))
    (attempt,) = caught.value.attempts
    assert (attempt.broker, attempt.address, attempt.phase) == ("a", server.address, "answer")
    assert (attempt.cause, attempt.stored, attempt.retry_after_ms) == (Cause.QUEUE_FULL, Stored.NO, 30)
    assert attempt.stages == "queue_wait=0.02"
    assert caught.value.cause is Cause.QUEUE_FULL
    assert BUSY_TEXT in str(caught.value)


async def test_a_section_refused_among_others_has_its_own_text(one: Any) -> None:
    """All sections of a frame are refused, each for its own reason: each keeps its own text."""
    one.topics["U"] = ["a"]

    def each(connection: Any, request: Any) -> Any:
        codes = {"T": (int(ResponseCode.TOPIC_NOT_EXIST), "no T"), "U": (int(ResponseCode.MESSAGE_ILLEGAL), "bad U")}
        results: list[Any] = [(codes[name][0], -1, [], codes[name][1]) for name, _, _ in request.header.sections]
        return results[0][0], results[0][3], NativeAppendResponseHeader(0, results), b"", {"cause": "bad_request"}

    async with Producer("g", one.namesrv.address, retry_times_when_send_async_failed=0) as producer:
        await asyncio.gather(*(producer.send(Message(name, b"warm")) for name in "TU"))
        one.brokers["a"].answers[NATIVE] = each
        futures = [producer.send_nowait(Message(name, b"x")) for name in "TU"]
        errors = await asyncio.gather(*futures, return_exceptions=True)
    assert one.brokers["a"].codes().count(NATIVE) == 3
    assert [error.attempts[0].answer for error in errors if isinstance(error, SendFailed)] == ["no T", "bad U"]
    assert [error.attempts[0].cause for error in errors if isinstance(error, SendFailed)] == [Cause.BAD_REQUEST, None]


async def test_the_old_retry_codes_end_at_flow_control(two: Any) -> None:
    """4.9's set: after SYSTEM_BUSY the send does not try the next broker, which would have accepted it."""
    two.brokers["a"].answers[NATIVE] = busy
    options: Any = {"retry_response_codes": RETRY_RESPONSE_CODES_4_9}
    async with Producer("g", two.namesrv.address, **options) as producer:
        results = await asyncio.gather(
            *(producer.send(Message("T", b"x"), timeout_ms=2000 + number * 20) for number in range(4)),
            return_exceptions=True,
        )
    failed = [result for result in results if isinstance(result, SendFailed)]
    assert failed
    assert all(len(error.attempts) == 1 for error in failed)
    assert "response code 2 is not retried" in str(failed[0])


# -- number and times of retries -------------------------------------------------------------------------------------


async def test_both_kinds_of_sends_have_their_own_count(one: Any) -> None:
    """retryTimesWhenSendFailed for sends that wait, retryTimesWhenSendAsyncFailed for the others, even in one turn."""
    one.brokers["a"].answers[NATIVE] = busy
    async with Producer(
        "g", one.namesrv.address, retry_times_when_send_failed=0, retry_times_when_send_async_failed=1
    ) as producer:
        results = await asyncio.gather(
            producer.send_nowait(Message("T", b"x")),
            producer.send(Message("T", b"y")),
            producer.send_nowait(Message("T", b"x")),
            return_exceptions=True,
        )
    assert [len(error.attempts) for error in results if isinstance(error, SendFailed)] == [2, 1, 2]


async def test_a_single_broker_is_tried_again_after_what_it_asked_for(one: Any) -> None:
    """The second attempt's time shows that it does not come before retry_after_ms."""
    one.brokers["a"].answers[NATIVE] = times(1, busy, store)
    async with Producer("g", one.namesrv.address) as producer:
        started = time.monotonic()
        receipt = await producer.send(Message("T", b"x"))
        assert time.monotonic() - started >= 0.030
    assert receipt.attempts == 2
    assert not receipt.duplicate_possible


async def test_a_pause_that_does_not_fit_is_not_begun(one: Any) -> None:
    """The broker asks for more time than is left: the send fails at once, and the error names the reason."""
    one.brokers["a"].answers[NATIVE] = lambda connection, request: (2, BUSY_TEXT, None, b"", {"retry_after_ms": "9999"})
    async with Producer("g", one.namesrv.address) as producer:
        with pytest.raises(SendFailed, match="a asked to wait 9999 ms"):
            await producer.send(Message("T", b"x"))


# -- the budget ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_refusals_by_all_brokers_are_not_amplified(two: Any) -> None:
    """The requests at both brokers stay within the sends plus ten retries for each broker."""
    for server in two.brokers.values():
        server.answers[NATIVE] = busy
    sends = 300
    async with Producer("g", two.namesrv.address) as producer:
        errors = []
        for _ in range(sends // 10):
            futures = [producer.send_nowait(Message("T", b"x"), timeout_ms=1000 + 20 * index) for index in range(10)]
            errors += await asyncio.gather(*futures, return_exceptions=True)
    assert all(isinstance(error, SendFailed) for error in errors)
    assert sends <= native_sections(two) <= sends + 20
    assert "the retry budget is empty" in str(errors[-1])
    assert isinstance(errors[-1], SendFailed)
    assert errors[-1].attempts[-1].cause is Cause.QUEUE_FULL


async def test_without_a_budget_every_send_is_tried_three_times(two: Any) -> None:
    """This is RocketMQ's way, for comparison."""
    for server in two.brokers.values():
        server.answers[NATIVE] = lambda connection, request: (2, BUSY_TEXT, None, b"", {})
    async with Producer("g", two.namesrv.address, retry_budget_ratio=None) as producer:
        futures = [producer.send_nowait(Message("T", b"x"), timeout_ms=2000 + 20 * index) for index in range(30)]
        errors = await asyncio.gather(*futures, return_exceptions=True)
    assert all(isinstance(error, SendFailed) for error in errors)
    assert native_sections(two) == 90


async def test_a_healthy_broker_takes_over_for_as_long_as_the_other_refuses(two: Any) -> None:
    """There are many more retries than the budget's floor, and each of them succeeds."""
    two.brokers["a"].answers[NATIVE] = busy
    async with Producer("g", two.namesrv.address) as producer:
        receipts = []
        for _ in range(5):
            futures = [producer.send_nowait(Message("T", b"x"), timeout_ms=2000 + 20 * index) for index in range(40)]
            receipts += await asyncio.gather(*futures)
    assert {receipt.broker for receipt in receipts} == {"b"}
    assert sum(receipt.attempts == 2 for receipt in receipts) >= 80


# -- silence ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_broker_that_hangs_leaves_time_for_the_other(two: Any) -> None:
    """It gets at most two thirds of the time; the receipt warns that the first attempt may have been stored too."""
    two.brokers["a"].answers[NATIVE] = silent
    async with Producer("g", two.namesrv.address) as producer:
        receipts = await asyncio.gather(
            *(producer.send(Message("T", b"x"), timeout_ms=900 + 20 * index) for index in range(4))
        )
    assert {receipt.broker for receipt in receipts} == {"b"}
    retried = [receipt for receipt in receipts if receipt.attempts == 2]
    assert retried
    assert all(receipt.duplicate_possible for receipt in retried)
    assert "duplicate_possible=True" in repr(retried[0])
    assert not any(receipt.duplicate_possible for receipt in receipts if receipt.attempts == 1)


@pytest.mark.slow
async def test_rocketmqs_way_waits_for_the_first_broker_alone(two: Any) -> None:
    """send_msg_max_timeout_per_request_ms=-1: the hang uses the whole time."""
    for server in two.brokers.values():
        server.answers[NATIVE] = silent
    options: Any = {"send_msg_max_timeout_per_request_ms": -1}
    async with Producer("g", two.namesrv.address, **options) as producer:
        with pytest.raises(SendTimeout, match="sendDefaultImpl call timeout") as caught:
            await producer.send(Message("T", b"x"), timeout_ms=600)
    assert len(caught.value.attempts) == 1


@pytest.mark.slow
async def test_a_server_that_never_says_hello_is_passed_by(two: Any, mute: MuteServer) -> None:
    """An accepted connection is not a service: the connect gets its share of the time too."""
    await two.brokers["a"].stop()
    two.brokers["a"] = mute
    async with Producer("g", two.namesrv.address) as producer:
        receipts = await asyncio.gather(
            *(producer.send(Message("T", b"x"), timeout_ms=900 + 20 * index) for index in range(4))
        )
        assert {receipt.broker for receipt in receipts} == {"b"}
        assert not any(receipt.duplicate_possible for receipt in receipts)  # no byte had left
    del two.brokers["a"]


TICK_S = 0.01


class Ticks:
    """Counts naps of 10 ms of the event loop: an upper bound on time that a stopped or slow machine cannot exceed."""

    def __init__(self) -> None:
        self.count = 0

    async def __aenter__(self) -> "Ticks":
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.count += 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["brokers", "name server", "hello"])
async def test_the_timeout_is_a_hard_bound(two: Any, mute: MuteServer, kind: str) -> None:
    """Whichever part is silent, the send ends in time: 50 ms of granularity, the rest for the turns of the loop."""
    namesrv = two.namesrv.address
    if kind == "brokers":
        for server in two.brokers.values():
            server.answers[NATIVE] = silent
    elif kind == "hello":
        await asyncio.gather(*(server.stop() for server in two.brokers.values()))
        two.brokers = {"a": mute, "b": mute}
    else:
        namesrv = mute.address
    async with Producer("g", namesrv, send_msg_timeout_ms=500) as producer, Ticks() as ticks:
        started = time.monotonic()
        with pytest.raises(RemotingTooMuchRequestError, match="sendDefaultImpl call timeout") as caught:
            await producer.send(Message("T", b"x"), timeout_ms=400)
        elapsed_s, ticked_s = time.monotonic() - started, ticks.count * TICK_S
    assert elapsed_s >= 0.39
    assert ticked_s < 1.0
    if kind != "name server":
        assert isinstance(caught.value, SendTimeout)
    if kind == "hello":
        two.brokers = {}


@pytest.mark.slow
async def test_sends_of_one_turn_do_not_share_their_deadlines(two: Any) -> None:
    """An impatient send, and one that may move, leave their whole time to a patient one and a keyed one."""
    for server in two.brokers.values():
        server.answers[NATIVE] = silent
    ends: dict[str, float] = {}
    async with Producer("g", two.namesrv.address, send_msg_timeout_ms=1200) as producer, Ticks() as ticks:
        two.topics["K"] = ["a", "b"]
        await producer.instance.route("T", timeout_ms=30_000, for_send=True)
        await producer.instance.route("K", timeout_ms=30_000, for_send=True)
        await asyncio.gather(*(producer.instance.connection(name, timeout_ms=30_000) for name in "ab"))
        started, ticks.count = time.monotonic(), 0

        async def send(name: str, **options: Any) -> None:
            key = name if name == "keyed" else ""
            with pytest.raises(SendTimeout):
                await producer.send(Message("K" if key else "T", b"x", sharding_key=key), **options)
            ends[name] = time.monotonic() - started
            if name == "impatient":
                assert ticks.count * TICK_S < 0.7

        await asyncio.gather(send("impatient", timeout_ms=100), send("moves"), send("keyed"))
    assert ends["impatient"] >= 0.09
    assert ends["keyed"] >= 1.19
    assert ends["moves"] >= 1.19


@pytest.mark.slow
async def test_waiting_for_room_is_part_of_the_timeout(one: Any) -> None:
    """A send that waited half its time for a permit has the other half for its attempts."""
    one.brokers["a"].answers[NATIVE] = silent
    async with Producer("g", one.namesrv.address, in_flight_sends_max=1, send_msg_timeout_ms=1000) as producer:
        first = producer.send_nowait(Message("T", b"x"), timeout_ms=600)
        await asyncio.sleep(0.01)
        with pytest.raises(RemotingTooMuchRequestError, match="invokeAsyncImpl invoke too fast"):
            producer.send_nowait(Message("T", b"y"))
        async with Ticks() as ticks:
            started = time.monotonic()
            with pytest.raises(SendTimeout):
                await producer.send(Message("T", b"z"))
            elapsed_s, ticked_s = time.monotonic() - started, ticks.count * TICK_S
        assert first.done()
        first.exception()
    assert elapsed_s >= 0.98
    assert ticked_s < 1.5


# -- stored in doubt --------------------------------------------------------------------------------------------------


async def test_not_store_ok_is_sent_to_another_broker(two: Any) -> None:
    """retryAnotherBrokerWhenNotStoreOK: the other one's SEND_OK is the receipt; the first copy still exists."""
    two.brokers["a"].answers[NATIVE] = store_as(ResponseCode.FLUSH_DISK_TIMEOUT)
    async with Producer("g", two.namesrv.address, retry_another_broker_when_not_store_ok=True) as producer:
        receipts = [await producer.send(Message("T", b"x")) for _ in range(4)]
    assert {(receipt.status, receipt.broker) for receipt in receipts} == {(SendStatus.SEND_OK, "b")}
    moved = [receipt for receipt in receipts if receipt.attempts == 2]
    assert moved
    assert all(receipt.duplicate_possible for receipt in moved)


@pytest.mark.parametrize("other", ["refuses", "doubts", "is not there"])
async def test_the_first_stored_receipt_is_better_than_none(two: Any, other: str) -> None:
    """If no broker does better, the message is stored, and not sent to the same broker again."""
    names = ["a"] if other == "is not there" else ["a", "b"]
    two.topics["T"] = names
    two.brokers["a"].answers[NATIVE] = store_as(ResponseCode.SLAVE_NOT_AVAILABLE)
    two.brokers["b"].answers[NATIVE] = busy if other == "refuses" else store_as(ResponseCode.FLUSH_SLAVE_TIMEOUT)
    async with Producer("g", two.namesrv.address, retry_another_broker_when_not_store_ok=True) as producer:
        receipts = [await producer.send(Message("T", b"x")) for _ in range(2)]
    assert all(receipt.status is not SendStatus.SEND_OK for receipt in receipts)
    if other == "refuses":
        assert {receipt.broker for receipt in receipts} == {"a"}
    assert native_requests(two) <= 2 * len(names)


async def test_without_the_option_a_doubtful_receipt_is_the_receipt(two: Any) -> None:
    """RocketMQ's default: one copy."""
    for server in two.brokers.values():
        server.answers[NATIVE] = store_as(ResponseCode.FLUSH_DISK_TIMEOUT)
    async with Producer("g", two.namesrv.address) as producer:
        receipt = await producer.send(Message("T", b"x"))
    assert (receipt.status, receipt.attempts, native_requests(two)) == (SendStatus.FLUSH_DISK_TIMEOUT, 1, 1)
    assert "the disk did not confirm in time" in receipt.durability


async def test_the_message_id_stays_the_same_over_attempts(cluster: Any) -> None:
    """By it consumers recognize the two copies of a send whose answer was lost."""
    seen: list[str] = []

    def hang_up(connection: Any, request: Any) -> None:
        seen.append(request.header.properties.split("\x02")[0])
        connection.abort("script")

    def take(connection: Any, request: Any) -> Any:
        seen.append(request.header.properties.split("\x02")[0])
        return 0, "", SendMessageResponseHeader("0" * 32, request.header.queue_id, 7), b""

    server = await cluster.add("rocket", native=0)
    server.answers[TYPED] = times(1, hang_up, take)
    cluster.topics["T"] = ["rocket"]
    async with Producer("g", cluster.namesrv.address) as producer:
        receipt = await producer.send(Message("T", b"x"))
    assert (receipt.attempts, receipt.duplicate_possible) == (2, True)
    assert seen == [f"UNIQ_KEY\x01{receipt.msg_id}"] * 2


# -- chosen queues ---------------------------------------------------------------------------------------------------


async def test_a_keyed_send_is_tried_again_on_its_own_queue(two: Any) -> None:
    """The broker reports that it stored none, and no send has overtaken it."""
    queues: list[Any] = []

    def note(connection: Any, request: Any) -> Any:
        queues.append(request.header.sections[0][:2])
        return busy(connection, request) if len(queues) < 3 else store(connection, request)

    for server in two.brokers.values():
        server.answers[NATIVE] = note
    async with Producer("g", two.namesrv.address) as producer:
        receipt = await producer.send(Message("T", b"x", sharding_key="k"))
    assert receipt.attempts == 3
    assert len(set(queues)) == 1
    assert sum(NATIVE in server.codes() for server in two.brokers.values()) == 1


async def test_a_keyed_send_that_was_overtaken_is_not_tried_again(one: Any) -> None:
    """A later message for its queue is stored: an earlier one behind it would break the order."""
    one.brokers["a"].answers[NATIVE] = store
    async with Producer("g", one.namesrv.address) as producer:
        await producer.send(Message("T", b"warm", sharding_key="k"))
        one.brokers["a"].answers[NATIVE] = times(1, busy, store)
        first = producer.send_nowait(Message("T", b"1", sharding_key="k"))
        await asyncio.sleep(0)
        second = producer.send_nowait(Message("T", b"2", sharding_key="k"))
        assert (await second).attempts == 1
        with pytest.raises(SendFailed, match="overtaken") as caught:
            await first
    assert len(caught.value.attempts) == 1


async def test_a_keyed_send_is_not_tried_again_when_it_may_be_stored(one: Any) -> None:
    """Its answer is lost: a second copy could follow later messages."""

    def hang_up(connection: Any, request: Any) -> None:
        connection.abort("script")

    one.brokers["a"].answers[NATIVE] = hang_up
    async with Producer("g", one.namesrv.address) as producer:
        with pytest.raises(SendFailed, match="could break the order") as caught:
            await producer.send(Message("T", b"x"), selector=lambda queues, message: 0)
    assert len(caught.value.attempts) == 1
    assert caught.value.stored is Stored.UNKNOWN


# -- slow brokers ----------------------------------------------------------------------------------------------------


async def test_a_refusing_broker_is_isolated_and_used_again_after_its_time(two: Any) -> None:
    """sendLatencyFaultEnable: first attempts avoid it until 5.3's 10 s are over."""
    two.brokers["a"].answers[NATIVE] = busy
    clock = ManualClock()
    instance = ClientInstance(two.namesrv.address, clock=clock)
    async with Producer("g", instance=instance, send_latency_fault_enable=True) as producer:
        assert producer.fault_items is not None
        for _ in range(20):  # it does not matter how often the turns pass before the refusing broker's comes
            await producer.send(Message("T", b"x"))
        assert set(producer.fault_items.avoided) == {"a"}
        tried = two.brokers["a"].codes().count(NATIVE)
        assert [(await producer.send(Message("T", b"x"))).attempts for _ in range(10)] == [1] * 10
        clock.advance_ms(9_999)
        assert {(await producer.send(Message("T", b"x"))).broker for _ in range(4)} == {"b"}
        assert two.brokers["a"].codes().count(NATIVE) == tried
        two.brokers["a"].answers[NATIVE] = store
        clock.advance_ms(1)
        assert {(await producer.send(Message("T", b"x"))).broker for _ in range(4)} == {"a", "b"}


async def test_a_slow_broker_rests_for_its_time(two: Any) -> None:
    """An answer after 600 ms diverts the next sends for 2 s (5.3) or 30 s (4.9); then the broker is used again."""
    clock = ManualClock()

    def slowly(connection: Any, request: Any) -> Any:
        clock.advance_ms(600)
        return store(connection, request)

    for table, rest_ms in ((LATENCY_TABLE_5_3, 2_000), (LATENCY_TABLE_4_9, 30_000)):
        two.brokers["a"].answers[NATIVE] = slowly
        instance = ClientInstance(two.namesrv.address, clock=clock)
        options: Any = {"send_latency_fault_enable": True, "latency_table": table}
        async with Producer("g", instance=instance, **options) as producer:
            while (await producer.send(Message("T", b"x"))).broker != "a":
                pass
            assert {(await producer.send(Message("T", b"x"))).broker for _ in range(4)} == {"b"}
            two.brokers["a"].answers[NATIVE] = store
            clock.advance_ms(rest_ms - 1)
            assert {(await producer.send(Message("T", b"x"))).broker for _ in range(4)} == {"b"}
            clock.advance_ms(1)
            assert {(await producer.send(Message("T", b"x"))).broker for _ in range(4)} == {"a", "b"}


async def test_a_bad_message_does_not_isolate_its_broker(one: Any) -> None:
    """MESSAGE_ILLEGAL concerns the message; RocketMQ isolates the broker nevertheless."""
    one.brokers["a"].answers[NATIVE] = lambda connection, request: (ResponseCode.MESSAGE_ILLEGAL, "no", None, b"")
    async with Producer("g", one.namesrv.address, send_latency_fault_enable=True) as producer:
        with pytest.raises(SendFailed):
            await producer.send(Message("T", b"x"))
        assert producer.fault_items is not None
        assert not producer.fault_items.avoided


# -- oneway ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_oneway_sends_to_a_peer_that_does_not_read_are_bounded(one: Any) -> None:
    """Unsent messages stay counted; then the sender gets the error that it is too fast; memory stays bounded."""
    seen: list[Any] = []

    def note(connection: Any, request: Any) -> Any:
        seen.append(connection)
        return store(connection, request)

    one.brokers["a"].answers[NATIVE] = note
    async with Producer("g", one.namesrv.address, in_flight_bytes_max=8 << 20, send_msg_timeout_ms=300) as producer:
        await producer.send(Message("T", b"warm"), timeout_ms=30_000)
        connection = producer.instance.open_connection("a")
        assert connection is not None
        seen[0].pause_for_budget()

        async def flood() -> None:
            for _ in range(200):
                producer.send_oneway(Message("T", bytes(1 << 20)))
                await asyncio.sleep(0)

        with pytest.raises(RemotingTooMuchRequestError, match="invokeOnewayImpl invoke too fast"):
            await flood()
        assert connection.channel.unwritten_bytes + producer.in_flight_bytes < 40 << 20
        seen[0].resume_for_budget()
        async with asyncio.timeout(60):
            while producer.in_flight_bytes:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert producer.in_flight.oneways == 0
        assert producer.oneway_lost == 0


async def test_oneway_messages_without_a_connection_are_counted_as_lost(two: Any) -> None:
    """No caller would notice the loss."""
    await asyncio.gather(*(server.stop() for server in two.brokers.values()))
    instance = ClientInstance(two.namesrv.address, options=ClientOptions(connect_timeout_ms=300))
    async with Producer("g", instance=instance) as producer:
        producer.send_oneway(Message("T", b"x"))
        async with asyncio.timeout(60):
            while not producer.oneway_lost:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert producer.in_flight.oneways == 0
