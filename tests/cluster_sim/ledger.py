"""What clients were promised, and what they saw.

Lives here: ``Ledger``, ``Sent``, ``Broken``.
"""

from collections import Counter
from dataclasses import dataclass, field


class Broken(AssertionError):
    """A promise was broken."""


@dataclass(slots=True)
class Sent:
    """One message. ``outcome``: ``ok`` (SEND_OK), ``stored`` (another status that says so), ``no``, ``yes`` (refused,
    with the word that it was or was not stored), ``unknown``."""

    kind: str
    begun_ns: int
    outcome: str = "unknown"
    place: tuple[str, str, int, int] | None = None
    """Broker, topic, queue, offset."""
    attempts: int = 0
    may_be_twice: bool = False
    key: str = ""
    number: int = 0
    delay_ns: int = 0
    committed: bool | None = None
    """Of a transaction: what its local transaction decided."""
    ended_ns: int = 0


@dataclass(slots=True)
class Ledger:
    """All clients of one run write here; it is no part of any process."""

    sent: dict[bytes, Sent] = field(default_factory=dict)
    handled: dict[str, dict[bytes, list[int]]] = field(default_factory=dict)
    """Group → body → the times at which a handler was called."""
    offsets: dict[str, dict[tuple[str, str, int], list[tuple[int, int, str]]]] = field(default_factory=dict)
    """Group → queue → (offset, time, consumer) of each call, in order."""
    busy: dict[tuple[str, str, int], dict[str, int]] = field(default_factory=dict)
    """Queue → the consumers whose ordered handler runs now, and since when."""
    meetings: list[tuple[tuple[str, str, int], str, str, int]] = field(default_factory=list)
    """Queue, two consumers whose ordered handlers ran at once, and when."""
    found: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    @property
    def acknowledged(self) -> int:
        return self.outcomes["ok"]

    def begin(self, body: bytes, kind: str, now_ns: int, **more: object) -> Sent:
        sent = self.sent[body] = Sent(kind, now_ns, **more)  # type: ignore[arg-type]
        return sent

    def end(self, sent: Sent, outcome: str, now_ns: int) -> None:
        sent.outcome, sent.ended_ns = outcome, now_ns
        self.outcomes[outcome] += 1

    def enter(self, queue: tuple[str, str, int], who: str, now_ns: int) -> None:
        """An ordered handler begins."""
        busy = self.busy.setdefault(queue, {})
        self.meetings += [(queue, other, who, now_ns) for other in busy if other != who]
        busy[who] = now_ns

    def leave(self, queue: tuple[str, str, int], who: str) -> None:
        """An ordered handler ends."""
        self.busy.get(queue, {}).pop(who, None)

    def died(self, who: str) -> None:
        """A consumer was killed: its handlers run no more."""
        for busy in self.busy.values():
            busy.pop(who, None)

    def saw(self, group: str, body: bytes, queue: tuple[str, str, int], offset: int, now_ns: int, who: str) -> None:
        self.handled.setdefault(group, {}).setdefault(body, []).append(now_ns)
        self.offsets.setdefault(group, {}).setdefault(queue, []).append((offset, now_ns, who))
