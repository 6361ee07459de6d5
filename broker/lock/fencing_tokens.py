"""Numbers for locks that only ever grow, also over restarts of the broker.

Lives here: ``FencingTokens`` and the JSON of ``config/fencingToken.json``.

A token must be above all that this broker ever gave, whatever happened meanwhile. Writing the file for each would cost
a disk access a lock, so tokens are reserved ahead: the file holds a number above all that may have been given.
"""

import threading
from collections.abc import Callable
from typing import Annotated, Final

import msgspec

BLOCK: Final = 100_000
"""Tokens reserved at a time; far above what one request can take."""


class _TokenFile(msgspec.Struct, rename="camel"):
    reserved_below: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]  # required: a file without it is damaged


class FencingTokens:
    """The source of tokens. ``reserve`` belongs to worker threads (it writes the file); the caller of ``next`` holds a
    lock of its own.

    Holds: every token given is below what the file says, and above every token given before. Where the file is lost,
    the wall time in ms is the first token: still above the old ones, which started at such a time and grow by less
    than one a ms. The same lets a broker of that name on another machine go on above them.
    """

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._reserve_lock = threading.Lock()
        self._persist: Callable[[], object] | None = None
        self._next = 0
        self._reserved = 0
        self._written = 0
        self.generation = 0

    def open(self, persist: Callable[[], object]) -> None:
        """Begin, after ``load`` if there is a file; ``persist`` returns when the file is durable."""
        self._persist = persist
        self._next = max(self._reserved, self._wall_ms())
        self._reserved = self._next

    @property
    def left(self) -> int:
        """How many tokens can be given now."""
        return self._reserved - self._next

    def reserve(self, count: int) -> None:
        """Make sure that ``count`` tokens can be given. May write the file; raises ``StoreError``."""
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
        """Take over a ``fencingToken.json``, which may be the backup: one write older. Raises ``DECODE_ERRORS``."""
        self._reserved = msgspec.json.decode(content, type=_TokenFile).reserved_below + 2 * BLOCK
