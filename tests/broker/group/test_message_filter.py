"""SQL92 filters, commits, differing members and relayed requests, as RocketMQ's clients send them."""

import asyncio
from typing import Any

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.group.message_filter import get_filtered, message_filter
from pocketmq.broker.request.budget import EVALUATIONS, Budget, Budgets
from pocketmq.common.clock import SystemClock
from pocketmq.remoting.codec import encode_response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import MessageQueue, encode_body
from pocketmq.remoting.protocol.client import (
    CheckClientBody,
    ConsumerData,
    ConsumerGroupRequestHeader,
    HeartbeatData,
    SubscriptionData,
)
from pocketmq.remoting.protocol.offset import QueryConsumerOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from pocketmq.remoting.protocol.pull import NativePullRequestHeader, PullMessageRequestHeader
from pocketmq.remoting.protocol.relay import (
    ConsumeMessageDirectlyRequestHeader,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumerStatusBody,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from tests.broker.conftest import Client, Harness, eventually, records_of, split_records

SUSPEND, SUBSCRIPTION = 0x2, 0x4


async def fill(broker: BrokerApp, client: Client, count: int = 100) -> None:
    records = [client.record(body=b"%d" % n, properties={"price": str(n)}) for n in range(count)]
    assert (await client.append(("T", 0, records))).code == 0
    await eventually(lambda: broker.store.max_offset("T", 0) >= count)


def pull_header(
    expression: str, *, kind: str = "SQL92", offset: int = 0, flags: int = SUBSCRIPTION, **fields: Any
) -> Any:
    values: dict[str, Any] = {
        "consumer_group": "group",
        "topic": "T",
        "queue_id": 0,
        "queue_offset": offset,
        "max_msg_nums": 32,
        "sys_flag": flags,
        "commit_offset": 0,
        "suspend_timeout_millis": 10_000,
        "sub_version": 0,
        "subscription": expression,
        "expression_type": kind,
        **fields,
    }
    return PullMessageRequestHeader(**values)


async def heartbeat(client: Client, group: str, *, client_id: str = "me", **subscription: Any) -> Any:
    data = SubscriptionData(**{"topic": "T", "sub_version": 1, **subscription})
    body = HeartbeatData(
        client_id=client_id, consumer_data_set=[ConsumerData(group_name=group, subscription_data_set=[data])]
    )
    return await client.ask(RequestCode.HEART_BEAT, None, encode_body(body))


def bodies(response: Any) -> list[int]:
    return [int(record.body) for record in split_records(response.body)]


async def test_a_pull_filters_by_properties(broker: BrokerApp, client: Client) -> None:
    """RocketMQ's pull with the expression in the request: at most 32 matching messages, and the next offset."""
    await fill(broker, client)
    found = await client.ask(RequestCode.PULL_MESSAGE, pull_header("price >= 40 AND price < 90"))
    assert found.code == 0
    assert bodies(found) == list(range(40, 72))
    assert found.header.next_begin_offset == 72
    rest = await client.ask(RequestCode.PULL_MESSAGE, pull_header("price >= 40 AND price < 90", offset=72))
    assert bodies(rest) == list(range(72, 90))
    assert rest.header.next_begin_offset == 100
    nothing = await client.ask(RequestCode.PULL_MESSAGE, pull_header("price > 1000"))
    assert (nothing.code, nothing.header.next_begin_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 100)
    assert not nothing.body


async def test_a_heartbeat_can_carry_the_filter(broker: BrokerApp, client: Client) -> None:
    """As with RocketMQ's push consumers; one that does not parse gets code 27 at the pull."""
    await fill(broker, client)
    await heartbeat(client, "group", sub_string="price IN ('7', '9')", expression_type="SQL92")
    found = await client.ask(RequestCode.PULL_MESSAGE, pull_header("", flags=0))
    assert bodies(found) == [7, 9]
    await heartbeat(client, "group", sub_string="price IN (", expression_type="SQL92", sub_version=2)
    refused = await client.ask(RequestCode.PULL_MESSAGE, pull_header("", flags=0))
    assert refused.code == ResponseCode.FILTER_DATA_NOT_EXIST
    assert "column 11" in refused.remark


async def test_the_native_pull_filters_too(broker: BrokerApp, client: Client) -> None:
    """The same expression, without RocketMQ's limits; a wrong one is refused with its position."""
    await fill(broker, client)

    def header(expression: str, kind: str = "SQL92") -> NativePullRequestHeader:
        return NativePullRequestHeader("group", [("T", 0, 0)], 1 << 20, 1000, 0, expression, kind)

    found = await client.ask(RequestCode.NATIVE_PULL, header("price > 49"))
    assert [int(record.body) for record in records_of(found)] == list(range(50, 100))
    wrong = await client.ask(RequestCode.NATIVE_PULL, header("price > "))
    assert wrong.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "column 9" in wrong.remark
    unknown = await client.ask(RequestCode.NATIVE_PULL, header("x", "XPATH"))
    assert unknown.code == ResponseCode.SYSTEM_ERROR
    assert "does not support" in unknown.remark


async def test_a_filter_ends_where_its_budget_is_over(broker: BrokerApp, client: Client) -> None:
    """Each read evaluates a few messages at least, and the next one continues behind them."""
    await fill(broker, client)
    wide = " OR ".join(f"price = {number}" for number in [55, 80, *range(1000, 1510)])
    wanted = message_filter("SQL92", wide, properties_enabled=True)

    class Over(Budget):
        def is_over(self) -> bool:
            return True

    budget = Over(Budgets(SystemClock()), broker, SystemClock().monotonic_ns)  # type: ignore[arg-type]
    offset, found, reads = 0, [], 0
    while offset < 100:
        result = get_filtered(broker.store, "T", 0, offset, wanted, max_messages=32, max_bytes=1 << 20, budget=budget)
        assert offset < result.next_begin_offset <= offset + EVALUATIONS // 512
        found += [record.body for record in split_records(result.body.tobytes())]
        offset, reads = result.next_begin_offset, reads + 1
    assert found == [b"55", b"80"]
    assert reads == 13


async def test_filters_have_a_thread_of_their_own(broker: BrokerApp, client: Client) -> None:
    """A filter in the request or in a heartbeat; other pulls are served where no filter keeps them waiting."""
    await fill(broker, client)
    table = broker.request_table
    filters, pulls = table.executor("PullFilterThread"), table.executor("PullMessageThread")
    await client.ask(RequestCode.PULL_MESSAGE, pull_header("price > 49"))
    await eventually(lambda: filters.served == 1)
    await heartbeat(client, "group", sub_string="price > 50", expression_type="SQL92")
    await client.ask(RequestCode.PULL_MESSAGE, pull_header("", kind="", flags=0))
    await eventually(lambda: (filters.served, pulls.served) == (2, 2))
    await client.ask(RequestCode.PULL_MESSAGE, pull_header("*", kind="TAG"))
    await eventually(lambda: (filters.served, pulls.served) == (2, 3))


async def test_a_held_pull_wakes_for_what_matches(broker: BrokerApp, client: Client, harness: Harness) -> None:
    """Messages that do not match leave it waiting; the first match is its answer."""
    await fill(broker, client, 3)
    other = await harness.client(broker)
    waiting = asyncio.create_task(
        client.ask(RequestCode.PULL_MESSAGE, pull_header("price > 10", offset=3, flags=SUBSCRIPTION | SUSPEND))
    )
    await eventually(lambda: broker.pulls_held == 1)
    await other.append(("T", 0, [other.record(body=b"5", properties={"price": "5"})]))
    await eventually(lambda: broker.store.max_offset("T", 0) == 4)
    await other.append(("T", 0, [other.record(body=b"50", properties={"price": "50"})]))
    found = await waiting
    assert bodies(found) == [50]
    assert found.header.next_begin_offset == 5


async def test_a_filter_can_be_shown_to_the_broker(broker: BrokerApp, client: Client) -> None:
    """CHECK_CLIENT_CONFIG: accepted, or refused with the position."""

    async def check(expression: str, kind: str = "SQL92") -> Any:
        data = SubscriptionData(topic="T", sub_string=expression, expression_type=kind)
        body = CheckClientBody(client_id="me", group="group", subscription_data=data)
        return await client.ask(RequestCode.CHECK_CLIENT_CONFIG, None, encode_body(body))

    assert (await check("a > 5")).code == 0
    assert (await check("a || b", "TAG")).code == 0
    refused = await check("a > 5 OR")
    assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "column 9" in refused.remark
    assert (await check("a", "XPATH")).code == ResponseCode.SYSTEM_ERROR


async def test_property_filters_can_be_switched_off(harness: Harness) -> None:
    """RocketMQ's default: its text, and what to set."""
    app = await harness.broker(enable_property_filter=False)
    client = await harness.client(app)
    await client.put(b"x")
    refused = await client.ask(RequestCode.PULL_MESSAGE, pull_header("a > 5"))
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "The broker does not support consumer to filter message by SQL92" in refused.remark
    assert "enable_property_filter" in refused.remark


async def test_commits_outside_of_the_queue_are_refused(broker: BrokerApp, client: Client) -> None:
    """In a commit request with a text, in a pull without harm to the pull; the end itself is legal."""
    await fill(broker, client, 10)

    async def commit(offset: int) -> Any:
        return await client.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader("group", "T", 0, offset)
        )

    async def stored() -> int:
        found = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader("group", "T", 0))
        return int(found.header.offset)

    assert (await commit(10)).code == 0
    refused = await commit(11)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "11 is outside of queue 0 of T, which ends at 10" in refused.remark
    assert (await commit(-1)).code == ResponseCode.SYSTEM_ERROR
    assert await stored() == 10
    for offset, wanted in ((1 << 40, 10), (7, 7)):
        pulled = await client.ask(
            RequestCode.PULL_MESSAGE, pull_header("*", kind="TAG", flags=SUBSCRIPTION | 1, commit_offset=offset)
        )
        assert pulled.code == 0
        assert await stored() == wanted


async def test_members_that_differ_are_found(harness: Harness, broker: BrokerApp, client: Client) -> None:
    """In the list of members as a separate field, until they agree; the order of tags does not matter."""
    other = await harness.client(broker)

    async def field() -> str:
        listed = await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupRequestHeader("group"))
        assert listed.code == 0
        return str(listed.extra.get("subscription_conflict", ""))

    await heartbeat(client, "group", client_id="one", sub_string="A || B")
    await heartbeat(other, "group", client_id="two", sub_string="B||A")
    assert await field() == ""
    await heartbeat(other, "group", client_id="two", sub_string="C", sub_version=2)
    assert await field() == "topic T: one subscribes to 'A || B', two to 'C'"
    [told] = [event for event in harness.log.events if event["event"] == "subscriptions_differ"]
    assert (told["level"], told["difference"]) == ("error", await field())
    await heartbeat(other, "group", client_id="two", sub_string="A || B", sub_version=3)
    assert await field() == ""
    assert [event["group"] for event in harness.log.events if event["event"] == "subscriptions_agree"] == ["group"]
    await heartbeat(other, "group", client_id="two", topic="U", sub_version=4)
    assert "topic T" in await field()
    await other.channel.request(RequestCode.UNREGISTER_CLIENT, unregister("two", "group"), timeout_ms=5000)
    assert await field() == ""


def unregister(client_id: str, group: str) -> Any:
    from pocketmq.remoting.protocol.client import UnregisterClientRequestHeader

    return UnregisterClientRequestHeader(client_id=client_id, consumer_group=group)


async def test_questions_are_relayed_to_the_client(harness: Harness, broker: BrokerApp, client: Client) -> None:
    """307, 309 and 223: the client's own answer is relayed; an absent client is reported."""
    admin = await harness.client(broker)
    await client.put(b"seven")
    await heartbeat(client, "group", client_id="one")
    asked: list[Any] = []

    def answer(channel: Any, request: Any) -> None:
        asked.append(request)
        body = {
            RequestCode.GET_CONSUMER_RUNNING_INFO: ConsumerRunningInfo(properties={"a": "b"}).encode(),
            RequestCode.CONSUME_MESSAGE_DIRECTLY: encode_body(ConsumeMessageDirectlyResult(consume_result="CR_LATER")),
        }.get(request.code, ConsumerStatusBody(message_queue_table={MessageQueue("T", "b", 0): 5}).encode())
        channel.respond(
            encode_response(0, request.opaque, request.code, body=body, serialize_type=request.serialize_type)
        )

    client.channel._on_request = answer
    info = await admin.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfoRequestHeader("group", "one"))
    assert ConsumerRunningInfo.decode(bytes(info.body)).properties == {"a": "b"}
    status = await admin.ask(
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, GetConsumerStatusRequestHeader("T", "group")
    )
    assert ConsumerStatusBody.decode(bytes(status.body)).consumer_table == {"one": {MessageQueue("T", "b", 0): 5}}
    msg_id = broker.store.store_host.hex().upper() + f"{broker.store.log.min_offset:016X}"
    direct = await admin.ask(
        RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyRequestHeader("group", "one", msg_id)
    )
    assert b"CR_LATER" in bytes(direct.body)
    assert b"seven" in bytes(asked[-1].body)
    far_away = "00" * 8 + "7F" * 8
    for code, header in (
        (RequestCode.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfoRequestHeader("group", "two")),
        (RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyRequestHeader("group", "one", far_away)),
        (RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyRequestHeader("group", "one", "nonsense")),
        (RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, GetConsumerStatusRequestHeader("T", "nobody")),
    ):
        refused = await admin.ask(code, header)
        assert refused.code != 0
        assert refused.remark


async def test_a_client_that_goes_away_before_it_answers(harness: Harness, broker: BrokerApp, client: Client) -> None:
    """The administrator gets an error, and does not wait for ever."""
    admin = await harness.client(broker)
    await heartbeat(client, "group", client_id="one")
    header = GetConsumerRunningInfoRequestHeader("group", "one")
    asked = asyncio.Event()
    client.channel._on_request = lambda channel, request: asked.set()
    asking = asyncio.create_task(admin.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header))
    await asked.wait()
    client.channel.close()
    answer = await asking
    assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT


@pytest.mark.parametrize(
    "body",
    [
        b'{"mqTable":{{"brokerName":"b","queueId":1,"topic":"T"}:{"commitOffset":5}},"properties":{"a":"b"}}',
        ConsumerRunningInfo(properties={"a": "b"}).encode(),
    ],
)
def test_running_infos_of_rocketmqs_clients_are_read(body: bytes) -> None:
    """fastjson writes queues as objects in place of keys."""
    info = ConsumerRunningInfo.decode(body)
    assert info.properties == {"a": "b"}
    assert [state.commit_offset for state in info.mq_table.values()] in ([5], [])
