"""Queues shared by the broker: QUERY_ASSIGNMENT and SET_MESSAGE_REQUEST_MODE."""

import asyncio
import json
from typing import Any

import pytest

from pocketmq.broker.admin.assignments import ASKING_MAX, QUEUES_MAX, ROUTE_AGE_NS, STRATEGIES, popped_queues
from pocketmq.broker.app import BrokerApp
from pocketmq.common.clock import ManualClock
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NamesrvApp
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RequestTimeout
from pocketmq.remoting.protocol.body import MessageQueue
from pocketmq.remoting.protocol.namesrv import QueueData, TopicRouteData
from pocketmq.remoting.protocol.pull import QueryAssignmentRequest
from tests.broker.conftest import Client, Harness, eventually


def question(client_id: str = "c1", **fields: Any) -> bytes:
    """Return a question as RocketMQ's Java client writes it."""
    body = {"clientId": client_id, "consumerGroup": "group", "messageModel": "CLUSTERING", "strategyName": "AVG"}
    return json.dumps({**body, "topic": "T", **fields}).encode()


def heartbeat(client_id: str) -> bytes:
    """Return the heartbeat of a member of ``group``."""
    member = {"groupName": "group", "subscriptionDataSet": [{"topic": "T", "subString": "*"}]}
    return json.dumps({"clientID": client_id, "consumerDataSet": [member]}).encode()


async def ask(client: Client, body: bytes) -> list[tuple[str, int, str]] | None:
    """Return (broker, queue, mode) of each assignment; None: the broker cannot say."""
    answer = await client.ask(RequestCode.QUERY_ASSIGNMENT, None, body)
    assert answer.code == 0, answer.remark
    found = json.loads(bytes(answer.body))["messageQueueAssignments"]
    if found is None:
        return None
    assert {each["messageQueue"]["topic"] for each in found} <= {"T"}
    return [(each["messageQueue"]["brokerName"], each["messageQueue"]["queueId"], each["mode"]) for each in found]


async def refusal(client: Client, code: int, body: bytes) -> tuple[int, str]:
    """Return code and text of a refusal."""
    answer = await client.ask(code, None, body)
    return answer.code, answer.remark


def pulled(*queues: int, broker: str = "broker-a") -> list[tuple[str, int, str]]:
    return [(broker, queue, "PULL") for queue in queues]


async def test_members_share_the_queues_of_a_broker_alone(harness: Harness, broker: BrokerApp) -> None:
    """Without name servers a topic has the queues of this broker; both strategies of RocketMQ's broker."""
    one, two = await harness.client(broker), await harness.client(broker)
    await one.send("T", default_topic_queue_nums=4)
    assert await ask(one, question()) is None  # no heartbeat yet: the member keeps what it has
    await one.ask(RequestCode.HEART_BEAT, None, heartbeat("c1"))
    assert await ask(one, question()) == pulled(0, 1, 2, 3)
    await two.ask(RequestCode.HEART_BEAT, None, heartbeat("c2"))
    assert await ask(one, question()) == pulled(0, 1)
    assert await ask(two, question("c2")) == pulled(2, 3)
    assert await ask(one, question(strategyName="AVG_BY_CIRCLE")) == pulled(0, 2)
    assert await ask(two, question("c2", messageModel="BROADCASTING")) == pulled(0, 1, 2, 3)
    assert await ask(one, question(strategyName=None, messageModel=1)) == pulled(0, 1)
    assert await ask(one, question(topic="unknown")) is None


async def test_the_queues_of_all_brokers_are_shared(harness: Harness) -> None:
    """The name server knows them; what it said counts for 5 s."""
    server = NamesrvApp(NamesrvConfig(listen_port=0))
    await server.start()
    try:
        brokers = [
            await harness.broker(name=name, broker_name=name, namesrv_addr=server.address) for name in ("b1", "b2")
        ]
        clients = [await harness.client(each) for each in brokers]
        for client in clients:
            await client.send("T", default_topic_queue_nums=2)
            await client.ask(RequestCode.HEART_BEAT, None, heartbeat("c1"))
        both = [*pulled(0, 1, broker="b1"), *pulled(0, 1, broker="b2")]

        async def all_queues() -> bool:
            for each in brokers:
                each._run.assignments._kept.clear()  # registration follows a send after a moment
            return [await ask(client, question()) for client in clients] == [both, both]

        await eventually(all_queues)
    finally:
        await server.stop()


class Route:
    """A name server's answers, given by hand."""

    def __init__(self, broker: BrokerApp, clock: ManualClock) -> None:
        self.asked = 0
        self.queues = [QueueData("b1", 2, 2, 6), QueueData("b2", 2, 2, 2), QueueData("b3", -5, 2, 6)]
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        part = broker._run.assignments
        self.config = part.config = type(part.config)(namesrv_addr="127.0.0.1:9")
        part.clock, part.route = clock, self.find

    async def find(self, topic: str) -> TopicRouteData | None:
        self.asked += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return TopicRouteData(queue_datas=self.queues)


@pytest.fixture
def clock() -> ManualClock:
    """A clock that the test moves."""
    return ManualClock()


@pytest.fixture
async def member(client: Client) -> Client:
    """A client that has sent its heartbeat."""
    assert (await client.ask(RequestCode.HEART_BEAT, None, heartbeat("c1"))).code == 0
    return client


async def test_readable_queues_alone_and_not_longer_than_5_s(
    broker: BrokerApp, member: Client, clock: ManualClock
) -> None:
    """A queue that may not be read is nobody's; an absurd count is none."""
    route = Route(broker, clock)
    for _ in range(3):
        assert await ask(member, question()) == pulled(0, 1, broker="b1")
    assert route.asked == 1
    clock.advance_ms(ROUTE_AGE_NS / 1e6)
    route.queues = [QueueData("b1", 1, 1, 6)]
    assert await ask(member, question()) == pulled(0, broker="b1")
    assert route.asked == 2


async def test_a_name_server_that_fails_is_a_refusal_with_a_trace(
    broker: BrokerApp, member: Client, clock: ManualClock
) -> None:
    """The member keeps its queues: RocketMQ's client does so after an error."""
    route = Route(broker, clock)
    route.error = RequestTimeout("no route", why="the name server is silent")
    code, text = await refusal(member, RequestCode.QUERY_ASSIGNMENT, question())
    assert (code, "the name server is silent" in text) == (RequestTimeout.code, True)
    route.error = None
    route.queues = [QueueData("b1", QUEUES_MAX + 1, 1, 6)]
    code, text = await refusal(member, RequestCode.QUERY_ASSIGNMENT, question())
    assert (code, f"{QUEUES_MAX + 1} queues, limit {QUEUES_MAX}" in text) == (1, True)
    assert {key[0] for key, _ in broker.refused_requests.totals()} == {"QUERY_ASSIGNMENT"}


async def test_waiting_questions_are_bounded(broker: BrokerApp, member: Client, clock: ManualClock) -> None:
    """A silent name server collects so many and no more: the others are refused at once."""
    route = Route(broker, clock)
    route.gate.clear()
    waiting = [
        asyncio.ensure_future(member.ask(RequestCode.QUERY_ASSIGNMENT, None, question())) for _ in range(ASKING_MAX)
    ]
    await eventually(lambda: route.asked == ASKING_MAX)
    assert (await refusal(member, RequestCode.QUERY_ASSIGNMENT, question()))[0] == ResponseCode.SYSTEM_BUSY
    route.gate.set()
    assert {(await each).code for each in waiting} == {0}
    assert not broker._run.assignments._asking


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        (question(consumerGroup="a b"), 29, "a b"),
        (question(topic=""), 1, "no topic"),
        (question(client_id=""), 1, "no client id"),
        (question(strategyName="MACHINE_ROOM"), 1, "strategy 'MACHINE_ROOM'"),
        (b"{", 1, "QueryAssignmentRequest"),
    ],
)
async def test_bad_questions(client: Client, body: bytes, code: int, text: str) -> None:
    """Each refusal says what is wrong; the connection stays usable."""
    found = await refusal(client, RequestCode.QUERY_ASSIGNMENT, body)
    assert (found[0], text in found[1]) == (code, True), found
    await client.put(b"fine")


async def test_the_request_mode_is_kept_and_listed(harness: Harness, broker: BrokerApp) -> None:
    """Of a topic and a group that exist; members that pop share all queues, or those of their neighbors."""
    client, other = await harness.client(broker), await harness.client(broker)
    mode: dict[str, Any] = {"topic": "T", "consumerGroup": "group", "popShareQueueNum": 0}

    async def set_mode(**fields: Any) -> int:
        body = json.dumps({**mode, **fields}).encode()
        code: int = (await client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, None, body)).code
        return code

    assert await set_mode(mode="POP") == ResponseCode.TOPIC_NOT_EXIST
    await client.send("T", default_topic_queue_nums=4)
    assert await set_mode(mode="POP") == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    await client.ask(RequestCode.HEART_BEAT, None, heartbeat("c1"))
    assert await set_mode(topic="%RETRY%group", mode="POP") == ResponseCode.NO_PERMISSION
    for each in ("PULL", 0):
        assert await set_mode(mode=each) == 0
        assert await ask(client, question()) == pulled(0, 1, 2, 3)
    assert await set_mode(mode=1) == 0
    assert await ask(client, question()) == [("broker-a", -1, "POP")]
    for number in range(2, 5):
        await other.ask(RequestCode.HEART_BEAT, None, heartbeat(f"c{number}"))
    assert await ask(client, question()) == [("broker-a", -1, "POP")]
    clients = [client, *[await harness.client(broker) for _ in range(3)]]
    for number, member in enumerate(clients, 1):
        await member.ask(RequestCode.HEART_BEAT, None, heartbeat(f"c{number}"))
    assert await set_mode(mode="POP", popShareQueueNum=1) == 0
    assert await ask(client, question("c4")) == [("broker-a", 3, "POP"), ("broker-a", 0, "POP")]
    await client.send("T", code=RequestCode.SEND_MESSAGE_V2)
    listed = await client.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    kept = json.loads(bytes(listed.body))["messageRequestModeMap"]
    assert kept == {"T": {"group": {**mode, "mode": "POP", "popShareQueueNum": 1}}}
    await broker.stop()
    again = await harness.broker()
    client = await harness.client(again)
    assert json.loads(bytes((await client.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)).body))["messageRequestModeMap"]


def test_more_members_than_queues_have_one_each() -> None:
    """RocketMQ's rule where a member shares with few others."""
    queues = [MessageQueue("T", "b", number) for number in range(2)]
    members = ["a", "b", "c", "d", "e"]
    found = [
        popped_queues(QueryAssignmentRequest("T", "g", each), queues, members, 1, STRATEGIES["AVG"]) for each in members
    ]
    assert [[queue.queue_id for queue in each] for each in found] == [[0], [1], [0], [1], [0]]
