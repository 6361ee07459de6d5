"""Sends as RocketMQ's Java client writes them, from a blocking socket.

Lives here: ``send_frame`` in both header forms, ``send_all``. Formats: ``RemotingCommand.encode`` and
``RocketMQSerializable.rocketMQProtocolEncode`` of RocketMQ 5.3; the fields of ``SendMessageRequestHeaderV2``.
"""

import json
import socket
import struct
import time
from typing import Final

from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.security.credentials import Credentials
from pocketmq.remoting.security.signature import sign

VERSION: Final = 479
"""What 5.3 announces (``MQVersion.V5_3_0``)."""
JAVA: Final = 0
FORM_JSON, FORM_BINARY = 0, 1
FORMS: Final = {"JSON": FORM_JSON, "binary": FORM_BINARY}


def _fields(topic: str, number: int) -> dict[str, str]:
    return {
        "a": "calls",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(number % 4),
        "f": "0",
        "g": str(time.time_ns() // 1_000_000),
        "h": "0",
        "i": f"UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02",
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "pocketmq",
    }


def _json_header(opaque: int, fields: dict[str, str]) -> bytes:
    header = {
        "code": int(RequestCode.SEND_MESSAGE_V2),
        "extFields": fields,
        "flag": 0,
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": VERSION,
    }
    return json.dumps(header, separators=(",", ":")).encode()


def _binary_header(opaque: int, fields: dict[str, str]) -> bytes:
    pairs = b"".join(
        struct.pack(f">h{len(key)}si{len(value)}s", len(key), key.encode(), len(value), value.encode())
        for key, value in fields.items()
    )
    code = int(RequestCode.SEND_MESSAGE_V2)
    return struct.pack(">hBhiiii", code, JAVA, VERSION, opaque, 0, 0, len(pairs)) + pairs


def send_frame(form: int, topic: str, number: int, body: bytes, credentials: Credentials | None = None) -> bytes:
    """Return the frame of one send, signed with ``credentials``; ``number`` makes opaque, queue and unique key."""
    fields = _fields(topic, number)
    if credentials is not None:
        fields |= sign(credentials, fields, body)
    header = _binary_header(number, fields) if form == FORM_BINARY else _json_header(number, fields)
    return struct.pack(">II", 4 + len(header) + len(body), form << 24 | len(header)) + header + body


def answer_code(frame: bytes) -> int:
    """Return the response code of an answer without its length field, in either form."""
    word = int.from_bytes(frame[:4])
    if word >> 24 == FORM_BINARY:
        return int.from_bytes(frame[4:6])
    return int(json.loads(frame[4 : 4 + (word & 0xFFFFFF)])["code"])


class RocketmqConnection:
    """One connection with one send in flight."""

    def __init__(self, address: str, form: int, credentials: Credentials | None = None) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")
        self._form = form
        self._credentials = credentials
        self._number = 0

    def send(self, topic: str, body: bytes, count: int, pause_s: float) -> None:
        """Send one message after the other. Raises ``RuntimeError`` for an answer that is not a success."""
        for _ in range(count):
            self._number += 1
            time.sleep(pause_s)
            self._socket.sendall(send_frame(self._form, topic, self._number, body, self._credentials))
            code = answer_code(self._file.read(int.from_bytes(self._file.read(4))))
            if code:
                raise RuntimeError(f"a send was answered with code {code}")

    def close(self) -> None:
        """Disconnect."""
        self._file.close()
        self._socket.close()
