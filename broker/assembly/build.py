"""Build the parts of one broker and connect them.

Lives here: ``Running`` (the parts that exist between start and stop), ``build``.
"""

import asyncio
from dataclasses import dataclass, field

from pocketmq.broker.admin.assignments import Assignments
from pocketmq.broker.admin.auth_handlers import auth_handlers
from pocketmq.broker.admin.broker_admin import BrokerAdmin
from pocketmq.broker.admin.consume_stats import ConsumeStatistics
from pocketmq.broker.admin.consumer_relay import ConsumerRelay
from pocketmq.broker.admin.group_admin import GroupAdmin
from pocketmq.broker.admin.ha_runtime_admin import HaRuntimeAdmin
from pocketmq.broker.admin.lock_admin import LockAdmin
from pocketmq.broker.admin.queue_admin import QueueAdmin
from pocketmq.broker.admin.settings_admin import SettingsAdmin
from pocketmq.broker.admin.topic_admin import TopicAdmin
from pocketmq.broker.assembly.build_pop import PopParts, build_pop
from pocketmq.broker.assembly.build_send import reply_processor, send_planner
from pocketmq.broker.assembly.build_staged import build_staged
from pocketmq.broker.assembly.build_transactions import build_transactions
from pocketmq.broker.assembly.environment import BrokerEnvironment, BrokerService
from pocketmq.broker.delay.delay_service import DelayService
from pocketmq.broker.delay.target_topics import TargetTopics
from pocketmq.broker.flow_control.admission import Admission
from pocketmq.broker.flow_control.fast_failure import FastFailure
from pocketmq.broker.group.client_processor import ClientProcessor
from pocketmq.broker.group.client_table import ClientTable
from pocketmq.broker.group.group_notifier import GroupNotifier
from pocketmq.broker.group.request_modes import RequestModes
from pocketmq.broker.group.retry_topics import RetryTopics
from pocketmq.broker.ha.ha_admin import HaAdmin
from pocketmq.broker.ha.ha_node import HaNode
from pocketmq.broker.ha.ha_roles import RoleOfRun, without_changes
from pocketmq.broker.ha.replication import Replication
from pocketmq.broker.housekeeping import Housekeeping
from pocketmq.broker.lock.fencing_tokens import FencingTokens
from pocketmq.broker.lock.lock_manager import LockManager
from pocketmq.broker.metrics.observation import Watched
from pocketmq.broker.metrics.sources import Pops
from pocketmq.broker.persisted_table import PersistedTable, Table
from pocketmq.broker.pull.consumer_processor import ConsumerProcessor
from pocketmq.broker.pull.filter_lane import FilterLane
from pocketmq.broker.pull.long_polling import PullHolds
from pocketmq.broker.pull.native_pull import NativePull
from pocketmq.broker.pull.pull_checks import PullChecks
from pocketmq.broker.pull.pull_processor import PullProcessor
from pocketmq.broker.pull.pull_quota import PullQuota
from pocketmq.broker.pull.pull_service import PullService
from pocketmq.broker.pull.query_processor import QueryProcessor
from pocketmq.broker.pull.quick_pull import QuickPull
from pocketmq.broker.pull.slave_reads import ReadAdvice, RecentMessages
from pocketmq.broker.request.budget import Budgets
from pocketmq.broker.request.default_processor import AdminProcessor
from pocketmq.broker.request.pairs import Processors, build_request_table
from pocketmq.broker.request.request_table import RequestTable
from pocketmq.broker.request.request_task import Refusal, Task
from pocketmq.broker.send.run_to_completion import RunToCompletion
from pocketmq.broker.send.send_processor import SendProcessor
from pocketmq.broker.send.short_path import ShortPath
from pocketmq.broker.stats.topic_put_stats import TopicPutStats
from pocketmq.broker.topic.registered_topics import RegisteredTopics
from pocketmq.broker.transaction.transaction_service import TransactionService
from pocketmq.common.plain_check import PlainRules
from pocketmq.common.record import host_text
from pocketmq.remoting.protocol import codes_of
from pocketmq.remoting.protocol.spec import Pool
from pocketmq.remoting.server import Connection, RemotingServer
from pocketmq.store.message_store import MessageStore


@dataclass(slots=True)
class Running:
    """The parts between start and stop. ``services`` start in order and stop in reverse."""

    environment: BrokerEnvironment
    store: MessageStore
    clients: ClientTable[Connection]
    notifier: GroupNotifier
    pulls: PullService
    pop: PopParts
    table: RequestTable
    housekeeping: Housekeeping
    fast_failure: FastFailure
    topics_file: PersistedTable
    registered_topics: RegisteredTopics
    delays: DelayService | None
    locks: LockManager
    replication: Replication
    transactions: TransactionService | None
    short_path: ShortPath | None
    assignments: Assignments
    budgets: Budgets
    services: list[BrokerService] = field(default_factory=list)

    def recheck(self) -> None:
        """Refuse held pulls and pops of those who may not have them any more. Loop thread."""
        self.pulls.recheck()
        self.pop.service.recheck()


def build(
    environment: BrokerEnvironment,
    loop: asyncio.AbstractEventLoop,
    server: RemotingServer,
    admission: Admission,
) -> Running:
    """Build every object of a run without opening or starting it."""
    config, store_config, clock = environment.config, environment.store_config, environment.clock
    topics, groups, offsets = environment.topics, environment.groups, environment.offsets
    mailbox = environment.mailbox
    log = environment.logger("broker")
    store = environment.given_store or MessageStore(
        store_config,
        file_system=environment.file_system,
        clock=clock,
        runner=environment.runner,
        log=environment.logger("store"),
        error_log=environment.logger("store_error"),
    )
    store.store_host = environment.store_host
    store.retention.groups_behind = offsets.groups_behind
    role = RoleOfRun(config, store_config)
    node = HaNode(role, environment.ha_state, store, clock, environment.logger("ha"), environment.role_changed)
    replication = Replication(node, store, environment)
    delays: DelayService | None = None
    if not replication.role.is_slave and node.fenced_by is None:
        delays = DelayService(
            store_config, store, environment.file_system, environment.counters, clock, log, is_held=node.must_not_write
        )
        delays.deliverer.targets = TargetTopics(topics, store, log)
    answers = environment.observation.answer_port(mailbox)
    clients: ClientTable[Connection] = ClientTable(config.clients_max, config.clients_size_bytes_max)
    notifier = GroupNotifier(clients, groups, mailbox, loop, enabled=config.notify_consumer_ids_changed_enable)
    directory = f"{store.config.store_path_root_dir}/config"

    def file(table: Table, name: str) -> PersistedTable:
        return PersistedTable(
            table, f"{directory}/{name}", environment.file_system, log, durable=store_config.sync_on_close
        )

    topics_file = file(topics, "topics.json")
    registered = RegisteredTopics(topics, topics_file.persist, log)
    groups_file = file(groups, "subscriptionGroup.json")
    offsets_file = file(offsets, "consumerOffset.json")
    holds = PullHolds(config.pull_holds_max, config.pull_holds_size_bytes_max)
    pulls = PullService(holds, store.max_offset, mailbox, loop, clock, environment.refusals, environment.auth.guard)
    pull_checks = PullChecks(config, topics, groups, clients)
    rules = PlainRules(
        cluster=config.broker_cluster_name.encode(),
        message_size_max=store_config.max_message_size,
        family=environment.family,
    )
    items = environment.counters.items
    topic_admin = TopicAdmin(config, store, topics, offsets, registered.publish, offsets_file.persist, items, log)
    consume_statistics = ConsumeStatistics(
        config,
        store,
        topics,
        groups,
        offsets,
        clients,
        items,
        clock,
    )
    queue_admin = QueueAdmin(store, topics, offsets, clients, offsets_file.persist, log)
    group_admin = GroupAdmin(
        config,
        store,
        topics,
        groups,
        offsets,
        clients,
        notifier,
        groups_file.persist,
        offsets_file.persist,
        consume_statistics,
        clock,
    )
    tokens = FencingTokens(clock.now_ms)
    tokens_file = PersistedTable(tokens, f"{directory}/fencingToken.json", environment.file_system, log)
    locks = LockManager(config, tokens, tokens_file, clients.client_id, mailbox, clock, environment.logger("lock"))
    lock_admin = LockAdmin(config, locks, topics, is_slave=replication.role.is_slave)
    recent = RecentMessages(store, environment.memory_bytes * store_config.access_message_in_memory_max_ratio // 100)
    advice = ReadAdvice(
        groups,
        recent,
        enabled=config.slave_read_enable,
        is_slave=replication.role.is_slave,
        has_master=lambda: replication.has_master,
        show_all=store.show_all,
    )
    changes = {**topic_admin.handlers(), **group_admin.handlers(), **queue_admin.handlers()}
    if replication.role.is_slave:
        changes = without_changes(changes)
    transactions = build_transactions(environment, store, clients, replication, answers)
    staged = build_staged(environment, store, rules, replication, answers, registered.publish)
    broker_admin = BrokerAdmin(
        config,
        store_config,
        store,
        topics,
        environment.counters,
        delays,
        staged.service,
        environment.observation,
        clock,
    )
    modes = RequestModes(config.subscription_groups_max)
    modes_file = file(modes, "messageRequestMode.json")
    assignments = Assignments(
        config, topics, groups, modes, modes_file.persist, clients, environment.refused_requests, mailbox, clock
    )
    retries = RetryTopics(topics, groups, locks.holds_any)
    replies = reply_processor(environment, store, clients, transactions.table, retries, registered)
    planners = [
        send_planner(environment, rules, store, delays, retries, transactions.table)
        for _ in range(config.send_message_thread_pool_nums)
    ]
    times = environment.observation.send_times(store)
    sends = SendProcessor(
        store,
        planners,
        registered.publish,
        answers,
        environment.counters,
        environment.refusals,
        clock,
        log,
        times,
        node.refusal,
    )
    budgets = Budgets(clock)
    lane = FilterLane(mailbox, environment.refusals)
    pop = build_pop(
        environment,
        loop,
        store,
        pull_checks,
        recent,
        budgets,
        registered,
        offsets_file,
        file,
        node.must_not_write,
        leads=not replication.role.is_slave and node.fenced_by is None,
    )

    def pull_processor(lane: FilterLane | None) -> PullProcessor:
        return PullProcessor(
            config,
            store_config,
            store,
            recent,
            advice,
            pull_checks,
            offsets,
            pulls,
            locks,
            NativePull(config, store, advice, pull_checks, pulls, environment.counters, clock, budgets),
            environment.counters,
            clock,
            log,
            budgets,
            PullQuota(store, pulls, clock, config.suspend_timeout_mills_max),
            lane,
        )

    handlers = {
        **changes,
        **broker_admin.handlers(),
        **SettingsAdmin(config, store_config, topics, environment.live, environment.settings_changed).handlers(),
        **consume_statistics.handlers(),
        **HaRuntimeAdmin(node).handlers(),
        **assignments.handlers(),
        **transactions.admin.handlers(),
        **HaAdmin(node, environment).handlers(),
        **auth_handlers(
            environment.auth,
            environment.logger("auth"),
            config,
            host_text(environment.store_host),
            is_slave=replication.role.is_slave,
        ),
    }
    processors = Processors(
        send=sends,
        pull=pull_processor(lane),
        filter=pull_processor(None),
        pop=pop.processor,
        ack=pop.acks,
        query=QueryProcessor(store),
        client=ClientProcessor(config, clients, groups, topics, notifier, registered.publish, clock, log),
        consumer=ConsumerProcessor(
            store,
            topics,
            offsets,
            clients,
            recent,
            locks,
            replication.commits.note if replication.role.is_slave else None,
        ),
        lock=AdminProcessor(lock_admin.handlers()),
        status=AdminProcessor({code: handlers.pop(code) for code in codes_of(Pool.STATUS)}),
        admin=AdminProcessor(
            handlers,
            {**ConsumerRelay(config, store, clients, mailbox).later_handlers(), **assignments.later_handlers()},
        ),
        transaction=transactions.end,
        staged=staged.processor,
        reply=replies,
        dispatch=store.dispatch,
    )
    refused_requests = environment.refused_requests

    def on_refused(task: Task, refusal: Refusal) -> None:
        remote = task.connection.remote
        refused_requests.note_request(task.request, remote, refusal.code, refusal.cause, refusal.remark)

    table = build_request_table(
        config, processors, runner=environment.runner, answers=answers, clock=clock, log=log, on_refused=on_refused
    )
    short_path: ShortPath | None = None
    if config.short_path_enable and not replication.role.is_slave:
        send_pair = table.executor("SendMessageThread")
        short_path = ShortPath(
            config,
            store,
            sends,
            send_pair,
            [planner.checks for planner in planners],
            topics,
            rules,
            server.scratch,
            answers,
            environment.counters,
            clock,
            node.refusal,
            times,
            server.read_times,
            None if environment.auth.guard is None else environment.auth.table,
        )
        send_pair.short = short_path.drain
        if store.pool is not None:
            short_path.here = RunToCompletion(
                store, send_pair, environment.counters, clock, times, loop, send_pair.settle_soon
            )
    pull_pair = table.executor("PullMessageThread")
    pulls.use_executor(pull_pair)
    pulls.quick = quick = QuickPull(
        store,
        advice,
        pull_checks,
        pulls,
        environment.counters,
        clock,
        config.suspend_timeout_mills_max,
        pull_pair.count_here,
    )
    pull_pair.here = quick.hold
    lane.use_executor(table.executor("PullFilterThread"))
    pop.service.use_executor(table.executor("PopMessageThread"))
    store.on_shown.extend((pulls.news, pop.service.news))
    store.serve_awaited(holds, pop.service.holds)
    if store.pool is not None:
        pulls.on_held = pop.service.on_held = store.show_soon
    fast_failure = FastFailure(
        table.executors(),
        table.executor("SendMessageThread"),
        store,
        clock,
        environment.refusals,
        page_cache_busy_ms=store_config.os_page_cache_busy_timeout_mills,
    )
    watched = Watched(
        store=store,
        files=environment.file_system,
        server=server,
        admission=admission,
        executors=table.executors(),
        swept=fast_failure.swept,
        clients=clients,
        topics=topics,
        groups=groups,
        offsets=offsets,
        pulls=pulls,
        thread_dumper=environment.thread_dumper,
        node=node,
        replies=replies,
        delays=delays,
        transactions=transactions.sources(),
        pops=Pops(pop.ledger, pop.service, pop.revival),
    )
    disk = environment.observation.watch(watched, mailbox)
    housekeeping = Housekeeping(
        config,
        [topics_file, groups_file, offsets_file, modes_file],
        clients,
        notifier,
        disk,
        store.find_earliest,
        mailbox,
        clock,
        log,
        environment.auth.look,
    )
    offsets.on_first = housekeeping.persist_soon
    put_stats = TopicPutStats(store, environment.counters.items)
    services: list[BrokerService | None] = [
        environment.tls,
        put_stats,
        environment.observation.figures,
        locks,
        delays,
        transactions.service,
        staged.service,
        *pop.services,
    ]
    return Running(
        environment,
        store,
        clients,
        notifier,
        pulls,
        pop,
        table,
        housekeeping,
        fast_failure,
        topics_file,
        registered,
        delays,
        locks,
        replication,
        transactions.service,
        short_path,
        assignments,
        budgets,
        [service for service in services if service is not None],
    )
