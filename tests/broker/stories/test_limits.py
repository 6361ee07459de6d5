"""A broker with limits: over them nothing is stored, pulls wait, and users create so much and no more.

No test waits for a rate: limits are so low that a debt lasts for minutes, or so high that it is over at once.
"""

import asyncio
import contextlib
import random
import time
from pathlib import Path
from typing import Any

import pytest

from pocketmq.auth.config import AuthConfig
from pocketmq.auth.guard import FAILURES_MAX
from pocketmq.auth.users import User, UserType
from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.topic.creators import CREATOR_ATTRIBUTE
from pocketmq.client import Message, Producer, SendFailed
from pocketmq.common.errors import Cause
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NamesrvApp
from pocketmq.remoting.codec import encode_request
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.frame import BINARY, JSON
from pocketmq.remoting.limits.config import LimitsConfig
from pocketmq.remoting.limits.user_limits import UserLimits
from pocketmq.remoting.protocol.authenticate import AuthenticateRequestHeader
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.client import ConsumerData, HeartbeatData, SubscriptionData
from pocketmq.remoting.protocol.group import GetBrokerConsumeStatsRequestHeader, SubscriptionGroupConfigBody
from pocketmq.remoting.protocol.pull import NativePullRequestHeader, ViewMessageRequestHeader
from pocketmq.remoting.protocol.topic import CreateTopicRequestHeader
from pocketmq.remoting.security.credentials import Credentials
from pocketmq.remoting.security.proof import client_proof
from pocketmq.remoting.security.signature import sign
from pocketmq.remoting.string_map import WRITERS
from tests.broker.conftest import Client, Harness, eventually, records_of, split_records, store_config
from tests.broker.raw_client import RawClient
from tests.broker.send.test_short_rocketmq import fields_of, frame_of

R = RequestCode
BUSY = int(ResponseCode.SYSTEM_BUSY)
NOT_FOUND = int(ResponseCode.PULL_NOT_FOUND)
NONCE = "n" * 16
AUTH = AuthConfig(authentication_enabled=True)


class Limited:
    """A broker with limits; its clients."""

    def __init__(self, harness: Harness, path: Path) -> None:
        self.harness = harness
        self.path = path
        self.app: BrokerApp

    async def start(self, *users: User, namesrv_addr: str = "", **limits: int) -> "Limited":
        config = BrokerConfig(listen_port=0, wait_time_mills_in_send_queue=60_000, namesrv_addr=namesrv_addr)
        self.app = BrokerApp(
            config,
            store_config(self.path),
            log=self.harness.log,
            auth_config=AUTH if users else None,
            limits_config=LimitsConfig(**limits),
        )
        await self.app.start()
        self.harness._stack.push_async_callback(self.app.stop)
        self.change(*users)
        return self

    def change(self, *users: User) -> None:
        table = self.app.auth.table
        contents = table.contents
        for user in users:
            contents = contents.with_user(user)
        if users:
            table.replace(contents)

    async def client(self, user: User | None = None) -> Client:
        client = await self.harness.client(self.app)
        if user is not None:
            assert (await self.prove(client, user)).code == 0
        return client

    async def prove(self, client: Client, user: User) -> Any:
        announced = client.channel.announcement
        proof = client_proof(user.password, user.username, announced.nonce, NONCE)
        return await client.ask(R.AUTHENTICATE, AuthenticateRequestHeader(user=user.username, nonce=NONCE, proof=proof))

    def refused(self) -> dict[str, int]:
        """Return the refusals by limit."""
        return {kind: count for kind, count in self.app.limits.counts.items() if count}

    def stored(self, topic: str = "T", queue_id: int = 0) -> int:
        queue = self.app.store.consume_queues.get(topic, queue_id)
        return 0 if queue is None else queue.max_offset


@pytest.fixture
def limited(harness: Harness, tmp_path: Path) -> Limited:
    return Limited(harness, tmp_path / "store")


def user(name: str = "app", kind: UserType = UserType.NORMAL, **limits: int) -> User:
    return User(username=name, password=f"{name}-secret", user_type=kind, limits=UserLimits(**limits))


def is_quota(answer: Any) -> bool:
    """Return whether an answer is the refusal of a limit, with all that a client needs."""
    return (
        answer.code == BUSY
        and answer.remark.startswith("[QUOTA]")
        and answer.extra["cause"] == "quota"
        and answer.extra["stored"] == "no"
        and 0 < int(answer.extra["retry_after_ms"]) <= 60_000
    )


async def into_debt(client: Client, topic: str = "T", count: int = 5_000) -> None:
    """Send more than any limit allows, in one frame."""
    await client.put(*[b"x"] * count, topic=topic)


async def test_small_sends_take_the_short_path_until_the_limit_and_are_refused_before_anything_is_stored(
    limited: Limited,
) -> None:
    await limited.start(address_messages_in_per_second=1, burst_mills=10_000)
    client = await limited.client()
    await client.put(b"the wide way makes the queue")
    short = limited.app._run.short_path
    assert short is not None
    await eventually(lambda: limited.stored() == 1)
    before = short.drain.served
    for _ in range(5):
        await client.put(b"x")
    await into_debt(client)  # the wide way, behind them: by now the thread that answered them has counted them
    served = short.drain.served
    assert served > before, "one of them may go the wide way: what was checked before counts as unchecked now and then"
    end = limited.app.store.appended_offset
    for _ in range(5):
        assert is_quota(await client.append(("T", 0, [client.record("T")])))
    assert is_quota(await client.append(("New", 0, [client.record("New")])))
    assert limited.app.store.appended_offset == end
    assert limited.app.topics.get("New") is None
    assert short.drain.served == served
    assert limited.refused() == {"messages_in": 6}
    counted = {each.cause: each.total for each in limited.app.refusals.snapshot()}
    assert counted == {"quota": 6}


async def test_a_full_send_queue_does_not_take_twice(limited: Limited, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the short path gives on to the wide way has not paid yet."""
    await limited.start(address_messages_in_per_second=1, burst_mills=10_000)
    client = await limited.client()
    await client.put(b"first")
    connection = next(iter(limited.app._server.connections))  # type: ignore[union-attr]
    short = limited.app._run.short_path
    assert short is not None
    assert connection.quota is not None
    (bucket,) = connection.quota.inbound
    before = bucket.level
    monkeypatch.setattr(short, "_offer", lambda task: False)
    await client.append(("T", 0, [client.record("T")]))
    assert 0.9 < before - bucket.level <= 1.0


@pytest.mark.parametrize("code", [R.SEND_MESSAGE_V2, R.SEND_BATCH_MESSAGE])
async def test_rocketmq_s_sends_and_each_message_of_its_batches_count(limited: Limited, code: RequestCode) -> None:
    await limited.start(client_messages_in_per_second=1, burst_mills=3_000)
    client = await limited.client()
    item = (26).to_bytes(4, "big") + b"\0" * 12 + (4).to_bytes(4, "big") + b"body" + b"\0\0"
    batch = code == R.SEND_BATCH_MESSAGE
    sent = 0
    while True:
        answer = await client.send(body=item * 500 if batch else b"x", code=code, batch=batch)
        if answer.code:
            break
        sent += 1
    assert is_quota(answer)
    await eventually(lambda: limited.stored() == (500 * sent if batch else sent))
    assert sent == 1 if batch else sent >= 3


@pytest.mark.parametrize("kind", [JSON, BINARY])
async def test_small_sends_of_rocketmq_pay_on_the_short_path(limited: Limited, kind: int) -> None:
    await limited.start(client_messages_in_per_second=1, burst_mills=20_000)
    short = limited.app._run.short_path
    assert short is not None
    async with RawClient(limited.app.port) as peer:
        await peer.answer(peer.post_send(b"the wide way makes the queue"))
        await eventually(lambda: limited.stored() == 1)
        rng, sent = random.Random(1), 0
        while True:
            fields = fields_of(rng) | {"b": "T", "e": "0"}
            opaque = 1_000 + sent
            peer._codes[opaque] = int(R.SEND_MESSAGE_V2)
            peer._writer.write(frame_of(kind, R.SEND_MESSAGE_V2, opaque, fields, b"x"))
            answer = await peer.answer(opaque)
            if answer.code:
                break
            sent += 1
    assert is_quota(answer)
    assert sent >= 20
    assert short.drain.served >= sent - 1, "the first one of a kind may go the wide way"
    await eventually(lambda: limited.stored() == 1 + sent)


async def test_oneway_sends_over_the_limit_are_dropped(limited: Limited) -> None:
    await limited.start(client_messages_in_per_second=1)
    async with RawClient(limited.app.port) as peer:
        await peer.answer(peer.post_send(b"first"))
        for _ in range(50):
            peer.post_send(b"x", oneway=True)
        await peer.answer(peer.post(R.HELLO))
    assert limited.app.limits.counts["messages_in"] >= 45
    refused = limited.app.limits.counts["messages_in"]
    await eventually(lambda: limited.stored() + refused == 51)


async def test_a_client_over_its_limit_goes_on_consuming(limited: Limited) -> None:
    """Its heartbeat, its offsets and its pulls are served."""
    await limited.start(client_bytes_in_per_second=1)
    client = await limited.client()
    await into_debt(client, count=10)
    assert is_quota(await client.append(("T", 0, [client.record("T")])))
    data = ConsumerData(group_name="group", subscription_data_set=[SubscriptionData(topic="T", sub_string="*")])
    beat = encode_body(HeartbeatData(client_id="c", consumer_data_set=[data]))
    assert (await client.ask(R.HEART_BEAT, None, beat)).code == 0
    assert len(await client.pull_bodies(wanted=10)) == 10


async def test_a_user_s_limit_holds_over_all_its_connections_and_for_nobody_else(limited: Limited) -> None:
    app, other = user(messages_in_per_second=1), user("other")
    await limited.start(app, other, user("root", UserType.SUPER))
    one, two = await limited.client(app), await limited.client(app)
    await into_debt(one)
    assert is_quota(refused := await two.append(("T", 0, [two.record("T")])))
    assert "over the limit of user app: messages sent, 1 a second" in refused.remark
    free = await limited.client(other)
    await free.put(b"x")


async def test_a_change_of_a_user_s_limits_holds_at_once_on_the_short_path(limited: Limited) -> None:
    await limited.start(user(), user("root", UserType.SUPER))
    client = await limited.client(user())
    for _ in range(3):
        await client.put(b"x")
    limited.change(user(messages_in_per_second=1))
    await into_debt(client)
    assert is_quota(await client.append(("T", 0, [client.record("T")])))
    limited.change(user())
    for _ in range(3):
        await client.put(b"x")


async def test_too_many_connections_of_a_user(limited: Limited) -> None:
    app = user(connections_max=2)
    await limited.start(app)
    first = await limited.client(app)
    await limited.client(app)
    third = await limited.harness.client(limited.app)
    assert is_quota(await limited.prove(third, app))
    await first.pool.close()

    async def proved() -> bool:
        again = await limited.harness.client(limited.app)
        return bool((await limited.prove(again, app)).code == 0)

    while not await proved():
        pass


async def test_ten_thousand_wrong_log_ins_cost_little_and_others_are_served(limited: Limited) -> None:
    """At most so many are judged in a second; the rest meets a closed connection. A client elsewhere sends on, and so
    does one behind the same address that had proved itself before."""
    app = user()
    await limited.start(app)
    before = await limited.client(app)
    other_keys = Credentials("app", "not-its-secret")
    header = GetBrokerConsumeStatsRequestHeader(False)
    extra = sign(other_keys, WRITERS[type(header)](header), b"")
    code = R.GET_BROKER_CONSUME_STATS
    frames = b"".join(encode_request(code, 1, header, serialize_type=JSON, extra=extra)) * 500
    began_s = time.monotonic()
    connections = 0
    for _ in range(20):
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", limited.app.port)
            connections += 1
            writer.write(frames)
            await reader.read()
            writer.close()
        await before.put(b"from the same address")
    seconds = int(time.monotonic() - began_s) + 2
    judged = limited.app.auth.denials.counts["user"]
    assert FAILURES_MAX <= judged <= FAILURES_MAX * seconds
    assert limited.app.auth.denials.counts["flood"] <= connections
    assert limited.refused()["logins"] <= connections
    await eventually(lambda: limited.stored() == 20)


# ---- pulls -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("native", [False, True])
async def test_a_pull_over_the_limit_waits_for_as_long_as_it_may_and_finds_nothing(
    limited: Limited, native: bool
) -> None:
    """The offset stays where it was, and a message that comes meanwhile wakes nobody."""
    await limited.start(client_messages_out_per_second=1)
    client, sender = await limited.client(), await limited.client()
    await sender.put(*[b"x"] * 100)
    assert len(await client.pull_bodies(wanted=100)) == 100
    await sender.put(b"later")
    if native:
        answer = await client.native_pull(("T", 0, 100), suspend_ms=150)
        assert [result[:2] for result in answer.header.results] == [(NOT_FOUND, 100)]
    else:
        answer = await client.pull(offset=100, suspend_ms=150)
        assert (answer.code, answer.header.next_begin_offset) == (NOT_FOUND, 100)
    assert bytes(answer.body) == b""
    assert limited.refused() == {}


@pytest.mark.parametrize("native", [False, True])
async def test_a_pull_that_must_not_wait_is_refused(limited: Limited, native: bool) -> None:
    await limited.start(client_bytes_out_per_second=1)
    client, sender = await limited.client(), await limited.client()
    await sender.put(*[b"x"] * 100)
    await client.pull_bodies(wanted=100)
    answer = await (client.native_pull(("T", 0, 0)) if native else client.pull())
    assert is_quota(answer)
    assert "bytes pulled" in answer.remark
    assert limited.refused() == {"bytes_out": 1}


@pytest.mark.parametrize("native", [False, True])
async def test_pulls_get_everything_at_their_pace(limited: Limited, native: bool) -> None:
    """Each pull pays for the one before, by waiting; none is refused and nothing is left out."""
    await limited.start(client_messages_out_per_second=2_000, burst_mills=1)
    client, sender = await limited.client(), await limited.client()
    await sender.put(*[b"%d" % number for number in range(200)])
    bodies: list[bytes] = []
    while len(bodies) < 200:
        if native:
            answer = await client.native_pull(("T", 0, len(bodies)), suspend_ms=20_000, max_messages=30)
            bodies += [record.body for record in records_of(answer)]
        else:
            answer = await client.pull(offset=len(bodies), suspend_ms=20_000, count=30)
            bodies += [record.body for record in split_records(answer.body)]
        assert answer.code == 0
    assert bodies == [b"%d" % number for number in range(200)]
    assert limited.refused() == {}


async def test_pulls_that_wait_for_their_limit_end_with_their_connection_and_with_the_broker(limited: Limited) -> None:
    await limited.start(address_messages_out_per_second=1)
    client, sender = await limited.client(), await limited.client()
    await sender.put(*[b"x"] * 100)
    await client.pull_bodies(wanted=100)
    async with RawClient(limited.app.port) as peer, RawClient(limited.app.port) as stays:
        for each in (peer, stays):
            each.post(R.NATIVE_PULL, NativePullRequestHeader("group", [("T", 0, 0)], 1 << 20, 100, 15_000, "*"))
        while limited.app.pulls_held < 2:
            await client.ask(R.HELLO)
        peer._writer.close()
        while limited.app.pulls_held > 1:
            await client.ask(R.HELLO)
        await limited.app.stop()
        answer = await stays.answer(1)
        assert [result[:2] for result in answer.header.results] == [(NOT_FOUND, 0)]  # type: ignore[union-attr]


async def test_what_is_read_by_id_is_paid_and_not_refused(limited: Limited) -> None:
    await limited.start(client_messages_out_per_second=1)
    client = await limited.client()
    offset = (await client.put(b"x")).header.results[0][2][0][0]
    await eventually(lambda: limited.stored() == 1)
    for _ in range(50):
        assert (await client.ask(R.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=offset))).code == 0
    assert is_quota(await client.pull())


# ---- topics and groups -----------------------------------------------------------------------------------------------


async def test_a_user_creates_so_many_topics_by_whatever_way(limited: Limited) -> None:
    app = user(topics_max=3)
    await limited.start(app, user("root", UserType.SUPER))
    client = await limited.client(app)
    await client.put(b"x", topic="ByAppend")
    assert (await client.send("BySend")).code == 0
    asked = CreateTopicRequestHeader("ByAdmin", "TBW102", 1, 1, 6, "SINGLE_TAG")
    assert (await client.ask(R.UPDATE_AND_CREATE_TOPIC, asked)).code == 0
    assert (await client.ask(R.UPDATE_AND_CREATE_TOPIC, asked)).code == 0, "it exists"
    for topic in ("ByAppend", "BySend", "ByAdmin"):
        known = limited.app.topics.get(topic)
        assert known is not None
        assert (known.attributes or {})[CREATOR_ATTRIBUTE] == "app"
    text = "[QUOTA]topic New not created: user app has created 3, limit 3"
    by_append = await client.append(("New", 0, [client.record("New")]), ("ByAppend", 0, [client.record("ByAppend")]))
    assert [(result[0], result[3]) for result in by_append.header.results] == [(BUSY, text), (0, "")]
    by_send = await client.send("New")
    assert (by_send.code, by_send.remark, by_send.extra["cause"]) == (BUSY, text, "quota")
    by_admin = await client.ask(R.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader("New", "TBW102", 1, 1, 6, "X"))
    assert (by_admin.code, by_admin.remark) == (BUSY, text)
    assert limited.app.topics.get("New") is None
    limited.app.topics.delete("BySend")
    await client.put(b"x", topic="New")
    root = await limited.client(user("root", UserType.SUPER))
    await root.put(b"x", topic="OfRoot")


async def test_a_user_creates_so_many_groups_by_whatever_way(limited: Limited) -> None:
    app = user(groups_max=2)
    await limited.start(app)
    client = await limited.client(app)
    await client.put(b"x")
    await client.pull(group="ByPull")
    data = [ConsumerData(group_name=name, subscription_data_set=[]) for name in ("ByPull", "ByHeartbeat")]
    beat = encode_body(HeartbeatData(client_id="c", consumer_data_set=data))
    assert (await client.ask(R.HEART_BEAT, None, beat)).code == 0
    groups = limited.app.groups
    assert [(groups.get(name).attributes or {}).get(CREATOR_ATTRIBUTE) for name in ("ByPull", "ByHeartbeat")] == [  # type: ignore[union-attr]
        "app",
        "app",
    ]
    text = "[QUOTA]group New not created: user app has created 2, limit 2"
    assert (await client.pull(group="New")).remark == text
    made = encode_body(SubscriptionGroupConfigBody(group_name="New", attributes={CREATOR_ATTRIBUTE: "somebody"}))
    refused = await client.ask(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, made)
    assert (refused.code, refused.remark) == (BUSY, text)
    assert groups.get("New") is None
    assert limited.app.topics.get("%RETRY%ByHeartbeat") is not None, "retry topics are the broker's"
    groups.delete("ByPull")
    assert (await client.ask(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, made)).code == 0
    assert (groups.get("New").attributes or {})[CREATOR_ATTRIBUTE] == "app"  # type: ignore[union-attr]


async def test_creators_survive_a_restart(limited: Limited) -> None:
    app = user(topics_max=1, groups_max=1)
    await limited.start(app)
    client = await limited.client(app)
    await client.put(b"x", topic="Mine")
    await client.pull("Mine", group="mine")
    await limited.app.stop()
    await limited.app.start()
    limited.change(app)
    again = await limited.client(app)
    assert (await again.send("New")).remark == "[QUOTA]topic New not created: user app has created 1, limit 1"
    assert (await again.pull("Mine", group="new")).remark.startswith("[QUOTA]group new not created")


# ---- our SDK ---------------------------------------------------------------------------------------------------------


async def test_our_producer_waits_as_long_as_the_broker_says(limited: Limited) -> None:
    """Every message arrives, though most sends are refused at first."""
    name_server = NamesrvApp(NamesrvConfig(listen_port=0), limits_config=LimitsConfig(address_bytes_in_per_second=1))
    await name_server.start()
    limited.harness._stack.push_async_callback(name_server.stop)
    await limited.start(namesrv_addr=name_server.address, client_messages_in_per_second=500, burst_mills=2)
    async with Producer("p", name_server.address) as producer:
        for number in range(10):
            await producer.send_batch([Message("T", b"%d" % number)] * 20)
    await eventually(lambda: sum(limited.stored(queue_id=number) for number in range(8)) == 200)
    assert limited.app.limits.counts["messages_in"] >= 1


async def test_our_producer_gets_in_when_another_connection_of_its_user_ends(limited: Limited) -> None:
    name_server = NamesrvApp(NamesrvConfig(listen_port=0))
    await name_server.start()
    limited.harness._stack.push_async_callback(name_server.stop)
    app = user(connections_max=1)
    await limited.start(app, namesrv_addr=name_server.address)
    first = await limited.client(app)
    await first.put(b"x")
    keys = Credentials("app", "app-secret")
    async with Producer("p", name_server.address, credentials=keys, send_msg_timeout_ms=500) as producer:

        async def why() -> bool:
            with pytest.raises(SendFailed) as failed:  # on a busy machine a connection takes longer than a send may
                await producer.send(Message("T", b"x"))
            return "[QUOTA]connection refused: user app has 1 connections, limit 1" in str(failed.value)

        await eventually(why)
        await first.pool.close()

        async def sent() -> bool:
            with contextlib.suppress(SendFailed):
                await producer.send(Message("T", b"x"))
                return True
            return False

        await eventually(sent)


async def test_our_producer_gives_up_where_the_debt_outlasts_the_send(limited: Limited) -> None:
    """The error says why, and when to come again; a program that waits so long gets its message in."""
    name_server = NamesrvApp(NamesrvConfig(listen_port=0))
    await name_server.start()
    limited.harness._stack.push_async_callback(name_server.stop)
    await limited.start(namesrv_addr=name_server.address, client_messages_in_per_second=1)
    async with Producer("p", name_server.address) as producer:
        await producer.send_batch([Message("T", b"x")] * 100)
        with pytest.raises(SendFailed) as failed:
            await producer.send(Message("T", b"y"))
    error = failed.value
    assert (error.cause, error.answer_code) == (Cause.QUOTA, BUSY)
    assert 90_000 > error.retry_after_ms > 30_000
    assert "[QUOTA]" in str(error.attempts[-1])
    await eventually(lambda: sum(limited.stored(queue_id=number) for number in range(8)) == 100)
