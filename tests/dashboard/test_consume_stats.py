"""The bulk answer on all groups, as PocketMQ and RocketMQ write it."""

import pytest

from pocketmq.dashboard.watch.consume_stats import decode_consume_stats
from pocketmq.remoting.errors import BodyIllegal
from pocketmq.remoting.protocol.body import MessageQueue
from pocketmq.remoting.protocol.group import ConsumeStats, OffsetWrapper, encode_consume_stats_list


def test_what_a_broker_writes_is_read() -> None:
    table = {
        MessageQueue("a", "b-0", 0): OffsetWrapper(10, 4, 77),
        MessageQueue("a", "b-0", 1): OffsetWrapper(5, 5, 99),
        MessageQueue("%RETRY%g", "b-0", 0): OffsetWrapper(3, -1, 0),
    }
    body = encode_consume_stats_list([("g", [ConsumeStats(table, 2.5)]), ("h", [])], "1.2.3.4:5", 9)
    first, retry = decode_consume_stats(body)
    assert (first.group, first.topic, first.lag, first.tps, first.last_ms) == ("g", "a", 6, 2.5, 99)
    assert first.ends == {("b-0", 0): 10, ("b-0", 1): 5}
    assert (retry.topic, retry.lag) == ("%RETRY%g", 3)


def test_rocketmq_s_dialect_is_read() -> None:
    """Keys of any order, with spaces; the bare numbers that only the general reader takes."""
    body = b"""{"brokerAddr":"1","consumeStatsList":[{"g":[{"consumeTps":0.0,"offsetTable":{
        { "brokerName":"b","queueId":3,"topic":"t"} :{"brokerOffset":7,"consumerOffset":2,"lastTimestamp":5,
        "pullOffset":2}}}]}],"extra":{0:"x"}}"""
    [found] = decode_consume_stats(body)
    assert (found.group, found.topic, found.lag, found.ends) == ("g", "t", 5, {("b", 3): 7})


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"consumeStatsList":7}', b'{"consumeStatsList":[{"g":7}]}', b"\xff"]
)
def test_nonsense_is_refused(body: bytes) -> None:
    with pytest.raises(BodyIllegal):
        decode_consume_stats(body)
