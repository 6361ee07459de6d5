"""Texts of RocketMQ and the facts they give, each form that a version has; among them texts that no fault induced.

Texts marked "source" are taken from the constants of RocketMQ's classes (4.9.7, 5.3.3, older ones where named), not
from a log: the fault was not induced for ``rocketmq_logs``.
"""

import pytest

from pocketmq.pipeline.jobs.flow_control.facts import TROUBLES, Fact
from pocketmq.pipeline.jobs.flow_control.rocketmq.facts import Merged
from pocketmq.pipeline.jobs.flow_control.rocketmq.lines import Entry
from pocketmq.pipeline.jobs.flow_control.rocketmq.said import decoded


def facts(text: str, *extras: str, thread: str = "main", loud: bool = True, client_5: bool = False) -> list[Fact]:
    """Return the facts of one entry."""
    merged = Merged()
    entry = Entry(1, 1_795_445_000_000, loud, thread.encode(), text.encode(), client_5, [x.encode() for x in extras])
    return [fact for _, _, fact in [*merged.add(entry), *merged.end()]]


@pytest.mark.parametrize(
    ("text", "thread", "name"),
    [
        ("transfer messsage to slave timeout, 12345", "GroupTransferService", "flush_slave_timeout"),  # source: 4.3
        (  # source: 5.3
            "transfer message to slave timeout, offset : 12345, request acks: 2",
            "GroupTransferService",
            "flush_slave_timeout",
        ),
        (  # source: 4.5
            "do sync transfer other node, wait return, but failed, topic: T tags: null client address: 10.0.0.1",
            "SendMessageThread_1",
            "flush_slave_timeout",
        ),
        (  # source: 4.5
            "do groupcommit, wait for flush failed, topic: T tags: null client address: 10.0.0.1",
            "SendMessageThread_1",
            "flush_disk_timeout",
        ),
        # the rest of the list: source
        ("create mmap timeout /store/commitlog/00000000001073741824 1073741824", "main", "create_mapped_file_timeout"),
        ("create mapped file1 error, topic: T clientAddr: /10.0.0.1:1", "main", "create_mapped_file_failed"),
        ("Create mapped file2 error, topic: T clientAddr: /10.0.0.1:1", "main", "create_mapped_file_failed"),
        ("logics disk maybe full soon 0.91, so mark disk full", "StoreScheduledThread1", "disk_full"),
        ("Error occurred when append message to mappedFile.", "SendMessageThread_1", "append_failed"),
        ("Error occurred when append message to mappedFile.", "HAClient", "slave_disk_failed"),
        ("Error occurred when commit data to FileChannel.", "CommitRealTimeService", "commit_failed"),
        ("ha housekeeping, found this connection[/10.0.0.2:1] expired, 20001", "ReadSocket", "slave_disconnected"),
        ("HAClient, housekeeping, found this connection[10.0.0.1:1] expired, 20001", "HAClient", "slave_lost_master"),
    ],
)  # fmt: skip
def test_events(text: str, thread: str, name: str) -> None:
    """One event, which is evidence in a chain; those that are trouble make an incident by themselves."""
    [fact] = facts(text, thread=thread)
    assert (fact.kind, fact.name, fact.count) == ("event", name, 1)
    assert (name in TROUBLES) == (name not in ("create_mapped_file_timeout", "slave_disconnected", "slave_lost_master"))


def test_a_full_send_queue() -> None:
    """RocketMQ's broker logs this refusal, only in milliseconds that end with 0000 (source: NettyRemotingAbstract)."""
    text = (
        "10.0.0.1:41234, too many requests and system thread pool busy, RejectedExecutionException "
        "java.util.concurrent.ThreadPoolExecutor@1 request code: 10"
    )
    event, refusal = facts(text)
    assert event.name == "thread_pool_busy"
    assert (refusal.kind, refusal.cause, refusal.tag) == ("refusal", "queue_full", "OVERLOAD")


@pytest.mark.parametrize(
    ("text", "again", "client_5"),
    [
        ("CODE: 2  DESC: [OVERLOAD]system busy, start flow control for a while", 0, False),
        ("CODE: 2  DESC: [OVERLOAD]system busy, start flow control for a while BROKER: 10.0.0.1:10911", 1, True),
        ("CODE: 1  DESC: [PC_SYNCHRONIZED]broker busy, start flow control for a while", 1, False),
    ],
)
def test_who_tries_a_refused_send_again(text: str, again: int, client_5: bool) -> None:
    """A client of 4.9 ends at code 2, one of 5.3 goes on; both log "resend at once"."""
    head = "sendKernelImpl exception, resend at once, InvokeID: 1, RT: 3ms, Broker: MessageQueue [topic=T, brokerName=b, queueId=0]"  # noqa: E501
    exception = f"org.apache.rocketmq.client.exception.MQBrokerException: {text}"
    refusal, attempt = facts(head, exception, client_5=client_5)
    assert refusal.kind == "refusal"
    assert (attempt.again, attempt.ended, attempt.target) == (again, 1 - again, "b")


def test_what_an_application_logs_when_all_attempts_failed() -> None:
    """The last broker of the list, and the reason below."""
    _, attempt = facts(
        "order failed",
        "org.apache.rocketmq.client.exception.MQClientException: Send [3] times, still failed, cost [6011]ms, "
        "Topic: T, BrokersSent: [b-1, b-2, b-1]",
        "Caused by: org.apache.rocketmq.client.exception.MQBrokerException: CODE: 14  DESC: service not available now. "
        "It may be caused by one of the following reasons: the broker's disk is full [CL:  0.91 CQ:  0.91 INDEX:  "
        "0.91], messages are put to the slave, message store has been shut down, etc.",
    )
    assert (attempt.target, attempt.code, attempt.ended, attempt.value) == ("b-1", 14, 1, 6011)


def test_the_times_of_puts() -> None:
    """[PAGECACHERT] counts puts by their time: percentiles are the upper ends of ranges."""
    text = (
        "[PAGECACHERT] TotalPut 1000, PutMessageDistributeTime [<=0ms]:900 [0~10ms]:80 [10~50ms]:5 [50~100ms]:0 "
        "[100~200ms]:0 [200~500ms]:0 [500ms~1s]:10 [1~2s]:5 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:0 "
    )
    stage, total = facts(text, loud=False)
    assert (stage.name, stage.count, stage.p50, stage.p99, stage.value) == ("append", 1000, 1.0, 1000.0, 2000.0)
    assert (total.name, total.count) == ("put_count", 1000)


def test_equal_lines_of_a_second_are_one_row_with_the_longest_time() -> None:
    """A thousand lines that differ in digits cost little and lose nothing that a chain shows."""
    merged = Merged()
    found: list[tuple[int, int, Fact]] = []
    for ms in range(0, 3000, 3):
        text = b"[NOTIFYME]putMessage in lock cost time(ms)=%d, bodyLength=1" % (500 + ms % 1000)
        found += merged.add(Entry(ms, 1_795_445_000_000 + ms, True, b"x", text))
    found += merged.end()
    assert [(fact.count, fact.value) for _, _, fact in found] == [(334, 1499.0), (333, 1498.0), (333, 1497.0)]
    assert [at_ms % 10_000 // 1000 for _, at_ms, _ in found] == [0, 1, 2]


def test_an_unknown_warning_is_counted() -> None:
    """It is no evidence, but the table of minutes has it."""
    [fact] = facts("something that nobody knows")
    assert (fact.kind, fact.count) == ("other", 1)
    assert facts("something that nobody knows", loud=False) == []


def test_text_is_decoded_also_when_it_was_cut() -> None:
    """UTF-8 with a torn last character stays UTF-8; GBK is recognized."""
    assert decoded("写入失败".encode()[:-1]) == "写入失"
    assert decoded("写入失败".encode("gbk")) == "写入失败"
    assert decoded(b"\xff\xff\xff") == "\ufffd\ufffd\ufffd"
