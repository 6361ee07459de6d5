"""Brokers that were slow or failed, and until when they are avoided (LatencyFaultToleranceImpl, MQFaultStrategy).

Lives here: ``LatencyTable`` with RocketMQ's numbers, ``FaultItems``. Pure: times are handed in.

A producer consults ``FaultItems`` only while a broker is avoided (``avoided`` is not empty), and reports only latencies
above ``slow_ms``: a healthy cluster costs one comparison per answer.
"""

from dataclasses import dataclass

ITEMS_MAX = 4_096
"""Brokers remembered; beyond, those whose time ends first are dropped."""


@dataclass(slots=True, frozen=True)
class LatencyTable:
    """For how long a broker is avoided after an attempt took so long, in ms.

    ``isolated_latency_ms`` stands for the latency of an attempt that failed.
    """

    latency_max_ms: tuple[int, ...]
    not_available_duration_ms: tuple[int, ...]
    isolated_latency_ms: int

    def duration_ms(self, latency_ms: float) -> int:
        """Return the entry of the highest ``latency_max_ms`` that ``latency_ms`` reaches."""
        for limit_ms, duration_ms in zip(
            reversed(self.latency_max_ms), reversed(self.not_available_duration_ms), strict=True
        ):
            if latency_ms >= limit_ms:
                return duration_ms
        return 0

    @property
    def slow_ms(self) -> int:
        """The lowest latency that has a consequence."""
        pairs = zip(self.latency_max_ms, self.not_available_duration_ms, strict=True)
        return next((limit_ms for limit_ms, duration_ms in pairs if duration_ms), 1 << 62)


LATENCY_TABLE_5_3 = LatencyTable(
    (50, 100, 550, 1800, 3000, 5000, 15000), (0, 0, 2000, 5000, 6000, 10000, 30000), isolated_latency_ms=10_000
)
"""MQFaultStrategy.java, 5.1.4 and later: a failure costs a broker 10 s."""
LATENCY_TABLE_4_9 = LatencyTable(
    (50, 100, 550, 1000, 2000, 3000, 15000), (0, 0, 30000, 60000, 120000, 180000, 600000), isolated_latency_ms=30_000
)
"""MQFaultStrategy.java, 4.9 to 5.1.3: a failure costs a broker 10 minutes."""


@dataclass(slots=True)
class _Item:
    until_ns: int
    reachable: bool


class FaultItems:
    """Which brokers are avoided now. ``avoided`` maps a broker's name to its item; empty in a healthy cluster."""

    __slots__ = ("avoided", "slow_ms", "table")

    def __init__(self, table: LatencyTable = LATENCY_TABLE_5_3) -> None:
        self.table = table
        self.slow_ms = table.slow_ms
        self.avoided: dict[str, _Item] = {}

    def update(
        self, broker: str, latency_ms: float, now_ns: int, *, isolation: bool = False, reachable: bool = True
    ) -> None:
        """Note the result of an attempt at ``broker``; a fast answer ends its time at once (MQFaultStrategy.java)."""
        if not isolation and latency_ms < self.slow_ms and broker not in self.avoided:
            return
        duration_ms = self.table.duration_ms(self.table.isolated_latency_ms if isolation else latency_ms)
        if not duration_ms:
            self.avoided.pop(broker, None)
            return
        if len(self.avoided) >= ITEMS_MAX and broker not in self.avoided:
            del self.avoided[min(self.avoided, key=lambda name: self.avoided[name].until_ns)]
        self.avoided[broker] = _Item(now_ns + duration_ms * 1_000_000, reachable)

    def unavailable(self, now_ns: int) -> set[str]:
        """Return the brokers whose time is not over; forget the others."""
        over = [name for name, item in self.avoided.items() if now_ns >= item.until_ns]
        for name in over:
            del self.avoided[name]
        return set(self.avoided)

    def unreachable(self) -> set[str]:
        """Return the avoided brokers that could not be reached at all."""
        return {name for name, item in self.avoided.items() if not item.reachable}
