"""The two frames of a small native append, byte by byte, for the short paths of broker and client.

Lives here: the start of a request as our client always writes it, and the answer of a stored append with numbers of
fixed width. Both are ordinary msgpack frames: ``codec_msgpack`` reads and writes them as well; a short path only knows
where each number is, so one ``struct`` call takes the place of a decoder.

A request is ``REQUEST_HEAD`` (frame length, header word, ``REQUEST_LEAD``, opaque), then bytes that are the same for
every request with the same producer group, wait, timeout and sections, then the body of NATIVE_APPEND. Our client
writes the opaque as u32, whatever its value, so that what follows stays constant.

An answer is ``ANSWER_HEAD``, then one ``ANSWER_SECTION`` for each section of the request. Every number has its widest
form (msgpack allows it), so the size follows from the number of sections alone.
"""

from struct import Struct
from typing import Final

REQUEST_HEAD: Final = Struct(">II5sI")
"""Length of what follows, serialize type and header length (``remoting.frame``), ``REQUEST_LEAD``, opaque."""
REQUEST_LEAD: Final = b"\x97\xcd\x76\x66\xce"
"""An array of seven, NATIVE_APPEND as u16, the mark of a u32: the opaque follows."""

ANSWER_HEAD: Final = Struct(">II3sI8sQ1sH")
"""Length, header word, ``HEAD_A``, opaque, ``HEAD_B``, store timestamp (ms), ``HEAD_C``, number of sections."""
HEAD_A: Final = b"\x97\x00\xce"
"""An array of seven, code SUCCESS, the mark of a u32."""
HEAD_B: Final = b"\x01\xcd\x01\x99\x03\xa0\x92\xcf"
"""Flag (an answer), version 409, language, an empty remark, a header of two fields, the mark of a u64."""
HEAD_C: Final = b"\xdc"
"""The mark of an array with a u16 length."""
ANSWER_SECTION: Final = Struct(">3sQ3sQ1sH1s")
"""``SECTION_A``, first queue offset, ``SECTION_B``, physical offset of the first record, ``SECTION_C``, records,
``SECTION_D``."""
SECTION_A: Final = b"\x94\x00\xcf"
"""A result of four fields, its code SUCCESS, the mark of a u64."""
SECTION_B: Final = b"\x91\x92\xcf"
"""One run of two fields, the mark of a u64."""
SECTION_C: Final = b"\xcd"
"""The mark of a u16."""
SECTION_D: Final = b"\xa0"
"""An empty remark."""
ANSWER_ONE: Final = Struct(ANSWER_HEAD.format + ANSWER_SECTION.format[1:])
"""The answer to a request with one section, in one ``struct``."""
OPAQUE_MAX: Final = 0x7FFF_FFFF
"""Above this the decoder refuses an opaque (RocketMQ's is a Java int)."""
SECTIONS_MAX: Final = 200
"""Sections of a request that a short path takes; the records of all its sections have the same limit."""
