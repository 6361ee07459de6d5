"""Chains of causes without Spark: steps without evidence are marked, and a page is safe for any log."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from pocketmq.pipeline.jobs.flow_control import page
from pocketmq.pipeline.jobs.flow_control.chain import Case, Chain, explain
from pocketmq.pipeline.jobs.flow_control.evidence import Evidence, Incident

INCIDENT = Incident("b@1", "b", 1_000_000 * 60_000, 1_000_001 * 60_000, 1, 10, 0)


def told(kind: str, name: str, **fields: Any) -> Evidence:
    values: dict[str, Any] = {"count": 1, "file": "/logs/b/broker.log", "line": 7} | fields
    return Evidence("b@1", kind, name, **values)


def timeouts(count: int = 10) -> Evidence:
    text = "[TIMEOUT_CLEAN_QUEUE]broker busy, …, period in queue: 203ms, size of queue: 985"
    return told("refusal", "line", cause="queue_timeout", tag="TIMEOUT_CLEAN_QUEUE", code=2, count=count, text=text)


def chains(*evidence: Evidence) -> list[Chain]:
    return explain(Case(INCIDENT, evidence))


def test_without_stage_times_no_stage_is_blamed() -> None:
    """Refusals alone show that sends waited, not why: the chain names the missing evidence."""
    (chain,) = chains(timeouts())
    assert chain.number == 1
    assert "do not show" in chain.summary
    assert not chain.complete
    assert "interval" in chain.missing[0]
    assert next(step.text for step in chain.steps if not step.shown) == "Which stage was slow is not in the logs"


def test_quick_stages_mean_that_more_came_than_is_served() -> None:
    """A full queue while appends are quick means load, not a slow disk."""
    (chain,) = chains(
        timeouts(),
        told("stage", "append", p50=0.1, p99=1.0, highest=4.0),
        told("stage", "queue_wait", p50=90.0, p99=205.0, highest=210.0),
        told("stage", "process", p50=0.1, p99=0.5, highest=2.0),
    )
    assert "more came than is served" in chain.summary
    assert not any("disk" in step.text for step in chain.steps)


def test_a_slow_stage_beside_the_append_is_named() -> None:
    """Slow checks are named as the cause."""
    (chain,) = chains(timeouts(), told("stage", "process", p50=30.0, p99=80.0, highest=90.0))
    assert "process" in chain.summary


def test_a_slow_append_of_unknown_cause_leaves_its_cause_open() -> None:
    """The append is slow; the chain invents no cause."""
    (chain,) = chains(timeouts(), told("stage", "append", p50=100.0, p99=105.0, highest=105.0))
    assert "because appends were slow" in chain.summary
    assert not chain.steps[0].shown
    assert "not in the logs" in chain.steps[0].text
    slow_disk = told("stage", "sync", p50=90.0, p99=400.0, highest=700.0)
    (with_disk,) = chains(timeouts(), told("stage", "append", p99=105.0, highest=105.0), slow_disk)
    assert with_disk.steps[0].shown
    assert "disk was slow" in with_disk.steps[0].text


def test_a_raised_limit_is_called_a_bad_cure() -> None:
    """A hold above 1,000 ms with a page cache that is not busy: the limit was raised."""
    (chain,) = chains(timeouts(), told("hold", "held", tag="calm", highest=2942.0))
    assert any("os_page_cache_busy_timeout_mills" in step.text for step in chain.steps)
    (plain,) = chains(timeouts(), told("hold", "held", highest=2942.0))
    assert not any("os_page_cache_busy_timeout_mills" in step.text for step in plain.steps)


def test_a_queue_that_refused_long_after_the_page_cache_has_its_own_cause() -> None:
    """Expired requests around a stuck append belong to it; those minutes later are another chain of the same
    incident."""
    busy = told("refusal", "line", cause="page_cache_busy", count=20, first_ms=100_000, last_ms=103_000)
    early = replace(timeouts(5), first_ms=99_000, last_ms=104_000)
    (one,) = chains(busy, early)
    assert (one.number, one.weight) == (2, 25)
    late = replace(timeouts(500), first_ms=99_000, last_ms=220_000)
    assert [(chain.number, chain.weight) for chain in chains(busy, late)] == [(1, 500), (2, 20)]


def test_refusals_of_other_causes_have_their_own_chain() -> None:
    """A full disk is not one of the six incidents; the weightiest chain comes first."""
    full = told("refusal", "line", cause="disk_full", code=1, count=500)
    found = chains(timeouts(), full)
    assert [chain.number for chain in found] == [0, 1]
    assert "disk is full" in found[0].summary


def test_clients_alone_are_not_enough() -> None:
    """If only clients complain about a broker, the chain asks for the broker's logs."""
    (chain,) = chains(told("attempt", "connect", count=4, ended=4))
    assert chain.number == 0
    assert chain.missing


def test_locks_and_slow_syncs_have_chains() -> None:
    """An ordered queue that waits (5) and sends that are not durable in time (6) have chains."""
    (lock,) = chains(told("event", "queue_lock_refused", count=3), told("event", "queue_lock_expired"))
    assert (lock.number, lock.complete, lock.scenario) == (5, True, "ordered-lock-stuck")
    flush = chains(told("event", "flush_disk_timeout"), told("stage", "sync", p99=5000.0, highest=6000.0))
    assert 6 in [chain.number for chain in flush]


def test_a_page_escapes_every_text(tmp_path: Path) -> None:
    """Names and remarks of a log stay text in the page, which may run no script."""
    evil = "</li><script>alert(1)</script>\"'&"
    incident = Incident(evil, evil, 0, 60_000, 1, 1, 0)
    cause = told("refusal", "line", cause="queue_timeout", text=evil, file=f"/{evil}/x.log")
    report = page.Report(
        begin_ms=0,
        end_ms=60_000,
        counts={"events": 1, "lines": 1, "files": 1, "unreadable": 1},
        unreadable=[(evil, evil)],
        incidents=[(incident, explain(Case(incident, [cause])))],
        incidents_all=70,
        refused=1,
        sends_ended=0,
        refused_by={evil: 1},
        brokers=1,
        minutes=[{"broker": evil, "at": evil, "refused": 1, "puts": None, "append_p99_ms": 0.5}],
        pictures={},
        traces=[{"at": evil, "topic": evil, "sends": 1, "failed": 0, "p50_ms": 1.0, "p99_ms": 2.0}],
    )
    path = tmp_path / "report.html"
    page.write_page(str(path), report)
    text = path.read_text()
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "default-src 'none'" in text
    assert "69 smaller incidents" in text
