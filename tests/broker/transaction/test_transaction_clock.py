"""A wall clock that is set back while transactions are under way."""

from pathlib import Path

import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.store.disk.os_file_system import OsFileSystem
from tests.broker.transaction_fixture import TransactionFixture
from tests.store.log_fakes import store_config

DAY_MS = 86_400_000


def test_a_committed_message_is_found_after_the_clock_was_set_back(tmp_path: Path) -> None:
    """A search up to "now" would miss what was stored before the step, and a second copy would be delivered."""
    clock = ManualClock()
    broker = TransactionFixture(store_config(tmp_path), OsFileSystem(), clock)
    broker.half(b"a", b"b")
    first, _ = broker.table.pending()
    broker.end([first], [])
    broker.store.dispatcher.catch_up()
    clock.step_ms(-DAY_MS)
    assert broker.writer.known_copy("T", "Ub'a'") == "it was committed already"
    assert broker.writer.known_copy("T", "Ub'b'") == "it waits for a decision already"
    assert broker.writer.known_copy("T", "Ub'c'") == ""
    broker.stop()


@pytest.mark.parametrize("step_ms", [DAY_MS, -DAY_MS, 100 * DAY_MS, 20 * 365 * DAY_MS])
def test_a_clock_that_is_set_gives_up_no_transaction_and_asks_in_time(tmp_path: Path, step_ms: int) -> None:
    """Checks come by the time that has passed, for those from before the step and from after it."""
    clock = ManualClock()
    broker = TransactionFixture(store_config(tmp_path), OsFileSystem(), clock, transaction_time_out=10_000)
    broker.half(b"before")
    broker.service.run_round()
    clock.advance_ms(5_000)
    clock.step_ms(step_ms)
    broker.half(b"after")
    broker.service.run_round()
    assert (len(broker.table), len(broker.port.asked)) == (2, 0)
    clock.advance_ms(5_000)
    broker.service.run_round()
    asked = [b"after" in body for _, body in broker.port.asked]
    # the log's time stands still after a step back: what comes then counts from the round before
    assert asked == ([False, True] if step_ms < 0 else [False])
    clock.advance_ms(5_000)
    broker.service.run_round()
    assert [b"after" in body for _, body in broker.port.asked][-2:] == [False, True]
    assert len(broker.table) == 2
    broker.stop()
