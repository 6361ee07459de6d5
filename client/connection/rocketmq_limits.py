"""What a RocketMQ broker does not offer, logged once for each broker and limit.

Lives here: ``RocketMQLimits``: what was logged of which broker; the words.
"""

from collections.abc import Iterable
from typing import Final

from pocketmq.common.events import EventLog
from pocketmq.common.message import Message
from pocketmq.common.record import COMPRESSED_FLAG, COMPRESSION_LZ4, COMPRESSION_TYPE_MASK, COMPRESSION_ZSTD

V4_9_4: Final = 401
"""MQVersion.java of 4.9.4: bodies compressed otherwise than by ZLIB are known from here on."""
V5_0_0: Final = 413
"""MQVersion.java of 5.0.0: timers are known from here on."""
BROKERS_MAX: Final = 4_096
"""More brokers than this are not remembered: then some limits are logged again."""


class RocketMQLimits:
    """Belongs to one client instance and its event loop."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._told: set[tuple[str, str]] = set()

    def opened(self, broker_name: str, address: str, version: int) -> None:
        """Say that a broker is a RocketMQ."""
        if self._is_new(address, "opened"):
            self._log.info(
                "rocketmq_broker",
                broker=broker_name,
                address=address,
                version=version,
                meaning="RocketMQ's own requests in JSON; it tells no cause, no retry_after_ms and not whether a "
                "refused send was stored, gives no fencing tokens, and does not confirm the end of a transaction",
                more="docs/compatibility.md",
            )

    def sent(self, broker_name: str, address: str, version: int, messages: Iterable[Message]) -> None:
        """Look at what is sent to a RocketMQ broker, and say what it does not know. From 5.0 on it knows all."""
        if not 0 < version < V5_0_0:
            return
        for message in messages:
            if message.is_timed and self._is_new(address, "timer"):
                self._log.warning(
                    "timed_message_delivered_at_once",
                    broker=broker_name,
                    address=address,
                    version=version,
                    topic=message.topic,
                    what_to_do="use delay_time_level: RocketMQ has timers since 5.0",
                )
            packed = message.packed
            is_foreign = packed is not None and version < V4_9_4 and self._is_foreign(packed[1])
            if is_foreign and self._is_new(address, "compression"):
                self._log.warning(
                    "compression_unknown_to_clients",
                    broker=broker_name,
                    address=address,
                    version=version,
                    topic=message.topic,
                    what_to_do="use compress_type=ZLIB: RocketMQ's clients below 4.9.4 cannot read other bodies",
                )

    @staticmethod
    def _is_foreign(sys_flag: int) -> bool:
        kind = sys_flag & COMPRESSION_TYPE_MASK
        return bool(sys_flag & COMPRESSED_FLAG) and kind in (COMPRESSION_LZ4, COMPRESSION_ZSTD)

    def _is_new(self, address: str, what: str) -> bool:
        if (address, what) in self._told:
            return False
        if len(self._told) >= BROKERS_MAX:
            self._told.clear()
        self._told.add((address, what))
        return True
