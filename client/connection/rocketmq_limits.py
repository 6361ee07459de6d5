"""What a RocketMQ broker does not offer, logged once for each broker and limit.

Lives here: ``RocketMQLimits``: the warnings and their texts, and which of them were logged for each broker.
"""

from collections.abc import Iterable
from typing import Final

from pocketmq.common.events import EventLog
from pocketmq.common.message import Message
from pocketmq.common.record import COMPRESSED_FLAG, COMPRESSION_LZ4, COMPRESSION_TYPE_MASK, COMPRESSION_ZSTD

V4_9_4: Final = 401
"""MQVersion.java of 4.9.4: clients read bodies compressed by LZ4 and ZSTD from this version on."""
V5_0_0: Final = 413
"""MQVersion.java of 5.0.0: brokers have timers from this version on."""
BROKERS_MAX: Final = 4_096
"""Warnings remembered at most. Beyond that all are forgotten, and some limits are logged again."""


class RocketMQLimits:
    """Belongs to one client instance and its event loop."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._logged: set[tuple[str, str]] = set()

    def opened(self, broker_name: str, address: str, version: int) -> None:
        """Log that a broker is RocketMQ's."""
        if self._is_new(address, "opened"):
            self._log.info(
                "rocketmq_broker",
                broker=broker_name,
                address=address,
                version=version,
                meaning="RocketMQ's own requests in JSON; it reports no cause, no retry_after_ms and not whether a "
                "refused send was stored, gives no fencing tokens, and does not confirm the end of a transaction",
                more="docs/compatibility.md",
            )

    def sent(self, broker_name: str, address: str, version: int, messages: Iterable[Message]) -> None:
        """Warn about messages with features that a RocketMQ broker before 5.0 lacks."""
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
        if (address, what) in self._logged:
            return False
        if len(self._logged) >= BROKERS_MAX:
            self._logged.clear()
        self._logged.add((address, what))
        return True
