"""Build the parts that take messages in: those of each send thread, and those of replies.

Lives here: ``send_planner``, ``reply_processor``.
"""

from functools import partial

from pocketmq.auth.guard import AuthGuard
from pocketmq.broker.assembly.environment import BrokerEnvironment
from pocketmq.broker.delay.delay_plan import DelayPlan
from pocketmq.broker.delay.delay_service import DelayService
from pocketmq.broker.flow_control.put_outcome import confirm_topics
from pocketmq.broker.group.client_table import ClientTable
from pocketmq.broker.group.retry_topics import RetryTopics
from pocketmq.broker.send.native_append import NativeAppend
from pocketmq.broker.send.native_half import NativeHalves
from pocketmq.broker.send.recall import Recalls
from pocketmq.broker.send.reply_processor import ReplyProcessor
from pocketmq.broker.send.rocketmq_send import RocketMQSends
from pocketmq.broker.send.send_back import SendBacks
from pocketmq.broker.send.send_checks import SendChecks
from pocketmq.broker.send.send_planner import SendPlanner
from pocketmq.broker.topic.registered_topics import RegisteredTopics
from pocketmq.broker.transaction.transaction_plan import HalfPlan
from pocketmq.broker.transaction.transaction_table import TransactionTable
from pocketmq.common.plain_check import PlainRules
from pocketmq.remoting.server import Connection
from pocketmq.store.message_store import MessageStore


def send_planner(
    environment: BrokerEnvironment,
    rules: PlainRules,
    store: MessageStore,
    delays: DelayService | None,
    retries: RetryTopics,
    transactions: TransactionTable,
) -> SendPlanner:
    """Return the planner of one send thread."""
    checks = SendChecks(environment.config, environment.topics)
    is_congested = takes_no_timers if delays is None else delays.is_congested
    plan = DelayPlan(environment.store_config, store.delay_levels, is_congested, environment.clock)
    halves = HalfPlan(environment.config, transactions)
    rocketmq = _rocketmq_sends(environment, checks, plan, retries, halves)
    native, native_halves = NativeAppend(rules, checks), NativeHalves(halves)
    send_backs = SendBacks(environment.config, store, checks, retries, plan, environment.counters)
    group_bytes_max = environment.store_config.group_bytes_max
    recalls = Recalls(environment.config, environment.store_config, store, environment.topics, environment.clock)
    return SendPlanner(
        native, rocketmq, native_halves, checks, group_bytes_max, environment.refusals, send_backs, recalls
    )


def reply_processor(
    environment: BrokerEnvironment,
    store: MessageStore,
    clients: ClientTable[Connection],
    transactions: TransactionTable,
    retries: RetryTopics,
    registered: RegisteredTopics,
) -> ReplyProcessor:
    """Return the processor of replies, with checks of its own: its thread is not a send thread."""
    checks = SendChecks(environment.config, environment.topics)
    plan = DelayPlan(environment.store_config, store.delay_levels, takes_no_timers, environment.clock)
    halves = HalfPlan(environment.config, transactions)
    return ReplyProcessor(
        environment.config,
        store,
        _rocketmq_sends(environment, checks, plan, retries, halves),
        lambda: confirm_topics(checks, registered.publish),
        partial(_requester, clients, environment.auth.guard),
        environment.mailbox,
        environment.counters,
        environment.refusals,
        environment.clock,
        environment.logger("broker"),
    )


def _requester(clients: ClientTable[Connection], guard: AuthGuard | None, client_id: str) -> Connection | None:
    """Return the connection of a client that waits for replies, unless its user may do nothing any more."""
    connection = clients.producer_connection(client_id)
    if connection is None or guard is None or connection.speaker is None:
        return connection
    return None if guard.present(connection.speaker) is None else connection


def _rocketmq_sends(
    environment: BrokerEnvironment, checks: SendChecks, plan: DelayPlan, retries: RetryTopics, halves: HalfPlan
) -> RocketMQSends:
    message_size_max = environment.store_config.max_message_size
    return RocketMQSends(environment.config, checks, environment.store_host, message_size_max, plan, retries, halves)


def takes_no_timers(due_ms: int) -> bool:
    """Return False: a slave takes no sends, so it has no timers to count."""
    return False
