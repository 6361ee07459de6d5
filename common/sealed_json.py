"""A JSON object that carries a checksum of itself, as its last field.

    {"offsetTable":{"orders@billing":{"0":17}},"crc":3735928559}

``crc`` is the CRC-32 (zlib's) of all bytes before the comma in front of it; of an empty object, of its brace. Java's
fastjson skips fields that it does not know, so RocketMQ reads such files, and writes them without the field. Without
it nothing is checked: RocketMQ's files, those of older versions, and edited ones.

Lives here: ``seal``, ``unseal``.
"""

import re
from typing import Final

from pocketmq.common.errors import BytesIllegal
from pocketmq.common.hashes import crc32

_TAIL_BYTES: Final = 128
_SEAL: Final = re.compile(rb'[,{]?\s*"crc"\s*:\s*(\d{1,20})\s*\}\s*\Z')


def seal(content: bytes) -> bytes:
    """Return ``content``, a JSON object as ``msgspec`` encodes it, with its checksum."""
    assert content[:1] == b"{"
    assert content[-1:] == b"}"
    body = content[:-1]
    return b'%b%b"crc":%d}' % (body, b"" if body == b"{" else b",", crc32(body))


def unseal(data: bytes) -> bytes:
    """Return the content of a file without its checksum; a file that has none is returned as it is.

    Raises ``BytesIllegal`` if the checksum does not match. Does not check that the content is JSON.
    """
    found = _SEAL.search(data, max(0, len(data) - _TAIL_BYTES))
    if found is None:
        return data
    end = found.start() + (data[found.start()] == ord("{"))
    if crc32(data[:end]) != int(found[1]):
        raise BytesIllegal(
            "file refused",
            why="its crc does not fit",
            hint="it was damaged, or edited by hand: then remove the field crc at its end, with the comma before it",
        )
    return data[:end] + b"}"
