"""Pops through a real broker: RocketMQ's codes and texts, handles, retry topics, dead letters, long polling."""

import asyncio
import base64
from typing import Any

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.common.receipt_handle import ReceiptHandle, parse_msg_offsets, parse_order_counts, parse_start_offsets
from pocketmq.common.record import POP_CK
from pocketmq.remoting.codes import RequestCode as R
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.group import SubscriptionGroupConfigBody
from pocketmq.remoting.protocol.offset import QueryConsumerOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from pocketmq.remoting.protocol.pop import (
    AckMessageRequestHeader,
    BatchAck,
    BatchAckBody,
    ChangeInvisibleTimeRequestHeader,
    NativePopRequestHeader,
    NativeSettleRequestHeader,
    NotificationRequestHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PopMessageRequestHeader,
)
from tests.broker.conftest import Client, Harness, eventually, split_records

HOUR_MS = 3_600_000


async def pop(
    client: Client, *, group: str = "g", topic: str = "T", queue_id: int = -1, count: int = 32, **more: Any
) -> Any:
    """Pop as RocketMQ's clients do."""
    fields = {"invisible_time": HOUR_MS, "poll_time": 0, **more}
    header = PopMessageRequestHeader(group, topic, queue_id, count, **fields)
    return await client.ask(R.POP_MESSAGE, header)


def handles_of(response: Any, broker: str = "broker-a") -> list[tuple[bytes, ReceiptHandle]]:
    """Return body and handle of each message, as RocketMQ's client derives them."""
    header, found = response.header, []
    starts, offsets = parse_start_offsets(header.start_offset_info), parse_msg_offsets(header.msg_offset_info)
    for record in split_records(response.body):
        text = record.property_map().get(POP_CK)
        if text is not None:
            found.append((record.body, ReceiptHandle.parse(text)))
            continue
        key = ("0", record.queue_id)
        assert record.queue_offset in offsets[key]
        fields = (header.pop_time, header.invisible_time, header.revive_qid, "0", broker, *key[1:])
        found.append((record.body, ReceiptHandle(starts[key], *fields, record.queue_offset)))
    return found


async def ack(client: Client, handle: ReceiptHandle, *, group: str = "g", topic: str = "T", **more: Any) -> Any:
    """Acknowledge one message."""
    fields = {"queue_id": handle.queue_id, "offset": handle.queue_offset, "extra_info": str(handle), **more}
    header = AckMessageRequestHeader(consumer_group=group, topic=handle.real_topic(topic, group), **fields)
    return await client.ask(R.ACK_MESSAGE, header)


async def change(
    client: Client, handle: ReceiptHandle, invisible_ms: int, *, group: str = "g", topic: str = "T"
) -> Any:
    """Change the invisible time of one message."""
    real = handle.real_topic(topic, group)
    header = ChangeInvisibleTimeRequestHeader(
        group, real, handle.queue_id, str(handle), handle.queue_offset, invisible_ms
    )
    return await client.ask(R.CHANGE_MESSAGE_INVISIBLETIME, header)


async def committed(client: Client, queue_id: int = 0, *, group: str = "g", topic: str = "T") -> int:
    """Return the committed offset."""
    response = await client.ask(R.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader(group, topic, queue_id))
    assert response.code == 0, response
    return int(response.header.offset)


async def all_popped(client: Client, wanted: int, **more: Any) -> list[tuple[bytes, ReceiptHandle]]:
    """Pop until so many messages have come."""
    found: list[tuple[bytes, ReceiptHandle]] = []
    while len(found) < wanted:
        response = await pop(client, poll_time=10_000, **more)
        if response.code == 0:
            found += handles_of(response)
    return found


async def test_a_pop_gives_out_messages_of_all_queues_and_each_is_acknowledged_by_itself(
    broker: BrokerApp, client: Client
) -> None:
    """The lowest offset in flight is committed, whatever is acknowledged above it."""
    await client.put(b"0", b"1", b"2")
    await client.put(b"3", queue_id=1)
    popped = await all_popped(client, 4)
    assert sorted(body for body, _ in popped) == [b"0", b"1", b"2", b"3"]
    assert (await pop(client)).code == ResponseCode.POLLING_TIMEOUT
    by_body = dict(popped)
    for body, offset in ((b"1", 0), (b"2", 0), (b"0", 3)):
        assert (await ack(client, by_body[body])).code == 0
        assert await committed(client) == offset
    assert await committed(client, 1) == 0
    assert (await ack(client, by_body[b"3"])).code == 0
    assert await committed(client, 1) == 1


async def test_a_handle_counts_once_and_for_its_message_alone(broker: BrokerApp, client: Client) -> None:
    """Twice is harmless; a forged, a foreign or another queue's handle changes nothing."""
    await client.put(b"0", b"1")
    (_, first), (_, second) = await all_popped(client, 2)
    wrong: list[tuple[ReceiptHandle, dict[str, Any], int]] = [
        (first._replace(broker="broker-b"), {}, 13),
        (first, {"queue_id": 1}, 13),
        (first, {"offset": 1}, 13),
        (first._replace(pop_time=first.pop_time + 1), {}, 208),
        (first._replace(invisible_time=first.invisible_time + 1), {}, 208),
        (first._replace(queue_offset=7), {}, 208),
        (first._replace(start_offset=5), {}, 13),
        (first._replace(retry="1"), {}, 208),
        (first, {"extra_info": "0 1 2"}, 13),
        (first, {"extra_info": "x" * 1000}, 13),
        (first, {"extra_info": str(first).replace(" 0 ", " -1 ", 1)}, 13),
    ]
    for handle, more, code in wrong:
        response = await ack(client, handle, **more)
        assert response.code == code, (handle, more, response)
    assert (await ack(client, first, group="other")).code == 208
    assert await committed(client) == 0
    assert broker.pop.ledger.count == 2
    assert [(await ack(client, each)).code for each in (second, second, first, first)] == [0, 0, 0, 0]
    assert await committed(client) == 2


async def test_what_is_not_acknowledged_in_time_comes_again_from_the_retry_topic(
    broker: BrokerApp, client: Client
) -> None:
    """With one attempt more, the time of the first pop, the topic it had, and a handle of its own."""
    await client.put(b"0", b"1")
    popped = await all_popped(client, 2, invisible_time=1)
    again = await all_popped(client, 2)
    assert sorted(again) == sorted(again)
    assert sorted(body for body, _ in again) == [b"0", b"1"]
    assert {handle.retry for _, handle in again} == {"1"}
    assert (await ack(client, popped[0][1])).code == 208
    for _, handle in again:
        assert (await ack(client, handle)).code == 0
    await eventually(lambda: broker.pop.ledger.count == 0)
    assert await committed(client) == 2
    assert await committed(client, topic="%RETRY%g_T") == 2


async def test_a_copy_has_its_attempts_and_the_time_of_the_first_pop(broker: BrokerApp, client: Client) -> None:
    """RocketMQ's fields."""
    await client.put(b"0")
    first = await pop(client, invisible_time=1, poll_time=10_000)
    for attempt in (1, 2):
        response = await pop(client, invisible_time=1, poll_time=10_000)
        (record,) = split_records(response.body)
        assert (record.topic, record.queue_id, record.reconsume_times) == ("T", 0, attempt)
        assert record.property_map()["1ST_POP_TIME"] == str(first.header.pop_time)


async def test_after_the_groups_attempts_a_message_is_dead(broker: BrokerApp, client: Client) -> None:
    """The broker counts them."""
    config = SubscriptionGroupConfigBody(group_name="g", retry_max_times=1)
    assert (await client.ask(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, encode_body(config))).code == 0
    await client.put(b"0")
    await all_popped(client, 1, invisible_time=1)
    await all_popped(client, 1, invisible_time=1)
    await eventually(lambda: broker.store.max_offset("%DLQ%g", 0) == 1)
    (record,) = split_records((await client.pull("%DLQ%g", group="reader")).body)
    properties = record.property_map()
    assert (record.body, properties["RETRY_TOPIC"], properties["DLQ_ORIGIN_TOPIC"]) == (b"0", "T", "T")
    await eventually(lambda: broker.pop.ledger.count == 0)
    assert (await pop(client)).code == ResponseCode.POLLING_TIMEOUT


async def test_a_changed_time_has_a_new_handle(broker: BrokerApp, client: Client) -> None:
    """The old one is dead; no time at all is a message that comes again at once."""
    await client.put(b"0")
    ((_, old),) = await all_popped(client, 1, invisible_time=HOUR_MS)
    answer = await change(client, old, 2 * HOUR_MS)
    assert answer.code == 0
    new = old.renewed(answer.header.pop_time, answer.header.invisible_time, answer.header.revive_qid)
    assert (await ack(client, old)).code == 208
    assert (await change(client, old, 1)).code == 208
    for invisible_ms in (-1, 12 * HOUR_MS + 1):
        assert (await change(client, new, invisible_ms)).code == ResponseCode.INVALID_PARAMETER
    assert (await change(client, new, 0)).code == 0
    ((_, again),) = await all_popped(client, 1)
    assert again.retry == "1"


async def test_a_pop_waits_for_messages(broker: BrokerApp, client: Client) -> None:
    """One message wakes one of those that wait, and a copy in the retry topic wakes as well."""
    waiting = [asyncio.ensure_future(pop(client, poll_time=60_000)) for _ in range(3)]
    info = PollingInfoRequestHeader("g", "T", -1)
    await client.put(b"0", topic="U")  # T does not exist yet: they are refused
    assert {(await each).code for each in waiting} == {ResponseCode.TOPIC_NOT_EXIST}
    await client.put(b"0")
    await all_popped(client, 1, group="other")
    ((_, handle),) = await all_popped(client, 1)
    waiting = [asyncio.ensure_future(pop(client, poll_time=60_000)) for _ in range(3)]
    await eventually(lambda: broker.pop.service.count == 3)
    assert (await client.ask(R.POLLING_INFO, info)).header.polling_num == 3
    await client.put(b"1")
    done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert [handles_of(each.result())[0][0] for each in done] == [b"1"]
    assert broker.pop.service.count == 2
    await change(client, handle, 0)
    done, rest = await asyncio.wait(rest, return_when=asyncio.FIRST_COMPLETED)
    assert [handles_of(each.result())[0][0] for each in done] == [b"0"]
    await client.put(b"2", b"3")
    (last,) = rest
    assert [body for body, _ in handles_of(await last)] == [b"2", b"3"]


async def test_a_pop_that_waits_in_vain_is_answered_in_time_and_at_the_stop(harness: Harness) -> None:
    """210 when its time is over; a stop answers those that wait."""
    app = await harness.broker()
    client = await harness.client(app)
    await client.put(b"0", topic="T")
    await all_popped(client, 1)
    assert (await pop(client, poll_time=150)).code == ResponseCode.POLLING_TIMEOUT
    held = asyncio.ensure_future(pop(client, poll_time=60_000))
    await eventually(lambda: app.pop.service.count == 1)
    await app.stop()
    assert (await held).code != 0


async def test_too_many_that_wait_are_answered_at_once(harness: Harness) -> None:
    """RocketMQ's 1,024 for the same queue; here 2."""
    app = await harness.broker(pop_polling_size=2)
    client = await harness.client(app)
    await client.put(b"0")
    await all_popped(client, 1)
    held = [asyncio.ensure_future(pop(client, poll_time=60_000)) for _ in range(2)]
    await eventually(lambda: app.pop.service.count == 2)
    assert (await pop(client, poll_time=60_000)).code == ResponseCode.POLLING_FULL
    header = NotificationRequestHeader("g", "T", -1, 60_000)
    assert (await client.ask(R.NOTIFICATION, header)).header.polling_full
    other = asyncio.ensure_future(pop(client, queue_id=0, poll_time=60_000))
    await eventually(lambda: app.pop.service.count == 3)
    for each in (*held, other):
        each.cancel()


async def test_a_queue_with_too_many_in_flight_gives_out_no_more_until_some_are_acknowledged(harness: Harness) -> None:
    """And who waits is woken by the acknowledgement."""
    app = await harness.broker(pop_inflight_message_threshold=2)
    client = await harness.client(app)
    await client.put(b"0", b"1", b"2")
    popped = await all_popped(client, 2)
    assert (await pop(client)).code == ResponseCode.POLLING_TIMEOUT
    held = asyncio.ensure_future(pop(client, poll_time=60_000))
    await eventually(lambda: app.pop.service.count == 1)
    assert (await ack(client, popped[1][1])).code == 0
    assert [body for body, _ in handles_of(await held)] == [b"2"]


async def test_notification_and_peek(broker: BrokerApp, client: Client) -> None:
    """What is there, without taking it."""
    await client.put(b"0", b"1")
    header = NotificationRequestHeader("g", "T", -1, 0)
    await eventually(lambda: broker.store.max_offset("T", 0) == 2)
    assert (await client.ask(R.NOTIFICATION, header)).header.has_msg
    peeked = await client.ask(R.PEEK_MESSAGE, PeekMessageRequestHeader("T", -1, 1, "g"))
    assert [record.body for record in split_records(peeked.body)] == [b"0"]
    await all_popped(client, 2)
    assert not (await client.ask(R.NOTIFICATION, header)).header.has_msg
    assert (await client.ask(R.PEEK_MESSAGE, PeekMessageRequestHeader("T", 0, 1, "g"))).code == 19
    waiting = asyncio.ensure_future(client.ask(R.NOTIFICATION, NotificationRequestHeader("g", "T", -1, 60_000)))
    await eventually(lambda: broker.pop.service.count == 1)
    await client.put(b"2")
    assert (await waiting).header.has_msg


async def test_an_ordered_pop_gives_out_one_batch_of_a_queue_at_a_time(broker: BrokerApp, client: Client) -> None:
    """The same attempt gets its batch again; the next batch begins at the first message that is not acknowledged."""
    await client.put(*[b"%d" % n for n in range(5)])
    first = await pop(client, order=True, count=3, attempt_id="a", poll_time=10_000)
    assert [body for body, _ in handles_of(first)] == [b"0", b"1", b"2"]
    assert first.header.revive_qid == 999
    assert (await pop(client, order=True, attempt_id="b")).code == ResponseCode.POLLING_TIMEOUT
    assert (await pop(client)).code == ResponseCode.POLLING_TIMEOUT  # nor without order
    repeated = await pop(client, order=True, count=3, attempt_id="a")
    (_, zero), (_, one), (_, two) = handles_of(repeated)
    assert (await ack(client, zero)).code == 0
    assert await committed(client) == 1
    assert (await ack(client, two)).code == 0
    held = asyncio.ensure_future(pop(client, order=True, attempt_id="c", poll_time=60_000))
    await eventually(lambda: broker.pop.service.count == 1)
    answer = await change(client, one, 0)
    assert answer.code == 0
    again = await held
    assert [body for body, _ in handles_of(again)] == [b"1", b"2", b"3", b"4"]
    counts = parse_order_counts(again.header.order_count_info)
    assert counts == {(0, 1): 1, (0, 2): 1}
    for _, handle in handles_of(again):
        assert (await ack(client, handle)).code == 0
    assert await committed(client) == 5


async def test_a_batch_of_acknowledgements(broker: BrokerApp, client: Client) -> None:
    """Bits of distances from the first; what is not in flight is said, and the others count."""
    await client.put(*[b"%d" % n for n in range(4)])
    handle = (await all_popped(client, 4))[0][1]

    async def batch(acked: int, **more: Any) -> Any:
        part = BatchAck("g", "T", "0", 0, 0, 0, handle.pop_time, handle.invisible_time)
        part.bits = base64.b64encode(acked.to_bytes(2, "little")).decode()
        for name, value in more.items():
            setattr(part, name, value)
        return await client.ask(R.BATCH_ACK_MESSAGE, None, encode_body(BatchAckBody("broker-a", [part])))

    assert (await batch(0b1010)).code == 0
    assert broker.pop.ledger.count == 2
    assert (await batch(0b10001)).code == 208
    assert broker.pop.ledger.count == 1
    assert (await batch(0b100, bits="?")).code == 13
    assert (await batch(0b100, retry="7")).code == 13
    assert (await batch(0b100, queue_id=-1)).code == 13
    assert (await batch(0b100)).code == 0
    assert await committed(client) == 4
    assert (await client.ask(R.BATCH_ACK_MESSAGE, None, encode_body(BatchAckBody("broker-a", [])))).code == 29
    assert (await client.ask(R.BATCH_ACK_MESSAGE, None, b"{")).code != 0


async def test_the_native_pop_and_its_acknowledgements(broker: BrokerApp, client: Client) -> None:
    """Records as they lie in the log, results one by one."""
    await client.put(*[b"%d" % n for n in range(40)])
    await eventually(lambda: broker.store.max_offset("T", 0) == 40)
    header = NativePopRequestHeader("g", "T", -1, 100, 1 << 20, HOUR_MS, 0)
    popped = await client.ask(R.NATIVE_POP, header)
    assert popped.code == 0
    body = bytes(popped.body)[4 * 40 :]
    assert [record.queue_offset for record in split_records(body)] == list(range(40))
    pop_time = popped.header.pop_time

    async def settle(*parts: Any) -> Any:
        return await client.ask(R.NATIVE_SETTLE, NativeSettleRequestHeader("g", "T", list(parts)))

    offsets = list(range(39))
    done = await settle(("0", 0, pop_time, HOUR_MS, -1, offsets, False), ("0", 0, pop_time, 1, -1, [39, 40], False))
    assert done.header.results == [0] * 39 + [2, 3]
    assert await committed(client) == 39
    changed = await settle(("0", 0, pop_time, HOUR_MS, 0, [39], False))
    assert changed.header.results == [0]
    ((_, handle),) = await all_popped(client, 1)
    assert handle.retry == "1"
    assert (await client.ask(R.NATIVE_POP, header)).code == ResponseCode.POLLING_TIMEOUT
    assert (await settle(("x", 0, 0, 0, -1, [0], False))).code == 29
    assert (await settle(("0", 0, 0, 0, -1, list(range(5000)), False))).code == 29


@pytest.mark.parametrize("native", [False, True])
async def test_a_filter_skips_what_it_rejects(broker: BrokerApp, client: Client, native: bool) -> None:
    """Also when nothing of the queue fits; a retried message is not filtered again."""
    await client.put(*[b"x"] * 2000, tags="x")
    await client.put(b"y", tags="y")
    await eventually(lambda: broker.store.max_offset("T", 0) == 2001)
    if native:
        header = NativePopRequestHeader("g", "T", -1, 100, 1 << 20, 1, 10_000, "y")
        popped = await client.ask(R.NATIVE_POP, header)
        assert [record.body for record in split_records(bytes(popped.body)[4:])] == [b"y"]
    else:
        popped = await pop(client, exp="y", exp_type="TAG", invisible_time=1, poll_time=10_000)
        assert [body for body, _ in handles_of(popped)] == [b"y"]
    again = await pop(client, exp="y", exp_type="TAG", poll_time=10_000)
    assert [body for body, _ in handles_of(again)] == [b"y"]
    assert (await pop(client, exp="y", exp_type="NONE")).code != 0
    await eventually(lambda: broker.pop.ledger.count == 1)
    assert await committed(client) == 2001


async def test_what_may_not_be_popped_is_refused(broker: BrokerApp, client: Client) -> None:
    """Numbers and names out of their range, with RocketMQ's codes."""
    await client.put(b"0")
    for more, code in (
        ({"count": 33}, 29),
        ({"count": 0}, 29),
        ({"queue_id": 99}, 29),
        ({"queue_id": -2}, 29),
        ({"topic": "nobody"}, 17),
        ({"invisible_time": 0}, 29),
        ({"invisible_time": 12 * HOUR_MS + 1}, 29),
        ({"attempt_id": "a" * 200}, 29),
        ({"group": "g" * 125}, 29),
        ({"topic": "%RETRY%g_T"}, 17),
    ):
        response = await pop(client, **more)
        assert response.code == code, (more, response)
    await client.pull(group="h_T")
    assert "same retry topic" in (await pop(client, group="h")).remark


async def test_a_group_that_pulls_and_pops(broker: BrokerApp, client: Client) -> None:
    """What a consumer that pulls has committed is consumed; a commit back gives all out again."""

    async def commit(offset: int) -> None:
        header = UpdateConsumerOffsetRequestHeader("g", "T", 0, offset)
        assert (await client.ask(R.UPDATE_CONSUMER_OFFSET, header)).code == 0

    await client.put(*[b"%d" % n for n in range(4)])
    popped = await all_popped(client, 2, count=2)
    await commit(3)
    assert [body for body, _ in await all_popped(client, 1)] == [b"3"]
    assert (await ack(client, popped[0][1])).code == 0  # consumed, whoever did it
    await commit(1)
    assert [body for body, _ in await all_popped(client, 3)] == [b"1", b"2", b"3"]
    assert (await ack(client, popped[1][1])).code == 208


async def test_a_restart_keeps_what_is_in_flight(harness: Harness) -> None:
    """Handles of before are good, what is acknowledged does not come again."""
    app = await harness.broker()
    client = await harness.client(app)
    await client.put(*[b"%d" % n for n in range(5)])
    popped = await all_popped(client, 4, count=4)
    ordered = await pop(client, group="o", order=True, count=2, poll_time=10_000)
    for _, handle in popped[1:3]:
        assert (await ack(client, handle)).code == 0
    await app.stop()
    app = await harness.broker()
    client = await harness.client(app)
    assert app.pop.ledger.count == 2
    assert [body for body, _ in handles_of(await pop(client))] == [b"4"]
    assert (await ack(client, popped[0][1])).code == 0
    assert await committed(client) == 3
    assert (await pop(client, group="o", order=True)).code == ResponseCode.POLLING_TIMEOUT
    assert (await ack(client, handles_of(ordered)[0][1], group="o")).code == 0
    assert await committed(client, group="o") == 1


async def test_metrics_show_what_is_in_flight(harness: Harness) -> None:
    """Acknowledged messages above the lowest one in flight are neither behind nor in flight."""
    app = await harness.broker()
    client = await harness.client(app)
    await client.put(*[b"%d" % n for n in range(5)])
    popped = await all_popped(client, 4, count=4)
    assert (await ack(client, popped[2][1])).code == 0
    figures = app._observation.figures
    assert figures is not None
    figures.groups.look()
    ((_, lag),) = [each for each in figures.groups.lines() if 'topic="T"' in each[0]]
    assert (lag.behind, lag.under_way, lag.ready) == (4, 3, 1)
    page = b"".join(app._observation._metrics() if app._observation._metrics else []).decode()
    assert "pocketmq_pop_unacked 3" in page
    assert "rocketmq_pop_checkpoint_buffer_size{" in page
