"""RocketMQ's Java clients over their limits: what they see of it, and what they do."""

from pathlib import Path

import pytest

from tests.interop.java_clients import java_clients
from tests.interop.pocketmq_server import pocketmq_server
from tests.interop.python_side import create_topic, new_name
from tests.interop.test_java_consumers import send

VERSIONS = pytest.mark.parametrize("version", ["4.9", "5.3"])


@VERSIONS
def test_a_push_consumer_gets_every_message_at_its_pace(version: str, tmp_path: Path) -> None:
    """Its pulls wait at the broker; none is refused, so it never makes its pause of three seconds."""
    topic = new_name("Paced")
    settings = ("limits.client_messages_out_per_second=100", "limits.burst_mills=50", "metrics.listen_port=0")
    with (
        pocketmq_server(tmp_path, *settings) as server,
        java_clients(version, "JSON", server.namesrv, tmp_path) as java,
    ):
        create_topic(server.namesrv, topic, 1)
        bodies = send(server, topic, 300)
        with java.started("push", group=new_name("paced"), topic=topic) as consumer:
            rows = java.received(consumer, 300)
        assert sorted(row["body"] for row in rows) == sorted(bodies)
        assert "refused_quota" not in server.log_text()


@VERSIONS
def test_a_producer_over_its_limit_gets_code_and_text(version: str, tmp_path: Path) -> None:
    """4.9 gives the send up at the first refusal, 5.3 after its retries, which it makes without a pause."""
    settings = ("limits.client_messages_in_per_second=1", "metrics.listen_port=0")
    with (
        pocketmq_server(tmp_path, *settings) as server,
        java_clients(version, "JSON", server.namesrv, tmp_path) as java,
    ):
        topic = new_name("Over")
        create_topic(server.namesrv, topic, 1)
        error = java.fails("send", name=java.producer, topic=topic, body="x", count=20)
        if version == "4.9":
            assert "CODE: 2" in error
            assert "[QUOTA]system busy, start flow control for a while: over the limit of this client" in error
        else:
            assert "Send [3] times, still failed" in error
        assert "refused_quota" in server.log_text()
