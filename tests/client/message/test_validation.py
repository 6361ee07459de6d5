"""Messages that a producer refuses; the error names the field."""

from typing import Any

import pytest

from pocketmq.client.message.validation import check_message
from pocketmq.common.errors import MessageIllegal, PocketMQError
from pocketmq.common.message import Message
from pocketmq.common.topics import TopicIllegal


def message(topic: str = "T", body: Any = b"x", **fields: Any) -> Any:
    return Message(topic, body, **fields)


@pytest.mark.parametrize(
    ("bad", "names"),
    [
        (message(body="text"), "body"),
        (message(body=b""), "body"),
        (message(body=b"x" * 101), "body"),
        (message(body=bytearray(b"x")), "body"),
        (message(flag=1 << 31), "flag"),
        (message(flag="1"), "flag"),
        (message(delay_time_level=19), "delay_time_level"),
        (message(delay_time_level=-1), "delay_time_level"),
        (message(tags="a\x01b"), "tags"),
        (message(tags=7), "tags"),
        (message(keys=["a b"]), "keys"),
        (message(keys=[""]), "keys"),
        (message(keys=["a", "b\x02"]), "keys"),
        (message(sharding_key="\x02"), "sharding_key"),
        (message(properties={"KEYS": "x"}), "KEYS"),
        (message(properties={"UNIQ_KEY": "x"}), "UNIQ_KEY"),
        (message(properties={"a": 1}), "properties"),
        (message(properties={"a": ""}), "a"),
        (message(properties={"a\x01": "b"}), "properties"),
        (message(tags="\ud800"), "tags"),
        ("no message", "str"),
    ],
)
def test_a_bad_field_is_named(bad: Any, names: Any) -> None:
    """Each refusal is a MessageIllegal whose text says which field it was."""
    with pytest.raises(MessageIllegal, match=names):
        check_message(bad, 100)


@pytest.mark.parametrize("topic", ["", " ", "a b", "x" * 128, "tö", "SCHEDULE_TOPIC_XXXX", None])
def test_a_bad_topic_is_a_topic_error(topic: str) -> None:
    """Topics follow RocketMQ's rules."""
    with pytest.raises(TopicIllegal):
        check_message(message(topic=topic), 100)


def test_plain_or_not() -> None:
    """Delayed messages and retry topics are sent in RocketMQ's form; the client may build all others."""
    assert check_message(message(tags="a", keys="k1 k2", sharding_key="s", properties={"x": "y"}), 100)
    assert not check_message(message(delay_time_level=3), 100)
    assert not check_message(message(topic="%RETRY%group"), 100)
    assert not check_message(message(properties={"TIMER_DELAY_MS": "5"}), 100)


def test_every_refusal_is_ours() -> None:
    """No other error than PocketMQError is raised, whatever a field holds."""
    for value in (None, 1, b"x", [], {}, object()):
        for field in ("topic", "tags", "keys", "sharding_key", "flag", "delay_time_level", "properties", "body"):
            bad = message()
            setattr(bad, field, value)
            try:
                check_message(bad, 100)
            except PocketMQError:
                pass


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"delay_time_ms": -1}, "delay_time_ms"),
        ({"delay_time_ms": 1.5}, "delay_time_ms"),
        ({"deliver_time_ms": 10**15 + 1}, "deliver_time_ms"),
        ({"deliver_time_ms": True}, "deliver_time_ms"),
        ({"delay_time_ms": 1, "deliver_time_ms": 1}, "more than one"),
        ({"delay_time_level": 1, "delay_time_sec": 1}, "more than one"),
    ],
)
def test_times_are_whole_ms_and_only_one_is_given(fields: dict[str, Any], field: str) -> None:
    """The error names the field; the broker decides how far ahead a time may lie."""
    with pytest.raises(MessageIllegal, match=field):
        check_message(Message("t", b"x", **fields), 100)
    assert not check_message(Message("t", b"x", delay_time_ms=0), 100)
    assert not check_message(Message("t", b"x", deliver_time_ms=1), 100)
