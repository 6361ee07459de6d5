"""Facts to incidents in one process: memory is bounded, and trouble at the end of a process is seen."""

import pytest

from pocketmq.pipeline.jobs.flow_control import tally as module
from pocketmq.pipeline.jobs.flow_control.facts import Fact
from pocketmq.pipeline.jobs.flow_control.tally import Tally

BEGIN_MS = 1_795_445_040_000
MINUTE_MS = 60_000


def test_an_incident_that_ends_with_the_process_is_found() -> None:
    """No ``interval`` line came any more: the events themselves are trouble, of the slave and of its master."""
    tally = Tally()
    for log, name, count in (("/m/broker.log", "flush_slave_timeout", 32), ("/s/broker.log", "slave_disk_failed", 1)):
        tally.add(log, log, 1, BEGIN_MS, Fact("broker", "pair-1"))
        tally.add(log, log, 2, BEGIN_MS + 5000, Fact("event", name, count=count, text="why"))
    [(incident, [chain])], number = tally.incidents()
    assert (incident.broker, number, chain.number) == ("pair-1", 1, 4)
    texts = [step.text for step in chain.steps if step.shown]
    assert texts[0].startswith("The slave's disk failed")
    assert any("FLUSH_SLAVE_TIMEOUT" in text for text in texts)
    assert chain.weight == 32


def test_quiet_minutes_do_not_end_an_incident() -> None:
    """Up to the given number; a longer calm does."""
    for quiet, incidents in ((0, 3), (1, 2), (5, 1)):
        tally = Tally()
        for minute in (0, 2, 7):
            tally.add("b", "b.log", 1, BEGIN_MS + minute * MINUTE_MS, Fact("event", "disk_full", count=1))
        assert tally.incidents(quiet)[1] == incidents


def test_calm_minutes_are_forgotten_and_trouble_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are bounded, however long the log: what explains trouble is kept."""
    monkeypatch.setattr(module, "ROWS_MAX", 100)
    tally = Tally()
    for minute in range(2000):
        at_ms = BEGIN_MS + minute * MINUTE_MS
        if minute == 50:
            tally.add("b", "b.log", minute, at_ms, Fact("refusal", "line", cause="queue_timeout", count=7))
        tally.add("b", "b.log", minute, at_ms, Fact("stage", "append", count=1, value=100.0, p50=100.0, p99=100.0))
    assert len(tally._rows) <= 100
    assert tally.forgotten > 1000
    [(incident, [chain])], _ = tally.incidents()
    assert incident.refused == 7
    assert "because appends were slow" in chain.summary
    for minute in range(2000, 4000):
        tally.add("b", "b.log", minute, BEGIN_MS + minute * MINUTE_MS, Fact("event", "disk_full", count=1))
    assert len(tally._rows) <= 100
    assert tally.left_out > 1000, "and it is said"
