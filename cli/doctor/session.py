"""Repeated checks of the same brokers: diagnoses, and the changes since the previous check.

Lives here: ``Session`` and ``Round``.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from pocketmq.cli.doctor.broker_metrics import BrokerMetrics, BrokerSettings, Peer, Snapshot, whole
from pocketmq.cli.doctor.diagnosis import examine
from pocketmq.cli.doctor.finding import Area, Diagnosis, error
from pocketmq.cli.doctor.reader import BrokerReader, Reading, Target, what_to_check
from pocketmq.cli.doctor.words import clean, count_text, rate_text

SLAVE: Final = "SLAVE"
OTHERS_MAX: Final = 16
"""Brokers beside the targets that are read to explain them."""
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
        self,
        reader: BrokerReader,
        targets: Sequence[Target],
        *,
        second_check_s: float = SECOND_CHECK_S,
        asks_others: bool = False,
    ) -> None:
        """``asks_others``: the targets may be some brokers of a name, not all."""
        self._reader = reader
        self._targets = list(targets)
        self._second_check_s = second_check_s
        self._asks_others = asks_others
        self._snapshots: dict[str, Snapshot] = {}
        self._diagnoses: dict[str, Diagnosis] = {}

    async def check(self) -> list[Round]:
        """Read all brokers and return a round for each, in the order of the targets."""
        readings, others = await self._look(self._targets)
        if not self._diagnoses and any(_has_totals_only(reading) for reading in readings):
            for reading in readings:
                if reading.snapshot is not None:
                    self._snapshots[reading.target.address] = reading.snapshot
            await asyncio.sleep(self._second_check_s)
            again = [each for each in self._targets if each.address in self._snapshots]
            second, others = await self._look(again)
            latest = {each.target.address: each for each in second}
            readings = [latest.get(each.target.address, each) for each in readings]  # a dead one costs its time once
        return [self._round(reading, _peers(reading, [*readings, *others])) for reading in readings]

    async def _look(self, targets: Sequence[Target]) -> tuple[list[Reading], list[Reading]]:
        """Read the targets, and the others of their names: of each target as soon as it has answered, so that a look
        takes no longer with a silent target and a silent other than with one of them.
        """
        seen = {target.address for target in self._targets}

        async def with_others(target: Target) -> tuple[Reading, list[Reading]]:
            reading = await self._reader.read(target)
            unseen = [each for each in await self._other_targets(reading) if each.address not in seen]
            unseen = unseen[: max(0, len(self._targets) + OTHERS_MAX - len(seen))]
            seen.update(each.address for each in unseen)
            return reading, await self._reader.read_all(unseen)

        found = await asyncio.gather(*map(with_others, targets))
        return [reading for reading, _ in found], [each for _, others in found for each in others]

    async def _other_targets(self, reading: Reading) -> list[Target]:
        """Return the brokers of the name of one: a pair is explained by both of its ends."""
        ha, settings = reading.snapshot and reading.snapshot.ha, reading.settings
        if not (self._asks_others and ha and settings):
            return []
        if ha.role != SLAVE and ha.total_replicas <= 1 and not ha.slaves and not ha.followers:
            return []
        return await self._reader.members(settings.text("namesrv_addr") or "", {ha.broker_name})

    def _round(self, reading: Reading, peers: Sequence[Peer]) -> Round:
        address = reading.target.address
        previous, before = self._snapshots.get(address), self._diagnoses.get(address)
        rates: tuple[str, ...] = ()
        if reading.snapshot is None:
            diagnosis = _unreachable(reading)
        else:
            settings = reading.settings or BrokerSettings({})
            diagnosis = examine(reading.snapshot, settings, previous, peers)
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


def _peers(reading: Reading, readings: Sequence[Reading]) -> list[Peer]:
    """Return the other brokers of the name of one."""
    name = _name(reading)
    return [
        Peer(
            address=each.target.address,
            ha=each.snapshot.ha if each.snapshot is not None else None,
            error=_error_text(each) if each.error is not None else "it says nothing about its replication",
            end_offset=None if each.snapshot is None else whole(each.snapshot.runtime.get("commitLogMaxOffset")),
        )
        for each in readings
        if name and each.target.address != reading.target.address and _name(each) == name
    ]


def _name(reading: Reading) -> str:
    ha = reading.snapshot.ha if reading.snapshot is not None else None
    return ha.broker_name if ha is not None else reading.target.name.partition("#")[0]


def _error_text(reading: Reading) -> str:
    why = reading.error
    return "" if why is None else clean(why.what if not why.why else f"{why.what}: {why.why}")


def _has_totals_only(reading: Reading) -> bool:
    return reading.snapshot is not None and reading.snapshot.telemetry is None


def _unreachable(reading: Reading) -> Diagnosis:
    why = reading.error
    assert why is not None
    text = _error_text(reading)
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
