"""Compression of message bodies, as a stage: which bodies, and where.

Lives here: ``Compression``: the settings, the choice of bodies, compression here or in a thread.

As in RocketMQ a body of ``compress_msg_body_over_howmuch`` bytes or more is compressed, and its sysFlag says how; the
log keeps it so, and the reader unpacks it. Batches (``send_batch``, ``send_arrow``) travel uncompressed, as in
RocketMQ. Ours: a body that does not get smaller is sent as it is, and compression is off by default
(docs/message-kinds.md).
"""

import asyncio
from typing import Final

from pocketmq.client.producer.pending_send import PendingSend
from pocketmq.client.producer.stages import SendStage
from pocketmq.common.body_codec import LEVEL_DEFAULT, CompressionType, compress_body, load_library
from pocketmq.common.errors import ConfigError
from pocketmq.common.message import Message
from pocketmq.common.record import COMPRESSED_FLAG

OVER_HOWMUCH_BYTES: Final = 4096
"""RocketMQ DefaultMQProducer.compressMsgBodyOverHowmuch."""
LEVEL_MAX: Final = 9
OFF_LOOP_BYTES: Final = {
    CompressionType.ZLIB: 32 << 10,
    CompressionType.ZSTD: 32 << 10,
    CompressionType.LZ4: 512 << 10,
}
"""Bodies from here on are compressed in a thread: about 0.4 ms of work (``python -m bench compression``), below which
the hop to the thread costs as much."""


def compression_type_of(value: object) -> CompressionType:
    """Return the type that a setting names: ``ZLIB``, ``LZ4``, ``ZSTD`` in any case. Raises ``ConfigError``."""
    if isinstance(value, CompressionType):
        return value
    if isinstance(value, str) and value.upper() in CompressionType.__members__:
        return CompressionType[value.upper()]
    raise ConfigError(
        "producer refused", why=f"compress_type={value!r}", hint=f"one of {', '.join(CompressionType.__members__)}"
    )


class Compression(SendStage):
    """How one producer compresses. Raises ``ConfigError``, or ``CompressionMissing`` for a missing library: now, not at
    the first large message.
    """

    def __init__(
        self,
        compress_type: CompressionType | str,
        level: int = LEVEL_DEFAULT,
        over_howmuch_bytes: int = OVER_HOWMUCH_BYTES,
    ) -> None:
        self.kind = compression_type_of(compress_type)
        if type(level) is not int or not 0 <= level <= LEVEL_MAX:
            raise ConfigError("producer refused", why=f"compress_level={level!r} is not from 0 to {LEVEL_MAX}")
        if type(over_howmuch_bytes) is not int or over_howmuch_bytes < 1:
            raise ConfigError(
                "producer refused", why=f"compress_msg_body_over_howmuch={over_howmuch_bytes!r} is not 1 or more"
            )
        load_library(self.kind)
        self._level = level
        self._sys_flag = COMPRESSED_FLAG | self.kind.value
        self.over_howmuch_bytes = over_howmuch_bytes
        self.body_bytes_max = over_howmuch_bytes - 1
        self._off_loop_bytes = OFF_LOOP_BYTES[self.kind]

    def enter(self, send: PendingSend) -> "asyncio.Future[None] | None":
        """Compress the body of a checked message where that is worth it; return a future if a thread does it.

        ``message.packed`` is sent while ``message.body`` is the same object.
        """
        message = send.message
        body = message.body
        if len(body) < self.over_howmuch_bytes:
            message.packed = None
            return None
        packed = message.packed
        if packed is not None and packed[0] is body and packed[1] == self._sys_flag:
            return None
        if len(body) < self._off_loop_bytes:
            self._pack(message, body)
            return None
        return asyncio.get_running_loop().run_in_executor(None, self._pack, message, body)

    def _pack(self, message: Message, body: bytes) -> None:
        smaller = compress_body(body, self.kind, self._level)
        message.packed = (body, self._sys_flag, smaller) if len(smaller) < len(body) else None
