"""RocketMQ's admin tools on PocketMQ: single messages."""

import re
from pathlib import Path

from tests.interop.mqadmin import Output
from tests.interop.mqadmin_site import MESSAGES, ONLINE, QUEUES, TOPIC, Site
from tests.interop.python_side import create_topic, new_name, read_topic
from tests.interop.toolchain import wait_until

INDEX = 6


def offset_id(mq: Site, index: int) -> str:
    """Return the offset message id of a receipt."""
    return mq.message(index).offset_msg_id


def topic_words(mq: Site) -> list[str]:
    """5.3 needs the topic of an id, too."""
    return ["-t", TOPIC] if mq.admin.is_5 else []


def check_details(mq: Site, output: Output) -> None:
    """The details of the message ``INDEX``."""
    details, ours = output.settings, mq.message(INDEX)
    assert details["Topic"] == TOPIC
    assert details["Tags"] == f"[{ours.tags}]"
    assert details["Keys"] == f"[key-{INDEX}]"
    assert (int(details["Queue ID"]), int(details["Queue Offset"])) == (ours.queue_id, ours.queue_offset)
    assert details["Store Host"] == mq.server.broker
    assert "color=red" in details["Properties"]
    assert f"UNIQ_KEY={ours.msg_id}" in details["Properties"]
    kept = Path(details["Message Body Path"])  # RocketMQ chose this place
    assert kept.read_bytes() == ours.body
    kept.unlink()
    assert f"MessageTrack [consumerGroup={ONLINE}, trackType=CONSUMED, exceptionDesc=null]" in output.out


def test_query_by_id(mq: Site) -> None:
    """By the offset message id; it also lists the groups that have consumed it."""
    output = mq.admin.run("queryMsgById", "-i", offset_id(mq, INDEX), *topic_words(mq))
    assert output.settings["OffsetID"] == offset_id(mq, INDEX)
    check_details(mq, output)


def test_query_by_unique_key(mq: Site) -> None:
    """By the id that the producer made."""
    check_details(mq, mq.admin.run("queryMsgByUniqueKey", "-i", mq.receipts[INDEX].msg_id, "-t", TOPIC))


def test_query_by_key(mq: Site) -> None:
    """By a key of the application."""
    [row] = mq.admin.ok("queryMsgByKey", "-t", TOPIC, "-k", f"key-{INDEX}").rows
    ours = mq.message(INDEX)
    assert (row["Message ID"], row["QID"], row["Offset"]) == (ours.msg_id, str(ours.queue_id), str(ours.queue_offset))


def test_query_by_offset(mq: Site) -> None:
    """By queue and queue offset."""
    ours = mq.message(INDEX)
    where = ["-b", "broker-a", "-i", str(ours.queue_id), "-o", str(ours.queue_offset)]
    details = mq.admin.run("queryMsgByOffset", "-t", TOPIC, *where).settings
    assert details["OffsetID"] == offset_id(mq, INDEX)
    Path(details["Message Body Path"]).unlink()


def test_what_is_not_there(mq: Site) -> None:
    """RocketMQ's answers to unknown ids and keys."""
    no_key = mq.admin.run("queryMsgByKey", "-t", TOPIC, "-k", "nope").err
    assert "CODE: 208" in no_key
    no_unique = mq.admin.run("queryMsgByUniqueKey", "-t", TOPIC, "-i", mq.receipts[0].msg_id[:-4] + "FFFF").err
    assert "CODE: 208" in no_unique
    no_id = mq.admin.run("queryMsgById", "-i", offset_id(mq, 0)[:-4] + "FFF0", *topic_words(mq)).err
    assert ("CODE: 208" if mq.admin.is_5 else "can not find message by the offset") in no_id


def test_direct_consumption(mq: Site) -> None:
    """One member of a group gets a message through the broker."""
    for words in (
        ["queryMsgById", "-i", offset_id(mq, INDEX), *topic_words(mq)],
        ["queryMsgByUniqueKey", "-i", mq.receipts[INDEX].msg_id, "-t", TOPIC],
    ):
        output = mq.admin.ok(*words, "-g", ONLINE, "-d", mq.client_id)
        assert "consumeResult=CR_SUCCESS" in output.out, output
    error = mq.admin.run(
        "queryMsgByUniqueKey", "-i", mq.receipts[INDEX].msg_id, "-t", TOPIC, "-g", ONLINE, "-d", "nobody"
    )
    expected = "get consumer runtime info for nobody client failed" if mq.admin.is_5 else "<nobody> not online"
    assert expected in error.out + error.err, error


def printed(output: Output) -> list[str]:
    """Return the unique ids in the output of printMsg and similar commands."""
    return re.findall(r"MSGID: (\S+) MessageExt", output.out)


def test_print_messages(mq: Site) -> None:
    """All messages of a topic, of a tag, of one queue."""
    ids = {receipt.msg_id for receipt in mq.receipts}
    output = mq.admin.ok("printMsg", "-t", TOPIC, "-d", "true")
    assert set(printed(output)) == ids
    assert len(printed(output)) == MESSAGES
    assert "BODY: body-0" in output.out
    assert output.out.count("minOffset=0, maxOffset=5") == QUEUES
    tagged = printed(mq.admin.ok("printMsg", "-t", TOPIC, "-s", "TagA"))
    assert set(tagged) == {receipt.msg_id for index, receipt in enumerate(mq.receipts) if index // QUEUES % 2}
    one_queue = mq.admin.ok("printMsgByQueue", "-t", TOPIC, "-a", "broker-a", "-i", "1", "-p", "true", "-f", "true")
    assert printed(one_queue) == [receipt.msg_id for receipt in mq.receipts if receipt.queue_id == 1]
    counts = dict(re.findall(r"Tag: (\S+)\s+Count: (\d+)", one_queue.out))
    assert counts == {"TagA": "2", "TagB": "3"}


def test_consume_messages(mq: Site) -> None:
    """From the oldest message of a queue on, and from an offset."""
    output = mq.admin.ok("consumeMessage", "-t", TOPIC, "-b", "broker-a", "-i", "1", "-o", "2", "-c", "2")
    assert "Consume ok" in output.out
    assert printed(output) == [receipt.msg_id for receipt in mq.receipts if receipt.queue_id == 1][2:4]
    assert len(printed(mq.admin.ok("consumeMessage", "-t", TOPIC, "-c", "3"))) == 3


def test_a_consume_queue(mq: Site) -> None:
    """The entries of the queue; with a group, whether its filter lets them pass."""
    output = mq.admin.ok("queryCq", "-t", TOPIC, "-q", "0", "-i", "1", "-c", "3")
    assert "max: 5, min: 0" in output.lines
    places = [int(place) for place in re.findall(r"physicOffset=(\d+)", output.out)]
    ours = [mq.message(index) for index, receipt in enumerate(mq.receipts) if receipt.queue_id == 0]
    assert places == [message.physical_offset for message in ours][1:4]
    output = mq.admin.ok("queryCq", "-t", TOPIC, "-q", "0", "-i", "1", "-c", "2", "-b", mq.server.broker, "-g", ONLINE)
    assert output.out.count("eval=true") == 2
    assert '"subString":"*"' in output.out
    assert "9@Orders is not exist!" in mq.admin.run("queryCq", "-t", TOPIC, "-q", "9", "-i", "0", "-c", "1").err


def test_sends_of_the_tools(mq: Site) -> None:
    """sendMessage, a resend by id, and the two commands that measure sends; all messages are there afterwards."""
    topic = new_name("FromTools")
    create_topic(mq.server.namesrv, topic, 1)
    [row] = mq.admin.ok("sendMessage", "-t", topic, "-p", "hello", "-k", "kk", "-c", "TagX").rows
    assert (row["Broker Name"], row["Send Result"]) == ("broker-a", "SEND_OK")
    mq.admin.ok("sendMessage", "-t", topic, "-p", "direct", "-b", "broker-a", "-i", "0")
    times = mq.admin.ok("checkMsgSendRT", "-t", topic, "-a", "3", "-s", "100")
    assert [row["Send Result"] for row in times.rows] == ["true"] * 3
    messages = read_topic(mq.server.namesrv, topic)
    assert [message.body for message in messages[:2]] == [b"hello", b"direct"]
    assert (messages[0].msg_id, messages[0].tags, messages[0].keys) == (row["MsgId"], "TagX", ["kk"])
    assert [len(message.body) for message in messages[2:]] == [100] * 3
    words = ["-t", topic] if mq.admin.is_5 else []
    resent = mq.admin.ok("queryMsgById", "-i", messages[0].offset_msg_id, *words, "-s", "true")
    assert "SEND_OK" in resent.out
    assert [message.body for message in read_topic(mq.server.namesrv, topic)].count(b"hello") == 2
    status = mq.admin.ok("sendMsgStatus", "-b", "broker-a", "-s", "10", "-c", "2").out
    assert status.count("sendStatus=SEND_OK") == 2


def test_a_message_trace(mq: Site) -> None:
    """The trace finds a traced send of the tools."""
    topic = new_name("Traced")
    create_topic(mq.server.namesrv, topic, 1)
    [row] = mq.admin.ok("sendMessage", "-t", topic, "-p", "traced", "-m", "true").rows
    found: list[Output] = []

    def is_there() -> bool:
        found.append(mq.admin.run("queryMsgTraceById", "-i", row["MsgId"]))
        return found[-1].is_ok

    wait_until(is_there, 20, "the trace")
    [trace] = found[-1].rows
    assert (trace["Type"], trace["ProducerGroup"] != "", trace["Status"]) == ("Pub", True, "success"), found[-1]
