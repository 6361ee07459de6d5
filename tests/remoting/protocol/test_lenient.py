"""Bodies whose values have another type than their fields: fastjson's conversions work, other errors name the field."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting.errors import BodyIllegal
from pocketmq.remoting.protocol.body import decode_body
from pocketmq.remoting.protocol.broker import BrokerStatsData
from pocketmq.remoting.protocol.client import CheckClientBody, HeartbeatData
from pocketmq.remoting.protocol.group import ConsumeStats, SubscriptionGroupConfigBody
from pocketmq.remoting.protocol.ha import HaStatusBody
from pocketmq.remoting.protocol.lenient import BYTES_MAX
from pocketmq.remoting.protocol.lock import LockBatchRequestBody
from pocketmq.remoting.protocol.namesrv import RegisterBrokerBody, TopicRouteData
from pocketmq.remoting.protocol.topic import TopicConfigBody

KINDS: list[type[Any]] = [
    BrokerStatsData,
    CheckClientBody,
    ConsumeStats,
    HaStatusBody,
    HeartbeatData,
    LockBatchRequestBody,
    RegisterBrokerBody,
    SubscriptionGroupConfigBody,
    TopicRouteData,
]


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def subscription(**fields: Any) -> Any:
    return decode_body(body(subscriptionData=fields), CheckClientBody).subscription_data


def consumer(**fields: Any) -> Any:
    return decode_body(body(clientID="c", consumerDataSet=[fields]), HeartbeatData).consumer_data_set[0]


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ("97", 97),
        ("-97", -97),
        ("+97", 97),
        ("97.0", 97),
        ("97.", 97),
        (97.0, 97),
        (True, 1),
        (False, 0),
        (None, 0),
        ("", 0),
        ("null", 0),
        (str(2**63 - 1), 2**63 - 1),
        (str(-(2**63)), -(2**63)),
    ],
)
def test_numbers(sent: object, read: int) -> None:
    """Digits in quotes, whole floats and bools are numbers; null and a missing field are the default."""
    assert subscription(subVersion=sent).sub_version == read


@pytest.mark.parametrize(
    "sent",
    ["x", " 97", "9_7", "1.5", 1.5, 1e300, 1e19, str(2**63), "1e3", "0x1f", "٣", "9" * 5000, [], {}, "NaN", "1,000"],
)
def test_what_is_no_whole_number_is_refused_by_name(sent: object) -> None:
    """Fractions, numbers out of range, and text."""
    with pytest.raises(BodyIllegal, match=r"Expected `int`.*\$\.subscriptionData\.subVersion"):
        subscription(subVersion=sent)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_what_is_no_number_of_json_is_refused(text: str) -> None:
    """Neither whole numbers nor others accept it."""
    with pytest.raises(BodyIllegal):
        decode_body(b'{"subscriptionData":{"subVersion":%s}}' % text.encode(), CheckClientBody)
    for quoted in (text, f'"{text}"'):
        with pytest.raises(BodyIllegal):
            decode_body(b'{"statsDay":{"tps":%s}}' % quoted.encode(), BrokerStatsData)


def test_other_numbers() -> None:
    """A rate may be in quotes."""
    assert decode_body(body(statsDay={"tps": "1.5", "avgpt": "2e1", "sum": "3"}), BrokerStatsData).stats_day == (
        msgspec.convert({"tps": 1.5, "avgpt": 20.0, "sum": 3}, type(BrokerStatsData().stats_day))
    )
    assert decode_body(body(statsDay={"tps": "", "avgpt": True}), BrokerStatsData).stats_day.avgpt == 1.0


@pytest.mark.parametrize("sent", [True, "true", "TRUE", "1", 1, 1.0, "Y", "t"])
def test_true(sent: object) -> None:
    """fastjson's forms of true."""
    assert consumer(groupName="g", unitMode=sent).unit_mode is True


@pytest.mark.parametrize("sent", [False, "false", "False", "0", 0, 2, "N", "f", "", "null", None])
def test_false(sent: object) -> None:
    """fastjson's forms of false."""
    assert consumer(groupName="g", unitMode=sent).unit_mode is False


@pytest.mark.parametrize("sent", ["maybe", [], {}])
def test_what_is_no_bool_is_refused_by_name(sent: object) -> None:
    """Unlike in a header, fastjson refuses other values in a body."""
    with pytest.raises(BodyIllegal, match=r"Expected `bool`.*\$\.consumerDataSet\[0\]\.unitMode"):
        consumer(groupName="g", unitMode=sent)


@pytest.mark.parametrize(("sent", "read"), [(7, "7"), (True, "true"), (1.5, "1.5"), ("x", "x")])
def test_strings(sent: object, read: str) -> None:
    """A number becomes its text."""
    assert consumer(groupName=sent).group_name == read


@pytest.mark.parametrize("sent", [[], {}, ["x"]])
def test_what_is_no_string_is_refused_by_name(sent: object) -> None:
    """fastjson would take the value's JSON for a name."""
    with pytest.raises(BodyIllegal, match=r"Expected `str`.*\$\.consumerDataSet\[0\]\.groupName"):
        consumer(groupName=sent)


def test_enums_by_their_ordinals() -> None:
    """C++ writes them in RocketMQ's order, including the deprecated places."""
    types = [consumer(consumeType=number).consume_type for number in range(3)]
    assert types == ["CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"]
    assert [consumer(messageModel=number).message_model for number in range(2)] == ["BROADCASTING", "CLUSTERING"]
    starts = [consumer(consumeFromWhere=number).consume_from_where for number in range(6)]
    assert (starts[0], starts[4], starts[5]) == (
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    )
    assert consumer(messageModel="BROADCASTING").message_model == "BROADCASTING"
    assert decode_body(body(topicFilterType=1), TopicConfigBody).topic_filter_type == "MULTI_TAG"


def test_enums_by_name() -> None:
    """In any case; what is no name is no value, so that no stranger's text of any length is kept."""
    assert consumer(messageModel="broadcasting", consumeType="Consume_Actively").message_model == "BROADCASTING"
    for unknown in ("nonsense", "0", "", "x" * 100_000, None):
        found = consumer(messageModel=unknown, consumeType=unknown, consumeFromWhere=unknown)
        assert (found.message_model, found.consume_type, found.consume_from_where) == (None, None, None)


def test_a_long_is_a_long() -> None:
    """JSON has larger numbers; no table keeps them."""
    assert subscription(subVersion=2**63 - 1).sub_version == 2**63 - 1
    for sent in (2**63, 10**300):
        with pytest.raises(BodyIllegal, match=r"\$\.subscriptionData\.subVersion"):
            subscription(subVersion=sent)
    with pytest.raises(BodyIllegal, match=r"\$\.subscriptionData\.codeSet"):
        subscription(codeSet=[2**31])


@pytest.mark.parametrize(("name", "sent"), [("messageModel", 2), ("messageModel", -1), ("consumeFromWhere", 6)])
def test_ordinals_that_no_enum_has_are_refused_by_name(name: str, sent: int) -> None:
    """Otherwise a consumer would get a model that it did not choose."""
    with pytest.raises(BodyIllegal, match=rf"Expected `str \| null`.*\$\.consumerDataSet\[0\]\.{name}"):
        consumer(**{name: sent})


def test_null_is_the_default_of_a_field() -> None:
    """A collection that is null or missing is empty."""
    data = decode_body(body(clientID="c", producerDataSet=None, consumerDataSet=None), HeartbeatData)
    assert (data.producer_data_set, data.consumer_data_set) == ([], [])
    assert consumer(groupName="g", subscriptionDataSet=None).subscription_data_set == []
    assert consumer(groupName=None).group_name == ""
    assert subscription(codeSet=None, subVersion="1").code_set is None


@pytest.mark.parametrize("fields", [{"clientID": None}, {}])
def test_a_field_without_a_default_must_be_there(fields: dict[str, Any]) -> None:
    """A client without an id is refused."""
    with pytest.raises(BodyIllegal, match="clientID"):
        decode_body(body(**fields, producerDataSet=None), HeartbeatData)


@pytest.mark.parametrize("sent", [[None], ["x"], [[]], "97", {"0": 97}])
def test_items_have_no_default(sent: object) -> None:
    """A collection must be one, and each of its items must have the right type."""
    with pytest.raises(BodyIllegal, match=r"\$\.subscriptionData\.codeSet"):
        subscription(codeSet=sent)


def test_one_wrong_value_changes_nothing_else() -> None:
    """Strict and lenient decoding agree on right values."""
    fields = {"topic": "T", "subString": "a", "tagsSet": ["a"], "codeSet": [97], "expressionType": "SQL92", "new": {}}
    strict = subscription(**fields, subVersion=5)
    assert subscription(**fields, subVersion="5") == strict


def test_tables_by_queue() -> None:
    """Keys and values are decoded."""
    text = b'{"consumeTps":"1.5","offsetTable":{{"brokerName":"b","queueId":"3","topic":"T"}:{"brokerOffset":"9"}}}'
    stats = decode_body(text, ConsumeStats)
    [(queue, offsets)] = stats.offset_table.items()
    assert (queue.queue_id, offsets.broker_offset, stats.consume_tps) == (3, 9, 1.5)


def test_a_large_body_must_be_right() -> None:
    """Lenient decoding makes an object of every value; large bodies that were refused before are still refused."""
    many = ["97"] * (BYTES_MAX // 6)
    assert len(subscription(codeSet=many[:1000]).code_set) == 1000
    with pytest.raises(BodyIllegal, match=r"codeSet\[0\]"):
        subscription(codeSet=[*many, *many])


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.sampled_from(["", "1", "null", "x", "true", "1.0"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "clientID",
                        "consumerDataSet",
                        "groupName",
                        "subscriptionDataSet",
                        "codeSet",
                        "subVersion",
                        "subscriptionData",
                        "tps",
                        "offsetTable",
                        "brokerDatas",
                        "brokerAddrs",
                        "mqSet",
                        "statsDay",
                        "epochs",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
def test_any_json_is_a_body_or_is_refused(value: object) -> None:
    """No other error than ``BodyIllegal`` is raised, and each decoded value has its field's type."""
    for kind in KINDS:
        try:
            decoded = decode_body(json.dumps(value).encode(), kind)
        except BodyIllegal:
            continue
        if kind is not ConsumeStats:  # its keys are no JSON
            assert msgspec.json.decode(msgspec.json.encode(decoded), type=kind) == decoded
