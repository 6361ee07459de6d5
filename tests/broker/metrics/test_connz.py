"""Who is connected: the JSON of /connz, of a real broker."""

import json
from functools import partial
from pathlib import Path
from typing import Any

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.metrics.connz import LIMIT_MAX
from pocketmq.broker.stats.sent_topics import TOPICS_MAX
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frame import JSON
from pocketmq.remoting.http_server import Answer, HttpRequest
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.client import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from pocketmq.store.config import StoreConfig
from tests.broker.conftest import Harness, eventually
from tests.broker.raw_client import RawClient
from tests.broker.stories.test_access_control import Protected


def page(app: BrokerApp, **parameters: str) -> Answer:
    return app.observation._connz_page(HttpRequest("GET", "/connz", parameters))


def connz(app: BrokerApp, **parameters: str) -> Any:
    answer = page(app, **parameters)
    assert answer.status == 200, answer.body
    assert isinstance(answer.body, bytes)
    return json.loads(answer.body)


def heartbeat() -> bytes:
    subscriptions = [SubscriptionData(topic=topic, sub_string="*") for topic in ("U", "T")]
    consumer = ConsumerData(group_name="readers", subscription_data_set=subscriptions)
    return encode_body(
        HeartbeatData(
            client_id="10.0.0.9@1",
            producer_data_set=[ProducerData(group_name="writers")],
            consumer_data_set=[consumer],
        )
    )


async def test_it_says_who_sends_and_reads(harness: Harness) -> None:
    """Client ids, groups, topics, language and version; a native connection tells its language with a heartbeat."""
    app = await harness.broker(notify_consumer_ids_changed_enable=False)  # which the raw client does not read
    client = await harness.client(app)
    await client.put(b"x" * 1000)
    async with RawClient(app.port, JSON) as raw:
        raw.post(RequestCode.HEART_BEAT, body=heartbeat())
        await raw.drain()
        await eventually(lambda: raw.answers)
        report = connz(app)
        assert (report["total"], report["offset"]) == (2, 0)
        native, remoting = report["connections"]
        assert (native["sends_to"], remoting["sends_to"]) == (["T"], [])
        assert (native["client_ids"], native["language"], native["sends"], native["reads"]) == ([], "", [], [])
        assert native["bytes_in"] == -1 or native["bytes_in"] > 1000
        assert remoting["client_ids"] == ["10.0.0.9@1"]
        assert (remoting["language"], remoting["version"]) == ("PYTHON", "V4_9_8")
        assert remoting["sends"] == ["writers"]
        assert remoting["reads"] == [{"group": "readers", "mode": "CLUSTERING", "topics": ["T", "U"]}]
        assert (remoting["user"], remoting["is_encrypted"], remoting["is_slow"]) == ("", False, False)
    await client.ask(RequestCode.HEART_BEAT, body=heartbeat())
    await eventually(lambda: connz(app)["total"] == 1)
    assert connz(app)["connections"][0]["language"] == "PYTHON"


async def test_it_says_to_which_topics_sends_go_of_each_kind(harness: Harness) -> None:
    """Of short sends and of others; the latest ones, where a client has many."""
    app = await harness.broker()
    short, wide = await harness.client(app), await harness.client(app)
    await short.put(b"x", topic="Short")
    await eventually(lambda: connz(app)["connections"][0]["sends_to"] == ["Short"])

    async def seen(topic: str) -> bool:
        assert (await wide.send(topic)).code == 0
        return topic in connz(app)["connections"][1]["sends_to"]

    for number in range(TOPICS_MAX + 2):
        await eventually(partial(seen, f"T{number}"))
    assert connz(app)["connections"][1]["sends_to"] == sorted(f"T{number}" for number in range(2, TOPICS_MAX + 2))
    assert connz(app)["connections"][0]["sends_to"] == ["Short"]


async def test_the_answer_is_bounded_and_in_the_wanted_order(harness: Harness) -> None:
    """The slowest first, a page of them; what cannot be asked for is an error that says what can."""
    app = await harness.broker()
    for _ in range(5):
        await harness.client(app)
    slow = sorted(app._server.connections, key=lambda each: each.opened_ns)[3]  # type: ignore[union-attr]
    slow.over_high_water = True
    first = connz(app, sort="unwritten", limit="2")
    assert first["total"] == 5
    assert first["connections"][0]["address"] == slow.remote
    assert [each["is_slow"] for each in first["connections"]] == [True, False]
    slow.over_high_water = False
    assert len(connz(app, offset="4")["connections"]) == 1
    assert connz(app, offset="5")["connections"] == []
    for limit in ("0", str(LIMIT_MAX + 1), "x"):
        assert page(app, limit=limit).status == 400
    for offset in ("-1", "9" * 30):
        assert page(app, offset=offset).status == 400
    assert page(app, sort="name").status == 400


async def test_it_names_the_user(harness: Harness, tmp_path: Path) -> None:
    """Of the proof, before the first request as well; a stranger has none."""
    protected = await Protected(harness, tmp_path / "store").start()
    await protected.client("alice", "alice-secret")
    await protected.client()
    assert [each["user"] for each in connz(protected.app)["connections"]] == ["alice", ""]


async def test_a_broker_that_starts_has_no_connections_yet(harness: Harness) -> None:
    app = BrokerApp(BrokerConfig(listen_port=0), StoreConfig())
    assert page(app).status == 503
