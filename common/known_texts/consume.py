"""What RocketMQ's consumers say when messages do not come, or are not consumed; and the classes of exceptions.

Lives here: ``CONSUME_ROWS``; ``CLASS_ROWS``, which know only the class of an exception. A row's ``source`` is the class
of RocketMQ that has the texts (4.9.8 and 5.3.3, other versions where marked).
"""

from typing import Final

from pocketmq.common.errors import Cause, Stored
from pocketmq.common.known_texts.words import NO_ONE, PULL_AGAIN, of_refusals, texts
from pocketmq.common.refusal_row import Fault, Request, Row, Side, Text

CONSUME_ROWS: Final = (
    Row(
        cause=Cause.BAD_REQUEST,
        key="subscription_not_latest",
        what="the broker knows an older subscription of the group than the consumer that pulls",
        why="The consumer has just changed its subscription and the next heartbeat (every 30 s) brings it. If it goes "
        "on, members of one group subscribe to different topics or tags, and each heartbeat replaces the other's.",
        texts=(of_refusals("the consumer's subscription not latest"),),
        retried=PULL_AGAIN,
        fault=Fault.CLIENT,
        cure="Nothing, if it ends within a minute. Else give every member of the group the same subscriptions, or the "
        "odd ones a group of their own.",
        docs="docs/consuming.md#sharing-queues",
        source="PullMessageProcessor",
    ),
    Row(
        cause=Cause.BAD_REQUEST,
        key="subscription_not_exist",
        what="the broker does not know that the group consumes this topic",
        why="No heartbeat of the group has come (the broker restarted, or the consumer has just started), or another "
        "member of the group subscribes to other topics, and its heartbeat replaced this one.",
        texts=(
            of_refusals("the consumer's group info not exist"),
            of_refusals("the consumer's subscription not exist"),
        ),
        retried=PULL_AGAIN,
        fault=Fault.CLIENT,
        cure="Nothing, if it ends within a minute. Else give every member of the group the same subscriptions: "
        "pocketmq group describe GROUP lists the members.",
        docs="docs/consuming.md#sharing-queues",
        source="PullMessageProcessor",
    ),
    Row(
        cause=Cause.NO_PERMISSION,
        key="group_not_exist",
        what="the consumer group does not exist at the broker",
        why="It was never created there, and autoCreateSubscriptionGroup is off.",
        texts=(
            of_refusals("subscription group [%s] does not exist"),
            Text("subscription group not exist, %s", 26, request=Request.OTHER),
        ),
        retried=PULL_AGAIN,
        fault=Fault.OPERATOR,
        cure="Create the group on every broker of the topic (mqadmin updateSubGroup), or switch the creation on.",
        docs="docs/sending.md#bad_request",
        source="PullMessageProcessor, AbstractSendMessageProcessor",
    ),
    Row(
        cause=Cause.BAD_REQUEST,
        key="offset_illegal",
        what="the consumer asked for an offset that the queue does not have",
        why="The messages are removed already (the group was away for longer than fileReservedTime, or the disk was "
        "full), or the broker lost the end of its log (a promotion, a power loss, another store under its name).",
        texts=(
            *texts(
                Side.CONSUMER,
                "OFFSET_ILLEGAL",
                "the pull request offset illegal",
                "fix the pull request offset",
                request=Request.PULL,
            ),
            *texts(
                Side.BROKER,
                "PULL_OFFSET_MOVED",
                "OFFSET_OVERFLOW_BADLY",
                "OFFSET_TOO_SMALL",
                "OFFSET_MOVED_EVENT",
                code=21,
                request=Request.PULL,
            ),
            Text("Seek offset illegal, seek offset = %s", by=Side.CONSUMER, request=Request.PULL),
        ),
        retried="the consumer goes on at the nearest offset that exists (RocketMQ after 10 s, PocketMQ at once)",
        fault=Fault.OPERATOR,
        cure="See what was skipped: pocketmq topic describe TOPIC has the first and last offsets, pocketmq group "
        "describe GROUP the group's. Keep messages for longer than consumers may be away (store.file_reserved_time).",
        price="Disk: twice the time is twice the space.",
        docs="docs/consuming.md#where-a-group-starts",
        source="DefaultMQPushConsumerImpl, PullMessageProcessor",
    ),
    Row(
        cause=Cause.NONE,
        key="reconsume_later",
        what="the application's handler did not consume the message, so that it comes again",
        why="The handler returned RECONSUME_LATER (SUSPEND_CURRENT_QUEUE_A_MOMENT in order) or null, or raised. The "
        "broker is well; the reason stands in the application's log.",
        texts=texts(
            Side.CONSUMER,
            "RECONSUME_LATER",
            "SUSPEND_CURRENT_QUEUE_A_MOMENT",
            "consumeMessage return null, Group: %s",
            "consumeMessage Orderly return not OK, Group: %s",
            "consumeMessage exception: %s Group: %s",
            request=Request.PULL,
        ),
        retried="the group: after 10 s, 30 s, 1 min, … 2 h, 16 times, then the message is a dead letter; in order: the "
        "same message again after a second, with its queue waiting behind it",
        fault=Fault.CLIENT,
        cure="Find the handler's error. What can never succeed belongs among the dead letters at once "
        "(return DeadLetter(reason) here, delayLevelWhenNextConsume = -1 in RocketMQ).",
        bad_cures=("swallowing the error: the message counts as consumed and is gone",),
        docs="docs/consuming.md#retries-and-dead-letters",
        source="ConsumeMessageConcurrentlyService, ConsumeMessageOrderlyService",
    ),
    Row(
        cause=Cause.CONNECTION,
        key="send_back_failed",
        what="a failed message could not be handed back to its broker",
        why="The broker that has the message does not answer, or refuses it. RocketMQ's consumer then sends a copy to "
        "the retry topic itself, or keeps the message and handles it again after 5 s.",
        texts=texts(
            Side.CONSUMER,
            "sendMessageBack exception, group: %s",
            "sendMessageBack Exception, %s",
            request=Request.PULL,
        ),
        retried="the consumer: it handles the message again after 5 s",
        fault=Fault.PEER,
        cure="Find out why the broker does not answer; handlers must take a repeated message.",
        docs="docs/consuming.md#retries-and-dead-letters",
        source="DefaultMQPushConsumerImpl",
    ),
    Row(
        cause=Cause.QUEUE_FULL,
        key="consumer_flow_control",
        what="the consumer has stopped pulling for a moment because its own buffer is full",
        why="It holds more messages than pullThresholdForQueue (1,000), more bytes (100 MiB) or a wider span (2,000) "
        "than it may: handlers are slower than messages come. The broker is not involved.",
        texts=texts(
            Side.CONSUMER,
            "the cached message count exceeds the threshold %s, so do flow control",
            "the cached message size exceeds the threshold %s, so do flow control",
            "the queue's messages, span too long, so do flow control",
            "The consume request count exceeds threshold %s, so do flow control",
            "the messages waiting to ack exceeds the threshold %s, so do flow control",
            request=Request.PULL,
        ),
        retried="the consumer: it looks again every 50 ms and pulls as soon as there is room",
        fault=Fault.CLIENT,
        cure="Make the handlers quicker, or run more of them: threads, consumers up to one a queue. A wide span is one "
        "message that hangs.",
        bad_cures=("higher thresholds: more memory, and more messages that are repeated after a crash",),
        docs="docs/consuming.md#limits",
        source="DefaultMQPushConsumerImpl, DefaultLitePullConsumerImpl",
    ),
    Row(
        cause=Cause.MEMORY_LIMIT,
        key="cold_data",
        what="the broker slows down a group that reads old messages",
        why="The group's messages are no longer in the page cache, and coldDataFlowControlEnable is on.",
        texts=(Text("This consumer group is reading cold data. It has been flow control", 2, request=Request.PULL),),
        retried=PULL_AGAIN,
        fault=Fault.CLIENT,
        cure="Wait, or let the group catch up at a time when the disk is free.",
        bad_cures=("switching it off: the reads then take the disk from the writers",),
        docs="docs/consuming.md#limits",
        source="PullMessageProcessor (5.x)",
    ),
    Row(
        cause=Cause.CONNECTION,
        key="not_online",
        what="no such consumer is connected",
        why="An administrator's command asks a running consumer, through its broker. It is not connected to it, or its "
        "client id has changed with a restart.",
        texts=texts(
            Side.BROKER,
            "The Consumer <%s> <%s> not online",
            "the consumer group[%s] not online",
            "no consumer for this group, %s",
            "No Any Consumer online in the consumer group: [%s]",
            code=206,
            request=Request.OTHER,
        ),
        retried=NO_ONE,
        fault=Fault.CLIENT,
        cure="See who is connected: pocketmq group describe GROUP.",
        docs="docs/consuming.md#what-a-consumer-does-now",
        source="AdminBrokerProcessor, ConsumerManageProcessor",
    ),
    Row(
        cause=Cause.NO_ROUTE,
        key="offset_not_found",
        what="the group has no offset in this queue yet",
        why="It consumes the queue for the first time; then consumeFromWhere says where it starts.",
        texts=texts(
            Side.BROKER,
            "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
            "Not found, maybe this group consumer boot first",
            code=22,
            request=Request.OTHER,
        ),
        retried=NO_ONE,
        fault=Fault.CLIENT,
        cure="Nothing.",
        docs="docs/consuming.md#where-a-group-starts",
        source="ConsumerManageProcessor",
    ),
)

CLASS_ROWS: Final = (
    Row(
        cause=Cause.NONE,
        key="exception_of_a_client",
        what="a client's call failed with an exception of this class",
        why="The class alone says only which part failed: MQBrokerException is an answer of the broker with a code, "
        "MQClientException the client itself, the Remoting exceptions the connection.",
        texts=texts(
            Side.CLIENT,
            "MQBrokerException",
            "MQClientException",
            "RemotingTooMuchRequestException",
            "RemotingTimeoutException",
            "RemotingConnectException",
            "RemotingSendRequestException",
            "RemotingCommandException",
            "RequestTimeoutException",
            "AclException",
            "SubCommandException",
        ),
        stored=Stored.UNKNOWN,
        retried="it depends on the text behind the class",
        fault=Fault.PEER,
        cure="Paste the text behind the class as well: CODE, DESC, and the lines that begin with Caused by.",
        docs="docs/sending.md#sendfailed-it-was-not-delivered",
        source="org.apache.rocketmq.client.exception, org.apache.rocketmq.remoting.exception",
        wraps=True,
    ),
)
