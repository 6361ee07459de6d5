"""Numbers for locks that only grow, even across restarts of the broker.

Lives here: ``FencingTokens`` and the JSON of ``config/fencingToken.json``.

A token must be above every token that this broker ever issued. Writing the file for each would cost a disk access per
lock, so tokens are reserved ahead: the file holds a number above all that may have been issued.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Final

import msgspec

BLOCK: Final = 100_000
"""Tokens reserved at a time; far more than one request can take."""


class _TokenFile(msgspec.Struct, rename="camel"):
    reserved_below: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]  # required: a file without it is damaged


@dataclass(slots=True, eq=False)
class FencingTokens:
    """The source of tokens. ``reserve`` is for worker threads (it writes the file); the caller of ``next`` holds its
    own lock.

    Holds: every token issued is below the number in the file, and above every token issued before. If the file is lost,
    the first token is the wall time in ms: still above the old ones, which started at such a time and grow by less than
    one per ms. So a broker of the same name on another machine also continues above them.
    """

    wall_ms: Callable[[], int]
    _reserve_lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _persist: Callable[[], object] | None = field(init=False, default=None)
    _next: int = field(init=False, default=0)
    _reserved: int = field(init=False, default=0)
    _written: int = field(init=False, default=0)
    generation: int = field(init=False, default=0)

    def open(self, persist: Callable[[], object]) -> None:
        """Start, after ``load`` if there is a file; ``persist`` returns when the file is durable."""
        self._persist = persist
        self._next = max(self._reserved, self.wall_ms())
        self._reserved = self._next

    @property
    def left(self) -> int:
        """How many tokens can be issued now."""
        return self._reserved - self._next

    def reserve(self, count: int) -> None:
        """Make sure that ``count`` tokens can be issued. May write the file; raises ``StoreError``."""
        assert 0 <= count <= BLOCK
        with self._reserve_lock:
            assert self._persist is not None
            if self.left >= count:
                return
            before, self._written = self._reserved, self._next + 2 * BLOCK
            self.generation += 1
            try:
                self._persist()
            except BaseException:
                self._written = before
                raise
            self._reserved = self._written

    def next(self) -> int:
        """Return the next token; ``left`` must be above 0."""
        assert self._next < self._reserved
        token = self._next
        self._next += 1
        return token

    def encode(self) -> bytes:
        """Return the content of ``fencingToken.json``."""
        return msgspec.json.encode(_TokenFile(self._written))

    def load(self, content: bytes) -> None:
        """Load a ``fencingToken.json``, which may be the backup, one write older. Raises ``DECODE_ERRORS``."""
        self._reserved = msgspec.json.decode(content, type=_TokenFile).reserved_below + 2 * BLOCK
