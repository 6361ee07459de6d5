"""The metrics of delays, transactions and replies; one row each.

Lives here: the groups of ``SERVICES``.
"""

from functools import partial
from typing import Final

from pocketmq.broker.delay.delay_service import DelayService
from pocketmq.broker.metrics.registry import Counter, Gauge, Group, only
from pocketmq.broker.metrics.sources import Pops, Transactions
from pocketmq.broker.send.reply_processor import ReplyProcessor
from pocketmq.broker.transaction.transaction_table import Outcome

OUTCOMES: Final = {
    Outcome.COMMITTED: "committed",
    Outcome.ROLLED_BACK: "rolled_back",
    Outcome.GIVEN_UP: "given_up",
    Outcome.LOST: "lost",
}
"""Values of the label ``outcome``."""


def _ended(outcome: Outcome, transactions: Transactions) -> int:
    return transactions.service.writer.totals[outcome]


DELAYS: Final[Group[DelayService]] = Group(
    only(lambda look: look.sources.delays),
    (
        Gauge(
            "delayed_pending",
            "Messages of delay levels that wait.",
            lambda delays: delays.pending_levels(),
            note="messages of delay levels that wait; these nine are missing on a slave, see [delay.md](delay.md)",
        ),
        Gauge(
            "timers_pending",
            "Messages for any time that wait.",
            lambda delays: delays.timers.pending,
            runtime="timerPending",
        ),
        Gauge(
            "timers_in_memory",
            "Timers in the wheel.",
            lambda delays: len(delays.timers.wheel),
            note="those of them in the wheel; the rest is due later and is read again from its queue",
        ),
        Gauge(
            "timers_unread",
            "Stored timers that the delivery thread has not read yet.",
            lambda delays: delays.timers_unread(),
            note="stored timers that the delivery thread has not read yet: usually 0",
            runtime="timerOffsetBehind",
        ),
        Gauge(
            "timer_lag_seconds",
            "Time since the next timer was due.",
            lambda delays: delays.timer_lag_ms(),
            note="since when the next timer is due; above 0 for long: the store refuses deliveries, or the machine is "
            "too slow",
            runtime="timerReadBehind",
        ),
        Gauge(
            "delay_lag_seconds", "Time since the next delayed message was due.", lambda delays: delays.level_lag_ms()
        ),
        Counter(
            "delayed_delivered",
            "Delayed messages delivered.",
            lambda delays: delays.deliverer.delivered,
            runtime="delayDelivered",
        ),
        Counter(
            "delayed_dropped",
            "Delayed messages that could not be delivered.",
            lambda delays: delays.deliverer.dropped,
            note="delayed messages that cannot be delivered at all: each has its event `delayed_message_dropped`",
            runtime="delayDropped",
        ),
        Counter(
            "delayed_put_failures",
            "Deliveries that the store refused, tried again.",
            lambda delays: delays.deliverer.put_failures,
            note="deliveries that the store refused (page cache busy, disk full); they are tried again",
        ),
    ),
)
TRANSACTIONS: Final[Group[Transactions]] = Group(
    only(lambda look: look.sources.transactions),
    (
        Gauge(
            "half_messages_pending",
            "Half messages that wait for a decision.",
            lambda transactions: len(transactions.service.table),
            note="half messages that wait for a decision; these nine are missing on a slave, see "
            "[transactions.md](transactions.md)",
            runtime="halfMessagesPending",
        ),
        Gauge(
            "half_messages_pending_max",
            "Limit of half messages that wait.",
            lambda transactions: transactions.service.table.pending_max,
            note="their limit; beyond it new ones are refused",
        ),
        Gauge(
            "half_message_oldest_seconds",
            "Age of the oldest half message that waits.",
            lambda transactions: transactions.service.oldest_ms(),
            note="age of the oldest of them: above a few check intervals, a producer group is away or its check does "
            "not decide",
        ),
        Counter(
            "transactions_ended",
            "Transactions that ended, by outcome.",
            lambda transactions: [((label,), _ended(outcome, transactions)) for outcome, label in OUTCOMES.items()],
            labels=("outcome",),
            note="`committed`, `rolled_back`, `given_up` (after the last check), "
            "`lost` (the log no longer has its half message)",
        ),
        Counter(
            "transaction_checks",
            "Checks sent to producers.",
            lambda transactions: transactions.service.checks,
            runtime="transactionChecks",
        ),
        Counter(
            "transaction_check_answers",
            "Decisions that answered a check.",
            lambda transactions: transactions.end.from_checks,
            note="decisions that answered a check, unknown ones included",
        ),
        Counter(
            "transaction_checks_without_producer",
            "Times that a half message was due for a check and no producer of its group was connected.",
            lambda transactions: transactions.service.checks_without_producer,
        ),
        Counter(
            "transaction_ends_refused",
            "Decisions that the broker refused.",
            lambda transactions: transactions.end.refused,
            note="refused decisions: unknown or finished transaction, wrong group or offset, store busy",
        ),
        Counter(
            "transaction_put_failures",
            "Appends of decisions that the store refused.",
            lambda transactions: transactions.service.writer.put_failures,
            note="appends of decisions that the store refused; the transactions stay open",
        ),
        *(
            Counter("", f"Transactions that {text}.", partial(_ended, outcome), runtime=key)
            for outcome, text, key in (
                (Outcome.COMMITTED, "were committed", "transactionsCommitted"),
                (Outcome.ROLLED_BACK, "were rolled back", "transactionsRolledBack"),
                (Outcome.GIVEN_UP, "ended after the last check", "transactionsGivenUp"),
            )
        ),
    ),
)
REPLIES: Final[Group[ReplyProcessor]] = Group(
    only(lambda look: look.sources.replies),
    (
        Gauge(
            "replies_waiting",
            "Replies that wait for their requester or the store.",
            lambda replies: replies.waiting,
            note="replies whose requester has not answered yet, at most `reply_pushes_max`; see "
            "[message-kinds.md](message-kinds.md)",
        ),
        Counter(
            "replies",
            "Replies, by whether their requester has accepted them.",
            lambda replies: [(("yes",), replies.pushed), (("no",), replies.not_pushed)],
            labels=("pushed",),
            note="replies, by whether their requester has taken them (`yes`, `no`)",
        ),
        Counter(
            "replies_not_stored",
            "Replies that the store refused.",
            lambda replies: replies.not_stored,
            note="replies that the store refused; their requesters still received them",
        ),
    ),
)
POPS: Final[Group[Pops]] = Group(
    only(lambda look: look.sources.pops),
    (
        Gauge(
            "pop_unacked",
            "Messages that were popped and are not acknowledged.",
            lambda pops: pops.ledger.count,
            note="messages in flight of all groups, at most `pop_unacked_max`; see [pop.md](pop.md)",
        ),
        Gauge("pop_held", "Pops that wait for messages.", lambda pops: pops.service.count),
        Counter(
            "pop_refused_full",
            "Reads of a queue that pops did not make, because too many messages are in flight.",
            lambda pops: pops.ledger.refused_full,
            note="reads that pops did not make, because the queue or the broker has as many messages in flight as it "
            "may",
        ),
        Counter(
            "pop_dead",
            "Popped messages that went to a dead-letter topic.",
            lambda pops: 0 if pops.revival is None else pops.revival.dead,
            note="messages that went to a dead-letter topic after the group's attempts",
        ),
        Counter(
            "pop_lost",
            "Popped messages that the log no longer has.",
            lambda pops: 0 if pops.revival is None else pops.revival.lost,
            note="messages whose time was over and that the log no longer had: each has its event "
            "`popped_message_lost`",
        ),
    ),
)
SERVICES: Final = (DELAYS, TRANSACTIONS, REPLIES, POPS)
"""In the order of the documentation."""
