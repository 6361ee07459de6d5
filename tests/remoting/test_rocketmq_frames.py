"""Real frames of RocketMQ 4.9.7 and 5.3.3, recorded with our SDK: read, checked and written again without Java."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from pocketmq.common.record_columns import received_messages
from pocketmq.remoting.codec import Request, Response, decode_request, decode_response, encode_request, encode_response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.frame import BINARY, JSON, FrameDecoder, new_scratch
from pocketmq.remoting.frame_budget import FrameBudget
from pocketmq.remoting.protocol.body import KVTable, decode_body
from pocketmq.remoting.protocol.client import HeartbeatData
from pocketmq.remoting.protocol.group import ConsumeStats, SubscriptionGroupWrapper
from pocketmq.remoting.protocol.lock import LockBatchRequestBody, OwnLockBatchResponseBody
from pocketmq.remoting.protocol.namesrv import ClusterInfo, TopicRouteData
from pocketmq.remoting.protocol.relay import ConsumerRunningInfo
from pocketmq.remoting.protocol.topic import TopicList, TopicStatsTable
from tests.remoting.recorded_frames import Key, RecordedFrame, frames_path, read_frames

VERSIONS = ("4.9", "5.3")
TOPICS = {JSON: "FramesOfJson", BINARY: "FramesOfBinary"}
UNKNOWN_FIELDS = {"_pmq", "IS_SUPPORT_HEART_BEAT_V2", "IS_SUB_CHANGE", "topic"}
"""Fields of 5.3's answers that we have no use for, and the mark of our first request."""
_R = RequestCode


@cache
def frames_of(version: str) -> dict[Key, RecordedFrame]:
    return {frame.key: frame for frame in read_frames(frames_path(version))}


def request_of(version: str, code: int, by: str = "client", form: int = JSON) -> Request:
    return decode_request(frames_of(version)[int(code), by, form, -1].decoded())


def response_of(version: str, code: int, answer: int = 0, form: int = JSON) -> Response:
    return decode_response(frames_of(version)[int(code), "server", form, int(answer)].decoded(), int(code))


def feed(buffers: Any) -> Any:
    (frame,) = FrameDecoder(new_scratch(), FrameBudget()).feed(b"".join(map(bytes, buffers)))
    return frame


@pytest.mark.parametrize("version", VERSIONS)
def test_every_frame_is_read_and_written_again(version: str) -> None:
    """Our frames come out byte by byte; RocketMQ's, whose fields have no order, with the same meaning."""
    assert len(frames_of(version)) > 100
    for key, frame in frames_of(version).items():
        (_check_request if frame.answer_code == -1 else _check_response)(frame, f"{frame.name} {key}")


def _check_request(frame: RecordedFrame, name: str) -> None:
    request = decode_request(frame.decoded())
    again = encode_request(
        request.code,
        request.opaque,
        request.header,
        bytes(request.body),
        serialize_type=request.serialize_type,
        oneway=request.oneway,
        extra=request.extra,
    )
    assert request.code == frame.request_code, name
    assert set(request.extra) <= UNKNOWN_FIELDS, name
    if frame.by == "client":
        assert b"".join(map(bytes, again)) == frame.data, name
    twin = decode_request(feed(again))
    assert (twin.header, twin.oneway, bytes(twin.body)) == (request.header, request.oneway, bytes(request.body)), name


def _check_response(frame: RecordedFrame, name: str) -> None:
    response = decode_response(frame.decoded(), frame.request_code)
    again = encode_response(
        response.code,
        response.opaque,
        frame.request_code,
        header=response.header,
        remark=response.remark,
        body=bytes(response.body),
        serialize_type=response.serialize_type,
        extra=response.extra,
    )
    assert response.code == frame.answer_code, name
    assert set(response.extra) <= UNKNOWN_FIELDS, name
    if frame.by == "client":
        assert b"".join(map(bytes, again)) == frame.data, name
    twin = decode_response(feed(again), frame.request_code)
    assert (twin.code, twin.remark, twin.header) == (response.code, response.remark, response.header), name
    assert bytes(twin.body) == bytes(response.body), name


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_request_is_refused_and_the_version_is_reported(version: str) -> None:
    """RocketMQ does not know HELLO; its answer to a heartbeat carries the version."""
    assert request_of(version, _R.HELLO).extra == {"_pmq": "1"}
    refusal = response_of(version, _R.HELLO, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    assert refusal.remark == " request type 30001 not supported"
    assert "_pmq" not in refusal.extra
    assert response_of(version, _R.HEART_BEAT).version == {"4.9": 407, "5.3": 479}[version]
    heartbeat = decode_body(request_of(version, _R.HEART_BEAT).body, HeartbeatData)
    assert "@" in heartbeat.client_id


def test_binary_requests_are_answered_in_binary_by_4_9_and_in_json_by_5_3() -> None:
    """A client must check each frame's own type."""
    kinds = {
        version: {frame.serialize_type for frame in frames_of(version).values() if frame.by == "server"}
        for version in VERSIONS
    }
    assert kinds == {"4.9": {JSON, BINARY}, "5.3": {JSON}}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_message_is_pulled_as_it_was_sent(version: str) -> None:
    """The path goes from SEND_MESSAGE_V2 and its receipt to the record in the answer of PULL_MESSAGE."""
    sent: Any = request_of(version, _R.SEND_MESSAGE_V2)
    receipt: Any = response_of(version, _R.SEND_MESSAGE_V2).header
    pulled = response_of(version, _R.PULL_MESSAGE)
    header: Any = pulled.header
    messages = received_messages(memoryview(pulled.body), None, "rocketmq-a", check_crc=True)
    first = messages[0]
    properties = dict(pair.split("\x01") for pair in sent.header.properties.strip("\x02").split("\x02"))
    assert bytes(sent.body) == first.body == b"frame one"
    assert (first.topic, first.flag, first.tags, first.keys) == (TOPICS[JSON], 3, "TagA", ["key1"])
    assert first.properties["own"] == properties["own"] == "ü"
    assert first.msg_id == properties["UNIQ_KEY"]
    assert first.offset_msg_id == receipt.msg_id
    assert (first.queue_id, first.queue_offset) == (receipt.queue_id, receipt.queue_offset) == (0, 0)
    assert first.born_timestamp == sent.header.born_timestamp
    assert [message.body for message in messages][1:3] == [b"batched 0", b"batched 1"]
    assert header.next_begin_offset == len(messages) == messages[-1].queue_offset + 1
    assert (header.min_offset, header.suggest_which_broker_id, pulled.remark) == (0, 0, "FOUND")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_batch_names_an_id_for_each_message(version: str) -> None:
    """SEND_BATCH_MESSAGE: the ids are joined by commas, the offset is the first one's."""
    asked: Any = request_of(version, _R.SEND_BATCH_MESSAGE).header
    answer: Any = response_of(version, _R.SEND_BATCH_MESSAGE).header
    assert (asked.batch, asked.properties) == (True, "")
    ids = answer.msg_id.split(",")
    assert [len(each) for each in ids] == [32, 32]
    assert answer.queue_offset == 1
    assert int(ids[0][16:], 16) < int(ids[1][16:], 16)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("answer", "remark"),
    [
        (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE"),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE"),
    ],
)
def test_pulls_that_found_nothing_say_where_to_go_on(version: str, answer: ResponseCode, remark: str) -> None:
    """Both answers have a header and no body."""
    response = response_of(version, _R.PULL_MESSAGE, answer)
    header: Any = response.header
    assert response.remark == remark
    assert 0 < header.next_begin_offset <= header.max_offset
    assert not response.body


@pytest.mark.parametrize("version", VERSIONS)
def test_a_transaction_that_is_asked_for_names_its_half(version: str) -> None:
    """CHECK_TRANSACTION_STATE carries the message with its real topic, and the position of its half."""
    check = request_of(version, _R.CHECK_TRANSACTION_STATE, "server")
    header: Any = check.header
    (half,) = received_messages(memoryview(check.body), None, "rocketmq-a")
    assert check.oneway
    assert (half.body, half.topic) == (b"asked", TOPICS[JSON])
    assert half.msg_id == header.msg_id == header.transaction_id
    assert int(header.offset_msg_id[16:], 16) == header.commit_log_offset
    end: Any = request_of(version, _R.END_TRANSACTION)
    assert end.oneway
    assert (end.header.commit_or_rollback, end.header.from_transaction_check) == (8, False)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_reply_is_pushed_with_the_fields_of_its_send(version: str) -> None:
    """PUSH_REPLY_MESSAGE_TO_CLIENT: the message sent to the reply topic, with hosts and times."""
    push = request_of(version, _R.PUSH_REPLY_MESSAGE_TO_CLIENT, "server")
    header: Any = push.header
    sent: Any = request_of(version, _R.SEND_REPLY_MESSAGE_V2).header
    assert bytes(push.body) == b"answer"
    assert header.topic == sent.topic == "InteropCluster_REPLY_TOPIC"
    assert header.born_timestamp == sent.born_timestamp
    assert "CORRELATION_ID" in header.properties
    answer = frames_of(version)[int(_R.PUSH_REPLY_MESSAGE_TO_CLIENT), "client", JSON, 0]
    assert decode_response(answer.decoded(), _R.PUSH_REPLY_MESSAGE_TO_CLIENT).code == ResponseCode.SUCCESS


def _route(body: Any) -> bool:
    data = decode_body(body, TopicRouteData)
    (broker,) = data.broker_datas
    return broker.broker_name == data.queue_datas[0].broker_name == "rocketmq-a" and "0" in broker.broker_addrs


def _cluster(body: Any) -> bool:
    info = decode_body(body, ClusterInfo)
    return info.cluster_addr_table == {"InteropCluster": ["rocketmq-a"]} and set(info.broker_addr_table) == {
        "rocketmq-a"
    }


def _stats(body: Any) -> bool:
    ((queue, offsets),) = decode_body(body, TopicStatsTable).offset_table.items()
    return (queue.topic, queue.queue_id, offsets.min_offset) == (TOPICS[JSON], 0, 0) and offsets.max_offset >= 5


def _progress(body: Any) -> bool:
    ((queue, progress),) = decode_body(body, ConsumeStats).offset_table.items()
    return (queue.topic, progress.consumer_offset) == (TOPICS[JSON], 2) and progress.broker_offset >= 5


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("code", "holds"),
    [
        (_R.GET_ROUTEINFO_BY_TOPIC, _route),
        (_R.GET_BROKER_CLUSTER_INFO, _cluster),
        (_R.GET_TOPIC_STATS_INFO, _stats),
        (_R.GET_CONSUME_STATS, _progress),
        (_R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, lambda body: TOPICS[JSON] in decode_body(body, TopicList).topic_list),
        (
            _R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            lambda body: "frames-reader" in decode_body(body, SubscriptionGroupWrapper).subscription_group_table,
        ),
        (
            _R.LOCK_BATCH_MQ,
            lambda body: (
                TOPICS[JSON] in {each.topic for each in decode_body(body, OwnLockBatchResponseBody).lock_ok_mq_set}
                or decode_body(body, OwnLockBatchResponseBody).lock_ok_mq_set[0].topic.startswith("%RETRY%")
            ),
        ),
        (
            _R.GET_CONSUMER_RUNNING_INFO,
            lambda body: ConsumerRunningInfo.decode(bytes(body)).properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY",
        ),
    ],
)
def test_bodies_of_answers_say_what_was_true(version: str, code: RequestCode, holds: Callable[[Any], bool]) -> None:
    """fastjson's JSON, with its bare and compound keys, becomes our structs."""
    assert holds(response_of(version, code).body)


@pytest.mark.parametrize("version", VERSIONS)
def test_runtime_information_names_the_release(version: str) -> None:
    """GET_BROKER_RUNTIME_INFO: a table of strings."""
    table = decode_body(response_of(version, _R.GET_BROKER_RUNTIME_INFO).body, KVTable).table
    assert table["brokerVersionDesc"] == {"4.9": "V4_9_7", "5.3": "V5_3_3"}[version]
    assert table["sendThreadPoolQueueCapacity"] == "10000"


@pytest.mark.parametrize("version", VERSIONS)
def test_refusals_have_rocketmqs_codes_and_texts_and_nothing_of_ours(version: str) -> None:
    """No cause, no ``stored``, no ``retry_after_ms``: the SDK must not invent them."""
    refusals = {
        (frame.name, frame.answer_code): decode_response(frame.decoded(), frame.request_code)
        for frame in frames_of(version).values()
        if frame.by == "server" and frame.answer_code > 0
    }
    assert refusals["GROUP_LIST", 3].remark == " request type 30200 not supported"
    assert refusals["GET_CONSUMER_CONNECTION_LIST", 206].remark.startswith(
        "the consumer group[frames-reader] not online"
    )
    assert refusals["GET_ROUTEINFO_BY_TOPIC", 17].remark.startswith(
        "No topic route info in name server for the topic: "
    )
    for refusal in refusals.values():
        assert not {"cause", "stored", "retry_after_ms", "stages"} & set(refusal.extra)


@pytest.mark.parametrize("version", VERSIONS)
def test_locks_are_asked_for_with_rocketmqs_body(version: str) -> None:
    """The body has our own two fields as well: RocketMQ ignores unknown fields."""
    body = decode_body(request_of(version, _R.LOCK_BATCH_MQ).body, LockBatchRequestBody)
    assert "@" in body.client_id
    assert {queue.broker_name for queue in body.mq_set} == {"rocketmq-a"}
