"""What the lines of the incidents mean: which row, stored or not, who sends again, which exception led to which."""

import pytest

from pocketmq.common.errors import Stored
from pocketmq.common.known_texts.explanation import Explanation, explain, explain_line, retried_words
from pocketmq.common.refusal_row import Side

INCIDENTS = [
    (
        "MQBrokerException:CODE:2 DESC:[TIMEOUT_CLEAN_QUEUE]broker busy,start flow control for a while,"
        "period in queue:235ms,size of queue:875",
        "queue_timeout",
        Stored.NO,
        ("235", "875"),
    ),
    ("[REJECTREQUEST]system busy, start flow control for a while", "page_cache_busy", Stored.NO, ()),
    (
        "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: %sms, size of queue: %d",
        "page_cache_busy",
        Stored.NO,
        ("%s", "%d"),
    ),
    ("[PC_SYNCHRONIZED]broker busy, start flow control for a while", "page_cache_busy", Stored.NO, ()),
    (
        "org.apache.rocketmq.remoting.exception.RemotingTooMuchRequestException: sendDefaultImpl call timeout",
        "send_timeout",
        Stored.UNKNOWN,
        (),
    ),
    (
        "sendKernelImpl exception, resend at once, InvokeID: %s, RT: %sms, Broker: %s",
        "attempt_failed",
        Stored.UNKNOWN,
        ("%s", "%s", "%s"),
    ),
    (
        "2021-07-01 07:11:47 WARN AdminBrokerThread_10 - tryLockBatch, message queue locked by other client. Group: G "
        "OtherClientId: 10.0.0.6@29 NewClientId: 10.0.0.122@29 MessageQueue [topic=T, brokerName=broker-2, queueId=5]",
        "queue_locked_by_other",
        None,
        (),
    ),
    (
        "tryLock, message queue lock expired, I got it. Group: G OldClientId: … NewClientId: … MessageQueue […]",
        "queue_lock_expired",
        None,
        (),
    ),
    ("transfer messsage to slave timeout, …", "flush_slave_timeout", Stored.YES, ("...",)),
    ("too many requests and system thread pool busy, RejectedExecutionException", "thread_pool_busy", Stored.NO, ()),
    ("MQClientException: No route info of this topic: TopicTest", "no_route_info", Stored.NO, ("TopicTest",)),
    ("MQClientException: Send [3] times, still failed, cost [3005]ms, Topic: T", "all_attempts_failed", None, None),
    ("RemotingConnectException: connect to 10.0.0.1:10911 failed", "connect_failed", Stored.NO, ("10.0.0.1:10911",)),
    ("wait response on the channel <10.0.0.1:10911> timeout, 3000(ms)", "no_answer", Stored.UNKNOWN, None),
    ("CODE: 25  DESC: the consumer's subscription not latest", "subscription_not_latest", None, ()),
    (
        "CODE: 1  DESC: org.apache.rocketmq.acl.common.AclException: No accessKey is configured, org.apache…",
        "access_denied",
        Stored.NO,
        (),
    ),
    (
        "CODE: 14  DESC: service not available now, maybe disk full, CL:  0.91 CQ:  0.91 INDEX:  0.91, maybe your "
        "broker machine memory too small.",
        "store_not_writable",
        Stored.NO,
        ("CL:  0.91 CQ:  0.91 INDEX:  0.91",),
    ),
    ("putMessage failed: OS_PAGECACHE_BUSY", "os_page_cache_busy", Stored.NO, ()),
    ("CODE: 1  DESC: create mapped file failed, server is busy or broken.", "create_file_failed", Stored.NO, ()),
    ("SendResult [sendStatus=FLUSH_DISK_TIMEOUT, msgId=0A]", "flush_disk_timeout", Stored.YES, ()),
    ("SendResult [sendStatus=FLUSH_SLAVE_TIMEOUT, msgId=0A]", "flush_slave_timeout", Stored.YES, ()),
    ("SendResult [sendStatus=SLAVE_NOT_AVAILABLE, msgId=0A]", "slave_not_available", Stored.YES, ()),
    ("the pull request offset illegal, PullRequest [consumerGroup=G] …", "offset_illegal", None, ()),
    ("consumeMessage return RECONSUME_LATER", "reconsume_later", None, ()),
]
"""A line, the row that explains it, stored or not, the values in it (None: not compared)."""


@pytest.mark.parametrize(("line", "name", "stored", "values"), INCIDENTS, ids=[row[1] for row in INCIDENTS])
def test_a_line_of_an_incident_is_explained(
    line: str, name: str, stored: Stored | None, values: tuple[str, ...] | None
) -> None:
    """The line alone, and in the middle of a log."""
    each = explain_line(line)
    assert each is not None
    assert each.rows[0].name == name
    if name != "all_attempts_failed":
        assert each.stored is stored
    if values is not None:
        assert each.values == values
    (found,) = explain(["2024-05-01 12:00:00 INFO x - all is well", line, "2024-05-01 12:00:00 INFO x - as before"])
    assert found.key == each.key


def names(found: list[Explanation]) -> list[str]:
    return [each.rows[0].name if each.rows else each.key for each in found]


def test_of_a_java_trace_the_innermost_known_cause_is_explained() -> None:
    trace = """\
MQClientException: Send [3] times, still failed, cost [614]ms, Topic: T, BrokersSent: []
See http://rocketmq.apache.org/docs/faq/ for further details.
	at org.apache.rocketmq.client.impl.producer.DefaultMQProducerImpl.sendDefaultImpl(DefaultMQProducerImpl.java:681)
Caused by: org.apache.rocketmq.remoting.exception.RemotingConnectException: connect to 10.0.0.1:10911 failed
	at org.apache.rocketmq.remoting.netty.NettyRemotingClient.invokeSync(NettyRemotingClient.java:394)
Caused by: java.net.ConnectException: Connection refused
	... 12 more"""
    (each,) = explain(trace.splitlines())
    assert each.rows[0].name == "connection_of_the_system"
    assert [outer.partition(" ")[0] for outer in each.outer] == ["Send", "connect"]


def test_a_cause_belongs_to_the_exception_above_it_alone() -> None:
    """Another record, or an exception that nobody knows, stands between the two."""
    lines = ["transfer messsage to slave timeout, 17", "java.lang.Strange: x", "Caused by: No space left on device"]
    assert names(explain(lines)) == ["flush_slave_timeout", "disk_nearly_full"]
    again = ["connect to <a:1> failed", "x", "connect to <a:1> failed", "\tat b", "Caused by: Connection refused"]
    assert names(explain(again)) == ["connect_failed", "connection_of_the_system"]
    assert [each.times for each in explain(again)] == [1, 1]


def test_a_cause_that_nobody_knows_leaves_the_one_that_is_known() -> None:
    trace = ["RemotingSendRequestException: send request to <10.0.0.1:10911> failed", "Caused by: a.b.C: strange"]
    assert names(explain(trace)) == ["connection_lost"]


def test_a_line_of_a_log_goes_with_the_exception_below_it() -> None:
    """RocketMQ's producer logs the attempt, and the exception on the next line."""
    (each,) = explain(
        [
            "2024-05-01 12:00:00 WARN - sendKernelImpl exception, resend at once, InvokeID: 1, RT: 3ms, Broker: Q [a]",
            "org.apache.rocketmq.client.exception.MQBrokerException: CODE: 2  DESC: [OVERLOAD]system busy, star…",
            "2024-05-01 12:00:01 WARN - something else",
        ]
    )
    assert each.rows[0].name == "queue_full"
    assert each.outer[0].startswith("sendKernelImpl exception, resend at once")


def test_a_record_later_is_not_the_cause_of_one_before() -> None:
    found = explain(
        [
            "2024-05-01 12:00:00 WARN - sendKernelImpl exception, resend at once, InvokeID: 1, RT: 3ms, Broker: Q [a]",
            "2024-05-01 12:00:01 WARN - transfer messsage to slave timeout, 17",
        ]
    )
    assert names(found) == ["attempt_failed", "flush_slave_timeout"]


def test_a_traceback_of_our_sdk_names_what_the_cause_led_to() -> None:
    """Python shows the cause first."""
    (each,) = explain(
        [
            "Traceback (most recent call last):",
            '  File "x.py", line 1, in <module>',
            "pocketmq.client.errors.BrokerUnavailable: refused: 10.0.0.1:1 answered 2 [OVERLOAD]system busy, start "
            "flow control for a while",
            "",
            "The above exception was the direct cause of the following exception:",
            "",
            "pocketmq.client.errors.SendFailed: Send [2] times, still failed, cost [3]ms, Topic: T, BrokersSent: [b]",
            "  1. b [10.0.0.1:1] answer code 2 after 1 ms: [OVERLOAD]system busy, start flow control for a while ["
            "cause queue_full, stored no, retry after 100 ms]",
        ]
    )
    assert (each.rows[0].name, each.times, each.stored) == ("queue_full", 2, Stored.NO)
    assert each.outer[0].startswith("Send [2] times")


def test_of_a_failed_send_the_attempts_are_explained() -> None:
    """The error above them only says that they failed, and that the time is over."""
    found = explain(
        [
            "pocketmq.client.errors.SendTimeout: sendDefaultImpl call timeout; Send [3] times, still failed, cost",
            "  1. a [10.0.0.1:1] answer code 2 after 1 ms: [OVERLOAD]system busy, start flow control for a while ["
            "cause queue_full, stored no]",
            "  2. b [10.0.0.2:1] connect after 5 ms: cannot connect to 10.0.0.2:1 failed: Connection refused",
            "  3. a [10.0.0.1:1] answer code 2 after 1 ms: [OVERLOAD]system busy, start flow control for a while ["
            "cause queue_full, stored no]",
        ]
    )
    assert names(found) == ["queue_full", "connect_failed"]
    assert [each.times for each in found] == [2, 1]
    for each in found:
        assert [outer.partition(" ")[0] for outer in each.outer] == ["sendDefaultImpl", "Send"]


def test_attempts_that_nobody_knows_leave_the_error_above_them() -> None:
    found = explain(["SendTimeout: sendDefaultImpl call timeout", "  1. a [10.0.0.1:1] send after 5 ms: strange"])
    assert names(found) == ["send_timeout"]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (
            "pocketmq.client.errors.NoNameServer: no name server at 127.0.0.1:1: connection refused",
            "sdk_no_name_server",
        ),
        ("pocketmq.common.errors.MessageIllegal: message refused, field body: 5 bytes", "sdk_message_refused"),
        ("pocketmq.client.durable.errors.NotSafe: message for T is NOT safe", "sdk_not_safe"),
        ("pocketmq.client.admin.admin.NotFound: strange", None),
        ("pocketmq.client.errors.ClientError: strange", "exception_of_pocketmq"),
    ],
)
def test_an_exception_of_our_sdk_is_known_by_its_class(line: str, name: str | None) -> None:
    """What the system said about it is a detail."""
    assert names(explain(["Traceback (most recent call last):", line])) == ([name] if name else [])


def test_each_text_once_and_in_order() -> None:
    found = explain(
        ["FLUSH_DISK_TIMEOUT", "RECONSUME_LATER", "FLUSH_DISK_TIMEOUT", "do groupcommit, wait for flush failed"]
    )
    assert names(found) == ["flush_disk_timeout", "reconsume_later"]
    assert [each.times for each in found] == [3, 1]


def test_a_line_of_our_own_log_is_one_thing() -> None:
    """The name of the event and RocketMQ's text mean the same; a text that carries another one is not the answer."""
    event = '{"event":"flush_slave_timeout","text":"transfer messsage to slave timeout, 17","waiters":3}'
    (each,) = explain([event])
    assert (each.key, each.times) == ("flush_slave_timeout", 1)
    attempt = "text='sendKernelImpl exception, resend at once, InvokeID: 1, RT: 3ms, Broker: b, CODE: 2  DESC: "
    line = explain_line(attempt + "[OVERLOAD]system busy, start flow control for a while'")
    assert line is not None
    assert line.rows[0].name == "queue_full"


def test_the_cause_beside_a_text_says_which_it_is() -> None:
    """Three causes have the text [REJECTREQUEST]."""
    text = "[REJECTREQUEST]system busy, start flow control for a while"
    alone = explain_line(text)
    assert alone is not None
    assert [row.name for row in alone.rows] == ["page_cache_busy", "no_write_buffer", "not_master"]
    for line in (
        f"answer code 2 after 1 ms: {text} [cause no_write_buffer, stored no]",
        f'{{"event":"refused_no_write_buffer","remark":"{text}"}}',
        f"refused_no_write_buffer remark='{text}'",
    ):
        each = explain_line(line)
        assert each is not None
        assert [row.name for row in each.rows] == ["no_write_buffer"]


def test_what_the_text_says_about_the_store_counts() -> None:
    each = explain_line("answer code 14 after 9 ms: service not available now [cause disk_error, stored yes]")
    assert each is not None
    assert each.stored is Stored.YES
    assert [row.name for row in each.rows] == ["disk_error"]


def test_a_code_with_an_unknown_text_is_explained_by_the_code() -> None:
    (each,) = explain(["org.apache.rocketmq.client.exception.MQBrokerException: CODE: 215  DESC: strange"])
    assert ([code.name for code in each.codes], each.rows) == (["FLOW_CONTROL"], ())
    (each,) = explain(["the status was NO_PERMISSION this time"])
    assert [code.number for code in each.codes] == [16]


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("CODE: 17  DESC: strange", 17),
        ("CODE:17 DESC:strange", 17),
        ('{"event":"x","code":17}', 17),
        ("x remark=strange code=17", 17),
        ("a [h:1] answer code 17 after 3 ms: strange", 17),
        ("org.x: responseCode: 17", 17),
        ("refused: h:1 answered 17 strange", 17),
        ("the process ended with exit code 1", None),
        ("exit code=1", None),
        ("his area code 17 is", None),
    ],
)
def test_where_a_code_stands(line: str, number: int | None) -> None:
    assert [code.number for each in explain([line]) for code in each.codes] == ([] if number is None else [number])


@pytest.mark.parametrize(
    ("beside", "stored"),
    [
        (" [cause disk_error, stored yes]", Stored.YES),
        (' "stored":"no"}', Stored.NO),
        (" stored=unknown", Stored.UNKNOWN),
        (" and it stored no more than this", Stored.UNKNOWN),
    ],
)
def test_where_stored_stands(beside: str, stored: Stored) -> None:
    """Prose says nothing about it."""
    each = explain_line(f"wait response on the channel <h:1> timeout, 5(ms){beside}")
    assert each is not None
    assert each.stored is stored


def test_a_class_alone_is_better_than_nothing() -> None:
    (each,) = explain(["org.apache.rocketmq.client.exception.MQBrokerException: strange"])
    assert each.rows[0].name == "exception_of_a_client"


def test_who_sends_again_depends_on_version_and_code() -> None:
    """PC_SYNCHRONIZED is retried by all, since its code was another one before 5.3."""
    assert retried_words(2).startswith("RocketMQ 4.9 to 5.2: no")
    assert "addRetryResponseCode(2)" in retried_words(2)
    assert retried_words(13) == "no client: the send ends with it"
    assert "asynchronous ones of RocketMQ up to" in retried_words(10002), "no answer, but an exception of the client"
    assert retried_words(12).startswith("no client by default, since the message is stored")
    each = explain_line("[PC_SYNCHRONIZED]broker busy, start flow control for a while")
    assert each is not None
    assert each.retried.startswith("synchronous sends of RocketMQ 4.9 to 5.2 (there the code is 1), RocketMQ 5.3")


def test_it_says_who_wrote_a_text() -> None:
    for line, side in (
        ("[OVERLOAD]system busy, start flow control for a while", Side.BROKER),
        ("transfer messsage to slave timeout, 1", Side.BROKER_LOG),
        ("No topic route info in name server for the topic: T", Side.NAME_SERVER),
        ("sendDefaultImpl call timeout", Side.PRODUCER),
        ("RECONSUME_LATER", Side.CONSUMER),
    ):
        each = explain_line(line)
        assert each is not None
        assert each.by is side


def test_a_text_across_the_pieces_of_a_long_line_is_found() -> None:
    text = "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 5ms, size of queue: 6"
    for at in range(2900, 4200, 50):
        (each,) = explain(["x " * (at // 2) + text + " y" * 5000])
        assert each.whole
