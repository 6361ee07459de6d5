"""fastjson's dialect: whole objects as keys, and how an attacker could abuse them."""

import json

import pytest

from pocketmq.remoting.errors import BodyIllegal
from pocketmq.remoting.fastjson import standard_json

QUEUE = b'{"topic":"T","queueId":1}'


def nested_keys(levels: int) -> bytes:
    return b"{" * levels + b'"a":1' + b"}:1" * (levels - 1) + b"}"


def test_an_object_as_a_key_becomes_its_text() -> None:
    """RocketMQ's tables have queues as keys; values may hold such tables, too."""
    table = b"{" + QUEUE + b':{"brokerOffset":{' + QUEUE + b":7}}}"
    (key,) = json.loads(standard_json(table))
    assert json.loads(key) == {"topic": "T", "queueId": 1}
    inner = json.loads(standard_json(table))[key]["brokerOffset"]
    assert list(map(json.loads, inner)) == [{"topic": "T", "queueId": 1}]


@pytest.mark.parametrize("levels", [3, 20, 60])
def test_keys_within_keys_are_refused(levels: int) -> None:
    """Each level doubles the text of the one below: 26 levels, in 85 bytes, would take 134 MB."""
    with pytest.raises(BodyIllegal, match="as a key within a key"):
        standard_json(nested_keys(levels))
    with pytest.raises(BodyIllegal, match="as a key within a key"):
        standard_json(b"[" + nested_keys(levels) + b"]")


def test_the_text_grows_at_most_by_its_quotes() -> None:
    """With one level of keys in every value, a backslash for each quote is added, and two quotes around the key."""
    data = b"{" + b",".join(b"{" + b'"":"",' * 50 + b'"x":""}:' + str(number).encode() for number in range(50)) + b"}"
    assert len(standard_json(data)) < 2 * len(data)


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ("{'a':'b\"c'}", {"a": 'b"c'}),
        (r"{'a':'it\'s \\ \u0041\x41'}", {"a": "it's \\ AA"}),
        ('{"a":"x\ny\x01z"}', {"a": "x\ny\x01z"}),
        ('{"a":"\\"\\\\"}', {"a": '"\\'}),
        ('{,"a":[1,,2,],,"b":{},}', {"a": [1, 2], "b": {}}),
        ("\ufeff{}", {}),
        ("{a:1,0:2}", {"a": 1, "0": 2}),
    ],
)
def test_what_clients_write_by_hand(sent: str, read: object) -> None:
    """Single quotes, bare control characters, fastjson's escapes, commas too many, a byte order mark, bare keys."""
    assert json.loads(standard_json(sent.encode())) == read


@pytest.mark.parametrize("sent", ["{'a':1", "{'a:1}", "{]", "[1 2]", "{'a'}", '{"a":\'}', "'", "{,", "[,"])
def test_what_is_no_json_stays_refused(sent: str) -> None:
    """Leniency ends where a value begins or ends nowhere."""
    with pytest.raises(BodyIllegal):
        standard_json(sent.encode())
