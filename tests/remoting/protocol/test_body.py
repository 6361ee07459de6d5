"""Administrative bodies and fastjson's dialect."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting.errors import BodyIllegal
from pocketmq.remoting.fastjson import DEPTH_MAX, standard_json
from pocketmq.remoting.protocol.body import MessageQueue, decode_body, encode_body
from pocketmq.remoting.protocol.client import ConsumerData, HeartbeatData, SubscriptionData
from pocketmq.remoting.protocol.group import ConsumeStats, OffsetWrapper
from pocketmq.remoting.protocol.lock import LockBatchResponseBody
from pocketmq.remoting.protocol.namesrv import BrokerData, QueueData, RegisterBrokerBody, TopicRouteData
from pocketmq.remoting.protocol.offset import ResetOffsetBody
from pocketmq.remoting.protocol.topic import TopicConfigBody, TopicStatsTable

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)


NOT_ACTING = {"enableActingMaster": False}


def test_a_route_is_rocketmqs_json() -> None:
    """Names as RocketMQ's clients read them; a 5.x client reads no route without ``enableActingMaster``."""
    route = TopicRouteData(None, [QueueData("b", 4, 4, 6)], [BrokerData("c", "b", {"0": "127.0.0.1:10911"})])
    data = json.loads(encode_body(route))
    assert data == {
        "orderTopicConf": None,
        "queueDatas": [{"brokerName": "b", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicSysFlag": 0}],
        "brokerDatas": [{"cluster": "c", "brokerName": "b", "brokerAddrs": {"0": "127.0.0.1:10911"}} | NOT_ACTING],
        "filterServerTable": {},
    }
    assert decode_body(encode_body(route), TopicRouteData) == route


def test_bare_keys_of_fastjson_are_understood() -> None:
    """Broker ids arrive as numbers without quotes."""
    data = b'{"brokerDatas":[{"brokerAddrs":{0:"1.2.3.4:10911",1:"1.2.3.5:10911"},"brokerName":"a","cluster":"c"}]}'
    route = decode_body(data, TopicRouteData)
    assert route.broker_datas == [BrokerData("c", "a", {"0": "1.2.3.4:10911", "1": "1.2.3.5:10911"})]


def test_object_keys_of_fastjson_are_read_and_written() -> None:
    """The bodies are tables with queues as keys."""
    data = (
        b'{"consumeTps":1.5,"offsetTable":{{"brokerName":"b","queueId":3,"topic":"T{}"}:'
        b'{"brokerOffset":9,"consumerOffset":7,"lastTimestamp":5}}}'
    )
    stats = decode_body(data, ConsumeStats)
    assert stats == ConsumeStats({MessageQueue("T{}", "b", 3): OffsetWrapper(9, 7, 5)}, 1.5)
    assert decode_body(encode_body(stats), ConsumeStats) == stats
    assert encode_body(ResetOffsetBody({MessageQueue("T", "b", 0): 4})) == (
        b'{"offsetTable":{{"topic":"T","brokerName":"b","queueId":0}:4}}'
    )
    assert decode_body(b'{"offsetTable":{}}', TopicStatsTable) == TopicStatsTable()


def test_unusual_names() -> None:
    """clientID and lockOKMQSet are not camelCase."""
    heartbeat = HeartbeatData("c@1", [], [ConsumerData("g", subscription_data_set=[SubscriptionData("T")])])
    data = encode_body(heartbeat)
    assert b'"clientID":"c@1"' in data
    assert decode_body(data, HeartbeatData) == heartbeat
    assert b'"lockOKMQSet"' in encode_body(LockBatchResponseBody([MessageQueue("T", "b", 1)]))


def test_a_registration_round_trips() -> None:
    """The nested table of topics survives."""
    body = RegisterBrokerBody()
    body.topic_config_serialize_wrapper.topic_config_table["T"] = TopicConfigBody("T", 4, 4)
    body.topic_config_serialize_wrapper.data_version.counter = 3
    assert decode_body(encode_body(body), RegisterBrokerBody) == body


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"{:1}",
        b'{"a"}',
        b'{"a":1,}x',
        b"\xff",
        b"{" * 1000,
        b"[" * 100_000,
        b"{{}:{}}}",
        b'"unterminated',
    ],
)
def test_bad_bodies_are_typed_errors(data: bytes) -> None:
    """They are, whatever a peer sends."""
    for kind in (TopicRouteData, ConsumeStats):
        with pytest.raises(BodyIllegal):
            decode_body(data, kind)


@given(JSON_VALUES)
def test_standard_json_stays_what_it_is(value: object) -> None:
    """The rewrite changes only keys that are not strings."""
    for text in (json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False)):
        assert json.loads(standard_json(text.encode())) == value


@given(st.text(alphabet='{}[]:,"\\ 0a', max_size=40))
def test_any_text_is_rewritten_or_refused(text: str) -> None:
    """No other error than BodyIllegal is raised."""
    for kind in (TopicRouteData, ConsumeStats):
        try:
            decode_body(text.encode(), kind)
        except BodyIllegal:
            pass


@pytest.mark.parametrize(
    "data", [b'{"brokerDatas":3}', b'{"brokerDatas":[{"brokerAddrs":{0:[]}}]}', b'{"orderTopicConf":"\xff"}']
)
def test_wrong_types_in_bodies_are_typed_errors(data: bytes) -> None:
    """A known key must have a value of its type."""
    with pytest.raises(BodyIllegal):
        decode_body(data, TopicRouteData)


@pytest.mark.parametrize("key", [b"1", b'{"queueId":"x"}', b"[]"])
def test_keys_that_are_no_queue_are_typed_errors(key: bytes) -> None:
    """A table with queues as keys refuses other keys."""
    with pytest.raises(BodyIllegal):
        decode_body(b'{"offsetTable":{' + key + b":{}}}", ConsumeStats)


def test_depth_is_bounded() -> None:
    """Nesting beyond the limit is refused before Python's own."""
    assert standard_json(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX)
    with pytest.raises(BodyIllegal, match="levels"):
        standard_json(b"[" * 5000 + b"]" * 5000)


def test_keys_become_json_text() -> None:
    """An object key is its own text as a string."""
    assert json.loads(standard_json(b'{{"a":1}:2,3:4,null:5,"s":6}')) == {'{"a":1}': 2, "3": 4, "null": 5, "s": 6}
    assert msgspec.json.decode(standard_json(b"{}")) == {}
