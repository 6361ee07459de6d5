"""A broker's runtime table, settings and telemetry, typed; None where nothing is known.

Lives here: ``Snapshot``, ``BrokerSettings`` and ``BrokerMetrics``, through which the rules read both.
Nothing here raises, whatever a broker sent.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from pocketmq.broker.config import BrokerConfig
from pocketmq.cli.doctor.finding import Advice
from pocketmq.cli.doctor.rocketmq import RocketMQState
from pocketmq.cli.doctor.words import clean, seconds_text
from pocketmq.common.settings import rocketmq_name
from pocketmq.common.spelling import snake_case
from pocketmq.remoting.protocol.ha import HaStatusBody
from pocketmq.remoting.protocol.lock import LockTableBody
from pocketmq.remoting.telemetry import (
    PairTelemetry,
    PoolTelemetry,
    RefusalCount,
    RefusedRequestCount,
    StageTelemetry,
    TelemetrySnapshot,
)
from pocketmq.store.config import StoreConfig

SEND_PAIR: Final = "SendMessageThread"
PULL_PAIR: Final = "PullMessageThread"
NO_POOL_BUFFERS: Final = (1 << 31) - 1
"""``remainTransientStoreBufferNumbs`` while the pool is off (RocketMQ: Integer.MAX_VALUE)."""
NOT_KNOWN: Final = "not known"
"""The present value of a setting that the broker did not send."""
WAIT_LIMITS: Final = {
    SEND_PAIR: ("wait_time_mills_in_send_queue", 200),
    PULL_PAIR: ("wait_time_mills_in_pull_queue", 5000),
}
"""The setting of the longest wait in the queue of a pair, and RocketMQ's default in ms (BrokerConfig)."""
OWN_SETTINGS: Final = frozenset(("send_drain_max", "pull_holds_max", "send_queue_size_bytes_max"))
"""Settings that RocketMQ does not have."""
SETTINGS_LENGTH_MAX: Final = 1 << 20
SECTIONS: Final[Mapping[str, type[msgspec.Struct]]] = {"broker": BrokerConfig, "store": StoreConfig}
"""Sections of the broker's file whose settings the doctor advises."""
OUR_NAMES: Final = {rocketmq_name(kind, name): name for kind in SECTIONS.values() for name in kind.__struct_fields__}
"""RocketMQ's spelling of a setting → its name."""

_SIZE = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*(?:([KMGTPE])i?)?B?\s*", re.ASCII)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A broker at one time. ``pocketmq`` is False for a real RocketMQ; ``telemetry`` is None where there is none, and
    where it cannot be decoded (``telemetry_unreadable``). ``ha`` and ``locks`` are None where they were not read.
    """

    broker: str
    address: str
    at_ms: int
    runtime: Mapping[str, str]
    telemetry: TelemetrySnapshot | None = None
    pocketmq: bool = True
    telemetry_unreadable: bool = False
    ha: HaStatusBody | None = None
    locks: LockTableBody | None = None
    rocketmq: RocketMQState | None = None
    """Of a real RocketMQ only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another broker of the same name. ``ha`` None: not read, as ``error`` says. ``end_offset``: of its log, bytes."""

    address: str
    ha: HaStatusBody | None = None
    error: str = ""
    end_offset: int | None = None


class BrokerSettings:
    """A broker's settings, by our names; RocketMQ's own spelling finds them too."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = {OUR_NAMES.get(name) or snake_case(name): clean(value) for name, value in values.items()}

    @classmethod
    def parse(cls, text: str) -> "BrokerSettings":
        """Read the properties text of GET_BROKER_CONFIG; other lines are skipped."""
        pairs = (line.partition("=") for line in text[:SETTINGS_LENGTH_MAX].splitlines() if not line.startswith("#"))
        return cls({name.strip(): value.strip() for name, equals, value in pairs if equals and name.strip()})

    def __len__(self) -> int:
        return len(self._values)

    def text(self, name: str) -> str | None:
        """Return a setting as it was sent."""
        return self._values.get(name)

    def number(self, name: str) -> int | None:
        """Return a whole number."""
        return whole(self._values.get(name))

    def flag(self, name: str) -> bool | None:
        """Return true or false."""
        return {"true": True, "false": False}.get(self._values.get(name, "").lower())


@dataclass(frozen=True, slots=True)
class Refused:
    """Refusals of one kind: ``tag`` is RocketMQ's mark in brackets, or empty. ``recent`` None: not known."""

    cause: str
    tag: str
    code: int
    remark: str
    total: int
    recent: int | None


@dataclass(slots=True)
class BrokerMetrics:
    """A snapshot, the previous one, and the settings, as the rules read them."""

    snapshot: Snapshot
    settings: BrokerSettings
    previous: Snapshot | None = None
    peers: tuple[Peer, ...] = ()
    refusals: list[Refused] = field(init=False)
    """Kinds that were refused within the window, the most frequent first."""

    def __post_init__(self) -> None:
        found = [self._refused(each) for each in self.telemetry.refusals] if self.telemetry is not None else []
        self.refusals = sorted((each for each in found if each.recent), key=lambda each: -(each.recent or 0))

    @property
    def refused_requests(self) -> list[RefusedRequestCount]:
        """Requests refused within the last minute for their content, the most frequent first."""
        counts = self.telemetry.refused_requests if self.telemetry is not None else []
        return sorted((each for each in counts if each.last_minute > 0), key=lambda each: -each.last_minute)

    # ---- time ----------------------------------------------------------------------------------------------------

    @property
    def telemetry(self) -> TelemetrySnapshot | None:
        """The telemetry, if the broker has it."""
        return self.snapshot.telemetry

    @property
    def pool(self) -> PoolTelemetry | None:
        """The write-buffer pool, if the broker has one and sends telemetry."""
        return self.telemetry.pool if self.telemetry is not None else None

    @property
    def window_s(self) -> float | None:
        """How far stage times and refusals reach back, in s."""
        window_s = self.telemetry.window_s if self.telemetry is not None else 0
        return float(window_s) if math.isfinite(window_s) and window_s > 0 else None

    @property
    def window(self) -> str:
        """The window in words, for evidence."""
        return f"in the last {seconds_text(self.window_s)}" if self.window_s is not None else "in the last minute"

    @property
    def since_s(self) -> float | None:
        """Seconds since the previous snapshot; None if there is none, or if the broker has started since."""
        if self.previous is None or self.runtime("bootTimestamp") != self.previous.runtime.get("bootTimestamp"):
            return None
        took_s = (self.snapshot.at_ms - self.previous.at_ms) / 1000
        return took_s if took_s > 0 else None

    # ---- the runtime table ---------------------------------------------------------------------------------------

    def runtime(self, name: str) -> str | None:
        """Return an entry of the runtime table."""
        return self.snapshot.runtime.get(name)

    def number(self, name: str) -> int | None:
        """Return a whole number of the runtime table."""
        return whole(self.runtime(name))

    def size_bytes(self, name: str) -> int | None:
        """Return a size, which RocketMQ writes as ``1.5 MiB`` and this broker as bytes."""
        match = _SIZE.fullmatch(self.runtime(name) or "")
        return None if match is None else int(float(match[1][:20]) * 1024 ** _POWERS[match[2] or ""])

    def ratio(self, name: str) -> float | None:
        """Return a share of 1; RocketMQ reports -1 for a path that does not exist."""
        try:
            value = float(self.runtime(name) or "nan")
        except ValueError:
            return None
        return value if 0 <= value <= 1 else None

    def rate(self, name: str) -> float | None:
        """Return the first of RocketMQ's three rates: over 10 s."""
        try:
            value = float((self.runtime(name) or "").split()[0])
        except (ValueError, IndexError):
            return None
        return value if math.isfinite(value) and value >= 0 else None

    def grown(self, name: str) -> int | None:
        """Return the growth of a counter of the runtime table since the previous snapshot."""
        if self.since_s is None or self.previous is None:
            return None
        now, before = self.number(name), whole(self.previous.runtime.get(name))
        return None if now is None or before is None else max(0, now - before)

    # ---- telemetry -----------------------------------------------------------------------------------------------

    def pair(self, name: str) -> PairTelemetry | None:
        """Return the state of a pair, from the telemetry or else from the runtime table."""
        for pair in self.telemetry.pairs if self.telemetry is not None else ():
            if pair.name == name:
                return pair
        return self._pair_of_runtime({SEND_PAIR: "send", PULL_PAIR: "pull"}.get(name, ""))

    def _pair_of_runtime(self, prefix: str) -> PairTelemetry | None:
        size, capacity = (self.number(f"{prefix}ThreadPoolQueue{what}") for what in ("Size", "Capacity"))
        if not prefix or size is None:
            return None
        return PairTelemetry(
            name=prefix,
            queue_size=size,
            queue_capacity=capacity or 0,
            head_wait_ms=self.number(f"{prefix}ThreadPoolQueueHeadWaitTimeMills") or 0,
            refused_full=self.number(f"{prefix}ThreadPoolRefused") or 0,
            served=self.number(f"{prefix}ThreadPoolServed") or 0,
        )

    def stage(self, stage: str, pair: str = SEND_PAIR) -> StageTelemetry | None:
        """Return a stage's times in the window; None if no request passed it."""
        for each in self.telemetry.stages if self.telemetry is not None else ():
            if each.stage == stage and each.pair == pair and each.count > 0:
                return each
        return None

    def _refused(self, count: RefusalCount) -> Refused:
        match = re.match(r"\[([A-Z_]{1,40})\]", count.remark)
        recent = count.last_minute
        return Refused(count.cause, match[1] if match else "", count.code, count.remark, count.total, recent)

    def refused(self, *tags: str, cause: str = "") -> list[Refused]:
        """Return the refusals of the window with one of these tags, of one cause if given."""
        return [each for each in self.refusals if each.tag in tags and (not cause or each.cause == cause)]

    # ---- settings ------------------------------------------------------------------------------------------------

    def wait_limit_ms(self, pair_name: str) -> int:
        """Return the longest wait in the queue of a pair."""
        setting, default = WAIT_LIMITS[pair_name]
        pair = self.pair(pair_name)
        sent = pair.max_wait_ms if pair is not None and pair.max_wait_ms > 0 else None
        return sent or self.settings.number(setting) or default

    def name_of(self, setting: str) -> str:
        """Return the name under which this broker's operator finds a setting."""
        if not self.snapshot.pocketmq:
            kinds = [kind for kind in SECTIONS.values() if setting in kind.__struct_fields__]
            return rocketmq_name(kinds[0], setting) if kinds and setting not in OWN_SETTINGS else setting
        sections = [name for name, config in SECTIONS.items() if setting in config.__struct_fields__]
        return f"{sections[0]}.{setting}" if sections else setting

    def advice(self, setting: str, suggested: str, cost: str) -> tuple[Advice]:
        """Return advice on one setting, with its present value."""
        present = self.settings.text(setting)
        return (Advice(self.name_of(setting), NOT_KNOWN if present is None else present, suggested, cost),)


def whole(text: str | None) -> int | None:
    """Read a whole number of at most 19 digits."""
    if text is None or not re.fullmatch(r"\s*-?\d{1,19}\s*", text, re.ASCII):
        return None
    return int(text)
