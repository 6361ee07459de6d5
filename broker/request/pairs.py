"""The pairs of RocketMQ's broker: a processor, and the queue and threads that lead to it.

Which pair serves a request code stands in ``remoting/protocol``; here are its processor, size, threads and waits.
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
from pocketmq.remoting.protocol import codes_of
from pocketmq.remoting.protocol.spec import Pool

SMALL_DRAIN = 32
"""Tasks a worker of a one-by-one processor takes at once: few, so that the second worker and fast failure get the
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
    staged: Processor
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

    Capacities and maximum waits are those of RocketMQ's BrokerController. Pairs are registered in the order in which
    fast failure expires their requests: send, pull, heartbeat, end-transaction, and the default one, for
    administrators, last. ``on_refused`` hears of each request that one of the processors refuses.
    """
    admin = processors.admin
    build = _builder(config, runner, answers, clock, log, on_refused)
    table = RequestTable(
        build(
            Pool.ADMIN,
            admin,
            config.admin_broker_thread_pool_queue_capacity,
            max_wait_ms=config.wait_time_mills_in_admin_broker_queue,
        ),
        admin.serves,
    )
    send = build(
        Pool.SEND,
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
        Pool.PULL,
        processors.pull,
        config.pull_thread_pool_queue_capacity,
        threads=config.pull_message_thread_pool_nums,
        max_wait_ms=config.wait_time_mills_in_pull_queue,
        drain=AdaptiveDrain(PULL_DRAIN, config.queue_size_bytes_max),
    )
    heartbeat = build(
        Pool.HEARTBEAT,
        processors.client,
        config.heartbeat_thread_pool_queue_capacity,
        max_wait_ms=config.wait_time_mills_in_heartbeat_queue,
    )
    client = build(Pool.CLIENT_MANAGE, processors.client, config.client_manager_thread_pool_queue_capacity)
    consumer = build(Pool.CONSUMER_MANAGE, processors.consumer, config.consumer_manager_thread_pool_queue_capacity)
    query = build(Pool.QUERY, processors.query, config.query_thread_pool_queue_capacity)
    reply = build(
        Pool.REPLY,
        processors.reply,
        config.reply_thread_pool_queue_capacity,
        drain=AdaptiveDrain(config.send_drain_max, config.queue_size_bytes_max),
        follow_up=processors.dispatch,
    )
    transaction = build(
        Pool.END_TRANSACTION,
        processors.transaction,
        config.end_transaction_pool_queue_capacity,
        max_wait_ms=config.wait_time_mills_in_transaction_queue,
        drain=AdaptiveDrain(config.send_drain_max, config.queue_size_bytes_max),
        follow_up=processors.dispatch,
    )
    staged = build(
        Pool.STAGED,
        processors.staged,
        config.end_transaction_pool_queue_capacity,
        size_bytes_max=config.send_queue_size_bytes_max,
    )
    pairs = {
        Pool.SEND: send,
        Pool.PULL: pull,
        Pool.HEARTBEAT: heartbeat,
        Pool.CLIENT_MANAGE: client,
        Pool.CONSUMER_MANAGE: consumer,
        Pool.QUERY: query,
        Pool.REPLY: reply,
        Pool.END_TRANSACTION: transaction,
        Pool.STAGED: staged,
    }
    for pool, pair in pairs.items():
        table.register(codes_of(pool), pair)
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
        pool: Pool,
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
            pool.value,
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
