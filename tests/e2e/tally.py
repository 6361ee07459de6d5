"""What all rounds of a run have seen.

Lives here: ``Tally``.
"""

from collections import Counter
from dataclasses import dataclass, field

from tests.e2e.crowd import Crowd
from tests.e2e.load import SEND_OK, ProducerLoad


@dataclass(slots=True)
class Tally:
    """The faults and results of all rounds."""

    rounds: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    modes: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    confirmed: int = 0
    lost: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """Messages that were promised, by kind, without the plain ones."""
    bytes_compared: int = 0
    promotions: int = 0
    proxy_faults: int = 0
    insiders: Counter[str] = field(default_factory=Counter)
    """Answers to clients on the host of an old master; part of ``statuses``."""

    def add_sends(self, load: ProducerLoad, crowd: Crowd) -> None:
        """Count what a life has sent."""
        for each in load.sent:
            self.statuses[each.status] += 1
            self.confirmed += each.status == SEND_OK
        self.failed += load.failed
        self.kinds += crowd.counts()

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds {dict(sorted(self.faults.items()))}; {self.confirmed} SEND_OK checked, "
            f"{self.lost} lost; other kinds {dict(sorted(self.kinds.items()))}; "
            f"{self.bytes_compared:,} bytes of slaves compared; {self.promotions} promotions; "
            f"{self.proxy_faults} chunks harmed on the HA connection; statuses {dict(self.statuses)}; "
            f"insiders {dict(self.insiders)}; without a place {dict(self.failed)}; modes {dict(self.modes)}"
        )
