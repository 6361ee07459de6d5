"""Build the parts of POP: the ledger of what is in flight, its processors, its services.

Lives here: ``build_pop``, ``PopParts``.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pocketmq.broker.assembly.environment import BrokerEnvironment, BrokerService
from pocketmq.broker.persisted_table import PersistedTable, Table
from pocketmq.broker.pop.ack_processor import AckProcessor
from pocketmq.broker.pop.ordered_batches import OrderedBatches
from pocketmq.broker.pop.pop_checks import PopChecks
from pocketmq.broker.pop.pop_ledger import PopLedger
from pocketmq.broker.pop.pop_processor import PopProcessor
from pocketmq.broker.pop.pop_reader import PopReader
from pocketmq.broker.pop.pop_service import PopHolds, PopService, split_key
from pocketmq.broker.pop.pop_snapshot import POP_FILE, PopSnapshot, PopState
from pocketmq.broker.pop.revival import Revival
from pocketmq.broker.pop.revive_log import take_over
from pocketmq.broker.pull.pull_checks import PullChecks
from pocketmq.broker.pull.slave_reads import RecentMessages
from pocketmq.broker.request.budget import Budgets
from pocketmq.broker.topic.registered_topics import RegisteredTopics
from pocketmq.common.clock import SteadyTime
from pocketmq.store.message_store import MessageStore

ORDER_FILE: Final = "consumerOrderInfo.json"


@dataclass(slots=True)
class PopParts:
    """The parts of POP in one run."""

    ledger: PopLedger
    ordered: OrderedBatches
    reader: PopReader
    service: PopService
    processor: PopProcessor
    acks: AckProcessor
    revival: Revival | None
    """None on slaves, which give out nothing."""
    services: list[BrokerService]


def build_pop(
    environment: BrokerEnvironment,
    loop: asyncio.AbstractEventLoop,
    store: MessageStore,
    pull_checks: PullChecks,
    recent: RecentMessages,
    budgets: Budgets,
    registered: RegisteredTopics,
    offsets_file: PersistedTable,
    file: Callable[[Table, str], PersistedTable],
    must_not_write: Callable[[], bool],
    *,
    leads: bool,
) -> PopParts:
    """Build them. ``leads``: whether this broker is a master that may write."""
    config, clock, log = environment.config, environment.clock, environment.logger("broker")
    time = SteadyTime(clock)
    ledger = PopLedger(
        environment.offsets, config.pop_inflight_message_threshold, config.pop_unacked_max, config.pop_queues_max
    )
    ordered = OrderedBatches(config.pop_ordered_batches_max)
    reader = PopReader(store, ledger, ordered, environment.topics, recent, log)

    def is_ready(key: str, queue_id: int) -> int:
        group, topic, is_ordered = split_key(key)
        return int(reader.is_ready(group, topic, queue_id, is_ordered, time.now_ms()))

    def ready(key: str, queue_id: int, topic: str, at: int) -> int:
        group, _, is_ordered = split_key(key)
        return reader.ready(group, topic, at, is_ordered, time.now_ms())

    holds = PopHolds(config.max_pop_polling_size, config.pull_holds_size_bytes_max, config.pop_polling_size)
    service = PopService(
        holds, is_ready, environment.mailbox, loop, clock, environment.refusals, environment.auth.guard, ready
    )
    checks = PopChecks(config, environment.topics, environment.groups, pull_checks, not leads, must_not_write)
    processor = PopProcessor(
        config,
        environment.store_config,
        store,
        checks,
        reader,
        service,
        environment.counters,
        clock,
        time,
        budgets,
    )
    acks = AckProcessor(config, checks, ledger, ordered, environment.offsets, service, time)
    parts = PopParts(ledger, ordered, reader, service, processor, acks, None, [])
    if leads:
        parts.revival = Revival(
            store,
            ledger,
            ordered,
            environment.topics,
            environment.groups,
            registered,
            service,
            environment.counters,
            time,
            log,
            must_not_write,
        )
        snapshot = PopSnapshot(ledger, time)
        root, durable = store.config.store_path_root_dir, environment.store_config.sync_on_close
        state = PopState(
            snapshot,
            PersistedTable(snapshot, f"{root}/{POP_FILE}", environment.file_system, log, durable=durable),
            offsets_file,
            file(ordered, ORDER_FILE),
            config.flush_consumer_offset_interval,
            environment.offsets.query,
            store.max_offset,
            log,
            lambda: take_over(store, environment.topics, environment.offsets, ledger, time.now_ms(), log),
        )
        parts.services = [state, parts.revival]
    return parts
