"""Logs that real RocketMQ processes wrote under induced faults lead to the incident that was induced.

``rocketmq_logs/`` is made by ``python -m tests.interop.rocketmq_logs``; nothing in it is made up (its README).
"""

from collections import Counter
from pathlib import Path

import pytest

from pocketmq.pipeline.jobs.flow_control.chain import Chain
from pocketmq.pipeline.jobs.flow_control.evidence import Incident
from pocketmq.pipeline.jobs.flow_control.files import find_logs, logs_of
from pocketmq.pipeline.jobs.flow_control.log_reader import Reading, Zones, read_log
from pocketmq.pipeline.jobs.flow_control.tally import Tally

LOGS = Path(__file__).parent / "rocketmq_logs"
ZONES = Zones(client="UTC")
"""The machine on which the clients of 4.9 ran had UTC."""
VERSIONS = ("4.9", "5.3")


def explained(*places: Path) -> list[tuple[Incident, list[Chain]]]:
    """Return the incidents of logs, without Spark."""
    paths = find_logs([str(place) for place in places])
    tally, logs = Tally(), logs_of(paths)
    for path in paths:
        for line, at_ms, fact in read_log(path, Reading(), ZONES):
            tally.add(logs[path], path, line, at_ms, fact)
    return tally.incidents()[0]


def only(version: str, case: str) -> tuple[Incident, Chain]:
    """Return the only incident of a case and its only chain."""
    [(incident, [chain])] = explained(LOGS / version / case)
    assert incident.broker == "rocketmq-a", "broker and client agree on the name, in other files and zones"
    return incident, chain


def shown(chain: Chain) -> str:
    """Return the steps that the logs show, as text."""
    return "\n".join("; ".join((step.text, *step.evidence)) for step in chain.steps if step.shown)


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_that_waited_too_long(version: str) -> None:
    """[TIMEOUT_CLEAN_QUEUE] is in the client's log alone. A client of 4.9 gives up, one of 5.3 tries again."""
    incident, chain = only(version, "queue-timeout")
    assert chain.number == 1
    assert incident.refused > 0
    assert (incident.sends_ended > 0) == (version == "4.9")
    assert "× [TIMEOUT_CLEAN_QUEUE]" in shown(chain)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_append_that_stood_still(version: str) -> None:
    """The store's log has how long the lock was held, the client's log the refusals."""
    incident, chain = only(version, "page-cache-busy")
    assert chain.number == 2
    assert incident.refused > 0
    assert "append lock held for up to 1," in shown(chain)
    assert "[REJECTREQUEST]" in shown(chain)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_pool_without_a_free_buffer(version: str) -> None:
    """[REJECTREQUEST] has two causes; the store's log tells them apart."""
    _, chain = only(version, "pool-deficient")
    assert (chain.number, chain.scenario) == (2, "reject-request")
    assert "TransientStorePool only remain 0 sheets" in shown(chain)
    assert "cause no_write_buffer" in shown(chain)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_slave_that_does_not_confirm(version: str) -> None:
    """Sends of a synchronous master wait; clients whose time is shorter get no answer."""
    _, chain = only(version, "slave-stopped")
    assert chain.number == 4
    assert "A slave lost its connection" in shown(chain)
    assert "Sends waited for the slave, up to 2," in shown(chain)
    assert "timeout" in shown(chain)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_lock_that_a_killed_consumer_kept(version: str) -> None:
    """The broker's lock.log and the client that waits say the same."""
    _, chain = only(version, "lock-conflict")
    assert chain.number == 5
    assert "CID_orders" in shown(chain)
    assert ("filter.log:" if version == "5.3" else "lock.log:") in shown(chain), "5.3.3's logback.xml mixes them up"
    assert "queue_waits_for_lock" in shown(chain)
    assert "× queue_lock_expired" in shown(chain)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_full_disk(version: str) -> None:
    """The store's log says when, the client's log how many."""
    incident, chain = only(version, "disk-full")
    assert "disk is full" in chain.summary
    assert incident.refused > 0
    assert "mark disk full" in shown(chain)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_that_does_not_answer(version: str) -> None:
    """Only the client knows: sends that timed out, then connections that were refused."""
    _, chain = only(version, "send-timeout")
    assert "clients: " in shown(chain)
    assert "in phase send" in shown(chain)
    assert "in phase connect" in shown(chain)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_line_has_its_place(version: str) -> None:
    """No line of RocketMQ is foreign, broken or without a time."""
    counts = Counter[str]()
    for path in find_logs([str(LOGS / version)]):
        reading = Reading()
        assert all(fact.kind for _, _, fact in read_log(path, reading, ZONES))
        counts.update(dict(reading.counts()))
    assert counts.keys() == {"lines", "events", "continued"}
    assert counts["lines"] == counts["events"] + counts["continued"]
