"""The layout of a surviving write buffer's file, and of the file that names its owner.

A buffer's file is one page, then the buffer. The page, in words of 8 bytes in the machine's order::

     0 binding: offset of the log, number, epoch, check      8 its copy
    16 published: position << 32 | CRC-32, check            24 its copy
   128 identity (``BufferIdentity``): u32 length, then JSON with its CRC

``owner`` has the page alone; its words are the numbers of the last released (0, copy 8) and last bound (16, copy 24)
buffer and the committed offset (32, copy 40), each with its check.

A kill finds each word stored or not, and words in the order of the stores. Every value is stored with its check, then
once more: at any moment one of the two copies is whole, except before the first one of its binding. A check depends on
the run, a publication's on the binding as well, so nothing from an earlier use of the memory is taken for the present.

Published is the end of the bytes that are whole, with the CRC of all bytes up to there: it is stored after the bytes,
and before the append is acknowledged. What a dying copy has left beyond it does not count.

Lives here: the places, the checks, ``BufferIdentity``, ``Header`` to read a page.
"""

import struct
from typing import Final

import msgspec
import numpy as np

from pocketmq.common.errors import DECODE_ERRORS, BytesIllegal
from pocketmq.common.sealed_json import seal, unseal
from pocketmq.store.disk.file_system import Words

HEADER_BYTES: Final = 4096
WORDS: Final = 64
IDENTITY_AT: Final = 1024
HEAD: Final = slice(8 * WORDS, IDENTITY_AT)
"""Bytes of the page that have no meaning."""
FORMAT_VERSION: Final = 1
BINDING: Final = (0, 8)
PUBLISHED: Final = (16, 24)
RELEASED: Final = (0, 8)
BOUND: Final = (16, 24)
COMMITTED: Final = (32, 40)
CHECK_MASK: Final = (1 << 64) - 1
CHECK_FACTOR: Final = 0x9E3779B97F4A7C15
_FACTOR_2: Final = 0xC2B2AE3D27D4EB4F
_FACTOR_3: Final = 0x165667B19E3779F9
_LENGTH: Final = struct.Struct("=I")


class BufferIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Whose file this is. ``number``: of the buffer, -1 in ``owner``. ``boot_id`` and ``process_start`` tell a process
    from a later one with its ``pid``; ``root``: the store's directory, for people.
    """

    version: int = FORMAT_VERSION
    store_id: str
    run_id: str
    number: int
    buffers: int
    buffer_bytes: int
    segment_bytes: int
    boot_id: str
    pid: int
    process_start: str
    root: str

    def encode(self) -> bytes:
        """Return the bytes from ``IDENTITY_AT`` on."""
        content = seal(msgspec.json.encode(self))
        return _LENGTH.pack(len(content)) + content


def run_salt(run_id: str) -> int:
    """Return what the checks of a run depend on; never 0."""
    return int(run_id[:16], 16) | 1


def check_of(value: int, salt: int) -> int:
    """Return the check of a word: another word or salt has another one."""
    return (value ^ salt) * CHECK_FACTOR & CHECK_MASK


def binding_check(offset: int, number: int, epoch: int, salt: int) -> int:
    """Return the check of a binding."""
    return ((offset ^ salt) * CHECK_FACTOR + number * _FACTOR_2 + epoch * _FACTOR_3) & CHECK_MASK


def binding_salt(offset: int, number: int, salt: int) -> int:
    """Return what the check of a publication depends on; never 0."""
    return (salt + offset * _FACTOR_2 + number * _FACTOR_3) & CHECK_MASK | 1


def store_twice(words: Words, places: tuple[int, int], value: int, salt: int) -> None:
    """Store a word and its check, and their copy."""
    check = check_of(value, salt)
    for place in places:
        words[place] = value
        words[place + 1] = check


class Binding(msgspec.Struct, frozen=True):
    """``offset``: of the log, where the buffer begins; ``number`` counts the bindings of a run, from 1."""

    offset: int
    number: int
    epoch: int


class Header:
    """A page that was read: what a process left behind."""

    __slots__ = ("_words", "identity")

    def __init__(self, page: bytes) -> None:
        """Raises ``BytesIllegal``."""
        if len(page) < HEADER_BYTES:
            raise BytesIllegal("header refused", why=f"it has {len(page)} bytes, not {HEADER_BYTES}")
        self._words: list[int] = np.frombuffer(page, np.uint64, WORDS).tolist()
        (length,) = _LENGTH.unpack_from(page, IDENTITY_AT)
        begin = IDENTITY_AT + _LENGTH.size
        if not 0 < length <= HEADER_BYTES - begin:
            raise BytesIllegal("header refused", why="there is no identity in it")
        content = page[begin : begin + length]
        try:
            if not content.endswith(b"}") or unseal(content) == content:
                raise BytesIllegal("header refused", why="its identity has no checksum")
            self.identity = msgspec.json.decode(unseal(content), type=BufferIdentity)
        except DECODE_ERRORS as error:
            raise BytesIllegal("header refused", why=f"its identity is damaged: {error}") from error
        if self.identity.version != FORMAT_VERSION:
            raise BytesIllegal("header refused", why=f"version {self.identity.version} is not known")

    def value(self, places: tuple[int, int], salt: int) -> int | None:
        """Return the larger whole one of the two copies of a word that only grows; None if neither is whole.

        Raises ``BytesIllegal`` if something else than a kill has changed both.
        """
        words = self._words
        whole = [words[at] for at in places if words[at + 1] == check_of(words[at], salt)]
        if not whole and all(words[at] and words[at + 1] for at in places):
            raise BytesIllegal("header refused", why=f"both copies of word {places[0]} are damaged")
        return max(whole, default=None)

    def bindings(self, salt: int) -> list[Binding]:
        """Return the whole bindings, one or two: of a kill between both copies, the newer one first.

        Raises ``BytesIllegal`` if something else than a kill has changed both.
        """
        words = self._words
        found: list[Binding] = []
        for at in BINDING:
            offset, number, epoch, check = words[at : at + 4]
            if check == binding_check(offset, number, epoch, salt):
                found.append(Binding(offset, number, epoch))
        if not found and all(any(words[at : at + 3]) and words[at + 3] for at in BINDING):
            raise BytesIllegal("header refused", why="both copies of the binding are damaged")
        found.sort(key=lambda each: each.number, reverse=True)
        return found[:1] if len(found) == 2 and found[0] == found[1] else found

    def published(self, binding: Binding, salt: int) -> tuple[int, int] | None:
        """Return (position of the end of the whole bytes, their CRC-32); None if nothing was published.

        Raises ``BytesIllegal`` if something else than a kill has changed both copies.
        """
        value = self.value(PUBLISHED, binding_salt(binding.offset, binding.number, salt))
        return None if value is None else (value >> 32, value & 0xFFFF_FFFF)
