"""Why a request was refused, and what to do about it: one row for each ``Cause``.

Lives here: ``REFUSALS``, the table; ``find``, which takes a text or a code from a log. The broker takes its texts,
codes and moments from here, ``pocketmq doctor`` and the flow-control report their explanations and cures,
docs/sending.md its table, ``pocketmq explain`` what it says of a text.

Texts are RocketMQ's to the letter, as its format strings have them: ``%s`` and ``%d`` are filled with ``%``. Codes are
those of RocketMQ 5.3 (``pocketmq.remoting.codes.ResponseCode``), except where 4.9 answers another.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pocketmq.common.errors import Cause, Stored
from pocketmq.common.refusal_row import (
    RETRIED_SINCE_4_9,
    RETRIED_SINCE_5_3,
    Fault,
    Request,
    Retry,
    RetryAfter,
    Row,
    Side,
    Text,
    retried_by,
)

__all__ = [
    "CLIENTS_OWN",
    "REFUSALS",
    "RETRIED_SINCE_4_9",
    "RETRIED_SINCE_5_3",
    "Fault",
    "Match",
    "Retry",
    "RetryAfter",
    "Row",
    "Text",
    "find",
    "retried_by",
]

REJECT_REQUEST: Final = Text(
    "[REJECTREQUEST]system busy, start flow control for a while",
    2,
    source="NettyRemotingAbstract",
    scenario="reject-request",
)
OVERLOAD: Final = Text("[OVERLOAD]system busy, start flow control for a while", 2, source="NettyRemotingAbstract")
PAGE_CACHE_SWEPT: Final = Text(
    "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: %sms, size of queue: %d",
    2,
    source="BrokerFastFailure",
)
TIMEOUT_SWEPT: Final = Text(
    "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: %sms, size of queue: %d",
    2,
    source="BrokerFastFailure",
)
PAGE_CACHE_SYNCHRONIZED: Final = Text(
    "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
    2,
    code_4_9=1,
    source="SendMessageProcessor",
    scenario="pc-synchronized",
)
CREATE_FILE_FAILED: Final = Text(
    "create mapped file failed, server is busy or broken.", 1, source="SendMessageProcessor"
)
NOT_AVAILABLE: Final = Text("service not available now", 14)
STARTING: Final = Text("the broker is starting", 14)
SHUTTING_DOWN: Final = Text("the broker is shutting down", 14)
MASTER_REPLACED: Final = Text("service not available now: this master of %s was replaced", 14)
HANDED_OVER: Final = Text("service not available now: %s is being handed over to another master", 14)
READS_WAIT: Final = Text(
    "service not available now: %s serves no reads until its last messages are confirmed", 14, request=Request.PULL
)
TIMER_CONGESTED: Final = Text("timer message is under flow control, max num limit is %d for one second", 1)
HALF_TABLE_FULL: Final = Text(
    "transaction message is under flow control, %d half messages wait for a decision, limit %d", 2
)
HALF_SHARE_FULL: Final = Text(
    "transaction message is under flow control, %d half messages of group %s wait for a decision, its share is %d "
    "(a tenth of broker.transaction_pending_max)",
    2,
)
HALF_WITHOUT_PRODUCER: Final = Text(
    "transaction message is under flow control, %d half messages wait for a decision, and no producer of group %s is "
    "connected (broker.transaction_pending_max is %d)",
    2,
)

QUOTA_RATE: Final = Text(
    "[QUOTA]system busy, start flow control for a while: over the limit of %s: %s, %d a second (%s)", 2
)
QUOTA_CONNECTIONS: Final = Text("[QUOTA]connection refused: user %s has %d connections, limit %d", 2)
QUOTA_LOGINS: Final = Text("[QUOTA]not checked: more than %d wrong signatures a second from %s", 2)
QUOTA_CREATED: Final = Text("[QUOTA]%s not created: user %s has created %d, limit %d", 2)

BROKER_SENDS_FORBIDDEN: Final = Text("the broker[%s] sending message is forbidden", 16)
BROKER_HALVES_FORBIDDEN: Final = Text("the broker[%s] sending transaction message is forbidden", 16)
BROKER_PULLS_FORBIDDEN: Final = Text("the broker[%s] pulling message is forbidden", 16, request=Request.PULL)
TOPIC_SENDS_FORBIDDEN: Final = Text("the topic[%s] sending message is forbidden", 16)
TOPIC_PULLS_FORBIDDEN: Final = Text("the topic[%s] pulling message is forbidden", 16, request=Request.PULL)
SYSTEM_TOPIC_FORBIDDEN: Final = Text("Sending message to topic[%s] is forbidden.", 16)
BATCH_QUEUES_NOT_SERVED: Final = Text(
    "the topic[%s] sending message is forbidden, queue.type BatchCQ is not served", 16
)
GROUP_FORBIDDEN: Final = Text("subscription group no permission, %s", 16, request=Request.PULL)
BROADCAST_FORBIDDEN: Final = Text("the consumer group[%s] can not consume by broadcast way", 16, request=Request.PULL)
TOPIC_NOT_EXIST: Final = Text("topic[%s] not exist, apply first please!", 17)

MESSAGE_ILLEGAL: Final = Text("the message is illegal", 13)
SEND_QUEUE_ILLEGAL: Final = Text("request queueId[%s] is illegal, topic[%s] has %s queues", 29, code_4_9=1)
PULL_QUEUE_ILLEGAL: Final = Text(
    "queueId[%s] is illegal, topic:[%s] topicConfig.readQueueNums:[%s]", 29, code_4_9=1, request=Request.PULL
)
GROUP_NOT_EXIST: Final = Text("subscription group [%s] does not exist", 26, request=Request.PULL)
GROUP_INFO_NOT_EXIST: Final = Text("the consumer's group info not exist", 24, request=Request.PULL)
SUBSCRIPTION_NOT_EXIST: Final = Text("the consumer's subscription not exist", 24, request=Request.PULL)
SUBSCRIPTION_NOT_LATEST: Final = Text("the consumer's subscription not latest", 25, request=Request.PULL)
SUBSCRIPTION_NOT_PARSED: Final = Text("parse the consumer's subscription failed: %s", 23, request=Request.PULL)
FILTER_NOT_EXIST: Final = Text(
    "The broker's consumer filter data is not exist!Your expression may be wrong! %s", 27, request=Request.PULL
)
FILTER_NOT_SUPPORTED: Final = Text(
    "The broker does not support consumer to filter message by %s", 1, request=Request.PULL
)
DELAY_LEVEL_ILLEGAL: Final = Text("delay level %s is no number", 13)
DELAY_PROPERTY_ILLEGAL: Final = Text(
    "property %s is the broker's own, or of a feature that this broker does not have", 13
)
TIMERS_OFF: Final = Text("accurate timer message is not enabled, timerWheelEnable is false", 1)
TIMER_ILLEGAL: Final = Text("timer message illegal: %s=%s is no number of at most 18 digits", 13)
TIMER_TOO_FAR: Final = Text(
    "timer message illegal, the delay time should not be bigger than the max delay %dms: %s=%d is %d ms ahead", 13
)
HALF_GROUP_TOO_LONG: Final = Text("property PGROUP has %d characters, limit %d", 13)
HALF_WITHOUT_GROUP: Final = Text("property PGROUP is missing: no producer group can make or report the decision", 13)
HALF_DELAYED: Final = Text("a transactional message cannot be delayed: send it plain, or without the delay", 13)
HALF_IMMUNITY_ILLEGAL: Final = Text("property CHECK_IMMUNITY_TIME_IN_SECONDS is %s, no seconds up to seven days", 13)

AFTER_START: Final = RetryAfter(200, 200)
AFTER_ERROR: Final = RetryAfter(1000, 1000, "or what the store says")
ELSEWHERE: Final = RetryAfter(1000, 1000, "by then a client knows the route to another broker")
_SLOW_APPEND_CURE: Final = "Make the append quick: the write-buffer pool, a faster or less busy disk, more brokers."
_HIDES_IT: Final = (
    "raising os_page_cache_busy_timeout_mills, which hides that one append takes this long",
    "a longer send queue",
    "switching fast failure off: the broker then works for clients that gave up",
)

_ROWS: Final = (
    Row(
        cause=Cause.QUEUE_FULL,
        what="a queue is full",
        why="The queue in front of a worker is at its limit of requests or bytes.",
        texts=(
            OVERLOAD,
            Text("invokeAsyncImpl invoke too fast", 0, by=Side.CLIENT),
            Text("invokeOnewayImpl invoke too fast", 0, by=Side.CLIENT),
            Text("invokeAsyncImpl tryAcquire semaphore timeout, %dms, waiting thread nums: %d", 0, by=Side.CLIENT),
        ),
        retry_after=RetryAfter(100, 100, "half of the 200 ms that a send may wait in its queue"),
        fault=Fault.SERVER,
        cure="More brokers, a faster disk, batches or fewer senders; pocketmq doctor names the slow stage.",
        price="A further broker is a further machine; fewer senders take longer.",
        bad_cures=("a longer queue (send_thread_pool_queue_capacity): it delays the same end",),
        scenario="too-many-requests",
        area="send queue",
    ),
    Row(
        cause=Cause.QUEUE_TIMEOUT,
        what="requests waited too long in their queue",
        why="More arrives than is served, so requests are older than their queue allows when their turn comes.",
        texts=(TIMEOUT_SWEPT,),
        retry_after=RetryAfter(1, 1000, "the longest wait that the queue allows"),
        fault=Fault.SERVER,
        cure="More brokers, a faster disk, batches or fewer senders; pocketmq doctor names the slow stage.",
        price="A further broker is a further machine; fewer senders take longer.",
        bad_cures=(
            "raising wait_time_mills_in_send_queue: a stopgap for clients that do not try another broker after code 2; "
            "each send then waits longer for its refusal, and has less time left for another broker",
            "switching fast failure off: the broker then works for clients that gave up",
        ),
        scenario="timeout-clean-queue",
        area="send queue",
    ),
    Row(
        cause=Cause.PAGE_CACHE_BUSY,
        what="the page cache is busy",
        why="One append has held the append lock for longer than the limit, so everything behind it would wait as "
        "long. Refusing at once lets producers go to another broker.",
        texts=(REJECT_REQUEST, PAGE_CACHE_SWEPT, PAGE_CACHE_SYNCHRONIZED),
        retry_after=RetryAfter(100, 3000, "as long as the append lock is held already"),
        fault=Fault.SERVER,
        cure=_SLOW_APPEND_CURE,
        price="The pool loses what is not committed when the machine dies (in RocketMQ, already when the process "
        "dies) and takes locked memory; a further broker is a further machine.",
        bad_cures=_HIDES_IT,
        scenario="pcbusy",
        area="page cache",
    ),
    Row(
        cause=Cause.NO_WRITE_BUFFER,
        what="no write buffer is free",
        why="Every buffer of the write-buffer pool is full and not committed to its file yet: the disk takes less than "
        "producers send.",
        texts=(REJECT_REQUEST, CREATE_FILE_FAILED),
        retry_after=RetryAfter(1, 1000, "commit_interval_commit_log: buffers come back after a commit"),
        fault=Fault.SERVER,
        cure="Find why the commit is slow (pocketmq doctor disk DIR): a faster disk or more brokers.",
        price="A disk or a machine; each further buffer is locked memory as large as a file of the log.",
        bad_cures=("more buffers: they ride out a longer burst, not a disk that is too slow",),
        scenario="reject-request",
        area="pool",
    ),
    Row(
        cause=Cause.MEMORY_LIMIT,
        what="a limit on memory is reached",
        why="Requests, answers or a table of the broker take as much memory as they may: large frames, clients that "
        "do not read their answers, half messages without a decision, too many topics.",
        texts=(HALF_TABLE_FULL, HALF_SHARE_FULL, HALF_WITHOUT_PRODUCER),
        other_codes=(1,),
        retry_after=RetryAfter(0, 1000, "0 for a full table, which does not get room by itself"),
        fault=Fault.PEER,
        cure="The text names the limit. Find the clients that fill it in the remoting log; send smaller batches, pull "
        "fewer bytes, end transactions.",
        price="Smaller batches are more requests.",
    ),
    Row(
        cause=Cause.CONNECTION_LIMIT,
        what="there are too many connections",
        why="The limit of connections is reached; a new one is closed at once.",
        fault=Fault.PEER,
        cure="Share one client instance among the producers and consumers of a process; look for clients that leak "
        "connections.",
    ),
    Row(
        cause=Cause.QUOTA,
        what="a limit of a client, an address or a user is reached",
        why="A client, all clients of an address, or all connections of a user ask for more than the settings in "
        "[limits], or the user's own limits, allow. Others are served.",
        texts=(QUOTA_RATE, QUOTA_CONNECTIONS, QUOTA_LOGINS, QUOTA_CREATED),
        retry_after=RetryAfter(0, 60_000, "until the rate allows more; 0 for topics and groups, which stay created"),
        fault=Fault.CLIENT,
        cure="Send slower, or give the user more: pocketmq user update USER --quota bytes_in=10MiB, or the setting "
        "that the text names. Delete topics and groups that nobody uses.",
        bad_cures=("retrying at once: each refusal costs the client a round trip and stores nothing",),
    ),
    Row(
        cause=Cause.DISK_FULL,
        what="the disk is full",
        why="The file system of the store has no space, or its use is above the limit.",
        texts=(NOT_AVAILABLE,),
        retry_after=AFTER_ERROR,
        fault=Fault.OPERATOR,
        cure="Free space, or keep fewer messages (store.file_reserved_time); sends resume by themselves. Consumers go "
        "on meanwhile.",
        price="Messages that are kept for less time cannot be read again, or not at all by a group that is behind.",
        area="disk",
    ),
    Row(
        cause=Cause.DISK_ERROR,
        what="the disk fails calls",
        why="A call to the disk ended with an error, or a sync took too long.",
        texts=(NOT_AVAILABLE, CREATE_FILE_FAILED),
        stored=Stored.UNKNOWN,
        retry_after=AFTER_ERROR,
        fault=Fault.OPERATOR,
        cure="See the store_error log and the kernel log; check the disk.",
        area="disk",
    ),
    Row(
        cause=Cause.READ_ONLY,
        what="the file system is read-only",
        why="The kernel has remounted the file system read-only, most often after an error of the disk.",
        texts=(NOT_AVAILABLE,),
        retry_after=AFTER_ERROR,
        fault=Fault.OPERATOR,
        cure="See the kernel log (dmesg), repair or replace the disk, remount it.",
        price="The broker is away while its disk is replaced; a slave can be promoted meanwhile.",
        area="disk",
    ),
    Row(
        cause=Cause.FENCED,
        what="the log is fenced, or a queue's lock has passed on",
        why="A sync failed, so what was written before it may not be on disk, and nothing is acknowledged since. Of an "
        "offset commit (code 16): another consumer holds the lock of the queue.",
        texts=(NOT_AVAILABLE,),
        other_codes=(16,),
        stored=Stored.UNKNOWN,
        retry_after=AFTER_ERROR,
        fault=Fault.OPERATOR,
        cure="See the store_error log and the kernel log, repair the disk, then restart the broker: it reads the log "
        "again. A consumer that lost its lock has nothing to cure.",
        price="The restart: the broker reads its log again before it serves.",
        area="flush",
    ),
    Row(
        cause=Cause.FENCED_BY_EPOCH,
        what="another master has replaced this one",
        why="Another broker was promoted under this name; producers with an old route still come here.",
        texts=(MASTER_REPLACED,),
        stored=Stored.UNKNOWN,
        retry_after=ELSEWHERE,
        fault=Fault.OPERATOR,
        cure="Let it follow: pocketmq ha demote BROKER_NAME. Clients find the new master by themselves.",
        price="What only the old master has, and nobody confirmed, is cut.",
        scenario="network-cut",
        area="slaves",
    ),
    Row(
        cause=Cause.NOT_MASTER,
        what="this broker is a slave, or hands over to another master",
        why="Producers reached a broker that takes no writes.",
        texts=(
            REJECT_REQUEST,
            HANDED_OVER,
            READS_WAIT,
            Text("Transaction message is not ended on a slave broker", 11, request=Request.OTHER),
        ),
        retry_after=ELSEWHERE,
        fault=Fault.OPERATOR,
        cure="Check broker_id and broker_role, and the route of the topic.",
    ),
    Row(
        cause=Cause.SHUTTING_DOWN,
        what="the broker is starting or stopping",
        why="The broker was starting or stopping; producers go to another broker meanwhile.",
        texts=(STARTING, SHUTTING_DOWN),
        retry_after=RetryAfter(AFTER_START.ms_min, ELSEWHERE.ms_max, "200 ms while it starts"),
        fault=Fault.OPERATOR,
        cure="Nothing, if it was meant.",
    ),
    Row(
        cause=Cause.TIMER_CONGESTED,
        what="too many timers are due in one second",
        why="The second in which the message is due has as many messages as it may "
        "(store.timer_congest_num_each_slot).",
        texts=(TIMER_CONGESTED,),
        retry_after=AFTER_ERROR,
        fault=Fault.PEER,
        cure="Spread the delivery times over more seconds.",
        price="Some messages come a second or more later than asked for.",
    ),
    Row(
        cause=Cause.NO_PERMISSION,
        what="permission is missing",
        why="The topic, the consumer group or the broker does not allow what a client asked for.",
        texts=(
            BROKER_SENDS_FORBIDDEN,
            TOPIC_SENDS_FORBIDDEN,
            SYSTEM_TOPIC_FORBIDDEN,
            BATCH_QUEUES_NOT_SERVED,
            BROKER_HALVES_FORBIDDEN,
            BROKER_PULLS_FORBIDDEN,
            TOPIC_PULLS_FORBIDDEN,
            GROUP_FORBIDDEN,
            BROADCAST_FORBIDDEN,
        ),
        fault=Fault.CLIENT,
        cure="Look at the permission of the topic (pocketmq topic describe TOPIC), of the group and of the broker "
        "(broker.broker_permission).",
    ),
    Row(
        cause=Cause.NO_ROUTE,
        what="the topic does not exist",
        why="The broker, or the name server, does not know the topic, and does not create it.",
        texts=(
            TOPIC_NOT_EXIST,
            Text("No route info of this topic: %s", 10005, by=Side.PRODUCER),
            Text("No name server address, please set it.", 10004, by=Side.CLIENT),
        ),
        fault=Fault.CLIENT,
        cure="Create the topic (pocketmq topic create TOPIC), or correct its name, or the name server, in the client.",
        price="None, but a topic that is made for a misspelled name hides the mistake.",
    ),
    Row(
        cause=Cause.BAD_REQUEST,
        what="the request is not allowed as it is",
        why="A client sends what is not allowed, or what this version does not serve.",
        texts=(
            MESSAGE_ILLEGAL,
            SEND_QUEUE_ILLEGAL,
            PULL_QUEUE_ILLEGAL,
            GROUP_NOT_EXIST,
            GROUP_INFO_NOT_EXIST,
            SUBSCRIPTION_NOT_EXIST,
            SUBSCRIPTION_NOT_LATEST,
            SUBSCRIPTION_NOT_PARSED,
            FILTER_NOT_EXIST,
            FILTER_NOT_SUPPORTED,
            DELAY_LEVEL_ILLEGAL,
            DELAY_PROPERTY_ILLEGAL,
            TIMERS_OFF,
            TIMER_ILLEGAL,
            TIMER_TOO_FAR,
            HALF_WITHOUT_GROUP,
            HALF_GROUP_TOO_LONG,
            HALF_DELAYED,
            HALF_IMMUNITY_ILLEGAL,
            Text("Find prepared transaction message failed", 1, request=Request.OTHER),
        ),
        fault=Fault.CLIENT,
        cure="The text says what is wrong with the request; it is the client, or its settings, that must change.",
    ),
    Row(
        cause=Cause.CODEC,
        what="the bytes of the request cannot be read",
        why="A header, a body or a frame is not what its definition says.",
        texts=(Text("frame refused", 1),),
        fault=Fault.CLIENT,
        cure="Compare the client and its version with the clients in docs/compatibility.md, take another version, or "
        "report it with the text.",
    ),
    Row(
        cause=Cause.TIMEOUT,
        what="an answer did not come in time",
        why="A client, a slave or another broker did not answer within the time.",
        texts=(
            Text("sendDefaultImpl call timeout", 0, by=Side.PRODUCER),
            Text("sendSelectImpl call timeout", 0, by=Side.PRODUCER),
            Text("wait response on the channel <%s> timeout, %s(ms)", 10002, by=Side.CLIENT),
            Text("FLUSH_SLAVE_TIMEOUT", 12),
            Text("SLAVE_NOT_AVAILABLE", 11),
        ),
        stored=Stored.UNKNOWN,
        retry_after=AFTER_ERROR,
        fault=Fault.PEER,
        cure="Find the one that does not answer: pocketmq ha status for slaves, pocketmq doctor for brokers.",
        bad_cures=("a longer send timeout: a broker that refuses at once is hidden behind one that hangs",),
        scenario="slave-frozen",
    ),
    Row(
        cause=Cause.CONNECTION,
        what="a connection is missing or was lost",
        why="No connection could be made, it ended before the answer, or the client a reply is for is not connected.",
        texts=(
            Text("connect to <%s> failed", 10001, by=Side.CLIENT),
            Text("send request to <%s> failed", 10001, by=Side.CLIENT),
            Text("push reply message fail, channel of <%s> not found.", 1, request=Request.OTHER),
        ),
        stored=Stored.UNKNOWN,
        fault=Fault.PEER,
        cure="Check that the broker runs, and that the client reaches the address that the broker advertises.",
    ),
    Row(
        cause=Cause.CORRUPT,
        what="stored bytes are damaged",
        why="A record in the log does not have the size, the magic number or the checksum that it should have.",
        other_codes=(1, 14),
        fault=Fault.OPERATOR,
        cure="See the damaged range: pocketmq log verify DIR; check the disk. A slave may have the bytes.",
        area="disk",
    ),
    Row(
        cause=Cause.CONFIG,
        what="a setting is wrong",
        why="A setting is unknown, malformed or impossible together with another.",
        fault=Fault.OPERATOR,
        cure="Correct the setting that the text names.",
        never_from_broker="a program with a wrong setting does not start, so it refuses no request",
    ),
    Row(
        cause=Cause.INTERNAL,
        what="the broker has a fault of its own",
        why="An exception that nothing expects; the text names the line that raised it.",
        other_codes=(1,),
        stored=Stored.UNKNOWN,
        fault=Fault.SERVER,
        cure="Report it with the text, and see the broker's log at that time.",
    ),
    Row(
        cause=Cause.NONE,
        what="no cause is given",
        why="The broker gives none (RocketMQ never does), or a requester refused a reply itself.",
        other_codes=(1, 2),
        stored=Stored.UNKNOWN,
        fault=Fault.PEER,
        cure="Code and text say what they can; see the log of the broker, or of the requester, at that time.",
    ),
)

REFUSALS: Final[dict[Cause, Row]] = {row.cause: row for row in _ROWS}
"""The table, in the order of the documents."""
CLIENTS_OWN: Final = frozenset(row.cause.value for row in _ROWS if row.fault is Fault.CLIENT)
"""Values of the causes that are a client's mistake, no trouble of the broker."""


@dataclass(frozen=True)
class Match:
    """A row that fits. ``text``: which of its texts, None for a code or a cause; ``values``: what stands in the places
    of ``%s`` and ``%d``."""

    row: Row
    text: Text | None
    values: tuple[str, ...] = ()


def find(text_or_code: str) -> Iterator[Match]:
    """Yield what a client's text, the name of a cause or a response code may mean: of texts, those that fit best.

    >>> [match.row.cause.value for match in find("DESC: [OVERLOAD]system busy, start flow control for a while")]
    ['queue_full']
    >>> [match.row.cause.value for match in find("16")]
    ['fenced', 'no_permission']
    """
    asked = text_or_code.strip()
    named = [row for row in _ROWS if row.cause.value == asked or (asked.isdecimal() and int(asked) in row.codes)]
    if named:
        yield from (Match(row, None) for row in named)
        return
    found = [
        (text.template, Match(row, text, match.groups()))
        for row in _ROWS
        for text in row.texts
        if (match := text.pattern.search(asked)) is not None
    ]
    longest = max((len(template) for template, _ in found), default=0)
    yield from (match for template, match in found if len(template) == longest)
