"""What one broker is made of, and how the parts know each other.

Lives here: ``Parts`` (what is given from outside), ``Running`` (what exists between start and stop), ``build``.
Not here: the order of start and stop (``app``), which pair serves which code (``pairs``).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pocketmq.broker.admin_processor import AdminProcessor
from pocketmq.broker.admission import Admission
from pocketmq.broker.broker_admin import BrokerAdmin
from pocketmq.broker.client_processor import ClientProcessor
from pocketmq.broker.client_table import ClientTable
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.consumer_offsets import ConsumerOffsets
from pocketmq.broker.consumer_processor import ConsumerProcessor
from pocketmq.broker.counters import BrokerCounters
from pocketmq.broker.delay_plan import DelayPlan
from pocketmq.broker.delay_service import DelayService
from pocketmq.broker.fast_failure import FastFailure
from pocketmq.broker.group_admin import GroupAdmin
from pocketmq.broker.group_notifier import GroupNotifier
from pocketmq.broker.housekeeping import Housekeeping
from pocketmq.broker.json_file import PersistedTable, Table
from pocketmq.broker.long_polling import PullHolds
from pocketmq.broker.native_append import NativeAppend
from pocketmq.broker.native_pull import NativePull
from pocketmq.broker.observation import Counts, Observation
from pocketmq.broker.pairs import Processors, build_request_table
from pocketmq.broker.pull_checks import PullChecks
from pocketmq.broker.pull_processor import PullProcessor
from pocketmq.broker.pull_service import PullService
from pocketmq.broker.query_processor import QueryProcessor
from pocketmq.broker.recent_messages import RecentMessages
from pocketmq.broker.refusal_book import RefusalBook
from pocketmq.broker.request_table import RequestTable
from pocketmq.broker.send_checks import SendChecks
from pocketmq.broker.send_planner import SendPlanner
from pocketmq.broker.send_processor import SendProcessor
from pocketmq.broker.subscription_groups import SubscriptionGroups
from pocketmq.broker.thread_dump import ThreadDumper
from pocketmq.broker.topic_admin import TopicAdmin
from pocketmq.broker.topic_table import TopicTable
from pocketmq.broker.typed_send import TypedSends
from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.plain_check import PlainRules
from pocketmq.common.runner import LoopMailbox, Runner
from pocketmq.remoting.server import Connection, RemotingServer
from pocketmq.store.config import StoreConfig
from pocketmq.store.file_system import FileSystem
from pocketmq.store.message_store import MessageStore


class BrokerService(Protocol):
    """Work of a broker beside its requests, with threads of its own."""

    def open(self) -> None:
        """Load what it needs. Blocks; worker thread, the store is open, nothing is served yet."""

    def start(self, runner: Runner) -> None:
        """Begin; loop thread."""

    def stop(self) -> None:
        """End, write down what must be kept. Blocks; worker thread, the store is still open; may come without
        ``start``."""


@dataclass(slots=True, kw_only=True)
class Parts:
    """What a broker is given, and the tables that outlive a run."""

    config: BrokerConfig
    store_config: StoreConfig
    given_store: MessageStore | None
    file_system: FileSystem
    clock: Clock
    runner: Runner
    logger: Callable[[str], EventLog]
    memory_bytes: int
    store_host: bytes
    """What stands in records; known when the port is."""
    family: int
    counters: BrokerCounters
    topics: TopicTable
    groups: SubscriptionGroups
    offsets: ConsumerOffsets
    refusals: RefusalBook
    thread_dumper: ThreadDumper
    observation: Observation


@dataclass(slots=True)
class Running:
    """What exists between start and stop. ``services`` start in order and stop in reverse."""

    mailbox: LoopMailbox
    store: MessageStore
    clients: ClientTable[Connection]
    notifier: GroupNotifier
    pulls: PullService
    table: RequestTable
    housekeeping: Housekeeping
    fast_failure: FastFailure
    topics_file: PersistedTable
    delays: DelayService | None
    services: list[BrokerService] = field(default_factory=list)


def build(
    parts: Parts,
    mailbox: LoopMailbox,
    loop: asyncio.AbstractEventLoop,
    server: RemotingServer,
    admission: Admission,
) -> Running:
    """Make every object of a run; nothing is opened or started."""
    config, store_config, clock = parts.config, parts.store_config, parts.clock
    log = parts.logger("broker")
    store = parts.given_store or MessageStore(
        store_config,
        file_system=parts.file_system,
        clock=clock,
        runner=parts.runner,
        log=parts.logger("store"),
        error_log=parts.logger("store_error"),
    )
    store.store_host = parts.store_host
    delays: DelayService | None = None
    if store_config.broker_role != "SLAVE":
        delays = DelayService(store_config, store, parts.file_system, parts.counters, clock, log)
    answers = parts.observation.answer_port(mailbox)
    clients: ClientTable[Connection] = ClientTable(config.clients_max)
    notifier = GroupNotifier(clients, parts.groups, mailbox, enabled=config.notify_consumer_ids_changed_enable)
    directory = f"{store.config.store_path_root_dir}/config"

    def file(table: Table, name: str) -> PersistedTable:
        return PersistedTable(table, f"{directory}/{name}", parts.file_system, log, durable=store_config.sync_on_close)

    topics_file = file(parts.topics, "topics.json")
    groups_file = file(parts.groups, "subscriptionGroup.json")
    offsets_file = file(parts.offsets, "consumerOffset.json")
    holds = PullHolds(config.pull_holds_max, config.pull_holds_size_bytes_max)
    pulls = PullService(holds, store.max_offset, mailbox, loop, clock, parts.refusals)
    pull_checks = PullChecks(config, parts.topics, parts.groups, clients)
    rules = PlainRules(
        cluster=config.broker_cluster_name.encode(),
        message_size_max=store_config.max_message_size,
        family=parts.family,
    )
    broker_admin = BrokerAdmin(config, store_config, store, parts.topics, parts.counters, lambda: pulls.count, clock)
    topic_admin = TopicAdmin(config, store, parts.topics, parts.offsets, topics_file.persist, offsets_file.persist, log)
    group_admin = GroupAdmin(
        config,
        store,
        parts.topics,
        parts.groups,
        parts.offsets,
        clients,
        notifier,
        groups_file.persist,
        offsets_file.persist,
    )
    recent = RecentMessages(store, parts.memory_bytes * store_config.access_message_in_memory_max_ratio // 100)
    processors = Processors(
        send=SendProcessor(
            store,
            [_send_planner(parts, rules, store, delays) for _ in range(config.send_message_thread_pool_nums)],
            topics_file.persist,
            answers,
            parts.counters,
            parts.refusals,
            clock,
            log,
            parts.observation.send_times(store),
        ),
        pull=PullProcessor(
            config,
            store_config,
            store,
            recent,
            pull_checks,
            parts.offsets,
            pulls,
            NativePull(config, store, pull_checks, pulls, parts.counters, clock),
            parts.counters,
            clock,
            log,
        ),
        query=QueryProcessor(store),
        client=ClientProcessor(clients, parts.groups, parts.topics, notifier, topics_file.persist, clock),
        consumer=ConsumerProcessor(store, parts.topics, parts.offsets, clients, recent),
        admin=AdminProcessor({**topic_admin.handlers(), **group_admin.handlers(), **broker_admin.handlers()}, log),
        dispatch=store.dispatch,
    )
    table = build_request_table(config, processors, runner=parts.runner, answers=answers, clock=clock, log=log)
    pulls.use_executor(table.executor("PullMessageThread"))
    store.on_dispatched.append(pulls.news)
    fast_failure = FastFailure(table.executors(), table.executor("SendMessageThread"), store, clock, parts.refusals)
    counts = Counts(
        swept=fast_failure.swept,
        oneway_dropped=lambda: admission.oneway_dropped,
        clients=lambda: len(clients),
        topics=lambda: len(parts.topics),
        pulls_held=lambda: pulls.count,
        thread_dumps=lambda: parts.thread_dumper.dumps,
        delays=delays,
    )
    telemetry, disk = parts.observation.watch(store, parts.file_system, table.executors(), server, mailbox, counts)
    broker_admin.use_telemetry(telemetry, disk)
    housekeeping = Housekeeping(
        config, [topics_file, groups_file, offsets_file], clients, notifier, disk, mailbox, clock, log
    )
    if delays is not None:
        broker_admin.use_delays(delays)
    return Running(
        mailbox,
        store,
        clients,
        notifier,
        pulls,
        table,
        housekeeping,
        fast_failure,
        topics_file,
        delays,
        [] if delays is None else [delays],
    )


def _send_planner(parts: Parts, rules: PlainRules, store: MessageStore, delays: DelayService | None) -> SendPlanner:
    """Return what one send thread needs for itself."""
    checks = SendChecks(parts.config, parts.topics)
    is_congested = _never if delays is None else delays.is_congested
    plan = DelayPlan(parts.store_config, store.delay_levels, is_congested, parts.clock)
    typed = TypedSends(parts.config, checks, parts.store_host, parts.store_config.max_message_size, plan)
    return SendPlanner(NativeAppend(rules, checks), typed, checks, parts.store_config.group_bytes_max, parts.refusals)


def _never(due_ms: int) -> bool:
    """Tell that a slave, which takes no sends, has no timers to count."""
    return False
