"""The store's settings, with RocketMQ's names in snake_case and its defaults (RocketMQ MessageStoreConfig, 4.9).

Lives here: ``StoreConfig`` and what combinations are impossible. Names without a RocketMQ origin are marked "ours".
Not here: where the values come from (``common.settings``).
"""

from typing import Final, Literal

import msgspec

from pocketmq.common.errors import ConfigError
from pocketmq.common.record import BLANK_BYTES_MIN, RECORD_BYTES_MIN

PAGE_BYTES: Final = 4096
CONSUME_QUEUE_ENTRY_BYTES: Final = 20
RECORD_EXTRA_BYTES_MAX: Final = 65_536
"""What a record may hold besides a body of ``max_message_size`` (RocketMQ CommitLog.java: 64 KiB)."""

BrokerRole = Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the store uses disk and memory. Sizes are bytes, times are ms."""

    store_path_root_dir: str = "~/store"
    broker_role: BrokerRole = "ASYNC_MASTER"

    # Commit log
    mapped_file_size_commit_log: int = 1 << 30
    append_mode: Literal["mapped", "written"] = "mapped"
    """Ours: ``mapped`` copies groups into the mapped segment, ``written`` uses ``pwrite``; both give the same files."""
    max_message_size: int = 4 << 20
    """Largest body."""
    append_group_bytes_max: int = 64 << 20
    """Ours: largest group of records appended at once; never more than a segment holds."""
    group_checksums: bool = True
    """Ours: keep a CRC-32 of every append group under ``checksums/``."""
    os_page_cache_busy_timeout_mills: int = 1000

    # Flush
    flush_disk_type: Literal["ASYNC_FLUSH", "SYNC_FLUSH"] = "ASYNC_FLUSH"
    flush_interval_commit_log: int = 500
    flush_commit_log_timed: bool = True
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval: int = 10_000
    sync_flush_timeout: int = 5000
    checkpoint_interval: int = 10_000
    """Ours: how often queues are made durable and the checkpoint moves, if anything was stored since."""
    sync_on_close: bool = True
    """Ours: make everything durable at a clean stop. False leaves that to the system: safe against the end of the
    process, not against power loss; for stores that live as long as a test.
    """

    # Consume queues
    mapped_file_size_consume_queue: int = 300_000 * CONSUME_QUEUE_ENTRY_BYTES
    flush_interval_consume_queue: int = 1000
    flush_consume_queue_least_pages: int = 2
    flush_consume_queue_thorough_interval: int = 60_000

    # Index
    message_index_enable: bool = True
    message_index_safe: bool = False
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    default_query_max_num: int = 32

    # Reads
    max_transfer_bytes_on_message_in_memory: int = 262_144
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 65_536
    max_transfer_count_on_message_in_disk: int = 8
    access_message_in_memory_max_ratio: int = 40
    max_msgs_num_batch: int = 64

    # Recovery
    check_crc_on_recover: bool = True
    recovery_quarantine_bytes_max: int = 1 << 30
    """Ours: most bytes of cut or damaged log that one recovery copies to ``pocketmq/quarantine``."""

    def __post_init__(self) -> None:
        """Refuse impossible values; the error names the key."""
        segment_bytes = self.mapped_file_size_commit_log
        if segment_bytes % PAGE_BYTES or segment_bytes < PAGE_BYTES or segment_bytes > 1 << 31:
            raise _refuse("mapped_file_size_commit_log", segment_bytes, "a multiple of 4096, at most 2 GiB")
        queue_bytes = self.mapped_file_size_consume_queue
        if queue_bytes <= 0 or queue_bytes % CONSUME_QUEUE_ENTRY_BYTES:
            raise _refuse("mapped_file_size_consume_queue", queue_bytes, "a multiple of 20 above 0")
        for key in (
            "max_message_size",
            "append_group_bytes_max",
            "flush_interval_commit_log",
            "sync_flush_timeout",
            "checkpoint_interval",
            "flush_interval_consume_queue",
            "max_hash_slot_num",
            "max_index_num",
            "default_query_max_num",
        ):
            if getattr(self, key) <= 0:
                raise _refuse(key, getattr(self, key), "above 0")

    @property
    def group_bytes_max(self) -> int:
        """Return the largest group that can be appended: what one segment holds beside its blank end, or less."""
        return min(self.append_group_bytes_max, self.mapped_file_size_commit_log - BLANK_BYTES_MIN)

    @property
    def record_bytes_max(self) -> int:
        """Return the largest record: a body of ``max_message_size`` and 64 KiB, if a segment holds that."""
        return max(RECORD_BYTES_MIN, min(self.max_message_size + RECORD_EXTRA_BYTES_MAX, self.group_bytes_max))


def _refuse(key: str, value: int, must_be: str) -> ConfigError:
    return ConfigError("setting refused", why=f"store.{key}={value}", hint=f"it must be {must_be}")
