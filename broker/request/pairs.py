"""The pairs of RocketMQ's broker: which processor and which queue serve which codes.

Lives here: ``build_request_table``, the table of facts §2.2 with this broker's processors.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.request.default_processor import AdminProcessor
from pocketmq.broker.request.executor import AdaptiveDrain, DrainExecutor, Processor
from pocketmq.broker.request.request_table import RequestTable
from pocketmq.broker.request.request_task import AnswerPort, Refusal, Task
from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.runner import Runner
from pocketmq.remoting.codes import RequestCode

SMALL_DRAIN = 32
"""Tasks a worker of a one-by-one processor takes at once: few, so that the second worker and the sweep get the
others."""

PULL_DRAIN = 4
"""Pulls a worker takes at once: each may answer with 4 MiB, and answers count nowhere until they reach the loop."""


@dataclass(slots=True)
class Processors:
    """One processor for each kind of request; ``dispatch`` makes visible what ``send`` has appended, where one thread
    serves the sends."""

    send: Processor
    pull: Processor
    query: Processor
    client: Processor
    consumer: Processor
    admin: AdminProcessor
    transaction: Processor
    named: Processor
    reply: Processor
    dispatch: Callable[[], None]


def build_request_table(
    config: BrokerConfig,
    processors: Processors,
    *,
    runner: Runner,
    answers: AnswerPort,
    clock: Clock,
    log: EventLog,
    on_refused: Callable[[Task, Refusal], None],
) -> RequestTable:
    """Return the table with all pairs; their threads start with their first task.

    Names, capacities and maximum waits are RocketMQ's BrokerController's. Pairs are built in the order in which fast
    failure sweeps them: send, pull, heartbeat, end-transaction, and the default one, for administrators, last.
    ``on_refused`` hears of each request that one of the processors refuses.
    """
    admin = processors.admin
    build = _builder(config, runner, answers, clock, log, on_refused)
    table = RequestTable(
        build(
            "AdminBrokerThread",
            admin,
            config.admin_broker_thread_pool_queue_capacity,
            max_wait_ms=config.wait_time_mills_in_admin_broker_queue,
        ),
        admin.serves,
    )
    send = build(
        "SendMessageThread",
        processors.send,
        config.send_thread_pool_queue_capacity,
        size_bytes_max=config.send_queue_size_bytes_max,
        threads=config.send_message_thread_pool_nums,
        max_wait_ms=config.wait_time_mills_in_send_queue,
        drain=AdaptiveDrain(
            config.send_drain_max,
            config.send_drain_size_bytes_max,
            config.wait_time_mills_in_send_queue * 1_000_000,
        ),
        follow_up=processors.dispatch if config.send_message_thread_pool_nums == 1 else None,
    )
    pull = build(
        "PullMessageThread",
        processors.pull,
        config.pull_thread_pool_queue_capacity,
        threads=config.pull_message_thread_pool_nums,
        max_wait_ms=config.wait_time_mills_in_pull_queue,
        drain=AdaptiveDrain(PULL_DRAIN, config.queue_size_bytes_max),
    )
    heartbeat = build(
        "HeartbeatThread",
        processors.client,
        config.heartbeat_thread_pool_queue_capacity,
        max_wait_ms=config.wait_time_mills_in_heartbeat_queue,
    )
    client = build("ClientManageThread", processors.client, config.client_manager_thread_pool_queue_capacity)
    consumer = build("ConsumerManageThread", processors.consumer, config.consumer_manager_thread_pool_queue_capacity)
    query = build("QueryMessageThread", processors.query, config.query_thread_pool_queue_capacity)
    reply = build(
        "ProcessReplyMessageThread",
        processors.reply,
        config.reply_thread_pool_queue_capacity,
        drain=AdaptiveDrain(config.send_drain_max, config.queue_size_bytes_max),
        follow_up=processors.dispatch,
    )
    transaction = build(
        "EndTransactionThread",
        processors.transaction,
        config.end_transaction_pool_queue_capacity,
        max_wait_ms=config.wait_time_mills_in_transaction_queue,
        drain=AdaptiveDrain(config.send_drain_max, config.queue_size_bytes_max),
        follow_up=processors.dispatch,
    )
    named = build(
        "NamedTransactionThread",
        processors.named,
        config.end_transaction_pool_queue_capacity,
        size_bytes_max=config.send_queue_size_bytes_max,
    )
    code = RequestCode
    sends = (
        code.SEND_MESSAGE,
        code.SEND_MESSAGE_V2,
        code.SEND_BATCH_MESSAGE,
        code.NATIVE_APPEND,
        code.NATIVE_HALF_APPEND,
    )
    table.register((*sends, code.CONSUMER_SEND_MSG_BACK), send)
    table.register((code.PULL_MESSAGE, code.LITE_PULL_MESSAGE, code.NATIVE_PULL), pull)
    table.register((code.HEART_BEAT,), heartbeat)
    table.register((code.UNREGISTER_CLIENT, code.CHECK_CLIENT_CONFIG), client)
    table.register((code.GET_CONSUMER_LIST_BY_GROUP, code.QUERY_CONSUMER_OFFSET, code.UPDATE_CONSUMER_OFFSET), consumer)
    table.register((code.QUERY_MESSAGE, code.VIEW_MESSAGE_BY_ID), query)
    table.register((code.SEND_REPLY_MESSAGE, code.SEND_REPLY_MESSAGE_V2), reply)
    table.register((code.END_TRANSACTION, code.NATIVE_END_TRANSACTION), transaction)
    table.register((code.NAMED_TRANSACTION_STAGE, code.NAMED_TRANSACTION_END), named)
    return table


def _builder(
    config: BrokerConfig,
    runner: Runner,
    answers: AnswerPort,
    clock: Clock,
    log: EventLog,
    on_refused: Callable[[Task, Refusal], None],
) -> Callable[..., DrainExecutor]:
    def build(
        name: str,
        processor: Processor,
        count_max: int,
        *,
        size_bytes_max: int = config.queue_size_bytes_max,
        threads: int = 1,
        max_wait_ms: int = 0,
        drain: AdaptiveDrain | None = None,
        follow_up: Callable[[], None] | None = None,
    ) -> DrainExecutor:
        return DrainExecutor(
            name,
            processor,
            count_max=count_max,
            size_bytes_max=size_bytes_max,
            threads=threads,
            drain=drain or AdaptiveDrain(SMALL_DRAIN, size_bytes_max),
            max_wait_ms=max_wait_ms,
            runner=runner,
            answers=answers,
            clock=clock,
            log=log,
            follow_up=follow_up,
            on_refused=on_refused,
        )

    return build
