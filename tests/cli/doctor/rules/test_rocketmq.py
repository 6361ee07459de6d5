"""The doctor on a RocketMQ: what real brokers of 4.9 and 5.3 answered while a fault was induced.

``rocketmq_answers/`` is made by ``tests/interop/rocketmq_logs.py``: codes 28, 26, 907 and 317, nothing made up. A
second check is the same answer later where the broker stood still, or has the difference that the test names.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.cli.doctor.broker_metrics import BrokerSettings, Peer, Snapshot
from pocketmq.cli.doctor.diagnosis import examine
from pocketmq.cli.doctor.finding import Area, Diagnosis, Light, Severity
from pocketmq.cli.doctor.rocketmq import decode_groups, decode_state
from pocketmq.remoting.protocol.body import KVTable, decode_body

ANSWERS = Path(__file__).parents[1] / "rocketmq_answers"
VERSIONS = ("4.9", "5.3")
CHECKS_MS = 2_000


def read(name: str) -> tuple[Snapshot, BrokerSettings]:
    """Return the answers of a broker as the reader has them."""
    answers = json.loads((ANSWERS / f"{name}.json").read_text())
    bodies = {code: answer["body"].encode() if answer["code"] == 0 else None for code, answer in answers.items()}
    runtime = decode_body(bodies["28"] or b"", KVTable).table
    state = decode_state(bodies["907"], bodies["317"])
    snapshot = Snapshot(
        broker="rocketmq-a", address="10.0.0.1:10911", at_ms=10_000, runtime=runtime, pocketmq=False, rocketmq=state
    )
    return snapshot, BrokerSettings.parse((bodies["26"] or b"").decode())


def later(snapshot: Snapshot, **runtime: Any) -> Snapshot:
    """Return the second check of a broker, with changes of its runtime table."""
    table = {**snapshot.runtime, **{name: str(value) for name, value in runtime.items()}}
    return dataclasses.replace(snapshot, at_ms=snapshot.at_ms + CHECKS_MS, runtime=table)


def check(name: str, *peers: Peer, **runtime: Any) -> Diagnosis:
    """Return the diagnosis of a second check."""
    snapshot, settings = read(name)
    return examine(later(snapshot, **runtime), settings, snapshot, peers)


def keys(diagnosis: Diagnosis, *severities: Severity) -> set[str]:
    """Return the keys of the findings, worse than notes by default."""
    return {
        each.key for each in diagnosis.findings if each.severity in (severities or (Severity.ERROR, Severity.WARNING))
    }


def text_of(diagnosis: Diagnosis, area: Area) -> str:
    """Return the line of an area."""
    return next(each.text for each in diagnosis.areas if each.area is area)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_not_known_is_said_in_one_line(version: str) -> None:
    """And what is known without telemetry has its light: nine areas of eleven."""
    diagnosis = check(f"{version}-lock-conflict")
    assert diagnosis.version.startswith(f"RocketMQ V{version[0]}_{version[2]}")
    [line] = diagnosis.missing
    for words in (
        "stage times",
        "refusals by cause",
        "queue locks",
        "who may connect",
        "no request for them",
        "explain --log",
    ):
        assert words in line
    assert ("slaves' connections" in line) == (version == "4.9")
    assert keys(diagnosis) == set()
    unknown = {each.area for each in diagnosis.areas if each.light is Light.NO_DATA}
    assert unknown == {Area.LOCKS, Area.ACCESS}
    assert "messages read" in text_of(diagnosis, Area.READS), "5.3 spells it getTransferredTps"


def test_a_slave_that_stands_still() -> None:
    """5.3 lists it, and 4.9's is seen by the end of its own log: an error on a master whose sends wait for it."""
    stuck = check("5.3-slave-stopped")
    assert keys(stuck) == {"slave-timeout"}
    assert "651 B behind" in stuck.findings[0].evidence[0]
    end = int(read("4.9-slave-stopped")[0].runtime["commitLogMaxOffset"])
    behind = check("4.9-slave-stopped", Peer(address="10.0.0.2:10911", end_offset=end - 651))
    assert keys(behind) == {"slave-timeout"}
    assert "651 B behind" in text_of(behind, Area.REPLICATION)


def test_a_slave_that_is_a_moment_later_is_none() -> None:
    """It has what the master had at the previous check; the master has more by now."""
    end = int(read("4.9-slave-stopped")[0].runtime["commitLogMaxOffset"])
    peer = Peer(address="10.0.0.2:10911", end_offset=end)
    assert keys(check("4.9-slave-stopped", peer, commitLogMaxOffset=end + 5000)) == set()


def test_a_slave_beyond_the_limit_is_waited_for_no_more() -> None:
    """Beyond haSlaveFallbehindMax sends get SLAVE_NOT_AVAILABLE at once: what is left is the slave that lags."""
    end = 1 << 30
    snapshot, settings = read("4.9-slave-stopped")
    first = later(snapshot, commitLogMaxOffset=end)
    second = later(first)
    peer = Peer(address="10.0.0.2:10911", end_offset=end - (300 << 20))
    assert keys(examine(second, settings, first, [peer])) == {"slave-falls-behind"}


def test_a_master_without_its_slave() -> None:
    """5.3 says that nobody is connected; in 4.9 a slave that does not answer has no end of the log."""
    diagnosis = check("5.3-slave-stopped-alone")
    assert keys(diagnosis) == {"slave-not-available"}
    assert diagnosis.worst is Severity.ERROR
    away = check("4.9-slave-stopped-alone", Peer(address="10.0.0.2:10911", error="nothing listens there"))
    assert keys(away) == {"slave-not-available"}
    assert "nothing listens there" in away.findings[0].evidence[0]


def test_a_slave_that_nobody_knows_is_a_warning() -> None:
    """4.9 lists no slaves: if the name server knows none either, sends may have no copy; an ASYNC_MASTER wants none."""
    diagnosis = check("4.9-slave-stopped-alone")
    assert keys(diagnosis, Severity.WARNING) == {"slave-not-available"}
    assert diagnosis.worst is Severity.WARNING
    assert "no slave is known to the name server" in text_of(diagnosis, Area.REPLICATION)
    assert keys(check("4.9-lock-conflict")) == set()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_faults_that_a_runtime_table_shows(version: str) -> None:
    """The pool without a free buffer; a put that took long, whose reason RocketMQ does not say."""
    assert keys(check(f"{version}-pool-deficient"), Severity.ERROR) == {"pool-deficient"}
    slow = check(f"{version}-page-cache-busy")
    assert "put-took-long" in keys(slow, Severity.NOTE)
    held = check(f"{version}-page-cache-busy", pageCacheLockTimeMills=3500)
    assert "page-cache-busy" in keys(held, Severity.ERROR)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_lag_of_groups(version: str) -> None:
    """RocketMQ's own groups do not count; the line names the group that is furthest behind."""
    messages = {"4.9": 3, "5.3": 4}[version]
    line = text_of(check(f"{version}-lock-conflict"), Area.READS)
    assert f"1 of 1 group behind, most CID_orders: {messages} messages" in line


def test_a_group_that_stands_still() -> None:
    """Thousands behind, and not one message between two checks; one that moves is fine."""
    snapshot, settings = read("5.3-lock-conflict")
    assert snapshot.rocketmq is not None
    assert snapshot.rocketmq.groups is not None
    [group] = snapshot.rocketmq.groups
    far = dataclasses.replace(group, behind=5000)

    def at(consumed: int) -> Snapshot:
        groups = (dataclasses.replace(far, consumed=consumed),)
        assert snapshot.rocketmq is not None
        return dataclasses.replace(snapshot, rocketmq=dataclasses.replace(snapshot.rocketmq, groups=groups))

    still = examine(later(at(12)), settings, at(12))
    assert keys(still) == {"group-stands-still"}
    assert "CID_orders: 5,000 messages behind" in still.findings[0].evidence[0]
    assert keys(examine(later(at(13)), settings, at(12))) == set()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"consumeStatsList":5}',
        b'{"consumeStatsList":[{"G":[{"offsetTable":{"q":{"brokerOffset":"x"}}}]}]}',
        b'{"consumeStatsList":[{"G":[{"offsetTable":{"q":{}}}]}]}',
        b'{"consumeStatsList":[{"G":[5]}]}',
        b'{"consumeStatsList":[{"G":[{"offsetTable":7}]}]}',
        b"\xff" * 50,
    ],
)
def test_nonsense_is_not_known(body: bytes) -> None:
    """A broker that lies or answers half makes the doctor say less, not fail."""
    assert decode_groups(body) is None
    assert decode_state(body, body).groups is None


@given(st.binary(max_size=200))
def test_no_bytes_stop_the_doctor(body: bytes) -> None:
    """Both answers are a peer's."""
    snapshot, settings = read("5.3-slave-stopped")
    odd = dataclasses.replace(snapshot, rocketmq=decode_state(body, body))
    assert examine(later(odd), settings, odd).areas
