"""One file of metrics in Prometheus's text format, line by line, in bounded memory; nothing in it ends the reading.

Two forms. Recorded (``pocketmq metrics record``): pages one after the other, each after ``# scraped BROKER MS``.
Exported: a time behind each sample, ms since 1970 (Prometheus) or seconds (OpenMetrics), in any order; the label
``broker``, else ``instance``, says whose it is.

Lives here: ``read_metrics``.
"""

import re
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.pipeline.jobs.flow_control.facts import Fact
from pocketmq.pipeline.jobs.flow_control.log_reader import BACK_MS, Reading, opened, pass_over
from pocketmq.pipeline.jobs.flow_control.metrics_facts import LABELS, START, WANTED, Counted, Process, Row, Snapshot

LINE_BYTES_MAX: Final = 8_192
LABELS_MAX: Final = 32
LABEL_CHARACTERS_MAX: Final = 255
SERIES_MAX: Final = 2_000
"""In one snapshot; a broker has about 150 of those that are wanted."""
SAMPLES_MAX: Final = 1_000_000
"""In one exported file, which must be put in order: about a day of one broker at 15 s."""
KNOWN_MAX: Final = 4_000
"""Series whose text is remembered: pages say the same ones again and again."""
PROCESSES_MAX: Final = 200
"""Of brokers, remembered at once; the one that said nothing for longest is forgotten."""
TIME_MS: Final = (946_684_800_000, 4_102_444_800_000)
"""Years 2000 to 2100."""
_SCRAPED: Final = re.compile(r"# scraped ([%|A-Za-z0-9_.\-:\[\]]{1,127}) (\d{1,15})( again)?")
_BROKER: Final = re.compile(r"[%|A-Za-z0-9_.\-:\[\]]{1,127}")
_METRIC: Final = re.compile(rb"(pocketmq_[a-z_]{1,80})[{ \t]")
_KINDS: Final = frozenset((b"HELP", b"TYPE", b"UNIT", b"EOF"))


@dataclass(slots=True)
class _Sample:
    series: tuple[str, tuple[str, ...]]
    broker: str
    value: float
    at_ms: int
    """0: none was told."""


def read_metrics(path: str, reading: Reading) -> Iterator[tuple[int, int, Fact]]:
    """Yield (line from 1, ms since 1970, fact) of one file, plain or gzip."""
    told = _Told(reading)
    try:
        with opened(path) as file:
            while line := file.readline(LINE_BYTES_MAX + 1):
                reading.lines += 1
                if len(line) > LINE_BYTES_MAX and not line.endswith(b"\n"):
                    reading.enormous += 1
                    pass_over(file)
                elif line.endswith(b"\n"):
                    yield from told.line(line)
                else:
                    reading.broken += 1  # half written: a number may have lost its end
    except (OSError, EOFError, zlib.error) as error:
        reading.unreadable = 1
        reading.error = (str(error) or type(error).__name__)[:200]
    yield from told.end()
    if not reading.lines and not reading.unreadable:
        reading.empty_files = 1


class _Told:
    """What a file has said so far."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._counted = Counted()
        self._snapshot: Snapshot | None = None
        self._is_damaged = False
        self._known: dict[bytes, _Sample] = {}
        self._unwanted: set[bytes] = set()
        self._exported: dict[tuple[str, int], Snapshot] = {}
        self._samples = 0
        self._processes: dict[tuple[str, float], Process] = {}
        self._newest_ms: dict[str, int] = {}

    def line(self, line: bytes) -> Iterator[Row]:
        text = line.strip()
        if not text:
            return
        if text.startswith(b"#"):
            if not text.startswith(b"# scraped "):
                if text[1:].split(None, 1)[:1] and text[1:].split(None, 1)[0] not in _KINDS:
                    self._reading.foreign += 1
                return
            found = _SCRAPED.fullmatch(text.decode("ascii", "replace"))
            yield from self._finish()
            if found is None or not TIME_MS[0] <= int(found[2]) < TIME_MS[1]:
                self._reading.broken += 1
                return
            self._snapshot = Snapshot(found[1], int(found[2]), bool(found[3]))
            self._is_damaged = False
            return
        if b"# scraped " in text:  # the machine stopped within a line; what follows has no time of its own
            self._reading.broken += 1
            self._is_damaged = True
            return
        head, _, tail = text.rpartition(b" ")
        known = self._known.get(head)
        if known is not None:
            value = _value(tail)
            if value is None:
                self._reading.broken += 1
                return
            sample: _Sample | None = _Sample(known.series, known.broker, value, 0)
        elif head in self._unwanted:
            return
        else:
            sample = self._parsed(head, text)
        if sample is not None:
            self._take(sample)

    def _parsed(self, head: bytes, text: bytes) -> _Sample | None:
        """Return the sample of a line, None if it is broken or not wanted, both noted."""
        is_series = bool(head) and (head.endswith(b"}") or b" " not in head)
        name = _METRIC.match(text)
        if name is None:
            self._reading.foreign += 0 if text.startswith(b"pocketmq_") or _is_sample(text) else 1
            self._reading.broken += 1 if text.startswith(b"pocketmq_") else 0
            return None
        sample = _sample(text) if name[1].decode() in WANTED else None
        if sample is None and name[1].decode() in WANTED:
            self._reading.broken += 1
        elif sample is None or not _is_wanted(sample):
            if is_series and len(self._unwanted) < KNOWN_MAX:
                self._unwanted.add(head)
            return None
        elif is_series and not sample.at_ms and len(self._known) < KNOWN_MAX:
            self._known[head] = sample
        return sample

    def _take(self, sample: _Sample) -> None:
        if sample.at_ms:
            self._keep_exported(sample)
        elif self._snapshot is None or self._is_damaged:
            self._reading.without_time += 1
        elif sample.series in self._snapshot.values:  # a page has a series once: the line between two pages is lost
            self._is_damaged = True
            self._reading.without_time += 1
        elif len(self._snapshot.values) >= SERIES_MAX and sample.series[0] != START:
            self._reading.too_many += 1
        else:
            self._reading.events += 1
            self._snapshot.values[sample.series] = (sample.value, self._reading.lines)

    def _keep_exported(self, sample: _Sample) -> None:
        if not TIME_MS[0] <= sample.at_ms < TIME_MS[1]:
            self._reading.without_time += 1
            return
        if self._samples >= SAMPLES_MAX:
            self._reading.too_many += 1
            return
        self._samples += 1
        self._reading.events += 1
        broker = sample.broker or (self._snapshot.broker if self._snapshot is not None else "")
        snapshot = self._exported.setdefault((broker, sample.at_ms), Snapshot(broker, sample.at_ms))
        snapshot.values[sample.series] = (sample.value, self._reading.lines)

    def end(self) -> Iterator[Row]:
        yield from self._finish()
        for key in sorted(self._exported, key=lambda key: (key[0], key[1])):
            yield from self._facts(self._exported.pop(key))
        for (broker, _), process in self._processes.items():
            yield from process.end(broker)
        self._reading.restarts += self._counted.restarts
        self._reading.gaps += self._counted.gaps

    def _finish(self) -> Iterator[Row]:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None and snapshot.values:
            yield from self._facts(snapshot)

    def _facts(self, snapshot: Snapshot) -> Iterator[Row]:
        """Yield what a snapshot adds to what its process said before; a process is known by its start time."""
        broker = snapshot.broker
        newest_ms = self._newest_ms.get(broker, 0)
        if snapshot.at_ms < newest_ms - BACK_MS:
            self._reading.clock_back += 1
        start = snapshot.one(START)
        key = (broker, start[0] if start is not None else 0.0)
        process = self._processes.get(key)
        if process is None:
            if len(self._processes) >= PROCESSES_MAX:
                oldest = min(self._processes, key=lambda key: self._processes[key].at_ms)
                yield from self._processes.pop(oldest).end(oldest[0])
                self._newest_ms.pop(oldest[0], None)
            process = self._processes[key] = Process()
            if newest_ms and start is not None:
                self._reading.restarts += 1
        self._newest_ms[broker] = max(newest_ms, snapshot.at_ms)
        if snapshot.at_ms <= process.at_ms:  # told already, or the clock went back: no difference can be made of it
            return
        yield from process.facts(snapshot, self._counted)


def _is_wanted(sample: _Sample) -> bool:
    """Whether the sample is of the send worker, or of all."""
    name, labels = sample.series
    return not (name.startswith(("pocketmq_queue_", "pocketmq_stage_")) and labels[0] not in ("SendMessageThread", ""))


def _is_sample(text: bytes) -> bool:
    return re.match(rb"[A-Za-z_:][A-Za-z0-9_:]{0,199}(\{.*\})?[ \t]+\S+([ \t]+\S+)?$", text) is not None


def _sample(text: bytes) -> _Sample | None:
    """Return what a line says, None if it is broken or makes no sense."""
    try:
        found = [each for family in text_string_to_metric_families(text.decode()) for each in family.samples]
    except (*DECODE_ERRORS, ValueError, IndexError, KeyError):
        return None
    if len(found) != 1:
        return None
    name, labels, value, timestamp = found[0][:4]
    if len(labels) > LABELS_MAX or any(len(each) > LABEL_CHARACTERS_MAX for each in labels.values()):
        return None
    if not _is_value(value):
        return None
    if name.endswith("_bucket") and not _is_bound(labels.get("le", "")):
        return None
    broker = labels.get("broker") or labels.get("instance") or ""
    at_ms = 0
    if timestamp is not None:
        seconds = float(timestamp) * 1000  # the parser took it for ms
        if not 0 < seconds < 1e16:
            return None
        at_ms = int(seconds if seconds >= 1e11 else seconds * 1000)
    series = (sys.intern(name), tuple(sys.intern(labels.get(each, "")) for each in LABELS))
    return _Sample(series, broker if _BROKER.fullmatch(broker) else "", value, at_ms)


def _value(text: bytes) -> float | None:
    """Return a number as the parser would, None if it is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if _is_value(value) and b"_" not in text else None


def _is_value(value: float) -> bool:
    return 0 <= value < 1e18 or value == -1  # not a number is neither; -1: unknown


def _is_bound(text: str) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False
