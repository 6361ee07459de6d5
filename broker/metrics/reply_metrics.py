"""What Prometheus sees of request-reply.

Lives here: ``ReplyFigures``, the metric families.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pocketmq.broker.send.reply_processor import ReplyProcessor


class ReplyFigures:
    """Reads attributes only; any thread."""

    def __init__(self, processor: ReplyProcessor) -> None:
        self._processor = processor

    def families(self) -> Iterator[Metric]:
        """Yield the families, read now."""
        processor = self._processor
        yield GaugeMetricFamily(
            "pocketmq_replies_waiting", "Replies that wait for their requester or the store.", value=processor.waiting
        )
        pushes = CounterMetricFamily(
            "pocketmq_replies", "Replies, by whether their requester has taken them.", labels=["pushed"]
        )
        pushes.add_metric(["yes"], processor.pushed)
        pushes.add_metric(["no"], processor.not_pushed)
        yield pushes
        yield CounterMetricFamily(
            "pocketmq_replies_not_stored", "Replies that the store refused.", value=processor.not_stored
        )
