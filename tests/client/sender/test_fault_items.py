"""Latency tables and the brokers they avoid."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.sender.fault_items import (
    ITEMS_MAX,
    LATENCY_TABLE_4_9,
    LATENCY_TABLE_5_3,
    FaultItems,
    LatencyTable,
)

MS = 1_000_000


@pytest.mark.parametrize(
    ("table", "latency_ms", "duration_ms"),
    [
        (LATENCY_TABLE_5_3, 0, 0),
        (LATENCY_TABLE_5_3, 549.9, 0),
        (LATENCY_TABLE_5_3, 550, 2_000),
        (LATENCY_TABLE_5_3, 1_800, 5_000),
        (LATENCY_TABLE_5_3, 4_999, 6_000),
        (LATENCY_TABLE_5_3, 10_000, 10_000),
        (LATENCY_TABLE_5_3, 99_999, 30_000),
        (LATENCY_TABLE_4_9, 100, 0),
        (LATENCY_TABLE_4_9, 550, 30_000),
        (LATENCY_TABLE_4_9, 2_999, 120_000),
        (LATENCY_TABLE_4_9, 30_000, 600_000),
    ],
)
def test_the_tables_are_rocketmqs(table: LatencyTable, latency_ms: float, duration_ms: int) -> None:
    """MQFaultStrategy of 5.3 and of 4.9: the highest limit reached counts."""
    assert table.duration_ms(latency_ms) == duration_ms


@pytest.mark.parametrize(("table", "duration_ms"), [(LATENCY_TABLE_5_3, 10_000), (LATENCY_TABLE_4_9, 600_000)])
def test_a_failure_isolates_for_its_time_and_no_longer(table: LatencyTable, duration_ms: int) -> None:
    """10 s in 5.3, 10 minutes in 4.9; then the broker is available again."""
    faults = FaultItems(table)
    faults.update("a", 3.0, 0, isolation=True, reachable=False)
    assert faults.unavailable(duration_ms * MS - 1) == {"a"}
    assert faults.unreachable() == {"a"}
    assert faults.unavailable(duration_ms * MS) == set()
    assert not faults.avoided


def test_a_fast_answer_ends_the_isolation() -> None:
    """Some send had to try the broker, and it works."""
    faults = FaultItems()
    faults.update("a", 700.0, 0)
    assert faults.unavailable(1) == {"a"}
    faults.update("a", 1.0, 2)
    assert not faults.avoided


@given(st.floats(0, 549.9))
def test_fast_brokers_leave_no_trace(latency_ms: float) -> None:
    """A healthy cluster keeps the table empty, so a look-up costs nothing."""
    faults = FaultItems()
    faults.update("a", latency_ms, 0)
    assert not faults.avoided


def test_the_number_of_items_is_bounded() -> None:
    """Items whose time ends first are removed."""
    faults = FaultItems()
    for number in range(ITEMS_MAX + 10):
        faults.update(f"b{number}", 600.0, number)
    assert len(faults.avoided) == ITEMS_MAX
    assert "b0" not in faults.avoided
