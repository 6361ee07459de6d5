"""What Prometheus sees of transactions.

Lives here: ``TransactionFigures``, the metric families.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pocketmq.broker.transaction.end_transaction_processor import EndTransactionProcessor
from pocketmq.broker.transaction.transaction_service import TransactionService
from pocketmq.broker.transaction.transaction_table import Outcome

_LABELS = {
    Outcome.COMMITTED: "committed",
    Outcome.ROLLED_BACK: "rolled_back",
    Outcome.GIVEN_UP: "given_up",
    Outcome.LOST: "lost",
}


class TransactionFigures:
    """Reads attributes only; any thread."""

    def __init__(self, service: TransactionService, processor: EndTransactionProcessor) -> None:
        self._service = service
        self._processor = processor

    def families(self) -> Iterator[Metric]:
        """Yield the families, read now."""
        service = self._service
        for name, text, value in (
            ("half_messages_pending", "Half messages that wait for a decision.", float(len(service.table))),
            ("half_messages_pending_max", "Most of them that are taken.", float(service.table.pending_max)),
            ("half_message_oldest_seconds", "Age of the oldest of them.", service.oldest_ms() / 1000),
        ):
            yield GaugeMetricFamily(f"pocketmq_{name}", text, value=value)
        ended = CounterMetricFamily(
            "pocketmq_transactions_ended", "Transactions that ended, by outcome.", labels=["outcome"]
        )
        for outcome, label in _LABELS.items():
            ended.add_metric([label], service.writer.totals[outcome])
        yield ended
        for name, text, count in (
            ("transaction_checks", "Checks sent to producers.", service.checks),
            ("transaction_check_answers", "Decisions that answered a check.", self._processor.from_checks),
            (
                "transaction_checks_without_producer",
                "Times that a half message was due for a check and no producer of its group was connected.",
                service.checks_without_producer,
            ),
            ("transaction_ends_refused", "Decisions that were not taken.", self._processor.refused),
            ("transaction_put_failures", "Appends of decisions that the store refused.", service.writer.put_failures),
        ):
            yield CounterMetricFamily(f"pocketmq_{name}", text, value=count)
