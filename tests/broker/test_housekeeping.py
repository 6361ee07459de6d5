"""Tables written at intervals, and at the end."""

from types import SimpleNamespace
from typing import Any

import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.housekeeping import Housekeeping
from pocketmq.common.clock import ManualClock
from pocketmq.common.logs import CapturedLog
from pocketmq.store.errors import DiskError


class Tables:
    """Three tables; those with an error raise it."""

    def __init__(self, **errors: Exception) -> None:
        self.written: list[str] = []
        self.errors = errors
        self.tables = [SimpleNamespace(path=name, persist=lambda name=name: self._persist(name)) for name in "abc"]

    def _persist(self, name: str) -> None:
        if name in self.errors:
            raise self.errors[name]
        self.written.append(name)


def housekeeping(tables: Any, log: CapturedLog, clock: ManualClock) -> Housekeeping:
    nobody: Any = SimpleNamespace(
        expire=lambda before_ns: ([], []), members_changed=lambda groups: None, refresh=lambda: None
    )
    return Housekeeping(BrokerConfig(), tables, nobody, nobody, nobody, lambda: None, nobody, clock, log)


@pytest.mark.parametrize("error", [DiskError("sick"), FileNotFoundError("gone"), RuntimeError("a bug")])
def test_one_table_that_cannot_be_written_does_not_keep_the_others(error: Exception) -> None:
    """It is logged with its path and tried again; the step ends as always."""
    tables, log, clock = Tables(a=error), CapturedLog(), ManualClock()
    keeper = housekeeping(tables.tables, log, clock)
    clock.advance_ms(10_000)
    assert keeper.step() == 1000
    assert tables.written == ["b", "c"]
    told = [event for event in log.events if event["event"] == "config_not_written"]
    assert [(event["path"], event["error"]) for event in told] == [("a", str(error))]
    tables.errors.clear()
    clock.advance_ms(10_000)
    keeper.step()
    assert tables.written == ["b", "c", "a", "b", "c"]


def test_the_last_write_raises_its_first_error() -> None:
    """A stop that loses a table raises its error."""
    tables = Tables(a=DiskError("first"), b=DiskError("second"))
    with pytest.raises(DiskError, match="first"):
        housekeeping(tables.tables, CapturedLog(), ManualClock()).stop()
    assert tables.written == ["c"]


def test_what_is_due_soon_is_written_at_once_and_not_again_and_again() -> None:
    """A pause after each write: nine times as long as it took, at least 100 ms."""
    tables, clock = Tables(), ManualClock()

    def slow() -> None:
        tables.written.append("slow")
        clock.advance_ms(50)

    keeper = housekeeping([SimpleNamespace(path="t", persist=slow)], CapturedLog(), clock)
    keeper._persist_due_ns = keeper._scan_due_ns = 1 << 62
    keeper.persist_soon()
    assert keeper.step() == 1000
    assert tables.written == ["slow"]
    keeper.persist_soon()
    assert keeper.step() == 450.0
    assert tables.written == ["slow"]
    clock.advance_ms(450)
    assert keeper.step() == 1000
    assert tables.written == ["slow", "slow"]
