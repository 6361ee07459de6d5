"""The parts that take messages in: what a send thread and the replies need for themselves.

Lives here: ``send_planner``, ``reply_processor``.
"""

from pocketmq.broker.assembly.environment import Parts
from pocketmq.broker.delay.delay_plan import DelayPlan
from pocketmq.broker.delay.delay_service import DelayService
from pocketmq.broker.flow_control.put_outcome import confirm_topics
from pocketmq.broker.group.client_table import ClientTable
from pocketmq.broker.group.retry_topics import RetryTopics
from pocketmq.broker.persisted_table import PersistedTable
from pocketmq.broker.send.native_append import NativeAppend
from pocketmq.broker.send.native_half import NativeHalves
from pocketmq.broker.send.reply_processor import ReplyProcessor
from pocketmq.broker.send.rocketmq_send import TypedSends
from pocketmq.broker.send.send_back import SendBacks
from pocketmq.broker.send.send_checks import SendChecks
from pocketmq.broker.send.send_planner import SendPlanner
from pocketmq.broker.transaction.transaction_plan import HalfPlan
from pocketmq.broker.transaction.transaction_table import TransactionTable
from pocketmq.common.plain_check import PlainRules
from pocketmq.common.runner import LoopMailbox
from pocketmq.remoting.server import Connection
from pocketmq.store.message_store import MessageStore


def send_planner(
    parts: Parts,
    rules: PlainRules,
    store: MessageStore,
    delays: DelayService | None,
    retries: RetryTopics,
    transactions: TransactionTable,
) -> SendPlanner:
    """Return what one send thread needs for itself."""
    checks = SendChecks(parts.config, parts.topics)
    is_congested = takes_no_timers if delays is None else delays.is_congested
    plan = DelayPlan(parts.store_config, store.delay_levels, is_congested, parts.clock)
    halves = HalfPlan(parts.config, transactions)
    message_size_max = parts.store_config.max_message_size
    typed = TypedSends(parts.config, checks, parts.store_host, message_size_max, plan, retries, halves)
    native, native_halves = NativeAppend(rules, checks), NativeHalves(halves)
    send_backs = SendBacks(parts.config, store, checks, retries, plan, parts.counters)
    group_bytes_max = parts.store_config.group_bytes_max
    return SendPlanner(native, typed, native_halves, checks, group_bytes_max, parts.refusals, send_backs)


def reply_processor(
    parts: Parts,
    store: MessageStore,
    clients: ClientTable[Connection],
    transactions: TransactionTable,
    retries: RetryTopics,
    topics_file: PersistedTable,
    mailbox: LoopMailbox,
) -> ReplyProcessor:
    """Return what serves replies, with checks of its own: its thread is not a send thread."""
    checks = SendChecks(parts.config, parts.topics)
    plan = DelayPlan(parts.store_config, store.delay_levels, takes_no_timers, parts.clock)
    halves = HalfPlan(parts.config, transactions)
    message_size_max = parts.store_config.max_message_size
    typed = TypedSends(parts.config, checks, parts.store_host, message_size_max, plan, retries, halves)
    return ReplyProcessor(
        parts.config,
        store,
        typed,
        lambda: confirm_topics(checks, topics_file.persist),
        clients.producer_connection,
        mailbox,
        parts.counters,
        parts.refusals,
        parts.clock,
        parts.logger("broker"),
    )


def takes_no_timers(due_ms: int) -> bool:
    """Tell that a slave, which takes no sends, has no timers to count."""
    return False
