"""A producer's reaction to brokers that refuse, vanish or stay silent: against scripted brokers."""

import asyncio
from typing import Any

import pytest

from pocketmq.client import ClientInstance, ClientOptions, Message, NoNameServer, Producer, SendFailed, SendStatus
from pocketmq.common.errors import Stored
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.send import NativeAppendResponseHeader, SendMessageResponseHeader
from tests.client.scripted import NATIVE, TYPED, silent

BATCH = RequestCode.SEND_BATCH_MESSAGE


def store_typed(connection: Any, request: Any) -> Any:
    """Answer a send as RocketMQ does."""
    count = request.body.__len__() and (2 if request.header.batch else 1)
    ids = ",".join(f"{number:032X}" for number in range(count))
    return ResponseCode.SUCCESS, "", SendMessageResponseHeader(ids, request.header.queue_id, 7), b""


def refuse(code: Any, remark: Any = "no") -> Any:
    return lambda connection, request: (code, remark, None, b"")


async def test_a_refused_send_goes_to_the_other_broker(two: Any) -> None:
    """SYSTEM_BUSY is retried elsewhere; the receipt counts the attempts and names the broker."""
    two.brokers["a"].answers[NATIVE] = refuse(ResponseCode.SYSTEM_BUSY)
    async with Producer("g", two.namesrv.address) as producer:
        receipts = [await producer.send(Message("T", b"x")) for _ in range(4)]
    assert {receipt.broker for receipt in receipts} == {"b"}
    assert {receipt.attempts for receipt in receipts} <= {1, 2}
    assert any(receipt.attempts == 2 for receipt in receipts)
    assert all(receipt.queue_offset == 5 for receipt in receipts)


async def test_the_error_lists_every_attempt(two: Any) -> None:
    """Three refusals: three attempts, other brokers in between, RocketMQ's text."""
    for server in two.brokers.values():
        server.answers[NATIVE] = refuse(ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy")
    async with Producer("g", two.namesrv.address) as producer:
        with pytest.raises(SendFailed, match=r"Send \[3\] times, still failed") as caught:
            await producer.send(Message("T", b"x"))
    error = caught.value
    assert [attempt.answer_code for attempt in error.attempts] == [2, 2, 2]
    assert {attempt.broker for attempt in error.attempts} == {"a", "b"}
    assert all("OVERLOAD" in attempt.answer for attempt in error.attempts)
    assert error.stored is Stored.NO


async def test_codes_outside_the_set_are_not_retried_until_added(two: Any) -> None:
    """MESSAGE_ILLEGAL ends the send at once; users may add it."""
    for server in two.brokers.values():
        server.answers[NATIVE] = refuse(ResponseCode.MESSAGE_ILLEGAL)
    async with Producer("g", two.namesrv.address) as producer:
        with pytest.raises(SendFailed) as caught:
            await producer.send(Message("T", b"x"))
        assert len(caught.value.attempts) == 1
        producer.add_retry_response_code(ResponseCode.MESSAGE_ILLEGAL)
        with pytest.raises(SendFailed) as caught:
            await producer.send(Message("T", b"x"))
        assert len(caught.value.attempts) == 3


async def test_one_section_refused_leaves_the_others(two: Any) -> None:
    """Sections of one frame are independent: one topic fails, the other's message is stored."""
    two.topics["Bad"] = two.topics["T"] = ["a"]

    def by_topic(connection: Any, request: Any) -> Any:
        results = [
            (ResponseCode.MESSAGE_ILLEGAL, -1, [], "bad topic") if name == "Bad" else (0, 3, [(0, count)], "")
            for name, _, count in request.header.sections
        ]
        return ResponseCode.SUCCESS, "", NativeAppendResponseHeader(1, results), b""

    two.brokers["a"].answers[NATIVE] = by_topic
    async with Producer("g", two.namesrv.address) as producer:
        await producer.send(Message("T", b"warm"))
        with pytest.raises(SendFailed):
            await producer.send(Message("Bad", b"warm"))
        good, bad = producer.send_nowait(Message("T", b"x")), producer.send_nowait(Message("Bad", b"x"))
        assert (await good).queue_offset == 3
        with pytest.raises(SendFailed, match="bad topic"):
            await bad


async def test_the_timeout_bounds_all_attempts(two: Any) -> None:
    """A silent broker uses up the caller's time; a request that left may be stored, and the error warns of it."""
    for server in two.brokers.values():
        server.answers[NATIVE] = silent
    async with Producer("g", two.namesrv.address) as producer:
        await producer.instance.route("T", timeout_ms=30_000, for_send=True)
        await asyncio.gather(*(producer.instance.connection(name, timeout_ms=30_000) for name in "ab"))
        with pytest.raises(SendFailed, match="no time is left") as caught:
            await producer.send(Message("T", b"x"), timeout_ms=500)
    assert {attempt.phase for attempt in caught.value.attempts} == {"send"}
    assert caught.value.stored is Stored.UNKNOWN
    assert caught.value.answer_code == 10002


async def test_keyed_sends_have_one_attempt_where_the_broker_says_nothing(two: Any) -> None:
    """Another queue would break their order; so would the same, unless the broker reports that it stored none."""
    for server in two.brokers.values():
        server.answers[NATIVE] = refuse(ResponseCode.SYSTEM_BUSY)
    async with Producer("g", two.namesrv.address) as producer:
        with pytest.raises(SendFailed) as caught:
            await producer.send(Message("T", b"x", sharding_key="k"))
    assert len(caught.value.attempts) == 1


async def test_a_lost_connection_is_retried_on_the_other_broker(two: Any) -> None:
    """The send that a broker drops by hanging up goes to the other one."""

    def hang_up(connection: Any, request: Any) -> None:
        connection.abort("script")

    two.brokers["a"].answers[NATIVE] = hang_up
    async with Producer("g", two.namesrv.address) as producer:
        receipts = [await producer.send(Message("T", b"x")) for _ in range(4)]
        batch = await producer.send_batch([Message("T", b"x"), Message("T", b"y")])
    assert {receipt.broker for receipt in [*receipts, *batch]} == {"b"}


async def test_a_broker_that_is_down_is_avoided(two: Any) -> None:
    """No process listens at one address: the send goes to the other."""
    await two.brokers["a"].stop()
    async with Producer("g", two.namesrv.address) as producer:
        receipts = [await producer.send(Message("T", b"x")) for _ in range(3)]
    assert {receipt.broker for receipt in receipts} == {"b"}


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
async def test_stored_with_doubt_is_a_receipt(two: Any, code: Any, status: Any) -> None:
    """Three codes mean stored, but less safe than requested."""

    def doubt(connection: Any, request: Any) -> Any:
        return ResponseCode.SUCCESS, "", NativeAppendResponseHeader(1, [(code, 1, [(0, 1)], "")]), b""

    for server in two.brokers.values():
        server.answers[NATIVE] = doubt
    async with Producer("g", two.namesrv.address) as producer:
        receipt = await producer.send(Message("T", b"x"))
    assert receipt.status is status


async def test_a_broker_without_native_append_gets_rocketmq_sends(cluster: Any) -> None:
    """RocketMQ's own brokers get SEND_MESSAGE_V2 for one message, SEND_BATCH_MESSAGE for a batch and for the messages
    of one turn of the loop; the ids come from the answer.
    """
    server = await cluster.add("rocket", native=0)
    server.answers[TYPED] = server.answers[BATCH] = store_typed
    cluster.topics["T"] = ["rocket"]
    async with Producer("g", cluster.namesrv.address) as producer:
        first = await producer.send(Message("T", b"x", tags="A", keys="k"))
        futures = [producer.send_nowait(Message("T", b"x", tags="A", keys="k")) for _ in range(3)]
        receipts = [await future for future in futures]
        batch = await producer.send_batch([Message("T", b"x"), Message("T", b"y")])
    assert [receipt.queue_offset for receipt in receipts] == [7, 8, 9]
    assert [receipt.queue_offset for receipt in batch] == [7, 8]
    assert [receipt.offset_msg_id[-1] for receipt in batch] == ["0", "1"]
    sent = [request for request in server.requests if request.code in (TYPED, BATCH)]
    assert [request.code for request in sent] == [TYPED, BATCH, BATCH]
    assert sent[0].header.properties.startswith(f"UNIQ_KEY\x01{first.msg_id}\x02TAGS\x01A\x02KEYS\x01k\x02")
    assert producer.in_flight_bytes == 0
    item = bytes(sent[2].body)
    assert int.from_bytes(item[:4], "big") * 2 == len(item)


async def test_a_retry_may_go_to_another_kind_of_broker(two: Any) -> None:
    """The message is kept until its receipt, so that it can be built again for a RocketMQ broker, from columns too."""
    import pyarrow as pa

    rocket = await two.add("rocket", native=0)
    rocket.answers[TYPED] = rocket.answers[BATCH] = store_typed
    two.brokers["a"].answers[NATIVE] = refuse(ResponseCode.SYSTEM_BUSY)
    two.topics["T"] = ["a", "rocket"]
    async with Producer("g", two.namesrv.address) as producer:
        for _ in range(3):
            assert (await producer.send(Message("T", b"x"))).broker == "rocket"
            receipts = await producer.send_arrow(pa.record_batch({"body": [b"x", b"y"]}), topic="T")
            assert {receipt.broker for receipt in receipts} == {"rocket"}
    assert BATCH in rocket.codes()


async def test_a_delayed_message_is_sent_typed(two: Any) -> None:
    """A message that is not plain is sent in RocketMQ's form, to a native broker too."""
    for server in two.brokers.values():
        server.answers[TYPED] = store_typed
    async with Producer("g", two.namesrv.address) as producer:
        receipt = await producer.send(Message("T", b"x", delay_time_level=3))
    (sent,) = [request for request in two.brokers[receipt.broker].requests if request.code == TYPED]
    assert "DELAY\x013\x02" in sent.header.properties


async def test_an_answer_that_does_not_fit_is_an_error(two: Any) -> None:
    """An answer with fewer results than sections is refused; the client does not guess."""
    for server in two.brokers.values():
        server.answers[NATIVE] = lambda connection, request: (0, "", NativeAppendResponseHeader(1, []), b"")
    async with Producer("g", two.namesrv.address) as producer:
        with pytest.raises(Exception, match="0 results for 1 sections"):
            await producer.send(Message("T", b"x"))


async def test_a_new_route_is_used_without_a_restart(two: Any) -> None:
    """The refresh follows topics that move to another broker."""
    two.topics["T"] = ["a"]
    options = ClientOptions(poll_name_server_interval_ms=20)
    async with Producer("g", instance=ClientInstance(two.namesrv.address, options=options)) as producer:
        assert (await producer.send(Message("T", b"x"))).broker == "a"
        two.topics["T"] = ["b"]
        async with asyncio.timeout(60):
            while (await producer.send(Message("T", b"x"))).broker != "b":  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_a_dead_broker_leaves_the_route_at_once(two: Any) -> None:
    """Once the name server has removed a broker, no send goes to it until the timed refresh."""
    async with Producer("g", two.namesrv.address) as producer:
        await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(4)))
        await asyncio.sleep(0.25)  # a younger route is not checked again
        await two.brokers["a"].stop()
        two.topics["T"] = ["b"]
        async with asyncio.timeout(60):
            while True:
                route = producer.instance.routes.get("T")
                assert route is not None
                if {queue.broker_name for queue in route.write_queues} == {"b"}:
                    break
                assert (await producer.send(Message("T", b"x"))).broker == "b"
        receipts = [await producer.send(Message("T", b"x")) for _ in range(20)]
    assert {receipt.attempts for receipt in receipts} == {1}


async def test_a_second_name_server_takes_over(two: Any) -> None:
    """The first address is silent; the second answers and stays in use."""
    async with Producer("g", f"127.0.0.1:1;{two.namesrv.address}") as producer:
        assert (await producer.send(Message("T", b"x"))).attempts == 1
        assert producer.instance.name_servers.current == two.namesrv.address


async def test_no_name_server_at_all() -> None:
    """10004: no name server is configured, or none answers."""
    with pytest.raises(NoNameServer, match="No name server address, please set it"):
        Producer("g", "")
    async with Producer("g", "127.0.0.1:1") as producer:
        with pytest.raises(NoNameServer, match=r"no name server at 127\.0\.0\.1:1: connection refused") as caught:
            await producer.send(Message("T", b"x"))
        assert caught.value.code == 10004


async def test_stop_fails_what_cannot_be_delivered(two: Any) -> None:
    """A silent broker does not hold the stop longer than the send timeout."""
    for server in two.brokers.values():
        server.answers[NATIVE] = silent
    producer = Producer("g", two.namesrv.address, send_msg_timeout_ms=500)
    await producer.start()
    future = producer.send_nowait(Message("T", b"x"))
    producer.send_oneway(Message("T", b"x"))
    await producer.stop()
    assert future.done()
    with pytest.raises(SendFailed):
        future.result()
