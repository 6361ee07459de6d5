"""LOCK_BATCH_MQ, UNLOCK_BATCH_MQ, LOCK_LIST and LOCK_RELEASE at a real broker."""

import asyncio
import json
import threading
from typing import Any

import pytest

from pocketmq.broker.admin.lock_admin import QUEUES_MAX
from pocketmq.broker.app import BrokerApp
from pocketmq.common.clock import SystemClock
from pocketmq.common.events import NullLog
from pocketmq.remoting.channel_pool import ChannelPool
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import MessageQueue, decode_body, encode_body
from pocketmq.remoting.protocol.client import ConsumerData, HeartbeatData, SubscriptionData
from pocketmq.remoting.protocol.lock import (
    LockListRequestHeader,
    LockReleaseRequestHeader,
    LockTableBody,
    OwnLockBatchRequestBody,
    OwnLockBatchResponseBody,
)
from pocketmq.remoting.protocol.offset import QueryConsumerOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from pocketmq.remoting.protocol.topic import TopicRequestHeader
from tests.broker.conftest import Client, Harness, eventually


def queue(queue_id: int = 0, topic: str = "T", broker: str = "broker-a") -> MessageQueue:
    return MessageQueue(topic, broker, queue_id)


async def own_lock(client: Client, client_id: str, *queues: MessageQueue, group: str = "g") -> OwnLockBatchResponseBody:
    body = OwnLockBatchRequestBody(group, client_id, list(queues), True, True)
    response = await client.ask(RequestCode.LOCK_BATCH_MQ, None, encode_body(body))
    assert response.code == 0, response
    return decode_body(response.body, OwnLockBatchResponseBody)


async def java_lock(client: Client, client_id: str, *queue_ids: int, code: int = RequestCode.LOCK_BATCH_MQ) -> Any:
    """Ask with the bytes that RocketMQ's clients send (fastjson of LockBatchRequestBody; 5.3 adds onlyThisBroker)."""
    mq_set = ",".join(f'{{"brokerName":"broker-a","queueId":{each},"topic":"T"}}' for each in queue_ids)
    body = f'{{"clientId":"{client_id}","consumerGroup":"g","mqSet":[{mq_set}],"onlyThisBroker":false}}'
    response = await client.ask(code, None, body.encode())
    assert response.code == 0, response
    return json.loads(bytes(response.body)) if len(response.body) else None


async def commit(client: Client, offset: int, token: int | None = None) -> Any:
    header = UpdateConsumerOffsetRequestHeader("g", "T", 0, offset, fencing_token=token)
    return await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def committed(client: Client) -> int:
    response = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader("g", "T", 0))
    offset: int = response.header.offset
    return offset


async def join(client: Client, client_id: str) -> None:
    """Become a member of group g."""
    data = HeartbeatData(client_id, [], [ConsumerData("g", subscription_data_set=[SubscriptionData("T")])])
    assert (await client.ask(RequestCode.HEART_BEAT, None, encode_body(data))).code == 0


async def test_rocketmqs_clients_get_rocketmqs_answers(client: Client) -> None:
    """Only the set of locked queues; another client's queues are missing from it."""
    await client.put(b"x")
    queue_0, queue_1 = ({"topic": "T", "brokerName": "broker-a", "queueId": each} for each in (0, 1))
    assert await java_lock(client, "a", 0) == {"lockOKMQSet": [queue_0]}
    assert await java_lock(client, "b", 0, 1) == {"lockOKMQSet": [queue_1]}
    assert await java_lock(client, "b", 0, code=RequestCode.UNLOCK_BATCH_MQ) is None
    assert await java_lock(client, "b", 0) == {"lockOKMQSet": []}
    await java_lock(client, "a", 0, code=RequestCode.UNLOCK_BATCH_MQ)
    assert await java_lock(client, "b", 0) == {"lockOKMQSet": [queue_0]}


async def test_our_clients_hear_who_has_the_queue(client: Client) -> None:
    """Tokens of granted locks; holder, age and expiry of refused ones."""
    await client.put(b"x")
    first = await own_lock(client, "a", queue(0), queue(1))
    assert first.lock_ok_mq_set == [queue(0), queue(1)]
    assert first.fencing_tokens == [first.fencing_tokens[0], first.fencing_tokens[0] + 1]
    assert first.lock_max_live_time == 60_000
    second = await own_lock(client, "b", queue(1), queue(2), queue(99), queue(0, "Nowhere"), queue(0, broker="other"))
    assert second.lock_ok_mq_set == [queue(2)]
    why = {(each.queue, each.why) for each in second.refused}
    assert why == {
        (queue(1), "held"),
        (queue(99), "unknown"),
        (queue(0, "Nowhere"), "unknown"),
        (queue(0, broker="other"), "unknown"),
    }
    [held] = [each for each in second.refused if each.why == "held"]
    assert held.holder == "a"
    assert held.holder_address.startswith("127.0.0.1:")
    assert 0 <= held.age_ms < 30_000
    assert 30_000 < held.expires_in_ms <= 60_000


async def test_a_read_that_hangs_holds_up_no_lock(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statistics for an administrator read the log; holders of locks renew them all the same."""
    app = await harness.broker()
    client, monitor = await harness.client(app), await harness.client(app)
    await client.put(b"x")
    await client.pull_bodies()  # a queue that is still empty has no message whose time is read
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(topic: str, queue_id: int, offset: int) -> int:
        hangs.set()
        assert goes_on.wait(60)
        return 1

    monkeypatch.setattr(app.store, "store_time", hang)
    statistics = asyncio.create_task(monitor.ask(RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader("T")))
    try:
        assert await asyncio.to_thread(hangs.wait, 60)
        assert (await own_lock(client, "a", queue())).lock_ok_mq_set == [queue()]
    finally:
        goes_on.set()
    assert (await statistics).code == 0


async def test_a_lock_that_is_not_renewed_goes_to_the_next(harness: Harness) -> None:
    """The waiting client is notified when it expires; from then on the old one cannot commit."""
    app = await harness.broker(lock_max_live_time=300)
    told: list[int] = []
    old = await harness.client(app)
    new = await harness.client(app, on_request=lambda _, request: told.append(request.code))
    await old.put(b"x")
    [old_token] = (await own_lock(old, "old", queue())).fencing_tokens
    assert (await own_lock(new, "new", queue())).refused[0].holder == "old"
    await eventually(lambda: RequestCode.NOTIFY_CONSUMER_IDS_CHANGED in told)
    [new_token] = (await own_lock(new, "new", queue())).fencing_tokens
    assert new_token > old_token
    assert (await commit(new, 1, new_token)).code == 0
    refused = await commit(old, 0, old_token)
    assert refused.code == ResponseCode.NO_PERMISSION
    assert refused.extra["cause"] == "fenced"
    assert "new has held the queue for" in refused.remark
    assert await committed(new) == 1


async def test_the_end_of_a_connection_gives_the_queue_to_the_next(harness: Harness) -> None:
    """Long before the lock would expire, and the waiting client is notified."""
    app = await harness.broker(lock_release_grace_mills=1)
    told: list[int] = []
    waiting = await harness.client(app, on_request=lambda _, request: told.append(request.code))
    pool = ChannelPool(clock=SystemClock(), log=NullLog())
    dying = await Client(pool, app.address).connect()
    await dying.put(b"x")
    await own_lock(dying, "dying", queue())
    assert (await own_lock(waiting, "waiting", queue())).lock_ok_mq_set == []
    await pool.close()
    await eventually(lambda: RequestCode.NOTIFY_CONSUMER_IDS_CHANGED in told)
    assert (await own_lock(waiting, "waiting", queue())).lock_ok_mq_set == [queue()]


async def test_tokens_grow_over_a_restart_and_old_ones_are_over(harness: Harness) -> None:
    """The locks are lost with the process; their tokens must neither commit nor be issued again."""
    app = await harness.broker()
    client = await harness.client(app)
    await client.put(b"x")
    [before] = (await own_lock(client, "a", queue())).fencing_tokens
    assert (await commit(client, 1, before)).code == 0
    await app.stop()
    client = await harness.client(await harness.broker())
    assert (await commit(client, 0, before)).code == ResponseCode.NO_PERMISSION
    [after] = (await own_lock(client, "a", queue())).fencing_tokens
    assert after > before
    assert (await commit(client, 1, after)).code == 0


async def test_commits_inside_pulls_are_fenced_too(harness: Harness, broker: BrokerApp) -> None:
    """The pull is answered nevertheless: RocketMQ's client would not understand a refusal."""
    holder, other = await harness.client(broker), await harness.client(broker)
    await holder.put(b"x", b"y")
    await holder.pull_bodies(wanted=2)
    await join(holder, "holder")
    await join(other, "other")
    await java_lock(holder, "holder", 0)
    assert (await holder.pull(sys_flag=5, commit=1, group="g")).code == 0
    assert await committed(holder) == 1
    assert (await other.pull(sys_flag=5, commit=2, group="g")).code == 0
    assert await committed(holder) == 1
    [event] = harness.log.of("commit_fenced")
    assert (event["client_id"], event["group"], event["queue_id"]) == ("other", "g", 0)


async def test_the_list_names_holder_age_expiry_token_and_who_waits(client: Client) -> None:
    """In the order of group, topic, queue; as many as were asked for."""
    await client.put(b"x")
    [token, _] = (await own_lock(client, "a", queue(0), queue(1))).fencing_tokens
    await own_lock(client, "b", queue(0))
    await own_lock(client, "b", queue(0))
    await own_lock(client, "c", queue(3), group="h")

    async def listed(*fields: Any) -> LockTableBody:
        response = await client.ask(RequestCode.LOCK_LIST, LockListRequestHeader(*fields))
        return decode_body(response.body, LockTableBody)

    table = await listed()
    assert [(each.consumer_group, each.queue_id) for each in table.locks] == [("g", 0), ("g", 1), ("h", 3)]
    first = table.locks[0]
    assert (first.client_id, first.fencing_token, first.release_in_ms) == ("a", token, -1)
    assert 0 <= first.renewed_ms_ago <= first.age_ms < 30_000
    assert 30_000 < first.expires_in_ms <= 60_000
    [waiter] = first.waiting
    assert (waiter.client_id, waiter.refusals) == ("b", 2)
    assert 0 <= waiter.asked_ms_ago <= waiter.waiting_ms
    assert [each.consumer_group for each in (await listed("h")).locks] == ["h"]
    assert (await listed("", "Other")).locks == []
    cut = await listed("", "", 1)
    assert (len(cut.locks), cut.left_out) == (1, 2)
    assert len((await listed("", "", -5)).locks) == 0


async def test_a_lock_is_released_by_its_token(client: Client) -> None:
    """The refusal of a wrong token says what to do."""
    await client.put(b"x")
    [token] = (await own_lock(client, "a", queue())).fencing_tokens
    wrong = await client.ask(RequestCode.LOCK_RELEASE, LockReleaseRequestHeader("g", "T", 0, token + 1))
    assert wrong.code == ResponseCode.QUERY_NOT_FOUND
    assert "list the locks again" in wrong.remark
    assert (await client.ask(RequestCode.LOCK_RELEASE, LockReleaseRequestHeader("g", "T", 0, token))).code == 0
    assert (await own_lock(client, "b", queue())).lock_ok_mq_set == [queue()]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "refused"),
        (b"\xff\x00{", "refused"),
        (b'{"consumerGroup":"g","clientId":"c","mqSet":{}}', "refused"),
        (b'{"consumerGroup":"g","clientId":"c","mqSet":[{"queueId":"x"}]}', "refused"),
        (b'{"consumerGroup":"g g","clientId":"c","mqSet":[]}', "illegal characters"),
        (b'{"consumerGroup":"","clientId":"c","mqSet":[]}', "blank"),
        (b'{"consumerGroup":"g","clientId":"","mqSet":[]}', "client id"),
        (b'{"consumerGroup":"g","clientId":"' + b"c" * 2000 + b'","mqSet":[]}', "client id"),
    ],
)
@pytest.mark.parametrize("code", [RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ])
async def test_garbage_is_refused_and_locks_nothing(client: Client, code: int, body: bytes, text: str) -> None:
    """It is answered; the connection stays open."""
    response = await client.ask(code, None, body)
    assert response.code != 0
    assert text in response.remark
    listed = await client.ask(RequestCode.LOCK_LIST, LockListRequestHeader())
    assert decode_body(listed.body, LockTableBody).locks == []


async def test_a_hundred_thousand_queues_are_too_many(client: Client) -> None:
    """The answer names the limit; the allowed number of unknown queues does no harm."""
    for count in (QUEUES_MAX + 1, 100_000):
        body = OwnLockBatchRequestBody("g", "c", [queue(each) for each in range(count)], True, True)
        response = await client.ask(RequestCode.LOCK_BATCH_MQ, None, encode_body(body))
        assert f"{count} queues in one request, more than {QUEUES_MAX}" in response.remark
    odd = await own_lock(client, "c", queue(-1), queue(2**40), queue(0, "x" * 10_000))
    assert odd.lock_ok_mq_set == []
    assert len(odd.refused) == 3


async def test_a_full_table_says_so(harness: Harness) -> None:
    """No held lock is dropped for a newcomer."""
    client = await harness.client(await harness.broker(queue_locks_max=2))
    await client.put(b"x")
    answer = await own_lock(client, "a", queue(0), queue(1), queue(2))
    assert answer.lock_ok_mq_set == [queue(0), queue(1)]
    assert [(each.queue, each.why) for each in answer.refused] == [(queue(2), "full")]
    assert len(harness.log.of("queue_locks_full")) == 1


async def test_a_slave_gives_no_locks(harness: Harness) -> None:
    """Otherwise a queue would have two holders."""
    app = await harness.broker(broker_id=1, store_settings={"broker_role": "SLAVE"})
    client = await harness.client(app)
    body = OwnLockBatchRequestBody("g", "c", [queue()], True, True)
    response = await client.ask(RequestCode.LOCK_BATCH_MQ, None, encode_body(body))
    assert response.extra["cause"] == "not_master"
    assert "ask the master" in response.remark
