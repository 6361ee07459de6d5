"""The figures of a durable retry.

Lives here: ``RetryState`` (plain values), its Prometheus collector.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pocketmq.client.durable.entry import SEQ_TIME_SHIFT

if TYPE_CHECKING:
    from pocketmq.client.durable.retry import DurableRetry


class RetryState(Collector):
    """The numbers of one ``DurableRetry``; ``registry.register(retry.state)`` exports them.

    Sizes in bytes, as the limits count them; ages in ms. Zero before the store was opened.
    """

    def __init__(self, retry: "DurableRetry") -> None:
        self._retry = retry

    @property
    def waiting(self) -> int:
        """Waiting messages, those being resent included."""
        return self._retry.summary.count

    @property
    def waiting_bytes(self) -> int:
        """Their bytes."""
        return self._retry.summary.size_bytes

    @property
    def waiting_keys(self) -> int:
        """Keys with messages that wait in order."""
        return sum(map(len, list(self._retry.summary.lanes.values())))

    @property
    def oldest_ms(self) -> int:
        """How long the oldest message waits, known to the second; 0 if none does."""
        seq = self._retry.summary.oldest_seq
        return max(self._retry.now_ms() - (seq >> SEQ_TIME_SHIFT), 0) if seq and self.waiting else 0

    @property
    def given_up(self) -> int:
        """Messages that stay in the store but are no longer resent."""
        return self._retry.summary.given_up_count

    @property
    def open(self) -> bool:
        """Whether the store can be used; if not, a message that cannot be sent is not safe."""
        return self._retry.store_fault is None

    def collect(self) -> Iterator[Metric]:
        """Yield what Prometheus scrapes."""
        retry = self._retry
        gauges = (
            ("waiting", "Messages that wait for a retry.", self.waiting),
            ("waiting_bytes", "Bytes of the messages that wait for a retry.", self.waiting_bytes),
            ("waiting_keys", "Ordered keys with messages that wait for a retry.", self.waiting_keys),
            ("oldest_seconds", "How long the oldest message waits.", self.oldest_ms / 1000),
            ("given_up", "Messages in the store that are not resent any more.", self.given_up),
            ("store_open", "1 if the store can be used, else 0.", int(self.open)),
        )
        for name, text, value in gauges:
            gauge = GaugeMetricFamily(f"pocketmq_retry_{name}", text, labels=("store",))
            gauge.add_metric((retry.store_name,), value)
            yield gauge
        counters = (
            ("kept", "Messages taken into the store.", retry.kept_total),
            ("resent", "Resends of messages, failed ones included.", retry.resent_total),
            ("delivered", "Messages from the store that a broker has.", retry.delivered_total),
            ("given_up_messages", "Messages that are not resent any more.", retry.given_up_total),
            ("not_safe", "Messages that neither a broker nor the store took.", retry.not_safe_total),
        )
        for name, text, value in counters:
            counter = CounterMetricFamily(f"pocketmq_retry_{name}", text, labels=("store",))
            counter.add_metric((retry.store_name,), value)
            yield counter
