"""From metrics to findings: the pure core of the doctor.

Lives here: ``diagnose`` (all rules over one snapshot) and ``examine`` (findings, one line an area, missing data).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from pocketmq.cli.doctor.areas import area_lines
from pocketmq.cli.doctor.broker_metrics import NOT_KNOWN, BrokerMetrics, BrokerSettings, Peer, Snapshot
from pocketmq.cli.doctor.finding import Area, Diagnosis, Finding
from pocketmq.cli.doctor.rules.locks import lock_rules
from pocketmq.cli.doctor.rules.reads import read_rules
from pocketmq.cli.doctor.rules.refusals import refusal_rules
from pocketmq.cli.doctor.rules.replication import replication_rules
from pocketmq.cli.doctor.rules.requests import request_rules
from pocketmq.cli.doctor.rules.rocketmq import not_known, rocketmq_rules
from pocketmq.cli.doctor.rules.security import security_rules
from pocketmq.cli.doctor.rules.send import send_rules
from pocketmq.cli.doctor.rules.settings import setting_rules
from pocketmq.cli.doctor.rules.stall import stall_rules
from pocketmq.cli.doctor.rules.store import store_rules
from pocketmq.cli.doctor.words import clean

RULES: Final[tuple[Callable[[BrokerMetrics], Iterator[Finding]], ...]] = (
    refusal_rules,
    request_rules,
    send_rules,
    stall_rules,
    store_rules,
    read_rules,
    lock_rules,
    replication_rules,
    rocketmq_rules,
    setting_rules,
    security_rules,
)
_ORDER: Final = {area: place for place, area in enumerate(Area)}


def diagnose(
    snapshot: Snapshot,
    settings: BrokerSettings | Mapping[str, str],
    previous: Snapshot | None = None,
    peers: Sequence[Peer] = (),
) -> list[Finding]:
    """Return the findings, worst first; empty for a healthy broker. Never raises."""
    if not isinstance(settings, BrokerSettings):
        settings = BrokerSettings(settings)
    return _findings(BrokerMetrics(snapshot, settings, previous, tuple(peers)))


def _findings(metrics: BrokerMetrics) -> list[Finding]:
    found = {finding.key: _known_settings(finding, metrics) for rule in reversed(RULES) for finding in rule(metrics)}
    return sorted(found.values(), key=lambda each: (each.rank, _ORDER[each.area], each.key))


def _known_settings(finding: Finding, metrics: BrokerMetrics) -> Finding:
    """Leave out advice that is followed already, and advice on settings that this broker does not have.

    Without the settings of a broker neither is known, so all advice stays.
    """
    if not len(metrics.settings):
        return finding
    known = tuple(each for each in finding.settings if each.present not in (NOT_KNOWN, each.suggested))
    return finding if known == finding.settings else msgspec.structs.replace(finding, settings=known)


def examine(
    snapshot: Snapshot, settings: BrokerSettings, previous: Snapshot | None = None, peers: Sequence[Peer] = ()
) -> Diagnosis:
    """Return the whole diagnosis of one broker; ``peers``: the others of its name."""
    metrics = BrokerMetrics(snapshot, settings, previous, tuple(peers))
    findings = _findings(metrics)
    return Diagnosis(
        broker=clean(snapshot.broker),
        address=clean(snapshot.address),
        at_ms=snapshot.at_ms,
        version=clean(_version(metrics)),
        window_s=metrics.window_s,
        areas=tuple(area_lines(metrics, findings)),
        findings=tuple(findings),
        missing=tuple(_missing(metrics)),
    )


def _version(metrics: BrokerMetrics) -> str:
    version = metrics.runtime("brokerVersionDesc") or "unknown version"
    return f"PocketMQ, speaks {version}" if metrics.snapshot.pocketmq else f"RocketMQ {version}"


def _missing(metrics: BrokerMetrics) -> Iterator[str]:
    """Yield the data that this broker does not send, once, instead of a guess."""
    if metrics.telemetry is None and not metrics.snapshot.pocketmq:
        yield not_known(metrics)
    elif metrics.telemetry is None:
        which = "this PocketMQ has no telemetry"
        if metrics.snapshot.telemetry_unreadable:
            which = "the broker's telemetry cannot be decoded (another version?)"
        yield f"no data on stage times and on refusals by cause: {which}"
    if not len(metrics.settings):
        yield "no data on settings: the broker did not send them, so the doctor cannot find bad cures"
    if not metrics.snapshot.runtime:
        yield "no data at all: the runtime table is empty"
