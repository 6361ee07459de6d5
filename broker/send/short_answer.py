"""The answer of a stored native append, in numbers of fixed width (``remoting.short_frames``).

Lives here: ``answer_of``.
"""

from typing import Final

from pocketmq.remoting.frame import MSGPACK
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
)
from pocketmq.store.short_append import ShortFrame

_WORD: Final = MSGPACK << 24
_ONE_LENGTH: Final = ANSWER_ONE.size - 4
_ONE_WORD: Final = _WORD | ANSWER_ONE.size - 8
_pack_one = ANSWER_ONE.pack


def answer_of(opaque: int, frame: ShortFrame) -> bytes:
    """Return the answer to the request with ``opaque``, whose records ``frame`` holds and the log has."""
    places = frame.places
    if places[0] is places[-1]:
        first, start = places[0]
        return _pack_one(
            _ONE_LENGTH,
            _ONE_WORD,
            HEAD_A,
            opaque,
            HEAD_B,
            frame.store_timestamp,
            HEAD_C,
            1,
            SECTION_A,
            first,
            SECTION_B,
            start,
            SECTION_C,
            frame.count,
            SECTION_D,
        )
    size_bytes = ANSWER_HEAD.size + len(places) * ANSWER_SECTION.size
    parts = [
        ANSWER_HEAD.pack(
            size_bytes - 4,
            _WORD | size_bytes - 8,
            HEAD_A,
            opaque,
            HEAD_B,
            frame.store_timestamp,
            HEAD_C,
            len(places),
        )
    ]
    for (_, records), (first, start) in zip(frame.parts, places, strict=True):
        parts.append(ANSWER_SECTION.pack(SECTION_A, first, SECTION_B, start, SECTION_C, len(records), SECTION_D))
    return b"".join(parts)
