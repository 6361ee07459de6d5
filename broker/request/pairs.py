"""RocketMQ's pairs (``Pair<NettyRequestProcessor, ExecutorService>``): a processor with its queue and threads.

``remoting/protocol`` assigns request codes to pairs; here each pair gets its processor, queue size, threads and wait.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.request.default_processor import AdminProcessor
from pocketmq.broker.request.executor import AdaptiveDrain, DrainExecutor, Processor
from pocketmq.broker.request.fair_queue import FairQueue
from pocketmq.broker.request.request_table import RequestTable
from pocketmq.broker.request.request_task import AnswerPort, Refusal, Task
from pocketmq.broker.request.sweepable_queue import SweepableQueue
from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.runner import Runner
from pocketmq.remoting.protocol import codes_of
from pocketmq.remoting.protocol.spec import Pool

SMALL_DRAIN = 32
"""Tasks a worker of a one-by-one processor takes at once: few, so that a second worker and fast failure can reach the
others."""

PULL_DRAIN = 4
"""Pulls a worker takes at once: each answer may have 4 MiB, and no limit counts answers before they reach the loop."""


@dataclass(slots=True)
class Processors:
    """One processor for each kind of request; ``dispatch`` makes appended messages visible, where one thread serves
    the sends."""

    send: Processor
    pull: Processor
    filter: Processor
    pop: Processor
    ack: Processor
    query: Processor
    client: Processor
    consumer: Processor
    lock: Processor
    status: Processor
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
    fast failure expires their requests: send, pull, filtered pull, pop, acknowledgement, heartbeat, end-transaction,
    and last the default one, for administrators. ``on_refused`` is called with each request that one of the processors
    refuses.
    """
    pairs: dict[Pool, DrainExecutor] = {}

    def add(
        pool: Pool,
        processor: Processor,
        count_max: int,
        *,
        size_bytes_max: int = config.queue_size_bytes_max,
        threads: int = 1,
        max_wait_ms: int = 0,
        drain: AdaptiveDrain | None = None,
        follow_up: Callable[[], None] | None = None,
        queue_type: type[SweepableQueue[Task]] = SweepableQueue,
    ) -> None:
        pairs[pool] = DrainExecutor(
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
            queue_type=queue_type,
        )

    admin_wait_ms = config.wait_time_mills_in_admin_broker_queue
    admin_count_max = config.admin_broker_thread_pool_queue_capacity
    add(Pool.ADMIN, processors.admin, admin_count_max, max_wait_ms=admin_wait_ms)
    add(
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
    add(
        Pool.PULL,
        processors.pull,
        config.pull_thread_pool_queue_capacity,
        threads=config.pull_message_thread_pool_nums,
        max_wait_ms=config.wait_time_mills_in_pull_queue,
        drain=AdaptiveDrain(PULL_DRAIN, config.queue_size_bytes_max),
    )
    add(
        Pool.FILTER,
        processors.filter,
        config.pull_thread_pool_queue_capacity,
        max_wait_ms=config.wait_time_mills_in_pull_queue,
        queue_type=FairQueue,
    )
    add(
        Pool.POP,
        processors.pop,
        config.pull_thread_pool_queue_capacity,
        max_wait_ms=config.wait_time_mills_in_pull_queue,
        drain=AdaptiveDrain(PULL_DRAIN, config.queue_size_bytes_max),
    )
    add(
        Pool.ACK,
        processors.ack,
        config.ack_thread_pool_queue_capacity,
        max_wait_ms=config.wait_time_mills_in_ack_queue,
    )
    add(
        Pool.HEARTBEAT,
        processors.client,
        config.heartbeat_thread_pool_queue_capacity,
        max_wait_ms=config.wait_time_mills_in_heartbeat_queue,
    )
    add(Pool.CLIENT_MANAGE, processors.client, config.client_manager_thread_pool_queue_capacity)
    add(Pool.CONSUMER_MANAGE, processors.consumer, config.consumer_manager_thread_pool_queue_capacity)
    add(Pool.QUERY, processors.query, config.query_thread_pool_queue_capacity)
    add(
        Pool.REPLY,
        processors.reply,
        config.reply_thread_pool_queue_capacity,
        drain=AdaptiveDrain(config.send_drain_max, config.queue_size_bytes_max),
        follow_up=processors.dispatch,
    )
    add(
        Pool.END_TRANSACTION,
        processors.transaction,
        config.end_transaction_pool_queue_capacity,
        max_wait_ms=config.wait_time_mills_in_transaction_queue,
        drain=AdaptiveDrain(config.send_drain_max, config.queue_size_bytes_max),
        follow_up=processors.dispatch,
    )
    add(
        Pool.STAGED,
        processors.staged,
        config.end_transaction_pool_queue_capacity,
        size_bytes_max=config.send_queue_size_bytes_max,
    )
    add(Pool.LOCK, processors.lock, admin_count_max, max_wait_ms=admin_wait_ms)
    add(Pool.STATUS, processors.status, admin_count_max, max_wait_ms=admin_wait_ms)
    table = RequestTable(pairs.pop(Pool.ADMIN), processors.admin.serves)
    for pool, pair in pairs.items():
        table.register(codes_of(pool), pair)
    return table


def limits_changed(table: RequestTable, config: BrokerConfig) -> None:
    """Take the maximum waits of ``config``. Any thread."""
    waits = {
        Pool.SEND: config.wait_time_mills_in_send_queue,
        Pool.PULL: config.wait_time_mills_in_pull_queue,
        Pool.FILTER: config.wait_time_mills_in_pull_queue,
        Pool.POP: config.wait_time_mills_in_pull_queue,
        Pool.ACK: config.wait_time_mills_in_ack_queue,
        Pool.HEARTBEAT: config.wait_time_mills_in_heartbeat_queue,
        Pool.END_TRANSACTION: config.wait_time_mills_in_transaction_queue,
        **dict.fromkeys((Pool.ADMIN, Pool.LOCK, Pool.STATUS), config.wait_time_mills_in_admin_broker_queue),
    }
    for pool, wait_ms in waits.items():
        table.executor(pool.value).max_wait_ms = wait_ms
    table.executor(Pool.SEND.value).adaptive.slow_ns = config.wait_time_mills_in_send_queue * 1_000_000
