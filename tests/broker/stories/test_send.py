"""Sends through a real broker: acknowledged messages can be read back, bad ones are refused with a reason."""

from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.common.message_id import parse_offset_msg_id
from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.conftest import Client, Harness, records_of, split_records


async def test_a_native_append_comes_back_with_every_field(broker: BrokerApp, client: Client) -> None:
    """The record is the client's own, with offsets, times and hosts filled in by the broker."""
    record = client.record("T", b"hello", 2, tags="A", keys=["k1"])
    response = await client.append(("T", 2, [record]))
    ((code, queue_offset, runs, remark),) = response.header.results
    assert (response.code, code, queue_offset, remark) == (0, 0, 0, "")
    assert runs[0][1] == 1
    pulled = await client.native_pull(("T", 2, 0), suspend_ms=5000)
    (stored,) = records_of(pulled)
    assert (stored.topic, stored.body, stored.queue_id, stored.queue_offset) == ("T", b"hello", 2, 0)
    assert stored.physical_offset == runs[0][0]
    assert stored.store_timestamp == response.header.store_timestamp
    assert stored.born_host[:4] == stored.store_host[:4] == bytes([127, 0, 0, 1])
    assert int.from_bytes(stored.store_host[4:], "big") == broker.port
    assert int.from_bytes(stored.born_host[4:], "big") not in (0, broker.port)
    assert stored.property_map()["KEYS"] == "k1"


async def test_sections_of_one_frame_stand_for_themselves(client: Client) -> None:
    """A bad section is refused with its reason; the good ones before and behind it are stored."""
    good = [client.record("T", b"%d" % n, 0) for n in range(3)]
    stranger = [client.record("other", b"x", 1)]
    later = [client.record("T", b"later", 1)]
    response = await client.append(("T", 0, good), ("T", 1, stranger), ("%RETRY%g", 0, [later[0]]), ("T", 1, later))
    codes = [result[0] for result in response.header.results]
    assert codes == [0, ResponseCode.MESSAGE_ILLEGAL, ResponseCode.TOPIC_NOT_EXIST, 0] or codes == [
        0,
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.MESSAGE_ILLEGAL,
        0,
    ]
    assert "topic" in response.header.results[1][3]
    assert await client.pull_bodies(queue_id=0, wanted=3) == [b"0", b"1", b"2"]
    assert await client.pull_bodies(queue_id=1, wanted=1) == [b"later"]


@pytest.mark.parametrize(
    ("queue_id", "make", "code", "text"),
    [
        (0, lambda record: record[:-1] + b"\xff", ResponseCode.MESSAGE_ILLEGAL, ""),
        (0, lambda record: record[:8] + b"\0\0\0\0" + record[12:], ResponseCode.MESSAGE_ILLEGAL, "CRC"),
        (0, lambda record: record[:12] + b"\0\0\0\7" + record[16:], ResponseCode.MESSAGE_ILLEGAL, "queue id 7"),
        (0, lambda record: b"\0\0\0\x10" + record[4:], ResponseCode.MESSAGE_ILLEGAL, "size"),
        (0, lambda record: record[:4] + b"\xde\xad\xbe\xef" + record[8:], ResponseCode.MESSAGE_ILLEGAL, "magic"),
        (64, lambda record: record, ResponseCode.INVALID_PARAMETER, "queueId[64] is illegal"),
        (-1, lambda record: record, ResponseCode.MESSAGE_ILLEGAL, "queue id -1"),
    ],
)
async def test_a_bad_record_is_refused_and_the_log_untouched(
    broker: BrokerApp, client: Client, queue_id: int, make: Any, code: int, text: str
) -> None:
    """Size, magic, CRC, queue: each has its text, and nothing is appended."""
    before = broker.store.appended_offset
    response = await client.append(("T", queue_id, [make(client.record("T", b"hello", max(0, queue_id)))]))
    assert response.code == code
    assert text in response.remark
    assert response.extra["cause"] == "bad_request"
    assert response.extra["stored"] == "no"
    assert broker.store.appended_offset == before


@pytest.mark.parametrize(
    "mangle",
    [
        lambda body: b"",
        lambda body: body[:3],
        lambda body: body[:-1],
        lambda body: body + b"x",
        lambda body: b"\xff" * len(body),
    ],
)
async def test_a_frame_whose_sizes_disagree_is_refused_whole(broker: BrokerApp, client: Client, mangle: Any) -> None:
    """Nothing in such a frame can be judged; the connection stays usable."""
    response = await client.append(("T", 0, [client.record()]), mangle=mangle)
    assert response.code == ResponseCode.MESSAGE_ILLEGAL
    assert broker.store.appended_offset == 0
    await client.put(b"fine")


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("no spaces", ResponseCode.INVALID_PARAMETER),
        ("x" * 128, ResponseCode.INVALID_PARAMETER),
        ("", ResponseCode.INVALID_PARAMETER),
        ("SCHEDULE_TOPIC_XXXX", ResponseCode.NO_PERMISSION),
        ("RMQ_SYS_TRANS_HALF_TOPIC", ResponseCode.NO_PERMISSION),
    ],
)
async def test_illegal_and_forbidden_topics(client: Client, topic: str, code: int) -> None:
    """RocketMQ's code and text for topics to which no client may send."""
    response = await client.send(topic)
    assert response.code == code
    assert response.remark


async def test_a_rocketmq_send_is_answered_as_rocketmq_does(broker: BrokerApp, client: Client) -> None:
    """The offset message id leads to the record; CLUSTER and, as 5.3, region and trace switch are added, not WAIT."""
    response = await client.send(
        body=b"typed", queue_id=1, properties="UNIQ_KEY\x01ABC\x02TAGS\x01t\x02WAIT\x01true\x02", flag=9
    )
    header = response.header
    assert (response.code, header.queue_id, header.queue_offset, header.transaction_id) == (0, 1, 0, "ABC")
    host, physical_offset = parse_offset_msg_id(header.msg_id)
    assert int.from_bytes(host[4:], "big") == broker.port
    pulled = await client.pull(queue_id=1, suspend_ms=5000)
    (stored,) = split_records(pulled.body)
    assert (stored.physical_offset, stored.body, stored.flag) == (physical_offset, b"typed", 9)
    assert stored.property_map() == {
        "UNIQ_KEY": "ABC",
        "TAGS": "t",
        "CLUSTER": "DefaultCluster",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


async def test_a_queue_below_zero_means_any(client: Client) -> None:
    """The broker chooses among the topic's write queues."""
    response = await client.send(queue_id=-1)
    assert response.code == 0
    assert 0 <= response.header.queue_id < 4


def batch_item(body: bytes, properties: bytes = b"") -> bytes:
    size = 22 + len(body) + len(properties)
    return (
        size.to_bytes(4, "big")
        + bytes(12)
        + len(body).to_bytes(4, "big")
        + body
        + len(properties).to_bytes(2, "big")
        + properties
    )


async def test_a_batch_is_one_run_of_offsets(client: Client) -> None:
    """Ids are joined by commas, offsets follow each other, each message keeps its own properties."""
    body = b"".join(batch_item(b"m%d" % n, b"UNIQ_KEY\x01U%d\x02" % n) for n in range(3))
    response = await client.send(body=body, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)
    assert response.code == 0
    assert response.header.queue_offset == 0
    offsets = [parse_offset_msg_id(each)[1] for each in response.header.msg_id.split(",")]
    pulled = await client.native_pull(("T", 0, 0), suspend_ms=5000)
    stored = records_of(pulled)
    assert [record.physical_offset for record in stored] == offsets
    assert [record.property_map()["UNIQ_KEY"] for record in stored] == ["U0", "U1", "U2"]
    assert [record.queue_offset for record in stored] == [0, 1, 2]


@pytest.mark.parametrize("cut", [1, 5, 21])
async def test_a_torn_batch_is_refused(broker: BrokerApp, client: Client, cut: Any) -> None:
    """Lengths that disagree store nothing."""
    response = await client.send(body=batch_item(b"x" * 30)[:-cut], code=RequestCode.SEND_BATCH_MESSAGE, batch=True)
    assert response.code == ResponseCode.MESSAGE_ILLEGAL
    assert broker.store.appended_offset == 0


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"sys_flag": 4}, "TRAN_MSG is not true"),
        ({"properties": "TRAN_MSG\x01true\x02"}, "PGROUP is missing"),
        ({"properties": "DELAY\x01three\x02"}, "no number"),
        ({"properties": "TIMER_DELAY_MS\x015ms\x02"}, "no number"),
        ({"properties": "TIMER_OUT_MS\x015\x02"}, "TIMER_OUT_MS"),
        ({"properties": "TIMER_DELAY_SEC\x01259201\x02"}, "bigger than the max delay 259200000ms"),
        ({"topic": f"%RETRY%{'g' * 121}"}, "group of 121 characters"),
        ({"body": b"x" * (4 * 1024 * 1024 + 1)}, "limit 4194304"),
        ({"properties": "k\x01" + "v" * 40_000 + "\x02"}, "properties"),
        ({"queue_id": 99}, "queueId[99] is illegal"),
    ],
)
async def test_what_is_not_stored_is_refused_with_the_reason(
    broker: BrokerApp, client: Client, fields: dict[str, Any], text: str
) -> None:
    """No fake success: unsupported kinds, and messages over the limits."""
    response = await client.send(**fields)
    assert response.code != 0
    assert text in response.remark
    assert broker.store.appended_offset == 0


async def test_rocketmq_and_native_sends_in_one_stream_keep_their_order(client: Client) -> None:
    """Pipelined on one connection, they land in the queue as they were sent."""
    import asyncio

    sends = []
    for n in range(60):
        body = b"%03d" % n
        send = client.send(body=body) if n % 3 else client.append(("T", 0, [client.record("T", body)]))
        sends.append(asyncio.ensure_future(send))
    responses = await asyncio.gather(*sends)
    assert {response.code for response in responses} == {0}
    assert await client.pull_bodies(wanted=60) == [b"%03d" % n for n in range(60)]


async def test_without_automatic_creation_an_unknown_topic_is_code_17(harness: Harness) -> None:
    """RocketMQ's text, and nothing is created."""
    app = await harness.broker(auto_create_topic_enable=False)
    client = await harness.client(app)
    response = await client.send("nothing")
    assert (response.code, response.remark) == (17, "topic[nothing] not exist, apply first please!")
    native = await client.append(("nothing", 0, [client.record("nothing")]))
    assert native.code == 17
    assert app.topics.get("nothing") is None


async def test_a_created_topic_is_on_disk_before_the_first_answer(
    broker: BrokerApp, client: Client, tmp_path: Path
) -> None:
    """After the acknowledgement topics.json names the topic."""
    await client.put(b"x", topic="fresh")
    assert b'"fresh"' in (tmp_path / "store" / "config" / "topics.json").read_bytes()
    assert broker.topics.snapshot()[0]["fresh"].write_queue_nums == 4


async def test_a_frame_larger_than_a_segment_is_refused_alone(harness: Harness) -> None:
    """Other sends of the same drain are stored."""
    import asyncio

    app = await harness.broker(store_settings={"mapped_file_size_commit_log": 1 << 20})
    client = await harness.client(app)
    big = [client.record(body=b"x" * 100_000) for _ in range(12)]
    answers = await asyncio.gather(
        client.append(("T", 0, [client.record(body=b"before")])),
        client.append(("T", 0, big)),
        client.append(("T", 0, [client.record(body=b"after")])),
    )
    assert [answer.header.results[0][0] if answer.code == 0 else answer.code for answer in answers] == [0, 13, 0]
    assert await client.pull_bodies(wanted=2) == [b"before", b"after"]


async def test_oneway_sends_are_stored_and_not_answered(client: Client) -> None:
    """The next answer belongs to the next request."""
    from pocketmq.remoting.protocol.send import NativeAppendRequestHeader

    record = client.record(body=b"oneway")
    header = NativeAppendRequestHeader("producers", False, [("T", 0, 1)], 0)
    client.channel.send_oneway(RequestCode.NATIVE_APPEND, header, len(record).to_bytes(4, "big") + record)
    assert await client.pull_bodies(wanted=1) == [b"oneway"]


async def test_synchronous_flush_answers_after_the_flush(harness: Harness) -> None:
    """With SYNC_FLUSH an acknowledged record is below the flushed watermark."""
    app = await harness.broker(store_settings={"flush_disk_type": "SYNC_FLUSH"})
    client = await harness.client(app)
    for n in range(3):
        response = await client.put(b"%d" % n)
        (run,) = response.header.results[0][2]
        assert app.store.flushed_offset > run[0]
    typed = await client.send(body=b"typed")
    assert typed.code == 0
    assert app.store.flushed_offset == app.store.appended_offset


async def test_a_refused_section_keeps_its_cause(broker: BrokerApp, client: Client) -> None:
    """A frame refused as a whole counts under its own cause, and refused sections of mixed frames count, too."""
    forbidden = ("SCHEDULE_TOPIC_XXXX", 0, [client.record("SCHEDULE_TOPIC_XXXX")])
    response = await client.append(forbidden)
    assert (response.code, response.extra["cause"]) == (ResponseCode.NO_PERMISSION, "no_permission")
    mixed = await client.append(("TopicTest", 0, [client.record("TopicTest")]), forbidden)
    assert [each[0] for each in mixed.header.results] == [0, ResponseCode.NO_PERMISSION]
    counted = {each.cause: each.total for each in broker.refusals.snapshot()}
    assert counted == {"no_permission": 2}
