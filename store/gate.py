"""One number in place of ten questions before a short append.

Lives here: ``SendGate``, which every component changes whose state decides whether a message may be stored.
"""

import itertools


class SendGate:
    """``generation`` changes whenever something changes that may refuse an append: the log opens, closes or is fenced,
    a commit fails, the disk is full, another master leads, sends are held, a topic could not be written.

    A caller that has checked everything once keeps the number; while it is the same, nothing needs to be checked again.
    Each number is given out once, so threads may call ``changed`` at the same time. State is changed first, then the
    gate: whoever reads the new number sees the new state.
    """

    __slots__ = ("_numbers", "generation")

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.generation = 0

    def changed(self) -> None:
        """Make everything that was checked before count as unchecked. Any thread; never blocks."""
        self.generation = next(self._numbers)
