"""``consume --json`` and ``produce --json-lines``: a copied topic is the same, byte by byte."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.cli.input import InputFailed
from pocketmq.cli.json_lines import JsonLineParser
from pocketmq.cli.message_format import json_line
from pocketmq.client.blocking import Producer, PullConsumer
from pocketmq.client.message.validation import SYSTEM_PROPERTIES
from pocketmq.common.message import Message, ReceivedMessage
from pocketmq.common.record_codec import received_message
from pocketmq.testing import PocketBroker
from tests.test_message_fields import plain_record

ODD_BODIES = (
    b"plain",
    b" \t leading and trailing \r\n",
    b"\n",
    b"\0",
    bytes(range(256)),
    b"\xff\xfe",
    b"\xed\xa0\x80",  # a surrogate, which is no UTF-8
    "ünïcödé \N{SNOWMAN} \N{PILE OF POO}".encode(),
    b'{"body": "not this one", "keys": ["x"]}',
    b'"\\u0000\\"',
    "\u2028\u2029\x85\x1b[31m".encode(),
    b"aGVsbG8=",
    b"\xef\xbb\xbfa byte order mark",
    bytes(65_536),
)
TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=20)
MESSAGES = st.fixed_dictionaries(
    {"body": st.binary(min_size=1, max_size=200) | TEXT.map(str.encode)},
    optional={
        "tags": TEXT,
        "keys": TEXT.filter(str.strip) | st.lists(TEXT.filter(lambda key: key.split() == [key]), min_size=1),
        "sharding_key": TEXT,
        "properties": st.dictionaries(TEXT.filter(lambda name: name not in SYSTEM_PROPERTIES), TEXT, max_size=4),
        "flag": st.integers(-(1 << 31), (1 << 31) - 1),
    },
)


def signature(message: ReceivedMessage) -> dict[str, Any]:
    """Return all that a copy keeps."""
    own = {name: value for name, value in message.properties.items() if name not in SYSTEM_PROPERTIES}
    own = {name: value for name, value in own.items() if not name.startswith("TIMER_")}
    kept = ("KEYS", "TAGS", "DELAY", "__SHARDINGKEY")
    return {
        "body": message.body,
        "flag": message.flag,
        "properties": own | {name: message.properties.get(name, "") for name in kept},
        "deliver": message.deliver_time_ms,
    }


@given(MESSAGES)
def test_a_line_reads_back_as_the_message_it_was_written_from(fields: dict[str, Any]) -> None:
    """Any body, any text: the record of the copy has the same bytes where a record has the sender's."""
    first = received_message(plain_record(Message("T", **fields)), "b")
    line = json_line(first)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    copy = received_message(plain_record(JsonLineParser("T").parse(line)), "b")
    assert signature(copy) == signature(first)
    assert copy.keys == first.keys


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"[]", "line refused: Expected `object`, got `array` in b'[]' (one JSON object a line, as pocketmq consume "
         "--json writes them)"),
        (b"{}", "line refused: neither body nor body_base64 in b'{}' (give one of them)"),
        (b'{"body":"a","body_base64":"YQ=="}', "line refused: body and body_base64 in "
         "b'{\"body\":\"a\",\"body_base64\":\"YQ==\"}' (give one of them)"),
        (b'{"boddy":"a"}', "line refused: unknown field 'boddy' in b'{\"boddy\":\"a\"}' (one JSON object a line, as "
         "pocketmq consume --json writes them)"),
        (b'{"body_base64":"%"}', "line refused: Invalid base64 encoded string - at `$.body_base64` in "
         "b'{\"body_base64\":\"%\"}' (one JSON object a line, as pocketmq consume --json writes them)"),
    ],
)  # fmt: skip
def test_another_line_is_refused_with_its_reason(line: bytes, text: str) -> None:
    with pytest.raises(InputFailed) as caught:
        JsonLineParser("T").parse(line)
    assert str(caught.value) == text


def test_the_system_sets_its_own_properties_and_the_delay_can_be_dropped() -> None:
    """Ids, cluster and the marks of a delay belong to the first message."""
    line = json.dumps(
        {
            "body": "x",
            "properties": {"UNIQ_KEY": "1" * 32, "CLUSTER": "c", "TIMER_OUT_MS": "5", "REAL_TOPIC": "T", "a": "b"},
            "deliver_time_ms": 5,
            "msg_id": "1" * 32,
        }
    ).encode()
    message = JsonLineParser("T").parse(line)
    assert (message.properties, message.deliver_time_ms) == ({"a": "b"}, 5)
    assert not JsonLineParser("T", with_delay=False).parse(line).is_timed


@pytest.fixture(scope="module")
def broker() -> Iterator[PocketBroker]:
    with PocketBroker() as running:
        yield running


def read(broker: PocketBroker, topic: str, count: int) -> list[ReceivedMessage]:
    """Return so many messages of a topic, the delayed ones among them."""
    found: list[ReceivedMessage] = []
    with PullConsumer("reader", broker.namesrv) as consumer:
        consumer.seek(topic, "earliest")
        while len(found) < count:
            found += consumer.poll(topic, timeout_ms=1000)
    return found


@pytest.mark.slow
def test_a_copied_topic_is_the_same(run_command: Callable[..., Any], broker: PocketBroker) -> None:
    """Odd bodies with keys, tags, sharding keys, properties, flags and delays; equal sharding keys keep their order."""
    at_ms = 1_700_000_000_000
    with Producer("writer", broker.namesrv) as producer:
        for number, body in enumerate(ODD_BODIES):
            more: dict[str, Any] = (
                {"properties": {"number": str(number), "ä": "\N{SNOWMAN} =\n\t"}} if number % 2 else {}
            )
            producer.send(Message("Source", body, keys=["k1", f"k{number}"], tags="A", flag=number, **more))
            producer.send(Message("Source", body, sharding_key="same", properties={"order": str(number)}))
        producer.send(Message("Source", b"at a time", deliver_time_ms=at_ms, keys="a  b\u00a0c"))
        producer.send(Message("Source", b"later", delay_time_ms=1))
        producer.send(Message("Source", b"level", delay_time_level=1))
    count = 2 * len(ODD_BODIES) + 3
    source = read(broker, "Source", count)
    env = {"POCKETMQ_NAMESRV": broker.namesrv}
    lines = run_command("consume", "Source", "--json", env=env)
    assert lines.returncode == 0, lines.stderr
    assert lines.stdout.count(b"\n") == count
    done = run_command("produce", "Copy", "--json-lines", stdin=lines.stdout, env=env)
    assert done.returncode == 0, done.stderr
    copies = read(broker, "Copy", count)
    key = repr
    assert sorted((signature(each) for each in copies), key=key) == sorted(map(signature, source), key=key)
    ordered = [each for each in copies if each.sharding_key == "same"]
    assert [each.properties["order"] for each in ordered] == list(map(str, range(len(ODD_BODIES))))
    assert len({each.queue_id for each in ordered}) == 1


@pytest.mark.slow
def test_bad_combinations_and_bad_lines_send_nothing(run_command: Callable[..., Any], broker: PocketBroker) -> None:
    env = {"POCKETMQ_NAMESRV": broker.namesrv}
    assert run_command("produce", "Bad", "--json-lines", "--tags", "A", env=env).returncode == 2
    assert run_command("produce", "Bad", "--no-delay", env=env).returncode == 2
    done = run_command("produce", "Bad", "--json-lines", stdin=b'{"body":"a"}\n{"x":1}\n', env=env)
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: line refused: unknown field 'x'")
