"""Bodies as the classes of RocketMQ's clients 4.9.8 and 5.3.3 encode them, with fastjson's bare and whole-object keys.

``tests/interop/test_java_bodies.py`` makes them again and compares.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from pocketmq.remoting.protocol.body import MessageQueue, decode_body
from pocketmq.remoting.protocol.client import CheckClientBody, HeartbeatData
from pocketmq.remoting.protocol.lock import LockBatchRequestBody
from pocketmq.remoting.protocol.relay import ConsumerRunningInfo, ConsumerStatusBody

FILE = Path(__file__).parents[2] / "vectors" / "java-bodies.json"
BODIES: dict[str, dict[str, str]] = json.loads(FILE.read_text())
QUEUE = MessageQueue("Topic", "broker-a", 3)


@pytest.fixture(params=sorted(BODIES))
def bodies(request: pytest.FixtureRequest) -> dict[str, bytes]:
    """Return the bodies of one version, by the name of the request."""
    return {name: text.encode() for name, text in BODIES[request.param].items()}


def check_subscription(data: Any) -> None:
    assert (data.topic, data.sub_string, data.sub_version) == ("Topic", 'a || é"\\', 1_700_000_000_123)
    assert (list(data.tags_set), list(data.code_set), data.expression_type) == (["a"], [97], "TAG")


def test_heartbeats(bodies: dict[str, bytes]) -> None:
    """HEART_BEAT: groups, models, subscriptions; unknown fields of 5.3 are skipped."""
    data = decode_body(bodies["HEART_BEAT"], HeartbeatData)
    assert data.client_id == "127.0.0.1@client"
    assert [producer.group_name for producer in data.producer_data_set] == ["producers"]
    [consumer] = data.consumer_data_set
    assert (consumer.group_name, consumer.consume_type) == ("consumers", "CONSUME_PASSIVELY")
    assert (consumer.message_model, consumer.consume_from_where) == ("CLUSTERING", "CONSUME_FROM_FIRST_OFFSET")
    [subscription] = consumer.subscription_data_set
    check_subscription(subscription)


@pytest.mark.parametrize("name", ["LOCK_BATCH_MQ", "UNLOCK_BATCH_MQ"])
def test_locks(bodies: dict[str, bytes], name: str) -> None:
    """LOCK_BATCH_MQ and UNLOCK_BATCH_MQ have one form."""
    body = decode_body(bodies[name], LockBatchRequestBody)
    assert (body.consumer_group, body.client_id, list(body.mq_set)) == ("consumers", "127.0.0.1@client", [QUEUE])


def test_filter_checks(bodies: dict[str, bytes]) -> None:
    """CHECK_CLIENT_CONFIG."""
    check_subscription(decode_body(bodies["CHECK_CLIENT_CONFIG"], CheckClientBody).subscription_data)


def test_whole_objects_as_keys(bodies: dict[str, bytes]) -> None:
    """Clients answer a broker with maps whose keys are queues, which is no JSON by any standard."""
    assert b'{{"' in bodies["GET_CONSUMER_STATUS_FROM_CLIENT"]
    status = ConsumerStatusBody.decode(bodies["GET_CONSUMER_STATUS_FROM_CLIENT"])
    assert status.message_queue_table == {QUEUE: 42}
    running = ConsumerRunningInfo.decode(bodies["GET_CONSUMER_RUNNING_INFO"])
    assert running.properties == {"PROP_CLIENT_VERSION": "V"}
    assert {queue: info.commit_offset for queue, info in running.mq_table.items()} == {QUEUE: 42}
