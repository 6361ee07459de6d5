"""Repeated checks of the same brokers: diagnoses, and the changes since the previous check.

Lives here: ``Session`` and ``Round``.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from pocketmq.cli.doctor.broker_metrics import BrokerMetrics, BrokerSettings, Snapshot
from pocketmq.cli.doctor.diagnosis import examine
from pocketmq.cli.doctor.finding import Area, Diagnosis, error
from pocketmq.cli.doctor.reader import BrokerReader, Reading, Target, what_to_check
from pocketmq.cli.doctor.words import clean, count_text, rate_text

SECOND_CHECK_S: Final = 2.0
"""A broker without telemetry has totals only, so it is read twice, this far apart."""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One diagnosis and its differences from the previous one; the first has none."""

    diagnosis: Diagnosis
    new: tuple[str, ...] = ()
    """Keys of findings that the previous check did not have."""
    gone: tuple[str, ...] = ()
    """Titles of findings that only the previous check had."""
    rates: tuple[str, ...] = ()
    """Rates between the two checks."""


class Session:
    """Checks brokers repeatedly. One caller at a time."""

    def __init__(
        self, reader: BrokerReader, targets: Sequence[Target], *, second_check_s: float = SECOND_CHECK_S
    ) -> None:
        self._reader = reader
        self._targets = list(targets)
        self._second_check_s = second_check_s
        self._snapshots: dict[str, Snapshot] = {}
        self._diagnoses: dict[str, Diagnosis] = {}

    async def check(self) -> list[Round]:
        """Read all brokers and return a round for each, in the order of the targets."""
        readings = await self._reader.read_all(self._targets)
        if not self._diagnoses and any(_has_totals_only(reading) for reading in readings):
            for reading in readings:
                if reading.snapshot is not None:
                    self._snapshots[reading.target.address] = reading.snapshot
            await asyncio.sleep(self._second_check_s)
            readings = await self._reader.read_all(self._targets)
        return [self._round(reading) for reading in readings]

    def _round(self, reading: Reading) -> Round:
        address = reading.target.address
        previous, before = self._snapshots.get(address), self._diagnoses.get(address)
        rates: tuple[str, ...] = ()
        if reading.snapshot is None:
            diagnosis = _unreachable(reading)
        else:
            settings = reading.settings or BrokerSettings({})
            diagnosis = examine(reading.snapshot, settings, previous)
            rates = tuple(_rates(BrokerMetrics(reading.snapshot, settings, previous)))
            self._snapshots[address] = reading.snapshot
        self._diagnoses[address] = diagnosis
        if before is None:
            return Round(diagnosis=diagnosis)
        had, has = ({finding.key for finding in each.findings} for each in (before, diagnosis))
        return Round(
            diagnosis=diagnosis,
            new=tuple(finding.key for finding in diagnosis.findings if finding.key not in had),
            gone=tuple(finding.title for finding in before.findings if finding.key not in has),
            rates=rates,
        )


def _has_totals_only(reading: Reading) -> bool:
    return reading.snapshot is not None and reading.snapshot.telemetry is None


def _unreachable(reading: Reading) -> Diagnosis:
    why = reading.error
    assert why is not None
    text = clean(why.what if not why.why else f"{why.what}: {why.why}")
    return Diagnosis(
        broker=clean(reading.target.name or reading.target.address),
        address=clean(reading.target.address),
        at_ms=reading.at_ms,
        error=text,
        findings=(
            error(
                key="not-read",
                area=Area.ADMISSION,
                title="the broker could not be read",
                evidence=(text,),
                cause="This address sent no runtime information.",
                cure="Check, in this order: " + "; ".join(what_to_check(why)),
            ),
        ),
    )


def _rates(metrics: BrokerMetrics) -> list[str]:
    """Return the rates since the previous check."""
    took_s = metrics.since_s
    if took_s is None or metrics.previous is None:
        return []
    lines: list[str] = []
    for counter, what in (("msgPutTotalTodayNow", "messages stored"), ("msgGetTotalTodayNow", "messages read")):
        grown = metrics.grown(counter)
        if grown is not None:
            lines.append(f"{rate_text(grown / took_s)} {what}")
    before = metrics.previous.telemetry
    if metrics.telemetry is not None and before is not None:
        counted = {(each.cause, each.code, each.remark.partition("]")[0]): each.total for each in before.refusals}
        refused = sum(
            max(0, each.total - counted.get((each.cause, each.code, each.remark.partition("]")[0]), 0))
            for each in metrics.telemetry.refusals
        )
        lines.append(f"{rate_text(refused / took_s)} refused ({count_text(refused)} in {took_s:.1f} s)")
    return lines
