"""The metrics under RocketMQ's names: the names and labels are RocketMQ's, and the figures are right."""

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.metrics.group_figures import TIMES_MAX
from pocketmq.broker.metrics.metrics import GROUPS
from pocketmq.broker.metrics.registry import ROCKETMQ
from pocketmq.common.topics import DLQ_PREFIX
from pocketmq.remoting.http_server import MetricsConfig
from tests.broker.conftest import Harness, eventually, store_config
from tests.broker.metrics.busy import commit, heartbeat, make_busy, send_back
from tests.broker.metrics.rocketmq_page import VECTOR, named
from tests.broker.metrics.test_exported_metrics import page_of

NODE = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}


class Page:
    """The figures of a broker, computed and read now."""

    def __init__(self, app: BrokerApp) -> None:
        figures = app.observation.figures
        assert figures is not None
        app.store.dispatch()  # it follows an append after a moment
        figures.step()
        self.samples = [
            (sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(page_of(app))
            for sample in family.samples
        ]

    def all(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        return [
            ({key: text for key, text in given.items() if key not in NODE}, value)
            for each, given, value in self.samples
            if each == f"rocketmq_{name}" and labels.items() <= given.items()
        ]

    def one(self, name: str, **labels: str) -> float:
        found = self.all(name, **labels)
        assert len(found) == 1, (name, labels, found)
        return found[0][1]


async def test_every_name_and_label_is_rocketmqs(harness: Harness) -> None:
    """Those that 5.3.3's exporter wrote, so that dashboards made for it find them."""
    recorded = named(VECTOR.read_text())
    app = await harness.broker(notify_consumer_ids_changed_enable=False)
    await make_busy(harness, app)
    ours = named(page_of(app))
    rows = {row.exported for group in GROUPS for row in group.rows if row.prefix == ROCKETMQ}
    histograms = {"rocketmq_message_size", "rocketmq_rpc_latency_milliseconds"}
    assert rows - ours.keys() == histograms, "each has a sample here; a histogram has other names"
    later = {"rocketmq_pop_revive_retry_messages_total"}  # PopMetricsConstant; not shown before the first copy
    assert ours.keys() - recorded.keys() == later
    both = {name: labels for name, labels in ours.items() if name not in later}
    assert {name: labels - recorded[name] for name, labels in both.items() if labels - recorded[name]} == {}


async def test_topics_are_counted_from_their_queues(harness: Harness) -> None:
    """Messages and bytes of each topic, what came before the start left out; a topic made again starts again."""
    app = await harness.broker()
    client = await harness.client(app)
    assert Page(app).all("messages_in_total") == []
    await client.put(b"x" * 100, b"y" * 5000, topic="orders")
    await client.put(b"z", topic="payments", queue_id=1)
    page = Page(app)
    assert page.one("messages_in_total", topic="orders", message_type="normal", is_system="false") == 2
    assert page.one("messages_in_total", topic="payments") == 1
    sizes = app.store.consume_queues.get("orders", 0).read(0, 2)["size"]  # type: ignore[union-attr]
    assert page.one("throughput_in_total", topic="orders") == sizes.sum()
    assert page.one("message_size_bucket", le="1024.0") == 2
    assert page.one("message_size_bucket", le="524288.0") == 3
    assert page.one("message_size_count") == 3
    await client.put(b"more", topic="orders")
    assert Page(app).one("messages_in_total", topic="orders") == 3
    app.store.delete_topic("orders")
    page = Page(app)
    assert page.all("messages_in_total", topic="orders") == []
    assert page.one("messages_in_total", topic="payments") == 1


async def test_requests_have_their_times_by_code(harness: Harness) -> None:
    """Sends by the short path and others, each once; a pull that waits for messages and a oneway request are not."""
    name = "rpc_latency_milliseconds_count"
    app = await harness.broker(notify_consumer_ids_changed_enable=False)
    client = await harness.client(app)
    for body in (b"one", b"two", b"three"):
        await client.put(body, topic="orders")
    assert (await client.pull("orders", 0, 0, group="billing", count=1)).code == 0
    await commit(client, "billing", "orders", 1)
    await commit(client, "billing", "orders", 2)
    await eventually(lambda: [count for _, count in Page(app).all(name, request_code="native_append")] == [3])
    page = Page(app)
    found = {labels["request_code"]: value for labels, value in page.all(name)}
    assert found["native_append"] == 3
    assert found["pull_message"] == 1
    assert found["update_consumer_offset"] == 2
    for code, count in found.items():
        assert page.one("rpc_latency_milliseconds_bucket", request_code=code, le="+Inf") == count


async def test_the_start_of_a_broker_is_no_traffic(harness: Harness) -> None:
    """What a recovery finds was counted by the run that stored it."""
    app = await harness.broker()
    await (await harness.client(app)).put(b"one", b"two", topic="orders")
    await app.stop()
    await app.start()
    assert Page(app).all("messages_in_total") == []
    await (await harness.client(app)).put(b"three", topic="orders")
    assert Page(app).one("messages_in_total", topic="orders") == 1


async def test_lag_in_messages_and_in_time(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not committed is behind; what a pull returned of it is in flight, and the rest ready."""
    app = await harness.broker()
    client = await harness.client(app)
    await client.put(*[b"%d" % number for number in range(10)], topic="orders")
    of = {"topic": "orders", "consumer_group": "billing"}
    app.store.dispatch()
    await client.pull("orders", 0, 0, group="billing", count=4)
    assert Page(app).all("consumer_lag_messages") == [], "a group is known from its first commit on"
    await commit(client, "billing", "orders", 0)
    await client.pull("orders", 0, 0, group="billing", count=4)
    figures = app.observation.figures
    assert figures is not None
    stored_ms = app.store.store_time("orders", 0, 0)
    monkeypatch.setattr(figures.groups, "_now_ms", lambda: stored_ms + 60_000)
    page = Page(app)
    labels = {**of, "is_retry": "false", "is_system": "false"}
    assert page.all("consumer_lag_messages") == [(labels, 10)]
    assert page.one("consumer_inflight_messages", **of) == 4
    assert page.one("consumer_ready_messages", **of) == 6
    assert page.one("consumer_lag_latency_milliseconds", **of) == 60_000
    assert 0 < page.one("consumer_queueing_latency_milliseconds", **of) <= 60_000
    assert page.one("messages_out_total", **of) == 8, "handed out twice"
    assert page.one("throughput_out_total", **of) > 8
    await commit(client, "billing", "orders", 10)
    page = Page(app)
    for name in ("lag_messages", "inflight_messages", "ready_messages", "lag_latency_milliseconds"):
        assert page.one(f"consumer_{name}", **of) == 0, name


async def test_a_lag_that_stands_still_is_not_read_again(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its store time is kept; and one round reads a bounded number of new ones."""
    app = await harness.broker()
    client = await harness.client(app)
    await client.put(b"one", b"two", topic="orders")
    await commit(client, "billing", "orders", 1)
    read: list[int] = []

    def store_time(topic: str, queue_id: int, offset: int) -> int:
        read.append(offset)
        return 1_000

    monkeypatch.setattr(app.store, "store_time", store_time)
    Page(app)
    Page(app)
    assert read == [1]
    await commit(client, "billing", "orders", 0)
    Page(app)
    assert read == [1, 0]
    monkeypatch.setattr("pocketmq.broker.metrics.group_figures.TIMES_MAX", 0)
    await commit(client, "billing", "orders", 1)
    assert Page(app).one("consumer_lag_latency_milliseconds") == 0
    assert read == [1, 0]
    assert TIMES_MAX > 0


async def test_topics_that_a_group_has_left_are_not_behind(harness: Harness) -> None:
    """While it is online, its subscriptions say what it reads."""
    app = await harness.broker(notify_consumer_ids_changed_enable=False)
    client = await harness.client(app)
    for topic in ("orders", "payments"):
        await client.put(b"one", topic=topic)
        await commit(client, "billing", topic, 0)
    await heartbeat(client, ["shop", "desk"], "billing", "orders")
    page = Page(app)
    assert [labels["topic"] for labels, _ in page.all("consumer_lag_messages")] == ["orders"]
    kind = {"language": "python", "version": "v4_9_8", "protocol_type": "remoting"}
    assert page.all("producer_connections") == [(kind, 1)], "one connection, whatever its groups"
    assert page.all("consumer_connections") == [
        ({**kind, "consumer_group": "billing", "consume_mode": "push", "is_system": "false"}, 1)
    ]


async def test_dead_letters_are_counted_by_group_and_first_topic(harness: Harness) -> None:
    app = await harness.broker()
    client = await harness.client(app)
    await client.put(b"one", topic="orders")
    await send_back(app, client, "billing", "orders")
    page = Page(app)
    assert page.all("send_to_dlq_messages_total") == [
        ({"topic": "orders", "consumer_group": "billing", "is_system": "false"}, 1)
    ]
    assert page.one("messages_in_total", topic=f"{DLQ_PREFIX}billing") == 1


async def test_the_number_of_series_is_bounded(tmp_path: Path, harness: Harness) -> None:
    """The first topics and groups have series of their own, all others one together; no message is lost in the sum."""
    app = BrokerApp(
        BrokerConfig(listen_port=0, broker_name="broker-a", wait_time_mills_in_send_queue=60_000),
        store_config(tmp_path / "few"),
        metrics_config=MetricsConfig(series_max=2),
    )
    await app.start()
    client = await harness.client(app)
    for number in range(5):
        await client.put(b"x", topic=f"t{number}")
        app.store.dispatch()
        await client.pull(f"t{number}", 0, 0, group="g")
        await commit(client, "g", f"t{number}", 0)
    page = Page(app)
    for name in ("messages_in_total", "messages_out_total", "consumer_lag_messages"):
        found = page.all(name)
        assert len(found) == 3, name
        assert sum(value for _, value in found) == 5, name
        assert page.one(name, topic="other") == 3
    await app.stop()


async def test_label_values_are_escaped(harness: Harness) -> None:
    """A cluster may have any name."""
    app = await harness.broker(broker_cluster_name='a"b\\c\nd')
    client = await harness.client(app)
    assert (await client.send("orders")).code == 0
    page = Page(app)
    found: list[Any] = [labels for name, labels, _ in page.samples if name == "rocketmq_messages_in_total"]
    assert [labels["cluster"] for labels in found] == ['a"b\\c\nd']
    assert [labels["topic"] for labels in found] == ["orders"]
