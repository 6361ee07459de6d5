"""Pulls through a real broker: RocketMQ's codes, limits and long polling, and the native pull."""

import asyncio
from typing import Any

import msgspec
import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.client import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from pocketmq.remoting.protocol.offset import QueryConsumerOffsetRequestHeader
from pocketmq.remoting.protocol.pull import PullMessageRequestHeader
from tests.broker.conftest import Client, Harness, eventually, records_of, split_records


async def settle(broker: BrokerApp, topic: str = "T", queue_id: int = 0, wanted: int = 1) -> None:
    """Wait until dispatch has made the messages visible."""
    await eventually(lambda: broker.store.max_offset(topic, queue_id) >= wanted)


async def test_rocketmqs_codes_for_offsets_outside_the_queue(broker: BrokerApp, client: Client) -> None:
    """19 at the end, 21 beyond and before it, with the next offset."""
    await client.put(*[b"%d" % n for n in range(5)])
    await settle(broker, wanted=5)
    found = await client.pull(offset=2)
    assert found.code == 0
    assert [record.body for record in split_records(found.body)] == [b"2", b"3", b"4"]
    header = found.header
    assert (header.next_begin_offset, header.min_offset, header.max_offset) == (5, 0, 5)
    assert found.remark == "FOUND"
    for offset, code, next_offset, status in (
        (5, 19, 5, "OFFSET_OVERFLOW_ONE"),
        (9, 21, 5, "OFFSET_OVERFLOW_BADLY"),
        (-1, 21, 0, "OFFSET_TOO_SMALL"),
    ):
        response = await client.pull(offset=offset)
        assert (response.code, response.header.next_begin_offset, response.remark) == (code, next_offset, status)
    empty = await client.pull(queue_id=1)
    assert (empty.code, empty.header.next_begin_offset) == (19, 0)
    assert (await client.pull(queue_id=1, offset=3)).code == 21


async def test_a_lite_pull_is_a_pull(broker: BrokerApp, client: Client) -> None:
    """LITE_PULL_MESSAGE, 5.3's code for its lite pull consumer: found at once, and held until a message arrives."""

    def pull(offset: int) -> Any:
        header = PullMessageRequestHeader("group", "T", 0, offset, 32, 2 | 4 | 16, 0, 50_000, 0, subscription="*")
        return client.ask(RequestCode.LITE_PULL_MESSAGE, header)

    await client.put(b"0")
    await settle(broker)
    held = asyncio.ensure_future(pull(1))
    await eventually(lambda: broker.pulls_held)
    await client.put(b"1")
    for found, offset in ((await held, 1), (await pull(1), 1)):
        assert (found.code, found.remark, found.header.next_begin_offset) == (0, "FOUND", offset + 1)
        assert [record.body for record in split_records(found.body)] == [b"%d" % offset]


async def test_rocketmqs_limits(broker: BrokerApp, client: Client) -> None:
    """At most 32 messages and 256 KiB, whatever was requested."""
    await client.put(*[b"x" * 10 for _ in range(50)])
    await client.put(*[b"y" * 100_000 for _ in range(5)], queue_id=1)
    await settle(broker, wanted=50)
    await settle(broker, queue_id=1, wanted=5)
    assert len(split_records((await client.pull(count=1000)).body)) == 32
    assert len(split_records((await client.pull(count=3)).body)) == 3
    assert len(split_records((await client.pull(queue_id=1)).body)) == 2


async def test_messages_far_behind_the_end_come_in_smaller_answers(harness: Harness) -> None:
    """Messages that count as on disk: at most 8 and 64 KiB."""
    app = await harness.broker(store_settings={"access_message_in_memory_max_ratio": 0})
    client = await harness.client(app)
    await client.put(*[b"x" * 10 for _ in range(50)])
    await client.put(*[b"y" * 30_000 for _ in range(5)], queue_id=1)
    await settle(app, wanted=50)
    await settle(app, queue_id=1, wanted=5)
    assert len(split_records((await client.pull(count=1000)).body)) == 8
    assert len(split_records((await client.pull(queue_id=1)).body)) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ({"topic": "nothing"}, 17, "topic[nothing] not exist"),
        ({"queue_id": 99}, 29, "queueId[99] is illegal"),
        ({"queue_id": -1}, 29, "queueId[-1] is illegal"),
        ({"tags": " || "}, 23, "parse"),
        ({"group": "bad group"}, 29, "group"),
        ({"sys_flag": 0}, 24, "group info not exist"),
    ],
)
async def test_refused_pulls(client: Client, arguments: dict[str, Any], code: int, text: str) -> None:
    """RocketMQ's checks in RocketMQ's order."""
    await client.put(b"x")
    response = await client.pull(**arguments)
    assert response.code == code
    assert text in response.remark


async def test_a_pull_is_held_until_there_is_a_message(broker: BrokerApp, client: Client, harness: Harness) -> None:
    """Long polling: the message triggers the answer, not the time limit."""
    await client.put(b"first")
    await settle(broker)
    other = await harness.client(broker)
    waiting = asyncio.ensure_future(client.pull(offset=1, suspend_ms=15_000))
    await eventually(lambda: broker.pulls_held)
    assert not waiting.done()
    await other.put(b"elsewhere", queue_id=1)
    await settle(broker, queue_id=1)
    assert not waiting.done()
    await other.put(b"second")
    response = await waiting
    assert [record.body for record in split_records(response.body)] == [b"second"]
    assert broker.pulls_held == 0


async def test_a_held_pull_ends_with_code_19(broker: BrokerApp, client: Client) -> None:
    """After its time limit a pull is answered without messages."""
    await client.put(b"first")
    await settle(broker)
    response = await client.pull(offset=1, suspend_ms=10)
    assert (response.code, response.header.next_begin_offset) == (19, 1)
    assert broker.pulls_held == 0


async def test_a_held_pull_with_tags_waits_for_its_tags(broker: BrokerApp, client: Client, harness: Harness) -> None:
    """Messages that the filter rejects neither answer it nor are read twice."""
    await client.put(b"first", tags="A")
    await settle(broker)
    other = await harness.client(broker)
    waiting = asyncio.ensure_future(client.pull(offset=1, suspend_ms=15_000, tags="B || C"))
    await eventually(lambda: broker.pulls_held)
    await other.put(b"no", tags="A")
    await settle(broker, wanted=2)
    assert (await other.pull(offset=1)).code == 0
    assert not waiting.done()
    await other.put(b"yes", tags="C")
    response = await waiting
    assert [record.body for record in split_records(response.body)] == [b"yes"]


async def test_a_filter_that_matches_nothing_says_go_on(broker: BrokerApp, client: Client) -> None:
    """Code 20 with the offset behind the entries read."""
    await client.put(b"1", b"2", tags="A")
    await settle(broker, wanted=2)
    response = await client.pull(tags="B")
    assert (response.code, response.header.next_begin_offset) == (20, 2)
    native = await client.native_pull(("T", 0, 0), expression="B")
    assert native.header.results[0][:2] == (20, 2)


async def test_holds_go_with_their_connection(broker: BrokerApp, client: Client, harness: Harness) -> None:
    """A client that leaves takes its waiting pulls along."""
    await client.put(b"first")
    await settle(broker)
    other = await harness.client(broker)
    waiting = asyncio.ensure_future(other.pull(offset=1, suspend_ms=15_000))
    await eventually(lambda: broker.pulls_held)
    other.channel.close()
    with pytest.raises(Exception, match="closed"):
        await waiting
    await eventually(lambda: not broker.pulls_held)


async def test_too_many_held_pulls_are_answered_at_once(harness: Harness) -> None:
    """The table is bounded: one too many gets 19 without waiting."""
    app = await harness.broker(pull_holds_max=1)
    client = await harness.client(app)
    await client.put(b"x")
    await settle(app)
    first = asyncio.ensure_future(client.pull(offset=1, suspend_ms=15_000))
    await eventually(lambda: app.pulls_held)
    second = await client.pull(offset=1, suspend_ms=15_000)
    assert second.code == 19
    assert not first.done()
    first.cancel()


async def test_a_native_pull_reads_many_queues_at_once(broker: BrokerApp, client: Client) -> None:
    """Results and records are in the order of the request; a missing topic is a result, not an error."""
    for queue_id in range(3):
        await client.put(*[b"%d-%d" % (queue_id, n) for n in range(queue_id + 1)], queue_id=queue_id)
        await settle(broker, queue_id=queue_id, wanted=queue_id + 1)
    response = await client.native_pull(("T", 2, 1), ("nothing", 0, 7), ("T", 0, 0), ("T", 3, 0), ("T", 1, 0))
    assert [result[0] for result in response.header.results] == [0, 17, 0, 19, 0]
    assert [result[4] for result in response.header.results] == [2, 0, 1, 0, 2]
    assert response.header.results[1][1] == 7
    assert [record.body for record in records_of(response)] == [b"2-1", b"2-2", b"0-0", b"1-0", b"1-1"]


async def test_a_native_pull_names_each_queue_once(broker: BrokerApp, client: Client) -> None:
    """The same queue a thousand times would be read a thousand times."""
    await client.put(b"0")
    await settle(broker)
    refused = await client.native_pull(("T", 0, 0), ("T", 1, 0), ("T", 0, 1))
    assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, "a queue is named twice")


async def test_a_long_native_pull_ends_with_its_budget(broker: BrokerApp, client: Client) -> None:
    """What it has not reached answers RETRY with the same offset, and later pulls reach it."""
    queues = [(topic, queue_id, 0) for topic in ("W1", "W2", "W3", "W4") for queue_id in range(4)]
    for topic, queue_id, _ in queues:
        await client.put(b"0", topic=topic, queue_id=queue_id)
        await settle(broker, topic, queue_id)
    missing = set(queues)
    broker._run.budgets.close()  # every budget is over at its first look
    for _ in range(len(queues)):
        response = await client.native_pull(*queues, expression="other || more")  # filtered: read one by one
        results = [result[:2] for result in response.header.results]
        assert results.count((20, 1)) == results.count((20, 0)) == 8
        missing -= {queue for queue, result in zip(queues, results, strict=True) if result == (20, 1)}
    assert not missing


async def test_a_native_pull_keeps_its_bounds_and_starves_no_queue(broker: BrokerApp, client: Client) -> None:
    """Bytes and messages are shared; over several requests every queue gets its turn."""
    for queue_id in range(3):
        await client.put(*[b"x" * 1000 for _ in range(10)], queue_id=queue_id)
        await settle(broker, queue_id=queue_id, wanted=10)
    queues = [("T", queue_id, 0) for queue_id in range(3)]
    first_with_messages = set()
    for _ in range(6):
        response = await client.native_pull(*queues, max_messages=4)
        counts = [result[4] for result in response.header.results]
        assert sum(counts) == 4
        first_with_messages.add(counts.index(4))
        skipped = [result for result in response.header.results if result[4] == 0]
        assert {(result[0], result[1]) for result in skipped} == {(20, 0)}
    assert first_with_messages == {0, 1, 2}
    small = await client.native_pull(("T", 0, 0), max_bytes=1)
    assert small.header.results[0][4] == 1


async def test_a_native_pull_cuts_interleaved_queues_out_of_one_run(broker: BrokerApp, client: Client) -> None:
    """Every message once, in the order of its queue; a short queue and one at another place get their turns."""
    count, queues = 200, 4
    for start in range(0, count, 50):
        sections = [
            ("T", at % queues, [client.record("T", b"%d" % (start + at // queues), at % queues)])
            for at in range(50 * queues)
        ]
        assert (await client.append(*sections)).code == 0
    await client.put(*[b"%d" % at for at in range(count)], queue_id=3, topic="Other")
    await client.put(*[b"%d" % at for at in range(3)], queue_id=1, topic="Other")
    for queue_id in range(queues):
        await settle(broker, queue_id=queue_id, wanted=count)
    asked = [*[("T", queue_id, 0) for queue_id in range(queues)], ("Other", 3, 0), ("Other", 1, 0)]
    wanted = [count] * 5 + [3]
    got: list[list[bytes]] = [[] for _ in asked]
    shared = 0
    while [len(each) for each in got] != wanted:
        pulls = [(topic, queue_id, len(got[at])) for at, (topic, queue_id, _) in enumerate(asked)]
        response = await client.native_pull(*pulls, max_messages=100)
        records = iter(records_of(response))
        counts = [result[4] for result in response.header.results]
        shared += sum(number > 0 for number in counts) >= queues
        for at, result in enumerate(response.header.results):
            got[at] += [next(records).body for _ in range(result[4])]
            assert result[1] == len(got[at])
    assert got == [[b"%d" % at for at in range(number)] for number in wanted]
    assert shared, "four queues in one answer"


async def test_a_native_pull_waits_for_any_of_its_queues(broker: BrokerApp, client: Client, harness: Harness) -> None:
    """Held on all of them, woken by one."""
    await client.put(b"a")
    await settle(broker)
    other = await harness.client(broker)
    waiting = asyncio.ensure_future(client.native_pull(("T", 0, 1), ("T", 1, 0), suspend_ms=15_000))
    await eventually(lambda: broker.pulls_held)
    await other.put(b"news", queue_id=1)
    response = await waiting
    assert [result[0] for result in response.header.results] == [19, 0]
    assert [record.body for record in records_of(response)] == [b"news"]


@pytest.mark.parametrize("queues", [0, 1025])
async def test_a_native_pull_of_none_or_too_many_queues_is_refused(client: Client, queues: Any) -> None:
    """Bounded in queues."""
    response = await client.native_pull(*[("T", 0, 0)] * queues)
    assert response.code != 0
    assert "queues" in response.remark


async def test_a_pull_commits_the_offset_it_carries(broker: BrokerApp, client: Client) -> None:
    """COMMIT_OFFSET: only with the flag, and for the pulling group."""
    await client.put(b"x")
    await settle(broker)
    await client.pull(sys_flag=4, commit=1)
    assert broker.offsets.query("group", "T", 0) is None
    await client.pull(sys_flag=5, commit=1)
    answer = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader("group", "T", 0))
    assert answer.header.offset == 1


async def test_a_pull_without_an_expression_uses_the_heartbeats_subscription(broker: BrokerApp, client: Client) -> None:
    """The group's own tags; an outdated version is refused."""
    await client.put(b"a", tags="A")
    await client.put(b"b", tags="B")
    await settle(broker, wanted=2)
    heartbeat = HeartbeatData(
        client_id="c1",
        producer_data_set=[ProducerData("producers")],
        consumer_data_set=[
            ConsumerData(
                group_name="group",
                subscription_data_set=[SubscriptionData(topic="T", sub_string="B", sub_version=5)],
            )
        ],
    )
    assert (await client.ask(RequestCode.HEART_BEAT, None, encode_body(heartbeat))).code == 0
    response = await client.pull(sys_flag=0)
    assert [record.body for record in split_records(response.body)] == [b"b"]
    other = await client.pull(topic="TBW102", sys_flag=0)
    assert other.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    heartbeat.consumer_data_set[0].message_model = "BROADCASTING"
    await client.ask(RequestCode.HEART_BEAT, None, encode_body(heartbeat))
    group = msgspec.json.encode({"groupName": "group", "consumeBroadcastEnable": False})
    assert (await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group)).code == 0
    assert (await client.pull(sys_flag=0)).code == ResponseCode.NO_PERMISSION
