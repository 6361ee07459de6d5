"""Frames of clients that are not written in Java, as they came from them: C++, Go and Rust, each in its own dialect.

``tests/vectors/other-clients.json``: header and body of one request of a kind, by client. Each client sent 20 messages
with the tags a and b, and consumed them with ``a || c`` and with ``*``.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from pocketmq.remoting.codec import Request, decode_request
from pocketmq.remoting.codes import LanguageCode, RequestCode
from pocketmq.remoting.frame import JSON, Frame
from pocketmq.remoting.protocol.body import MessageQueue, decode_body
from pocketmq.remoting.protocol.client import HeartbeatData
from pocketmq.remoting.protocol.relay import ConsumerRunningInfo

FILE = Path(__file__).parents[1] / "vectors" / "other-clients.json"
CLIENTS: dict[str, dict[str, dict[str, str]]] = json.loads(FILE.read_text())
CPP = "C++ librocketmq 1.0.1 (PyPI rocketmq 0.4.4)"
GO = "Go rocketmq-client-go/v2 2.1.2"
RUST = "Rust rocketmq-client-rust 1.0.0"
RUNNING_INFO = "GET_CONSUMER_RUNNING_INFO"
TAGGED = "a || c"


def request_of(client: str, name: str) -> Request:
    """Decode a client's request."""
    frame = CLIENTS[client][name]
    return decode_request(Frame(JSON, frame["header"].encode(), frame["body"].encode()))


def requests() -> list[tuple[str, str]]:
    """Return each recorded request with client and name, without the answers to a broker's requests."""
    return [(client, name) for client, frames in CLIENTS.items() for name in frames if name != RUNNING_INFO]


@pytest.mark.parametrize(("client", "name"), requests())
def test_every_request_is_understood(client: str, name: str) -> None:
    """Header fields may be ints without quotes, bools 0 and 1, fields unknown."""
    request = request_of(client, name)
    assert request.code == RequestCode[name]
    assert LanguageCode(request.language).name == {"C": "CPP", "G": "GO", "R": "RUST"}[client[0]]


@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_a_send(client: str) -> None:
    """A bool that is "0" is false: RocketMQ reads it with Boolean.parseBoolean."""
    [name] = [name for name in CLIENTS[client] if name.startswith("SEND_MESSAGE")]
    request = request_of(client, name)
    header: Any = request.header
    assert (header.unit_mode, header.batch or False) == (False, False)
    assert header.topic == f"T{'Cpp' if client == CPP else client.split()[0]}"
    assert bytes(request.body).split()[1] == b"0"


@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_a_heartbeat_with_a_tag_filter(client: str) -> None:
    """Codes and versions are strings, enums ordinals; omitted fields have RocketMQ's defaults."""
    data = decode_body(request_of(client, "HEART_BEAT").body, HeartbeatData)
    assert data.client_id
    [consumer] = data.consumer_data_set
    assert (consumer.consume_type, consumer.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
    first_or_last = "CONSUME_FROM_LAST_OFFSET" if client == CPP else "CONSUME_FROM_FIRST_OFFSET"
    assert consumer.consume_from_where == first_or_last
    [tagged] = [each for each in consumer.subscription_data_set if each.sub_string == TAGGED]
    assert sorted(tagged.tags_set or ()) == ["a", "c"]
    codes = {CPP: [0, 0], GO: [97, 99], RUST: [1091, 3039]}  # its own hashes: the broker reads the expression
    assert sorted(tagged.code_set or ()) == codes[client]
    assert tagged.sub_version > 1_700_000_000_000 or client == RUST
    assert tagged.expression_type == "TAG"


def test_what_a_running_consumer_of_cpp_says() -> None:
    """GET_CONSUMER_RUNNING_INFO: each long is a string, each key a queue."""
    info = ConsumerRunningInfo.decode(CLIENTS[CPP][RUNNING_INFO]["body"].encode())
    assert {queue: state.commit_offset for queue, state in info.mq_table.items()} == {
        MessageQueue("%RETRY%C-cpp-run", "broker-a", 0): 0,
        MessageQueue("TCpp", "broker-a", 7): 2,
    }
    assert info.properties["PROP_CLIENT_VERSION"] == "V3_1_8"
