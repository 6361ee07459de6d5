"""Answers of stored appends, read in place: the client's end of ``short_frames``.

Lives here: ``ShortAnswers``. It looks at the beginning of what one read brought, before the decoder does. It takes an
answer only if every byte of it is as ``short_frames`` says, and it belongs to a request that waits for exactly so many
sections with so many records. Everything else is left to the decoder: refusals, other forms, half frames, garbage.
"""

from collections.abc import Callable
from typing import Final

from pocketmq.remoting.frame import MSGPACK
from pocketmq.remoting.pending import Waiting
from pocketmq.remoting.short_frames import (
    ANSWER_HEAD,
    ANSWER_ONE,
    ANSWER_SECTION,
    HEAD_A,
    HEAD_B,
    HEAD_C,
    SECTION_A,
    SECTION_B,
    SECTION_C,
    SECTION_D,
    SECTIONS_MAX,
)

LONG_MAX: Final = 2**63 - 1
"""Above this the decoder refuses a number (RocketMQ's is a Java long)."""
_ONE_BYTES: Final = ANSWER_ONE.size
_HEAD_BYTES: Final = ANSWER_HEAD.size
_SECTION_BYTES: Final = ANSWER_SECTION.size
_ONE_LENGTH: Final = _ONE_BYTES - 4
_ONE_WORD: Final = MSGPACK << 24 | _ONE_BYTES - 8
_unpack_one = ANSWER_ONE.unpack_from
_unpack_head = ANSWER_HEAD.unpack_from
_unpack_sections = ANSWER_SECTION.iter_unpack


class ShortAnswers:
    """Settles the requests of one channel whose answers have the fixed layout.

    ``entries``: the requests that wait, by opaque. ``failed`` gets the error of a request that could not take its
    answer.
    """

    __slots__ = ("_entries", "_failed")

    def __init__(self, entries: dict[int, Waiting], failed: Callable[[Exception], None]) -> None:
        self._entries = entries
        self._failed = failed

    def take(self, view: memoryview, end: int) -> int:
        """Settle what is answered at the beginning of ``view[:end]``; return how many bytes these answers have."""
        entries = self._entries
        at = 0
        while end - at >= _ONE_BYTES:
            # fmt: off
            (length, word, head_a, opaque, head_b, timestamp, head_c, sections,
             a, first, b, start, c, count, d) = _unpack_one(view, at)
            # fmt: on
            if (
                length != _ONE_LENGTH
                or word != _ONE_WORD
                or sections != 1
                or head_c != HEAD_C
                or c != SECTION_C
                or d != SECTION_D
            ):
                next_at = self._take_several(view, at, end)
                if next_at == at:
                    break
                at = next_at
                continue
            entry = entries.get(opaque)
            if (
                entry is None
                or entry.counts != (count,)
                or head_a != HEAD_A
                or head_b != HEAD_B
                or a != SECTION_A
                or b != SECTION_B
                or first > LONG_MAX
                or start > LONG_MAX
                or timestamp > LONG_MAX
            ):
                break
            del entries[opaque]
            at += _ONE_BYTES
            try:
                entry.stored(((first, start),))
            except Exception as error:  # one caller's bug must not keep others from their answers
                self._failed(error)
        return at

    def _take_several(self, view: memoryview, at: int, end: int) -> int:
        """Settle the answer with several sections at ``at`` and return its end, or ``at`` if there is none."""
        length, word, head_a, opaque, head_b, timestamp, head_c, sections = _unpack_head(view, at)
        size = _HEAD_BYTES + sections * _SECTION_BYTES
        if (
            length != size - 4
            or word != MSGPACK << 24 | size - 8
            or not 1 < sections <= SECTIONS_MAX
            or at + size > end
            or head_a != HEAD_A
            or head_b != HEAD_B
            or head_c != HEAD_C
            or timestamp > LONG_MAX
        ):
            return at
        entry = self._entries.get(opaque)
        if entry is None or len(entry.counts) != sections:
            return at
        places: list[tuple[int, int]] = []
        rows = _unpack_sections(view[at + _HEAD_BYTES : at + size])
        for expected, (a, first, b, start, c, count, d) in zip(entry.counts, rows, strict=True):
            if (
                count != expected
                or a != SECTION_A
                or b != SECTION_B
                or c != SECTION_C
                or d != SECTION_D
                or first > LONG_MAX
                or start > LONG_MAX
            ):
                return at
            places.append((first, start))
        del self._entries[opaque]
        try:
            entry.stored(places)
        except Exception as error:
            self._failed(error)
        return int(at + size)
