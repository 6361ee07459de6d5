"""The results of the doctor: findings, and one line for each area of the broker.

Lives here: ``Finding``, ``Advice``, ``AreaLine``, ``Diagnosis`` and their enums, which ``--json`` prints unchanged.
"""

import enum
from functools import partial

import msgspec


class Severity(enum.Enum):
    """An ERROR refuses or endangers messages now, a WARNING will, a NOTE is worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """0 for ERROR, higher for less severe ones."""
        return _RANKS[self]


_RANKS = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


class Area(enum.Enum):
    """The parts of a broker with their own line, in the order in which a message passes them."""

    ADMISSION = "admission"
    SEND_QUEUE = "send queue"
    APPEND = "append"
    PAGE_CACHE = "page cache"
    POOL = "pool"
    FLUSH = "flush"
    REPLICATION = "slaves"
    READS = "reads"
    LOCKS = "locks"
    DISK = "disk"
    ACCESS = "access"


class Light(enum.Enum):
    """A traffic light; NO_DATA where nothing is known, which is not the same as green."""

    GREEN = "green"
    YELLOW = "yellow"
    RED = "red"
    NO_DATA = "no data"


class Advice(msgspec.Struct, frozen=True):
    """A setting that matters: its present value, a better one, and what that costs."""

    name: str
    present: str
    suggested: str
    cost: str


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong, or worth knowing.

    ``key`` names the rule and never changes; ``evidence`` holds values with units and window; ``cause`` says why it
    happens, ``cure`` what to do; ``reference`` is a scenario that shows the same on a laptop.
    """

    key: str
    area: Area
    severity: Severity
    title: str
    evidence: tuple[str, ...]
    cause: str
    cure: str
    settings: tuple[Advice, ...] = ()
    reference: str = ""
    concerns: tuple[Area, ...] = ()
    """Other areas whose light it colors: admission control, which refuses, or the append, which is the reason."""
    is_slowness: bool = False
    """A time above a threshold that refuses nothing yet: other work on the machine makes it, too. It stands behind
    findings of its severity that name what is wrong: a setting, a holder that is gone, a disk that fails.
    """

    @property
    def rank(self) -> tuple[int, int]:
        """Lower for findings to read earlier. A warning of access, which explains no trouble of the present, is last of
        its severity.
        """
        is_of_access = self.area is Area.ACCESS and self.severity is Severity.WARNING
        return self.severity.rank, 2 if is_of_access else int(self.is_slowness)


error = partial(Finding, severity=Severity.ERROR)
warning = partial(Finding, severity=Severity.WARNING)
note = partial(Finding, severity=Severity.NOTE)


class AreaLine(msgspec.Struct, frozen=True):
    """One area: its light and its values with their limits."""

    area: Area
    light: Light
    text: str


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one broker at one time. ``error`` is set when it could not be read."""

    broker: str
    address: str
    at_ms: int
    version: str = ""
    window_s: float | None = None
    areas: tuple[AreaLine, ...] = ()
    findings: tuple[Finding, ...] = ()
    missing: tuple[str, ...] = ()
    """Data that this broker does not send, in words."""
    error: str = ""

    @property
    def worst(self) -> Severity | None:
        """The severity of the worst finding; None without findings."""
        return min((finding.severity for finding in self.findings), key=lambda each: each.rank, default=None)
