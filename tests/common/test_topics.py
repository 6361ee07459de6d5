"""Topic and group names, permissions, settings as JSON."""

from typing import Any

import msgspec
import pytest

from pocketmq.common.topics import (
    GroupIllegal,
    Perm,
    TopicConfig,
    TopicIllegal,
    check_group_name,
    check_topic_name,
    dlq_topic,
    is_dlq_topic,
    is_plain_topic,
    is_retry_topic,
    is_send_forbidden,
    is_system_topic,
    perm_string,
    plain_topic_error,
    retry_topic,
)


@pytest.mark.parametrize("name", ["TopicTest", "a", "x" * 127, "%RETRY%group", "a|b-c_9"])
def test_legal_topics_pass(name: str) -> None:
    """Letters, digits and ``%|_-`` up to 127 characters."""
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", " ", "x" * 128, "a.b", "a b", "a\n", "tópico", "a/../b", "a\x00"])
def test_illegal_topics_are_refused_with_a_reason(name: str) -> None:
    """Blank, long and foreign names raise an error with the reason."""
    with pytest.raises(TopicIllegal) as caught:
        check_topic_name(name)
    assert caught.value.why
    assert caught.value.code == 29
    assert plain_topic_error(name) is not None


def test_groups_have_a_longer_limit() -> None:
    """A group may have 255 characters."""
    check_group_name("g" * 255)
    wrong: list[Any] = ["", "g" * 256, "a b", None, 5, b"g"]
    for name in wrong:
        with pytest.raises(GroupIllegal):
            check_group_name(name)


def test_reserved_topics() -> None:
    """System topics, topics closed to clients, and topics that take no plain records."""
    assert is_system_topic("TBW102")
    assert is_system_topic("rmq_sys_x")
    assert not is_system_topic("TopicTest")
    assert is_send_forbidden("SCHEDULE_TOPIC_XXXX")
    assert not is_send_forbidden("TBW102")
    assert retry_topic("g") == "%RETRY%g"
    assert dlq_topic("g") == "%DLQ%g"
    assert is_retry_topic("%RETRY%g")
    assert is_dlq_topic("%DLQ%g")
    for name in ("%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", "rmq_sys_x", "TBW102", "x" * 128):
        assert not is_plain_topic(name)
    assert is_plain_topic("TopicTest")
    assert is_plain_topic("BenchmarkTest")


@pytest.mark.parametrize(("perm", "text"), [(0, "---"), (6, "RW-"), (7, "RWX"), (4, "R--"), (2, "-W-"), (1, "--X")])
def test_permissions_print_as_in_rocketmq(perm: int, text: str) -> None:
    """Read, write, inherit."""
    assert perm_string(perm) == text


def test_topic_config_has_rocketmqs_json_form() -> None:
    """The JSON has the names of ``config/topics.json``."""
    config = TopicConfig(topic_name="t", perm=Perm.READ | Perm.WRITE)
    text = msgspec.json.encode(config)
    assert msgspec.json.decode(text) == {
        "topicName": "t",
        "readQueueNums": 16,
        "writeQueueNums": 16,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
        "attributes": {},
    }
    assert msgspec.json.decode(text, type=TopicConfig) == config
