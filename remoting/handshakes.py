"""Which TLS handshake begins next, and when. Does no I/O.

The private key's operation takes the event loop for half a millisecond and more, so handshakes begin one after the
other: at most so many in a second, ``HANDSHAKES_MAX`` open at once, ``HANDSHAKES_OF_HOST`` of one address. Addresses
take turns, so that a flood from one does not keep others out.

Lives here: ``Handshakes``.
"""

from collections import OrderedDict, deque
from typing import Final, Generic, TypeVar

HANDSHAKES_MAX: Final = 64
HANDSHAKES_OF_HOST: Final = 32
SLOW_NS: Final = 1_000_000_000
"""Age at which an open handshake gives way to waiting ones."""
LATE_NS: Final = 10_000_000
"""A loop that is late by so much begins what it has missed, not more."""
NS_PER_S: Final = 1_000_000_000

CallerT = TypeVar("CallerT")


class Handshakes(Generic[CallerT]):
    """Callers by host: those that wait and those whose handshake is open. Times are monotonic nanoseconds.

    Unbounded by itself: every caller is a connection that the server has counted.
    """

    def __init__(self, per_second_max: int) -> None:
        self._pause_ns = NS_PER_S // per_second_max
        self._next_ns = 0
        self._waiting: OrderedDict[str, deque[CallerT]] = OrderedDict()
        """Host → callers that wait, the host whose turn it is first."""
        self._open: dict[CallerT, tuple[str, int]] = {}
        """Caller → host, begin; the oldest first."""
        self._open_of_host: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_awaited(self) -> bool:
        """Whether a caller waits."""
        return bool(self._waiting)

    def join(self, host: str, caller: CallerT) -> None:
        """Let a caller wait for its turn."""
        self._waiting.setdefault(host, deque()).append(caller)

    def next(self, now_ns: int) -> CallerT | None:
        """Return the caller whose handshake begins now, open from here on; None: none may."""
        if now_ns < self._next_ns or len(self._open) >= HANDSHAKES_MAX:
            return None
        for host in self._waiting:
            if self._open_of_host.get(host, 0) < HANDSHAKES_OF_HOST:
                break
        else:
            return None
        waiting = self._waiting[host]
        caller = waiting.popleft()
        if waiting:
            self._waiting.move_to_end(host)
        else:
            del self._waiting[host]
        self._next_ns = max(self._next_ns, now_ns - LATE_NS) + self._pause_ns
        self._open[caller] = host, now_ns
        self._open_of_host[host] = self._open_of_host.get(host, 0) + 1
        return caller

    def slow(self, now_ns: int) -> CallerT | None:
        """Return the open handshake that must give way: one is slow, callers wait, and no more may be open."""
        if not self._waiting:
            return None
        full = len(self._open) >= HANDSHAKES_MAX
        if not full and all(self._open_of_host.get(host, 0) < HANDSHAKES_OF_HOST for host in self._waiting):
            return None
        for caller, (host, begin_ns) in self._open.items():
            if now_ns - begin_ns <= SLOW_NS:
                return None
            if full or host in self._waiting:
                return caller
        return None

    def wait_ns(self, now_ns: int) -> int:
        """Return when to call ``next`` again while callers wait."""
        return max(self._next_ns - now_ns, self._pause_ns)

    def end(self, host: str, caller: CallerT) -> None:
        """Forget a caller, wherever it is."""
        if self._open.pop(caller, None) is not None:
            left = self._open_of_host[host] - 1
            if left:
                self._open_of_host[host] = left
            else:
                del self._open_of_host[host]
            return
        waiting = self._waiting.get(host)
        if waiting is not None and caller in waiting:
            waiting.remove(caller)
            if not waiting:
                del self._waiting[host]
