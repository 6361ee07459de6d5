"""Calls of gRPC clients through a real broker: what is stored, what comes back, which codes refuse."""

import asyncio
import gzip
import hashlib
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("h2", reason="gRPC needs h2: pip install 'pocketmq[grpc]'")

from pocketmq.broker.app import BrokerApp
from pocketmq.common.body_codec import CompressionType, compress_body
from pocketmq.common.clock import SystemClock
from pocketmq.common.record import COMPRESSED_FLAG
from pocketmq.common.topics import TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.grpc import messages as m
from pocketmq.remoting.grpc.codes import ClientType, Code, GrpcStatus, MessageType
from pocketmq.remoting.protocol.group import SubscriptionGroupConfigBody
from tests.broker.conftest import Harness, eventually
from tests.broker.grpc.grpc_rig import HOUR_MS, Rig, handle_of, id_of, message, system_of, topic

pytestmark = pytest.mark.usefixtures("brokers_in_memory")


@pytest.fixture
async def rig(harness: Harness) -> AsyncIterator[Rig]:
    app = await harness.broker(grpc_port=-1, transaction_time_out=1, transaction_check_interval=50)
    app.topics.create("T", 4)
    found = await Rig.connect(app)
    yield found
    await found.client.close()


def stored(app: BrokerApp, name: str = "T") -> list[int]:
    """How many messages each queue has."""
    config = app.topics.get(name)
    assert config is not None
    return [app.store.max_offset(name, queue) for queue in range(config.write_queue_nums)]


def typed(app: BrokerApp, name: str, kind: str) -> None:
    app.topics.put(
        TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1, attributes={"message.type": kind})
    )


# ---- routes --------------------------------------------------------------------------------------------------------


async def test_a_route_has_the_endpoints_that_the_client_used(rig: Rig) -> None:
    used = m.Endpoints(scheme=3, addresses=[m.Address(host="broker.behind.nat", port=31_000)])
    request = m.QueryRouteRequest(topic=topic(), endpoints=used)
    answer = await rig.client.call("QueryRoute", request, m.QueryRouteResponse)
    assert answer.status == m.Status(code=20000, message="OK")
    assert [(queue.id, queue.permission) for queue in answer.message_queues] == [(each, 4) for each in range(4)]
    for queue in answer.message_queues:
        assert queue.broker == m.Broker(name="broker-a", id=0, endpoints=used)
        assert queue.accept_message_types == [1, 2, 3, 4]


async def test_a_route_says_which_messages_a_topic_takes(rig: Rig) -> None:
    typed(rig.app, "F", "FIFO")
    answer = await rig.client.call("QueryRoute", m.QueryRouteRequest(topic=topic("F")), m.QueryRouteResponse)
    [queue] = answer.message_queues
    assert queue.accept_message_types == [MessageType.FIFO]
    assert queue.broker is not None
    assert queue.broker.endpoints is not None
    [address] = queue.broker.endpoints.addresses
    assert (address.host, address.port) == ("127.0.0.1", rig.app.grpc_port)


@pytest.mark.parametrize(
    ("name", "code"), [("nobody", Code.TOPIC_NOT_FOUND), ("a b", Code.ILLEGAL_TOPIC), ("", Code.ILLEGAL_TOPIC)]
)
async def test_a_topic_that_is_none_has_no_route(rig: Rig, name: str, code: int) -> None:
    answer = await rig.client.call("QueryRoute", m.QueryRouteRequest(topic=topic(name)), m.QueryRouteResponse)
    assert answer.status is not None
    assert answer.status.code == code


async def test_an_assignment_is_one_queue_or_in_order_every_queue(rig: Rig) -> None:
    async def assigned(group: str) -> list[int]:
        request = m.QueryAssignmentRequest(topic=topic(), group=m.Resource(name=group))
        answer = await rig.client.call("QueryAssignment", request, m.QueryAssignmentResponse)
        assert answer.status is not None
        assert answer.status.code == 20000
        return [each.message_queue.id for each in answer.assignments if each.message_queue is not None]

    rig.app.groups.put(SubscriptionGroupConfigBody(group_name="ordered", consume_message_orderly=True))
    assert await assigned("g") == [-1]
    assert await assigned("ordered") == [0, 1, 2, 3]


# ---- settings, heartbeats ------------------------------------------------------------------------------------------


async def test_settings_come_back_with_the_server_s_part(rig: Rig) -> None:
    answer = await rig.produces("T")
    assert answer.status == m.Status(code=20000, message="OK")
    assert answer.settings is not None
    assert answer.settings.publishing == m.Publishing(
        topics=[topic()], max_body_size=4 << 20, validate_message_type=True
    )
    assert answer.settings.metric == m.Metric()
    assert answer.settings.backoff_policy is not None
    assert answer.settings.backoff_policy.max_attempts == 3
    assert rig.app.clients.has_producer("T")


async def test_a_consumer_is_a_member_of_its_group_until_it_says_goodbye(rig: Rig) -> None:
    rig.app.groups.put(SubscriptionGroupConfigBody(group_name="g", retry_max_times=3))
    answer = await rig.consumes("g", kind=ClientType.PUSH_CONSUMER)
    assert answer.settings is not None
    assert answer.settings.subscription is not None
    assert (answer.settings.subscription.fifo, answer.settings.subscription.receive_batch_size) == (False, 32)
    policy = answer.settings.backoff_policy
    assert policy is not None
    assert policy.customized_backoff is not None
    waits = [wait.ms for wait in policy.customized_backoff.next]
    assert (policy.max_attempts, len(waits), waits[:3], waits[-1]) == (4, 18, [1_000, 5_000, 10_000], 7_200_000)
    known = rig.app.clients.consumer_group("g")
    assert known is not None
    assert [client.client_id for client in known.clients.values()] == ["c1"]
    beat = m.HeartbeatRequest(group=m.Resource(name="g"), client_type=2)
    assert (await rig.client.call("Heartbeat", beat, m.HeartbeatResponse)).status == m.Status(code=20000, message="OK")
    bye = m.NotifyClientTerminationRequest(group=m.Resource(name="g"))
    await rig.client.call("NotifyClientTermination", bye, m.NotifyClientTerminationResponse)
    await eventually(lambda: rig.app.clients.consumer_group("g") is None)


async def test_what_has_no_settings_is_refused(rig: Rig) -> None:
    beat = await rig.client.call("Heartbeat", m.HeartbeatRequest(), m.HeartbeatResponse)
    assert beat.status is not None
    assert beat.status.code == Code.UNRECOGNIZED_CLIENT_TYPE
    stream = rig.client.open("Telemetry")
    stream.send(m.TelemetryCommand(settings=m.Settings()))
    await stream.done()
    assert stream.status == GrpcStatus.INVALID_ARGUMENT
    nobody = await rig.client.call("SendMessage", m.SendMessageRequest(), m.SendMessageResponse, x_mq_client_id="")
    assert nobody.status is not None
    assert nobody.status.code == Code.CLIENT_ID_REQUIRED


@pytest.mark.parametrize("name", ["PullMessage", "UpdateOffset", "GetOffset", "QueryOffset", "SyncLiteSubscription"])
async def test_what_rocketmq_s_proxy_does_not_serve_is_not_served(rig: Rig, name: str) -> None:
    assert (await rig.client.fails(name, b"\0\0\0\0\0"))[0] == GrpcStatus.UNIMPLEMENTED


# ---- sends ---------------------------------------------------------------------------------------------------------


async def test_a_message_comes_back_as_it_was_sent(rig: Rig) -> None:
    born = m.Timestamp.of_ms(1_700_000_000_123)
    entry = await rig.sent(
        b"body\0\xff",
        tag="t1",
        keys=["k1", "k2"],
        properties={"colour": "grün", "n": "1"},
        born_host="host-1",
        born_timestamp=born,
        trace_context="00-abc",
    )
    await rig.consumes()
    status, [found] = await rig.receive()
    system = system_of(found)
    assert status.code == 20000
    assert (found.body, found.topic, found.user_properties) == (b"body\0\xff", topic(), {"colour": "grün", "n": "1"})
    assert (system.message_id, system.tag, system.keys) == (entry.message_id, "t1", ["k1", "k2"])
    assert (system.born_timestamp, system.trace_context, system.delivery_attempt) == (born, "00-abc", 1)
    assert (system.message_type, system.queue_offset, system.body_encoding) == (MessageType.NORMAL, 0, 1)
    assert system.body_digest == m.Digest(type=2, checksum=hashlib.md5(b"body\0\xff").hexdigest().upper())
    assert system.invisible_duration == m.Duration.of_ms(3_600_000)


async def test_messages_of_a_group_go_to_the_queue_that_rocketmq_s_proxy_chooses(rig: Rig) -> None:
    for number in range(6):
        await rig.sent(b"%d" % number, message_group="g1", message_type=2)
    await eventually(lambda: sorted(stored(rig.app)) == [0, 0, 0, 6])


async def test_several_messages_of_one_call_have_an_entry_each(rig: Rig) -> None:
    answer = await rig.send(*(message(b"%d" % number) for number in range(10)))
    assert answer.status == m.Status(code=20000, message="OK")
    assert len({entry.message_id for entry in answer.entries}) == 10
    await eventually(lambda: sum(stored(rig.app)) == 10)


async def test_a_delayed_message_waits(rig: Rig) -> None:
    now_ms = rig.app._clock.now_ms()
    await rig.sent(delivery_timestamp=m.Timestamp.of_ms(now_ms + 300), message_type=3)
    assert sum(stored(rig.app)) == 0
    await eventually(lambda: sum(stored(rig.app)) == 1)
    _, [found] = await rig.receive()
    assert system_of(found).message_type == MessageType.DELAY
    assert rig.app._clock.now_ms() >= now_ms + 300


@pytest.mark.parametrize("packed", [gzip.compress(b"plain" * 100), zlib.compress(b"plain" * 100)], ids=["gzip", "zlib"])
async def test_a_packed_body_is_stored_as_it_was_before(rig: Rig, packed: bytes) -> None:
    await rig.sent(packed, body_encoding=2)
    _, [found] = await rig.receive()
    assert (found.body, system_of(found).body_encoding) == (b"plain" * 100, 1)


@pytest.mark.parametrize("kind", [CompressionType.ZLIB, CompressionType.LZ4])
async def test_bodies_that_other_clients_have_packed_can_be_read(
    harness: Harness, rig: Rig, kind: CompressionType
) -> None:
    client = await harness.client(rig.app)
    packed = compress_body(b"plain" * 1000, kind)
    answer = await client.send(body=packed, sys_flag=COMPRESSED_FLAG | kind.value)
    assert answer.code == 0
    _, [found] = await rig.receive()
    if kind is CompressionType.ZLIB:
        assert (found.body, system_of(found).body_encoding) == (packed, 2)
    else:
        assert (found.body, system_of(found).body_encoding) == (b"plain" * 1000, 1)


LONG = "x" * 64


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"message_id": " "}, Code.ILLEGAL_MESSAGE_ID),
        ({"tag": "a|b"}, Code.ILLEGAL_MESSAGE_TAG),
        ({"tag": " "}, Code.ILLEGAL_MESSAGE_TAG),
        ({"keys": ["a", "b\x01"]}, Code.ILLEGAL_MESSAGE_KEY),
        ({"message_group": LONG}, Code.ILLEGAL_MESSAGE_GROUP),
        ({"message_group": ""}, Code.ILLEGAL_MESSAGE_GROUP),
        ({"properties": {"KEYS": "x"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"properties": {"TIMER_DELAY_MS": "1"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"properties": {"a": "b\x02c"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"properties": {"a": ""}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"properties": {f"n{number}": "x" for number in range(129)}}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"properties": {"a": "x" * (16 << 10)}}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
        ({"body": b""}, Code.MESSAGE_BODY_EMPTY),
        ({"body": b"x" * ((4 << 20) + 1)}, Code.MESSAGE_BODY_TOO_LARGE),
        ({"body_digest": m.Digest(type=2, checksum="00")}, Code.MESSAGE_CORRUPTED),
        ({"body_encoding": 2}, Code.MESSAGE_CORRUPTED),
        ({"body": zlib.compress(bytes(5 << 20)), "body_encoding": 2}, Code.MESSAGE_BODY_TOO_LARGE),
        ({"delivery_timestamp": m.Timestamp(seconds=1 << 40)}, Code.ILLEGAL_DELIVERY_TIME),
        (
            {"message_type": 4, "orphaned_transaction_recovery_duration": m.Duration.of_ms(3_600_001)},
            Code.BAD_REQUEST,
        ),
        ({"message_type": 4, "message_group": "g"}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ({"to": "rmq_sys_x"}, Code.ILLEGAL_TOPIC),
        ({"to": "SCHEDULE_TOPIC_XXXX"}, Code.ILLEGAL_TOPIC),
    ],
)
async def test_a_message_that_is_not_legal_is_not_stored(rig: Rig, fields: dict[str, Any], code: int) -> None:
    end = rig.app.store.appended_offset
    stream = rig.client.open("SendMessage")
    data = m.SendMessageRequest(messages=[message(**{"body": b"x", **fields})])
    task = asyncio.create_task(_send_slowly(stream, data))
    answer = await stream.next(m.SendMessageResponse)
    await task
    assert answer.status is not None
    assert (answer.status.code, answer.entries) == (code, []), answer.status
    assert rig.app.store.appended_offset == end


async def _send_slowly(stream: Any, request: m.SendMessageRequest) -> None:
    """Send a message of some megabytes, as the windows open."""
    from pocketmq.remoting.grpc.call import framed
    from pocketmq.remoting.grpc.protobuf import encode

    data, engine = framed(encode(request)), stream.client.h2
    while data:
        room = min(engine.local_flow_control_window(stream.stream_id), engine.max_outbound_frame_size)
        if room > 0:
            stream.send_raw(data[:room], end=room >= len(data))
            data = data[room:]
        await asyncio.sleep(0)


async def test_a_topic_with_a_type_takes_no_other(rig: Rig) -> None:
    typed(rig.app, "F", "FIFO")
    answer = await rig.send(message(to="F"))
    assert answer.status is not None
    assert answer.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    await rig.sent(to="F", message_group="g", message_type=2)


async def test_a_refusal_of_the_broker_says_why_and_whether_it_is_stored(harness: Harness) -> None:
    app = await harness.broker(grpc_port=-1, auto_create_topic_enable=False)
    rig = await Rig.connect(app)
    answer = await rig.send(message(to="nobody"))
    [entry] = answer.entries
    assert entry.status is not None
    assert entry.status.code == Code.TOPIC_NOT_FOUND
    assert entry.status.message.endswith("[cause no_route, stored no]")
    assert answer.status == entry.status
    await rig.client.close()


# ---- transactions --------------------------------------------------------------------------------------------------


async def test_a_transaction_is_seen_when_it_is_committed_and_not_when_it_is_rolled_back(rig: Rig) -> None:
    await rig.produces("T")
    one = await rig.sent(b"kept", message_type=4)
    two = await rig.sent(b"dropped", message_type=4)
    assert (one.transaction_id, sum(stored(rig.app))) == (one.message_id, 0)
    assert (await rig.end(one.transaction_id, 1)).code == 20000
    assert (await rig.end(two.transaction_id, 2)).code == 20000
    assert (await rig.end(one.transaction_id, 1)).code == 20000  # a decision may be repeated
    await eventually(lambda: sum(stored(rig.app)) == 1)
    _, [found] = await rig.receive()
    assert (found.body, system_of(found).message_type) == (b"kept", MessageType.TRANSACTION)


async def test_an_orphan_is_recovered_by_its_topic_s_producers(rig: Rig) -> None:
    other = await Rig.connect(rig.app, "another")
    entry = await other.sent(b"orphan", message_type=4)
    await other.client.close()
    await rig.produces("T")
    command = (await rig.telemetry.next(m.TelemetryCommand)).recover_orphaned_transaction_command
    assert command is not None
    assert command.message is not None
    assert (command.transaction_id, command.message.body, id_of(command.message)) == (
        entry.message_id,
        b"orphan",
        entry.message_id,
    )
    assert (await rig.end(command.transaction_id, 1, source=2)).code == 20000
    await eventually(lambda: sum(stored(rig.app)) == 1)


@pytest.mark.parametrize(
    ("message_id", "resolution", "code", "text"),
    [
        ("", 1, Code.INVALID_TRANSACTION_ID, "empty"),
        ("x", 1, Code.INTERNAL_SERVER_ERROR, "cannot found transaction data"),
        ("x", 0, Code.BAD_REQUEST, "COMMIT or ROLLBACK"),
    ],
)
async def test_an_end_of_nothing_is_refused(rig: Rig, message_id: str, resolution: int, code: int, text: str) -> None:
    status = await rig.end(message_id, resolution)
    assert (status.code, text in status.message) == (code, True), status


# ---- receiving -----------------------------------------------------------------------------------------------------


async def test_a_message_is_handed_out_once_until_it_is_acknowledged(rig: Rig) -> None:
    await rig.sent(b"1")
    await rig.consumes()
    _, [found] = await rig.receive()
    answer = await rig.ack(found)
    assert answer.status == m.Status(code=20000, message="OK")
    assert answer.entries == [
        m.AckMessageResultEntry(message_id=id_of(found), receipt_handle=handle_of(found), status=answer.status)
    ]
    assert rig.app.offsets.query("g", "T", system_of(found).queue_id) == 1


async def test_a_receive_names_a_queue_and_gets_messages_of_all(rig: Rig) -> None:
    for number in range(4):
        await rig.sent(b"%d" % number)
    found: list[m.MessageOf] = []
    while len(found) < 4:
        found += (await rig.receive(queue_id=0))[1]
    assert sorted(each.body for each in found) == [b"0", b"1", b"2", b"3"]


async def test_a_receive_waits_for_a_message(rig: Rig) -> None:
    waiting = asyncio.create_task(rig.receive())
    await eventually(lambda: rig.app._run.pop.service.holds.count)
    await rig.sent(b"late")
    _, [found] = await waiting
    assert found.body == b"late"


async def test_a_receive_without_a_message_ends_when_its_time_is_over(rig: Rig) -> None:
    status, found = await rig.receive()
    assert (status.code, status.message, found) == (Code.MESSAGE_NOT_FOUND, "no new message", [])


async def test_a_cancelled_receive_holds_nothing(rig: Rig) -> None:
    waiting = asyncio.create_task(rig.receive())
    await eventually(lambda: rig.app._run.pop.service.holds.count)
    await rig.client.close()
    waiting.cancel()
    await eventually(lambda: not rig.app._run.pop.service.holds.count)
    rig.client = (await Rig.connect(rig.app)).client
    await rig.sent(b"for the next")
    _, [found] = await rig.receive()
    assert found.body == b"for the next"


async def test_a_nack_brings_the_message_back_with_another_attempt(rig: Rig) -> None:
    await rig.sent(b"again")
    _, [found] = await rig.receive()
    answer = await rig.change(found, 100)
    assert answer.status == m.Status(code=20000, message="OK")
    assert answer.receipt_handle not in ("", handle_of(found))
    _, [again] = await rig.receive()
    assert (again.body, again.topic, system_of(again).delivery_attempt) == (b"again", topic(), 2)
    assert (await rig.ack(again)).status == m.Status(code=20000, message="OK")


async def test_more_time_comes_with_a_new_handle_and_ends_the_old_one(rig: Rig) -> None:
    await rig.sent(b"slow")
    _, [found] = await rig.receive(invisible_ms=10_000)
    longer = await rig.change(found, 60_000)
    old = await rig.ack(found)
    assert old.status is not None
    assert (old.status.code, old.status.message) == (Code.INVALID_RECEIPT_HANDLE, "receipt handle is expired")
    system_of(found).receipt_handle = longer.receipt_handle
    assert (await rig.ack(found)).status == m.Status(code=20000, message="OK")


async def test_tags_and_sql_choose_messages(rig: Rig) -> None:
    for tag in "abab":
        await rig.sent(tag.encode(), tag=tag, properties={"n": "1" if tag == "a" else "2"})
    found: list[m.MessageOf] = []
    while len(found) < 2:
        found += (await rig.receive("tags", filtered=m.FilterExpression(type=1, expression="a")))[1]
    assert [each.body for each in found] == [b"a", b"a"]
    found = []
    while len(found) < 2:
        found += (await rig.receive("sql", filtered=m.FilterExpression(type=2, expression="n = 2")))[1]
    assert [each.body for each in found] == [b"b", b"b"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"invisible_ms": 9_999}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_ms": 12 * 3_600_000 + 1}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"deadline": "2S"}, Code.ILLEGAL_POLLING_TIME),
        ({"filtered": m.FilterExpression(type=2, expression="a >")}, Code.ILLEGAL_FILTER_EXPRESSION),
        ({"name": "nobody"}, Code.TOPIC_NOT_FOUND),
        ({"group": "a b"}, Code.ILLEGAL_CONSUMER_GROUP),
    ],
)
async def test_a_receive_that_is_not_legal_is_refused(rig: Rig, fields: dict[str, Any], code: int) -> None:
    status, _ = await rig.receive(**fields)
    assert status.code == code, status


@pytest.mark.parametrize(
    "handle",
    [
        "",
        "x",
        "0 1 2",
        "0 1700000000000 60000 0 0 broker-a 0 99",
        "0 1700000000000 60000 0 0 elsewhere 0 0",
        "1 " * 400,
    ],
)
async def test_a_forged_handle_changes_nothing(rig: Rig, handle: str) -> None:
    await rig.sent(b"1")
    _, [found] = await rig.receive()
    real = handle_of(found)
    system_of(found).receipt_handle = handle
    answer = await rig.ack(found)
    assert answer.status is not None
    assert answer.status.code == Code.INVALID_RECEIPT_HANDLE, answer.status
    changed = await rig.change(found, 1_000, handle=handle or "-")
    assert changed.status is not None
    assert changed.status.code == Code.INVALID_RECEIPT_HANDLE
    system_of(found).receipt_handle = real
    assert (await rig.ack(found)).status == m.Status(code=20000, message="OK")


async def test_acks_of_several_messages_have_mixed_results(rig: Rig) -> None:
    for body in (b"1", b"2"):
        await rig.sent(body, message_group="one", message_type=2)
    _, found = await rig.receive()
    assert len(found) == 2
    system_of(found[1]).receipt_handle = "forged"
    answer = await rig.ack(*found)
    assert answer.status is not None
    assert answer.status.code == Code.MULTIPLE_RESULTS
    codes = [entry.status.code for entry in answer.entries if entry.status is not None]
    assert codes == [20000, Code.INVALID_RECEIPT_HANDLE]


async def test_an_ordered_group_gets_a_batch_of_a_queue_and_gives_up_a_message(rig: Rig) -> None:
    rig.app.groups.put(SubscriptionGroupConfigBody(group_name="o", consume_message_orderly=True))
    for body in (b"1", b"2", b"3"):
        await rig.sent(body, message_group="one", message_type=2)
    settings = await rig.consumes("o", kind=ClientType.PUSH_CONSUMER)
    assert settings.settings is not None
    assert settings.settings.subscription is not None
    assert settings.settings.subscription.fifo is True
    _, found = await rig.receive("o", count=2)
    assert [each.body for each in found] == [b"1", b"2"]
    request = m.ForwardMessageToDeadLetterQueueRequest(
        group=m.Resource(name="o"), topic=topic(), receipt_handle=handle_of(found[0]), message_id=id_of(found[0])
    )
    kind = m.ForwardMessageToDeadLetterQueueResponse
    answer = await rig.client.call("ForwardMessageToDeadLetterQueue", request, kind)
    assert answer.status == m.Status(code=20000, message="OK")
    await eventually(lambda: rig.app.store.max_offset("%DLQ%o", 0) == 1)
    await rig.ack(found[1], group="o")
    _, [last] = await rig.receive("o")
    assert last.body == b"3"


# ---- administrators ------------------------------------------------------------------------------------------------


async def test_a_consumer_is_asked_to_consume_a_message_and_for_its_stacks(harness: Harness, rig: Rig) -> None:
    from pocketmq.remoting.protocol.relay import (
        ConsumeMessageDirectlyRequestHeader,
        ConsumerRunningInfo,
        GetConsumerRunningInfoRequestHeader,
    )

    await rig.consumes("g", kind=ClientType.PUSH_CONSUMER)
    client = await harness.client(rig.app)
    sent = await client.send(body=b"verify me")
    header = ConsumeMessageDirectlyRequestHeader("g", client_id="c1", msg_id=sent.header.msg_id)
    asked = asyncio.create_task(client.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header))
    command = (await rig.telemetry.next(m.TelemetryCommand)).verify_message_command
    assert command is not None
    assert command.message is not None
    assert command.message.body == b"verify me"
    result = m.VerifyMessageResult(nonce=command.nonce)
    status = m.Status(code=Code.FAILED_TO_CONSUME_MESSAGE, message="no")
    rig.telemetry.send(m.TelemetryCommand(status=status, verify_message_result=result))
    answer = await asked
    assert answer.code == ResponseCode.SUCCESS
    assert b"CR_LATER" in bytes(answer.body)
    info = GetConsumerRunningInfoRequestHeader("g", "c1", jstack_enable=True)
    asked = asyncio.create_task(client.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, info))
    stacks = (await rig.telemetry.next(m.TelemetryCommand)).print_thread_stack_trace_command
    assert stacks is not None
    trace = m.ThreadStackTrace(nonce=stacks.nonce, thread_stack_trace="main: here")
    rig.telemetry.send(m.TelemetryCommand(status=m.Status(code=20000), thread_stack_trace=trace))
    assert ConsumerRunningInfo.decode(bytes((await asked).body)).jstack == "main: here"


# ---- recall --------------------------------------------------------------------------------------------------------


async def test_a_delayed_message_is_taken_back(rig: Rig) -> None:
    """The receipt has the handle; a handle that is none is refused, and so is one of a message that is not delayed."""
    due_ms = SystemClock().now_ms() + HOUR_MS
    sent = await rig.sent(message_type=MessageType.DELAY, delivery_timestamp=m.Timestamp.of_ms(due_ms))
    assert sent.recall_handle

    async def recall(handle: str) -> m.RecallMessageResponse:
        request = m.RecallMessageRequest(topic=topic(), recall_handle=handle)
        return await rig.client.call("RecallMessage", request, m.RecallMessageResponse)

    answer = await recall(sent.recall_handle)
    assert answer.status is not None
    assert answer.status.code == 20000, answer.status
    assert answer.message_id
    for handle in ("", "bm90aGluZw=="):
        refused = await recall(handle)
        assert refused.status is not None
        assert refused.status.code != 20000
    assert not (await rig.sent()).recall_handle
