"""What RocketMQ's producers say when a send fails: exceptions and log lines, with cause and cure.

Lives here: ``SEND_ROWS``. A row's ``source`` is the class of RocketMQ that has the texts (4.9.8 and 5.3.3, other
versions where marked).
"""

from typing import Final

from pocketmq.common.errors import Cause, Stored
from pocketmq.common.known_texts.words import NOT_AGAIN, SYNC_AGAIN, of_refusals, texts
from pocketmq.common.refusal_row import Fault, Request, Row, Side, Text

SEND_ROWS: Final = (
    Row(
        cause=Cause.TIMEOUT,
        key="send_timeout",
        what="the time of the whole send was over before a broker had stored the message, as far as the producer knows",
        why="sendMsgTimeout (3 s) is one limit for all attempts. When the first attempt gets no answer for that long, "
        "no time is left for another broker, so this text hides a broker that hangs: its disk, the slave that a "
        "SYNC_MASTER waits for, a pause of the Java machine, or the network.",
        texts=(
            of_refusals("sendDefaultImpl call timeout"),
            of_refusals("sendSelectImpl call timeout"),
            *texts(Side.PRODUCER, "sendKernelImpl call timeout", "sendMessage call timeout"),
            *texts(Side.CLIENT, "invokeAsync call the addr[%s] timeout", "invokeSync call the addr[%s] timeout"),
        ),
        stored=Stored.UNKNOWN,
        retried=NOT_AGAIN,
        fault=Fault.PEER,
        cure="Find what hangs: pocketmq doctor, or the broker's store log (in lock cost time, [PAGECACHERT]) and the "
        "lag of its slave. On a SYNC_MASTER with RocketMQ a smaller haSlaveFallbehindMax lets sends end at once with "
        "SLAVE_NOT_AVAILABLE. Bound one attempt: send_msg_max_timeout_per_request_ms in PocketMQ (which does it by "
        "itself), sendMsgMaxTimeoutPerRequest in RocketMQ 5.3. Consumers must take a repeated message.",
        price="With a small haSlaveFallbehindMax a short pause of the slave leaves messages on the master only; a "
        "short limit for each attempt makes second copies while a broker is merely slow.",
        bad_cures=(
            "a longer sendMsgTimeout: the application hangs longer, and behind a slave that does not move no time is "
            "long enough",
            "sending again without looking: the message may be stored already",
        ),
        scenario="slave-readonly",
        docs="docs/sending.md#one-attempt-must-not-eat-the-time-of-the-next",
        source="DefaultMQProducerImpl, MQClientAPIImpl, NettyRemotingClient",
    ),
    Row(
        cause=Cause.QUEUE_FULL,
        key="async_send_queue",
        what="the producer itself could not start the asynchronous send in time",
        why="Asynchronous sends wait in the producer's own executor (one thread a core, a queue of 50,000). They wait "
        "longer than sendMsgTimeout, or the queue is full: the application sends faster than its brokers answer.",
        texts=texts(Side.PRODUCER, "DEFAULT ASYNC send call timeout", "executor rejected"),
        retried=NOT_AGAIN,
        fault=Fault.CLIENT,
        cure="Bound the sends in flight (a semaphore; enableBackpressureForAsyncMode in 5.x), or use batches; then "
        "look for the broker that is slow.",
        price="The application waits where it did not before.",
        bad_cures=("a longer timeout or a larger executor: both only keep more messages in memory",),
        scenario="too-many-requests",
        docs="docs/sending.md#options",
        source="DefaultMQProducerImpl",
    ),
    Row(
        cause=Cause.QUEUE_FULL,
        key="too_many_in_flight",
        what="the client has as many requests without an answer as it may",
        why="A client takes 65,535 asynchronous and as many oneway requests at a time; 5.x also counts messages and "
        "bytes with enableBackpressureForAsyncMode. Nothing of this request left the process.",
        texts=(
            of_refusals("invokeAsyncImpl invoke too fast"),
            of_refusals("invokeOnewayImpl invoke too fast"),
            of_refusals("invokeAsyncImpl tryAcquire semaphore timeout, %dms, waiting thread nums: %d"),
            *texts(
                Side.CLIENT,
                "invokeOnewayImpl tryAcquire semaphore timeout, %dms, waiting thread nums: %d",
                "send message tryAcquire semaphoreAsyncNum timeout",
                "send message tryAcquire semaphoreAsyncSize timeout",
            ),
        ),
        retried=NOT_AGAIN,
        fault=Fault.CLIENT,
        cure="Send no faster than answers come back; then look for the broker that answers slowly.",
        bad_cures=("more permits (com.rocketmq.remoting.clientAsyncSemaphoreValue): memory for the same end",),
        docs="docs/sending.md#options",
        source="NettyRemotingAbstract, DefaultMQProducerImpl",
    ),
    Row(
        cause=Cause.NONE,
        key="all_attempts_failed",
        what="every attempt of the send failed",
        why="The exception only counts the attempts. The reason is that of the last one: its cause, in the trace "
        "below, or its response code.",
        texts=texts(Side.PRODUCER, "Send [%d] times, still failed, cost [%d]ms, Topic: %s, BrokersSent: %s"),
        stored=Stored.UNKNOWN,
        retried="no client: these were all attempts",
        fault=Fault.PEER,
        cure="Explain the cause below it. One broker's name several times says that the topic is on that broker alone.",
        docs="docs/sending.md#sendfailed-it-was-not-delivered",
        source="DefaultMQProducerImpl",
        wraps=True,
    ),
    Row(
        cause=Cause.NONE,
        key="attempt_failed",
        what="one attempt of a send failed",
        why="The producer logs each failed attempt with this line. RocketMQ writes 'resend at once' for every error, "
        "also where it does not send again: after a response code outside of retryResponseCodes the send ends here.",
        texts=texts(
            Side.PRODUCER,
            "sendKernelImpl exception, resend at once, InvokeID: %s, RT: %sms, Broker: %s",
            "sendKernelImpl exception, throw exception, InvokeID: %s, RT: %sms, Broker: %s",
        ),
        stored=Stored.UNKNOWN,
        retried="it depends on the error below the line: exceptions of the connection always, answers by their code",
        fault=Fault.PEER,
        cure="Explain the error below it. The line names the broker and its queue.",
        scenario="retry-codes",
        docs="docs/sending.md#sendfailed-it-was-not-delivered",
        source="DefaultMQProducerImpl",
        wraps=True,
    ),
    Row(
        cause=Cause.NO_ROUTE,
        key="no_route_info",
        what="the client found no broker for the topic",
        why="The name server has no route: the topic does not exist and no broker creates topics "
        "(autoCreateTopicEnable), its broker is not registered (any more), or the client asks another name server than "
        "the brokers register with.",
        texts=(
            of_refusals("No route info of this topic: %s"),
            Text("No route info for this topic, %s", 10005, by=Side.PRODUCER),
            Text("No topic route info in name server for the topic: %s", 17, by=Side.NAME_SERVER),
            *texts(
                Side.CLIENT,
                "Can not find Message Queue for this topic, %s",
                "The topic[%s] not matched route info",
                "but the topic[%s] not exist.",
            ),
        ),
        retried="RocketMQ: no client, the send ends at once. PocketMQ waits within the timeout of the send",
        fault=Fault.CLIENT,
        cure="Compare the name server's address in client and broker; pocketmq topic list and pocketmq brokers show "
        "what it knows. Create the topic (pocketmq topic create TOPIC).",
        price="None; a topic that is made for a misspelled name hides the mistake.",
        bad_cures=("autoCreateTopicEnable in production: the topic appears on one broker, with few queues",),
        docs="docs/sending.md#no_route",
        source="DefaultMQProducerImpl, RouteInfoManager",
    ),
    Row(
        cause=Cause.CONNECTION,
        key="no_name_server",
        what="no name server can be asked",
        why="None was given to the client, or none of those given can be reached; then RocketMQ connects to 'null'.",
        texts=(
            of_refusals("No name server address, please set it."),
            *texts(Side.CLIENT, "connect to null failed", "connect to <null> failed"),
            Text("name server not ready", 1, by=Side.NAME_SERVER),
        ),
        retried="RocketMQ: no client, the send ends at once. PocketMQ waits within the timeout of the send",
        fault=Fault.CLIENT,
        cure="Set the address (NAMESRV_ADDR or setNamesrvAddr in RocketMQ, POCKETMQ_NAMESRV or namesrv= here), and "
        "check that its port is open from the client's machine.",
        docs="docs/sending.md#no_route",
        source="DefaultMQProducerImpl, NettyRemotingClient",
    ),
    Row(
        cause=Cause.TIMEOUT,
        key="no_answer",
        what="a request got no answer in its time",
        why="The request has left, and the broker may have carried it out. It hangs, its answer is late, or the "
        "network drops packets. RocketMQ closes the connection with it (clientCloseSocketIfTimeout).",
        texts=(
            of_refusals("wait response on the channel <%s> timeout, %s(ms)"),
            *texts(
                Side.CLIENT,
                "wait response timeout %sms",
                "wait response from %s timeout :%sms",
                "invokeAsyncImpl call timeout",
                "no answer from %s to %s: %d ms passed, the limit was %d ms",
                code=10002,
            ),
        ),
        stored=Stored.UNKNOWN,
        retried=SYNC_AGAIN,
        fault=Fault.PEER,
        cure="Look at the broker at that time: pocketmq doctor; pauses of the Java machine; the lag of a synchronous "
        "slave. Consumers must take a repeated message.",
        bad_cures=("a longer timeout: the broker still hangs, and the application with it",),
        scenario="slave-frozen",
        docs="docs/sending.md#timeout",
        source="RemotingTimeoutException, MQClientAPIImpl; PocketMQ: pocketmq.remoting.channel",
    ),
    Row(
        cause=Cause.CONNECTION,
        key="connect_failed",
        what="no connection to the broker could be made",
        why="The broker does not run, its port is closed for the client, or it registered an address that the client "
        "cannot reach (a container's, or one of another network card).",
        texts=(
            of_refusals("connect to <%s> failed"),
            *texts(Side.CLIENT, "connect to %s failed", "cannot connect to %s", code=10001),
        ),
        retried=SYNC_AGAIN,
        fault=Fault.OPERATOR,
        cure="Compare the address in the text with pocketmq brokers: it is the one that the broker registers "
        "(brokerIP1 in RocketMQ, --advertise or broker.broker_ip1 here). Where the broker cannot be changed, the "
        "client can look elsewhere: POCKETMQ_BROKER_ADDRESSES (docs/deployment.md). With vipChannelEnabled the port is "
        "two lower: 10909.",
        docs="docs/sending.md#connection",
        source="RemotingConnectException; PocketMQ: pocketmq.remoting.channel",
    ),
    Row(
        cause=Cause.CONNECTION,
        key="connection_lost",
        what="the connection broke while the request was on its way",
        why="The broker ended, a device between the two dropped the connection (120 s without traffic end it, too), or "
        "the frame was not accepted.",
        texts=(
            of_refusals("send request to <%s> failed"),
            *texts(
                Side.CLIENT,
                "send request failed to %s. Request",
                "send request failed",
                "connection to %s lost",
                code=10001,
            ),
        ),
        stored=Stored.UNKNOWN,
        retried=SYNC_AGAIN,
        fault=Fault.PEER,
        cure="See the broker's remoting log at that time: it names the reason it closed the connection for.",
        docs="docs/sending.md#connection",
        source="RemotingSendRequestException, MQClientAPIImpl; PocketMQ: pocketmq.remoting.channel",
    ),
    Row(
        cause=Cause.NO_ROUTE,
        key="broker_unknown",
        what="the queue names a broker that the client does not know",
        why="The broker is no longer in the route, has no master, or the queue was made by hand.",
        texts=texts(Side.CLIENT, "The broker[%s] not exist", code=10003),
        retried=SYNC_AGAIN,
        fault=Fault.PEER,
        cure="See pocketmq brokers; routes are asked for again every 30 s.",
        docs="docs/sending.md#brokers-and-name-servers-that-start-or-restart",
        source="DefaultMQProducerImpl, PullAPIWrapper",
    ),
    Row(
        cause=Cause.BAD_REQUEST,
        key="message_illegal",
        what="the message may not be sent as it is",
        why="Its body is empty or larger than maxMessageSize (4 MiB), its properties exceed 32 KB, or its topic has a "
        "name that RocketMQ does not allow.",
        texts=(
            Text("the message body size over max value, MAX: %d", 13, by=Side.PRODUCER),
            Text("the message body is null", 13, by=Side.PRODUCER),
            Text("the message body length is zero", 13, by=Side.PRODUCER),
            Text("The specified topic is blank", by=Side.PRODUCER),
            Text("The specified topic[%s] contains illegal characters, allowing only", by=Side.PRODUCER),
            Text("The specified topic is longer than topic max length", by=Side.PRODUCER),
            Text("The topic[%s] is conflict with system topic.", by=Side.PRODUCER),
            Text("the message is illegal, maybe msg body or properties length not matched.", 13),
            Text("PROPERTIES_SIZE_EXCEEDED", 13, by=Side.BROKER_LOG),
            Text("MESSAGE_ILLEGAL", 13),
        ),
        fault=Fault.CLIENT,
        cure="Change the message: it will never be accepted as it is. What is large belongs in a file or an object "
        "store, and its address in the message.",
        bad_cures=("a larger maxMessageSize: producer, broker and consumer need it, and every copy carries it",),
        docs="docs/sending.md#bad_request",
        source="Validators, SendMessageProcessor",
    ),
    Row(
        cause=Cause.SHUTTING_DOWN,
        key="client_not_running",
        what="the producer or consumer is not running",
        why="It was not started, is stopped, or a second one of the same group was started in this process.",
        texts=texts(
            Side.CLIENT,
            "The producer service state not OK",
            "The consumer service state not OK",
            "The PushConsumer service state not OK",
            "The PullConsumer service state not OK",
            "The consumer is not in running status",
            "The producer group[%s] has been created before, specify another name please.",
            "The consumer group[%s] has been created before, specify another name please.",
        ),
        fault=Fault.CLIENT,
        cure="Start it once, before the first call, and share it; in one process give each client its own group or "
        "instanceName.",
        docs="docs/sending.md#shutting_down",
        source="DefaultMQProducerImpl, DefaultMQPushConsumerImpl",
    ),
    Row(
        cause=Cause.TIMEOUT,
        key="no_reply",
        what="the request message was sent, and no reply came in its time",
        why="No consumer took the request in time, its reply failed, or the requester had connected to another broker "
        "than the one that got the reply.",
        texts=texts(
            Side.PRODUCER,
            "send request message to <%s> OK, but wait reply message timeout, %s ms.",
            "request timeout, no reply message.",
            code=10006,
        ),
        stored=Stored.YES,
        retried="no client: a second request could do the work twice",
        fault=Fault.PEER,
        cure="Check that a consumer of the topic runs and replies in time; then ask again with the same business id.",
        docs="docs/message-kinds.md",
        source="DefaultMQProducerImpl",
    ),
    Row(
        cause=Cause.BAD_REQUEST,
        key="reply_not_created",
        what="no reply can be made of the message",
        why="It was not sent as a request: the property that says where replies go is missing.",
        texts=texts(
            Side.CONSUMER, "create reply message fail, requestMessage error, property[%s] is null.", code=10007
        ),
        retried=NOT_AGAIN,
        fault=Fault.CLIENT,
        cure="Reply only to messages that came through request().",
        docs="docs/message-kinds.md",
        source="MessageUtil",
    ),
    Row(
        cause=Cause.INTERNAL,
        key="transaction_not_ended",
        what="the broker did not get the decision on a transaction",
        why="The half message is stored and invisible; the broker will ask a producer of the group for the decision.",
        texts=(
            *texts(
                Side.PRODUCER,
                "local transaction execute %s, but end broker transaction failed",
                "pick transactionListener by group[%s] failed",
                "pick transactionCheckListener by group[%s] failed",
                request=Request.OTHER,
            ),
            *texts(
                Side.BROKER,
                "The transaction state table offset wrong",
                "The commit log offset wrong",
                "The producer group wrong",
                code=1,
                request=Request.OTHER,
            ),
            of_refusals("Find prepared transaction message failed"),
        ),
        retried="the broker: it asks for the decision every 60 s (30 s in 5.3), 15 times",
        fault=Fault.PEER,
        cure="Keep a producer of the same group running, with a listener that looks the decision up; see pocketmq "
        "transaction list.",
        docs="docs/transactions.md#checks",
        source="TransactionMQProducer, EndTransactionProcessor",
    ),
)
"""In the order of a send's way."""
