"""Transactions through a whole broker, spoken as RocketMQ's clients and as ours speak."""

import asyncio
import json
from typing import Any

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.transaction.transaction_records import parse_op
from pocketmq.broker.transaction.transaction_service import TRANS_GROUP
from pocketmq.common.message_id import offset_msg_id, parse_offset_msg_id
from pocketmq.common.record_codec import decode_record
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import decode_body, encode_body
from pocketmq.remoting.protocol.client import HeartbeatData, ProducerData
from pocketmq.remoting.protocol.send import NativeAppendRequestHeader
from pocketmq.remoting.protocol.transaction import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    NativeEndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
    TransactionList,
    TransactionListRequestHeader,
)
from tests.broker.conftest import TIMEOUT_MS, Client, Harness, eventually, records_of

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
FAST: dict[str, Any] = {"transaction_time_out": 1, "transaction_check_interval": 20}
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"


def property_text(**properties: object) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


async def half(client: Client, body: bytes = b"half", group: str = "producers", **properties: object) -> Any:
    """Send a half message as RocketMQ's client does; return (queue offset, commit-log offset, answer)."""
    text = property_text(UNIQ_KEY="U" + body.decode(), TAGS="A", TRAN_MSG="true", PGROUP=group, **properties)
    answer = await client.send(body=body, sys_flag=4, properties=text, producer_group=group)
    assert answer.code == 0, answer
    return answer.header.queue_offset, parse_offset_msg_id(answer.header.msg_id)[1], answer


async def end(client: Client, place: Any, kind: int, group: str = "producers", *, check: bool = False) -> Any:
    """End a transaction with an answer."""
    header = EndTransactionRequestHeader(group, place[0], place[1], kind, "id", check)
    return await client.ask(RequestCode.END_TRANSACTION, header)


async def pulled(client: Client, topic: str, count: int, queue_id: int = 0) -> list[Any]:
    """Pull until ``count`` messages came."""
    records: list[Any] = []
    while len(records) < count:
        response = await client.native_pull((topic, queue_id, len(records)), suspend_ms=5000)
        if response.code == 0:
            records += records_of(response)
    return records


def end_of(app: BrokerApp, topic: str) -> int:
    app.store.show_all()
    return app.store.max_offset(topic, 0)


async def heartbeat(client: Client, *groups: str) -> None:
    data = HeartbeatData(client_id="c", producer_data_set=[ProducerData(group_name=group) for group in groups])
    assert (await client.ask(RequestCode.HEART_BEAT, None, encode_body(data))).code == 0


async def test_a_half_message_is_seen_by_nobody_until_it_is_committed(broker: BrokerApp, client: Client) -> None:
    """The committed record is RocketMQ's: type COMMIT, prepared offset, REAL_* and TRAN_MSG kept; the op message names
    the half that it ends.
    """
    await client.put(b"now")
    place = await half(client, b"paid")
    assert place[2].header.transaction_id == "Upaid"
    assert (end_of(broker, "T"), end_of(broker, "RMQ_SYS_TRANS_HALF_TOPIC")) == (1, 1)
    assert (await end(client, place, COMMIT)).code == 0
    record = (await pulled(client, "T", 2))[1]
    assert (record.body, record.sys_flag & 0xC, record.prepared_offset) == (b"paid", COMMIT, place[1])
    properties = record.property_map()
    assert properties["UNIQ_KEY"] == "Upaid"
    assert {name: properties[name] for name in ("REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP")} == {
        "REAL_TOPIC": "T",
        "REAL_QID": "0",
        "TRAN_MSG": "true",
        "PGROUP": "producers",
    }
    (waiting,) = await pulled(client, "RMQ_SYS_TRANS_HALF_TOPIC", 1)
    assert (waiting.sys_flag & 0xC, waiting.body) == (0, b"paid")
    (op,) = await pulled(client, "RMQ_SYS_TRANS_OP_HALF_TOPIC", 1)
    assert (parse_op(op.body), op.property_map()["TAGS"]) == ([place[0]], "d")
    assert [each.body for each in records_of(await client.native_pull(("T", 0, 0), expression="A"))] == [b"paid"]


async def test_a_rollback_leaves_only_the_op_message(broker: BrokerApp, client: Client) -> None:
    """Nothing enters the topic."""
    await client.put(b"now")
    place = await half(client)
    assert (await end(client, place, ROLLBACK)).code == 0
    assert (end_of(broker, "T"), end_of(broker, "RMQ_SYS_TRANS_OP_HALF_TOPIC")) == (1, 1)


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (COMMIT, COMMIT, ResponseCode.SUCCESS),
        (ROLLBACK, ROLLBACK, ResponseCode.SUCCESS),
        (COMMIT, UNKNOWN, ResponseCode.SUCCESS),
        (COMMIT, ROLLBACK, ResponseCode.TRANSACTION_SHOULD_COMMIT),
        (ROLLBACK, COMMIT, ResponseCode.TRANSACTION_SHOULD_ROLLBACK),
        (UNKNOWN, COMMIT, ResponseCode.SUCCESS),
    ],
)
async def test_a_second_decision_changes_nothing(
    broker: BrokerApp, client: Client, first: int, second: int, code: int
) -> None:
    """The first decision counts; the answer to another one says how the transaction ended."""
    await client.put(b"now")
    place = await half(client)
    assert (await end(client, place, first)).code == 0
    assert (await end(client, place, second)).code == code
    delivered = 1 if COMMIT in (first, second) and first != ROLLBACK else 0
    assert end_of(broker, "T") == 1 + delivered
    assert end_of(broker, "RMQ_SYS_TRANS_OP_HALF_TOPIC") == 1


async def test_bad_ends_are_told_apart_and_change_nothing(broker: BrokerApp, client: Client) -> None:
    """RocketMQ's texts for a wrong group, a wrong offset, a missing message; garbage does no harm."""
    await client.put(b"now")
    place = await half(client)
    log_end = broker.store.appended_offset
    for wrong, group, kind, text in (
        (place, "others", COMMIT, "The producer group wrong"),
        ((place[0], place[1] + 1), "producers", COMMIT, "The commit log offset wrong"),
        ((place[0] + 7, place[1]), "producers", COMMIT, "The transaction state table offset wrong"),
        ((99, 1 << 50), "producers", COMMIT, "Find prepared transaction message failed"),
        ((-1, -1), "producers", ROLLBACK, "Find prepared transaction message failed"),
        ((-(1 << 63), (1 << 63) - 1), "producers", ROLLBACK, "Find prepared transaction message failed"),
        (place, "producers", 5, "not 8, 12 or 0"),
    ):
        answer = await end(client, wrong, kind, group)
        assert (answer.code, text in answer.remark) == (ResponseCode.SYSTEM_ERROR, True), answer
    assert broker.store.appended_offset == log_end
    assert (await end(client, place, COMMIT)).code == 0


@pytest.mark.parametrize(
    ("sys_flag", "properties", "code"),
    [
        (4, {"TRAN_MSG": "true"}, ResponseCode.MESSAGE_ILLEGAL),
        (4, {"PGROUP": "producers"}, ResponseCode.MESSAGE_ILLEGAL),
        (8, {"TRAN_MSG": "true", "PGROUP": "producers"}, ResponseCode.MESSAGE_ILLEGAL),
        (4, {"TRAN_MSG": "true", "PGROUP": "producers", "DELAY": 3}, ResponseCode.MESSAGE_ILLEGAL),
        (4, {"TRAN_MSG": "true", "PGROUP": "producers", "TIMER_DELAY_MS": 9}, ResponseCode.MESSAGE_ILLEGAL),
        (
            4,
            {"TRAN_MSG": "true", "PGROUP": "producers", "CHECK_IMMUNITY_TIME_IN_SECONDS": "x"},
            ResponseCode.MESSAGE_ILLEGAL,
        ),
        (0, {"TRAN_MSG": "true", "PGROUP": "producers"}, ResponseCode.SUCCESS),
    ],
)
async def test_what_is_no_half_message_is_refused(
    broker: BrokerApp, client: Client, sys_flag: int, properties: dict[str, object], code: int
) -> None:
    """Without a group, with another transaction type, delayed, with nonsense; the property alone is enough."""
    await client.put(b"now")
    answer = await client.send(sys_flag=sys_flag, properties=property_text(**properties))
    assert answer.code == code, answer
    assert end_of(broker, "T") == 1


async def test_transactions_can_be_forbidden_and_limited(harness: Harness) -> None:
    """reject_transaction_message: 16; too many open ones: busy, with a retry time, for both ways to send."""
    app = await harness.broker(reject_transaction_message=True)
    client = await harness.client(app)
    text = property_text(TRAN_MSG="true", PGROUP="producers")
    answer = await client.send(sys_flag=4, properties=text)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "sending transaction message is forbidden" in answer.remark
    app = await harness.broker(name="two", transaction_pending_max=1)
    client = await harness.client(app)
    place = await half(client)
    for answer in (await client.send(sys_flag=4, properties=text), await native_half(client, b"x")):
        assert (answer.code, answer.extra["retry_after_ms"]) == (ResponseCode.SYSTEM_BUSY, "1000")
    await end(client, place, ROLLBACK)
    await half(client, b"room")


async def native_half(client: Client, *bodies: bytes, group: str = "producers", **properties: str) -> Any:
    """Send halves as our client does: plain records, made half messages by the broker."""
    records = [client.record("T", body, tags="A", keys=["k"], properties=properties or None) for body in bodies]
    sizes = b"".join(len(record).to_bytes(4, "big") for record in records)
    header = NativeAppendRequestHeader(group, True, [("T", 0, len(records))], TIMEOUT_MS)
    return await client.ask(RequestCode.NATIVE_HALF_APPEND, header, sizes + b"".join(records))


async def test_native_halves_and_ends_are_many_in_one_request(broker: BrokerApp, client: Client) -> None:
    """Each record has a run of its own; each decision has its own answer; one op message ends them all."""
    await client.put(b"now")
    answer = await native_half(client, b"a", b"b", b"c", mine="x")
    code, first, runs, _ = answer.header.results[0]
    assert (code, first, [count for _, count in runs]) == (0, 0, [1, 1, 1])
    ends = [(0, runs[0][0], COMMIT, False), (1, runs[1][0], ROLLBACK, False), (2, runs[0][0], COMMIT, False)]
    ends += [(2, runs[2][0], COMMIT, False), (2, runs[2][0], COMMIT, False), (2, runs[2][0], ROLLBACK, False)]
    answer = await client.ask(RequestCode.NATIVE_END_TRANSACTION, NativeEndTransactionRequestHeader("producers", ends))
    assert [code for code, _ in answer.header.results] == [0, 0, 1, 0, 0, ResponseCode.TRANSACTION_SHOULD_COMMIT]
    records = (await pulled(client, "T", 3))[1:]
    assert [record.body for record in records] == [b"a", b"c"]
    for record, (physical_offset, _) in zip(records, (runs[0], runs[2]), strict=True):
        assert record.prepared_offset == physical_offset
        properties = record.property_map()
        assert (properties["mine"], properties["KEYS"], properties["REAL_TOPIC"]) == ("x", "k", "T")
        assert decode_record(broker.store.read_record(physical_offset) or b"").topic == "RMQ_SYS_TRANS_HALF_TOPIC"
    (op,) = await pulled(client, "RMQ_SYS_TRANS_OP_HALF_TOPIC", 1)
    assert parse_op(op.body) == [0, 1, 2]
    assert len(await asyncio.to_thread(broker.store.query, "T", "k", 0, 1 << 60, 10)) == 2


async def test_properties_that_grow_too_long_are_refused(broker: BrokerApp, client: Client) -> None:
    """A native half with too little room for the properties of a half message; the frame beside it is stored."""
    await client.put(b"now")
    long, short = await asyncio.gather(native_half(client, b"x", mine="y" * 32_660), native_half(client, b"z"))
    assert (long.code, short.code) == (ResponseCode.MESSAGE_ILLEGAL, 0)
    code, first, runs, _ = short.header.results[0]
    assert (await end(client, (first, runs[0][0]), COMMIT)).code == code == 0
    assert (await pulled(client, "T", 2))[1].body == b"z"


async def test_the_broker_asks_a_producer_and_takes_its_answer(harness: Harness) -> None:
    """CHECK_TRANSACTION_STATE carries the message under its real topic and the half message's offsets; the answer with
    these offsets ends it. Other groups are not asked."""
    app = await harness.broker(**FAST)
    asked: list[Any] = []
    client = await harness.client(app, lambda channel, request: asked.append(request))
    await heartbeat(client, "producers")
    place = await half(client, b"ask")
    await half(client, b"other", group="others")
    await eventually(lambda: asked)
    request = asked[0]
    header = request.header
    assert isinstance(header, CheckTransactionStateRequestHeader)
    assert (header.tran_state_table_offset, header.commit_log_offset) == (place[0], place[1])
    assert (header.msg_id, header.transaction_id) == ("Uask", "Uask")
    assert header.offset_msg_id == offset_msg_id(app.store.store_host, place[1])
    record = decode_record(bytes(request.body))
    assert (record.topic, record.queue_id, record.body) == ("T", 0, b"ask")
    assert record.property_map()["PGROUP"] == "producers"
    assert (await end(client, place, COMMIT, check=True)).code == 0
    assert (await pulled(client, "T", 1))[0].body == b"ask"
    assert app.transactions is not None
    await eventually(lambda: app.transactions is not None and app.transactions.checks_without_producer > 1)
    assert {request.header.msg_id for request in asked} == {"Uask"}
    assert len(app.transactions.table) == 1, "that of the group without a producer waits"


async def test_after_the_last_check_a_half_message_is_given_up_and_can_be_resumed(harness: Harness) -> None:
    """It moves to RocketMQ's topic; a late decision still counts; a resumed one is checked again."""
    app = await harness.broker(transaction_check_max=2, **FAST)
    asked: list[Any] = []
    client = await harness.client(app, lambda channel, request: asked.append(request.header.msg_id))
    await heartbeat(client, "producers")
    late, resumed = await half(client, b"late"), await half(client, b"resumed")
    records = await pulled(client, GIVEN_UP_TOPIC, 2)
    assert sorted(asked) == ["Ulate", "Ulate", "Uresumed", "Uresumed"]
    assert (await end(client, late, COMMIT)).code == 0
    assert [record.body for record in await pulled(client, "T", 1)] == [b"late"]
    assert (await end(client, late, ROLLBACK)).code == ResponseCode.TRANSACTION_SHOULD_COMMIT
    chosen = next(record for record in records if record.body == b"resumed")
    for bad in (offset_msg_id(app.store.store_host, late[1]), offset_msg_id(app.store.store_host, 1 << 40), "zz"):
        answer = await client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessageRequestHeader(bad))
        assert answer.code == ResponseCode.SYSTEM_ERROR or bad == "zz"
    header = ResumeCheckHalfMessageRequestHeader(offset_msg_id(app.store.store_host, chosen.physical_offset))
    asked.clear()
    assert (await client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)).code == 0
    await eventually(lambda: "Uresumed" in asked)
    assert resumed[0] == 1


async def test_immunity_keeps_the_broker_from_asking(harness: Harness) -> None:
    """A message may delay its first check by some seconds."""
    app = await harness.broker(**FAST)
    asked: list[Any] = []
    client = await harness.client(app, lambda channel, request: asked.append(request.header.msg_id))
    await heartbeat(client, "producers")
    await half(client, b"slow", CHECK_IMMUNITY_TIME_IN_SECONDS=3600)
    await half(client, b"quick")
    await eventually(lambda: len(asked) >= 2)
    assert set(asked) == {"Uquick"}


async def test_a_restart_goes_on_with_what_is_open(harness: Harness) -> None:
    """Progress and checks are kept; ended ones stay ended; even without our progress file, from RocketMQ's offsets."""
    app = await harness.broker(**FAST)
    client = await harness.client(app, lambda channel, request: None)
    await heartbeat(client, "producers")
    places = [await half(client, b"%d" % number) for number in range(4)]
    await end(client, places[0], COMMIT)
    await end(client, places[2], ROLLBACK)
    assert app.transactions is not None
    await eventually(lambda: app.transactions is not None and app.transactions.checks >= 2)
    checks = app.transactions.table.checks()
    await app.stop()
    for forget in (False, True):
        if forget:
            (harness._tmp_path / "store/pocketmq/transactionProgress.json").unlink()
            (harness._tmp_path / "store/pocketmq/transactionProgress.json.bak").unlink(missing_ok=True)
        app = await harness.broker(transaction_check_interval=600_000)
        assert app.transactions is not None
        assert [half.queue_offset for half in app.transactions.table.pending()] == [1, 3]
        if not forget:
            found = app.transactions.table.checks()
            assert all(found[offset] >= count for offset, count in checks.items())
        assert app.offsets.query(TRANS_GROUP, "RMQ_SYS_TRANS_HALF_TOPIC", 0) == 1
        await app.stop()
    app = await harness.broker(transaction_check_interval=600_000)
    client = await harness.client(app)
    assert (await end(client, places[3], COMMIT)).code == 0
    assert (await end(client, places[0], COMMIT)).code == ResponseCode.SYSTEM_ERROR  # ended and forgotten
    assert [record.body for record in await pulled(client, "T", 2)] == [b"0", b"3"]


async def test_open_transactions_are_listed(broker: BrokerApp, client: Client) -> None:
    """In pages, with topic, id, age and checks; the runtime info and the metrics count them."""
    places = [await half(client, b"%d" % number) for number in range(3)]
    await end(client, places[1], COMMIT)
    await client.ask(RequestCode.NATIVE_END_TRANSACTION, NativeEndTransactionRequestHeader("producers", []))
    answer = await client.ask(RequestCode.TRANSACTION_LIST, TransactionListRequestHeader(0, 1))
    page = decode_body(answer.body, TransactionList)
    (one,) = page.transactions
    assert (one.queue_offset, one.topic, one.uniq_key, one.producer_group) == (0, "T", "U0", "producers")
    assert (page.total, page.next_offset) == (2, 2)
    answer = await client.ask(RequestCode.TRANSACTION_LIST, TransactionListRequestHeader(2, 10))
    page = decode_body(answer.body, TransactionList)
    assert ([each.queue_offset for each in page.transactions], page.next_offset) == ([2], -1)
    table = json.loads((await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
    assert (table["halfMessagesPending"], table["transactionsCommitted"]) == ("2", "1")


async def test_while_the_page_cache_is_busy_a_decision_is_refused_and_kept_open(harness: Harness) -> None:
    """The answer says to try again; nothing is lost, and the next try ends it."""
    app = await harness.broker(store_settings={"os_page_cache_busy_timeout_mills": 30})
    client = await harness.client(app)
    place = await half(client)
    with app.store.log.lock.patient:
        answer = await end(client, place, COMMIT)
    assert (answer.code, answer.extra["cause"]) == (ResponseCode.SYSTEM_BUSY, "page_cache_busy")
    assert end_of(app, "T") == 0
    assert (await end(client, place, COMMIT)).code == 0
    assert end_of(app, "T") == 1


async def test_a_slave_ends_no_transaction(harness: Harness) -> None:
    """Code 11, as in RocketMQ, and no check service."""
    app = await harness.broker(store_settings={"broker_role": "SLAVE"}, broker_id=1)
    client = await harness.client(app)
    assert (await end(client, (0, 0), COMMIT)).code == ResponseCode.SLAVE_NOT_AVAILABLE
    assert app.transactions is None


async def test_under_sync_flush_a_decision_is_answered_when_it_is_on_disk(harness: Harness) -> None:
    """SUCCESS says that the message and its op message are flushed; oneway requests are carried out, too."""
    app = await harness.broker(store_settings={"flush_disk_type": "SYNC_FLUSH"})
    client = await harness.client(app)
    one, two = await half(client, b"one"), await half(client, b"two")
    assert (await end(client, one, COMMIT)).code == 0
    assert app.store.flushed_offset == app.store.appended_offset
    client.channel.send_oneway(
        RequestCode.END_TRANSACTION, EndTransactionRequestHeader("producers", two[0], two[1], COMMIT, "id")
    )
    assert [record.body for record in await pulled(client, "T", 2)] == [b"one", b"two"]


async def test_halves_in_a_write_buffer_can_be_committed(harness: Harness) -> None:
    """With the write-buffer pool: bytes not in the file yet are read from memory, or committed first."""
    settings = {"transient_store_pool_enable": True, "commit_interval_commit_log": 60_000}
    settings |= {"mapped_file_size_commit_log": 1 << 20, "wake_commit_when_put_message": False}
    app = await harness.broker(store_settings=settings)
    client = await harness.client(app)
    place = await half(client, b"buffered")
    assert app.transactions is not None
    for each in app.transactions.table.pending():
        each.record = None  # as if there had been no room for it
    assert (await end(client, place, COMMIT)).code == 0
    app.store.show_all()
    assert [record.body for record in await pulled(client, "T", 1)] == [b"buffered"]
