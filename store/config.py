"""The store's settings, with RocketMQ's names in snake_case and its defaults (RocketMQ MessageStoreConfig, 4.9).

Lives here: ``StoreConfig`` and its impossible combinations. Names without a RocketMQ origin are marked "ours".
"""

import ipaddress
from collections.abc import Mapping
from typing import ClassVar, Final, Literal

import msgspec

from pocketmq.common.errors import ConfigError
from pocketmq.common.record import BLANK_BYTES_MIN, RECORD_BYTES_MIN
from pocketmq.common.redelivery import DEFAULT_DELAY_LEVELS, DelayLevels

PAGE_BYTES: Final = 4096
ANONYMOUS: Final = "anonymous"
"""The ``transient_store_pool_path`` of buffers that die with the process, RocketMQ's kind."""
SHARED_MEMORY: Final = "/dev/shm"
POOL_PATH_CHARS_MAX: Final = 1024
CONSUME_QUEUE_ENTRY_BYTES: Final = 20
TIMER_MEMORY_BYTES_MIN: Final = 4096 * CONSUME_QUEUE_ENTRY_BYTES
RECORD_EXTRA_BYTES_MAX: Final = 65_536
"""Bytes that a record may have besides a body of ``max_message_size`` (RocketMQ CommitLog.java: 64 KiB)."""

_DAY_MS: Final = 24 * 3600 * 1000
_PAGES_MAX: Final = 1 << 30
_PERCENT: Final = (0, 100)
_RANGES: Final[dict[str, tuple[int, int]]] = {
    "max_message_size": (1, 1 << 30),
    "append_group_bytes_max": (PAGE_BYTES, 1 << 31),
    "os_page_cache_busy_timeout_mills": (1, 9_999_999),  # above RocketMQ's guard nothing would ever be busy
    "flush_least_pages_when_warm_maped_file": (1, _PAGES_MAX),
    "transient_store_pool_size": (1, 1024),
    "commit_interval_commit_log": (1, _DAY_MS),
    "commit_commit_log_least_pages": (0, _PAGES_MAX),
    "commit_commit_log_thorough_interval": (1, _DAY_MS),
    "flush_interval_commit_log": (1, _DAY_MS),
    "flush_commit_log_least_pages": (0, _PAGES_MAX),
    "flush_commit_log_thorough_interval": (0, _DAY_MS),
    "sync_flush_timeout": (1, _DAY_MS),
    "checkpoint_interval": (1, _DAY_MS),
    "flush_interval_consume_queue": (1, _DAY_MS),
    "flush_consume_queue_least_pages": (0, _PAGES_MAX),
    "flush_consume_queue_thorough_interval": (0, _DAY_MS),
    "max_hash_slot_num": (1, 100_000_000),
    "max_index_num": (1, 400_000_000),
    "default_query_max_num": (1, 1 << 20),
    "max_transfer_bytes_on_message_in_memory": (1, 1 << 30),
    "max_transfer_count_on_message_in_memory": (1, 1 << 20),
    "max_transfer_bytes_on_message_in_disk": (1, 1 << 30),
    "max_transfer_count_on_message_in_disk": (1, 1 << 20),
    "access_message_in_memory_max_ratio": (0, 100),
    "max_msgs_num_batch": (1, 1 << 20),
    "file_reserved_time": (0, 24 * 36_525),
    "disk_free_bytes_min": (0, 1 << 50),
    "disk_max_used_space_ratio": _PERCENT,
    "disk_space_clean_forcibly_ratio": _PERCENT,
    "disk_space_warning_level_ratio": _PERCENT,
    "clean_resource_interval": (1, _DAY_MS),
    "delete_commit_log_files_interval": (0, _DAY_MS),
    "recovery_quarantine_bytes_max": (0, 1 << 50),
    "flush_delay_offset_interval": (1, _DAY_MS),
    "timer_max_delay_sec": (1, 10 * 366 * 24 * 3600),
    "timer_congest_num_each_slot": (1, (1 << 31) - 1),
    "timer_memory_bytes_max": (TIMER_MEMORY_BYTES_MIN, 1 << 40),
    "in_sync_replicas": (1, 16),
    "total_replicas": (1, 16),
    "slave_timeout": (1, _DAY_MS),
    "ha_slave_fallbehind_max": (1, 1 << 50),
    "ha_listen_port": (-1, 65_535),
    "ha_send_heartbeat_interval": (10, _DAY_MS),
    "ha_housekeeping_interval": (20, _DAY_MS),
    "ha_transfer_batch_size": (PAGE_BYTES, 8 << 20),
    "max_ha_transfer_byte_in_second": (0, 1 << 50),
    "ha_recover_wait_ms": (0, _DAY_MS),
}
"""Lowest and highest value of every number except file sizes. The highest only keep an index file below 9 GB and a wait
below a day.
"""

BrokerRole = Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the store uses disk and memory. Sizes are bytes, times are ms."""

    rocketmq_names: ClassVar[Mapping[str, str]] = {
        "check_crc_on_recover": "checkCRCOnRecover",
        "os_page_cache_busy_timeout_mills": "osPageCacheBusyTimeOutMills",
    }
    """Settings whose names in RocketMQ are not plain camel case."""

    store_path_root_dir: str = "~/store"
    """Directory of the store; ``--data-dir`` (``pocketmq`` starts with ./pocketmq-data)."""
    broker_role: BrokerRole = "ASYNC_MASTER"
    """ASYNC_MASTER: no send waits for slaves; SYNC_MASTER: sends wait for ``in_sync_replicas``; SLAVE."""

    # Commit log
    mapped_file_size_commit_log: int = 1 << 30
    """Bytes of one file of the commit log, reserved ahead: a multiple of 4096, at most 2 GiB."""
    append_mode: Literal["auto", "mapped", "written"] = "auto"
    """Ours: ``mapped`` copies groups above 4 KiB into the mapped segment and writes others, ``written`` writes all with
    ``pwrite``; both give the same files.
    ``auto`` is ``written`` under SYNC_FLUSH, where it makes each sync cheaper: 0.17 ms against 0.39 ms for one message,
    a fifth more messages a second with 64 in flight (bench/own/sync_flush.py); else ``mapped``: a cheaper append.
    """
    max_message_size: int = 4 << 20
    """Largest body."""
    append_group_bytes_max: int = 64 << 20
    """Ours: largest group of records appended at once; never more than a segment holds."""
    group_checksums: bool = True
    """Ours: keep a CRC-32 of every append group under ``checksums/``."""
    os_page_cache_busy_timeout_mills: int = 1000
    """An append that holds the lock for longer makes the page cache busy: sends are refused until it ends."""
    warm_maped_file_enable: bool = False
    """Touch every page of a mapped segment ahead of its use, and lock it in RAM. Costs a segment of memory and a long
    first sync; helps where page faults under the append lock are slow.
    """
    flush_least_pages_when_warm_maped_file: int = 4096
    """Under SYNC_FLUSH a warm-up syncs after every so many pages of 4 KiB."""

    # Write-buffer pool (RocketMQ's transient store pool)
    transient_store_pool_enable: bool = False
    """Append to buffers in RAM; a commit thread writes them to the files. Messages not yet committed (usually the last
    200 ms) are lost when the machine dies, or its shared memory is removed; see ``transient_store_pool_path``.
    """
    transient_store_pool_size: int = 5
    """Buffers of ``transient_store_pool_buffer_size`` bytes each. One takes appends and one is prepared: with fewer
    than 3 none is ever free, and every send is refused (``pocketmq scenario reject-request`` shows that).
    """
    transient_store_pool_path: str = SHARED_MEMORY
    """Ours: the directory, in shared memory, below which the buffers are files: after the death of the process the next
    start writes what they still hold to the log. ``anonymous``: RocketMQ's kind, without files, which loses that.
    """
    transient_store_pool_buffer_size: int = 0
    """Ours: bytes of one buffer, a multiple of 4096; 0: ``mapped_file_size_commit_log``. A file of the log then takes
    several buffers, one after the other.
    """
    fast_fail_if_no_buffer_in_store_pool: bool = False
    """Refuse to make a segment without a write buffer. False: ``append_mode`` applies to such a segment."""
    commit_interval_commit_log: int = 200
    """How often the pool's commit thread writes what the buffers hold."""
    commit_commit_log_least_pages: int = 4
    """Pages of 4 KiB that must wait before it writes; 0: any."""
    commit_commit_log_thorough_interval: int = 200
    """How often it writes whatever waits."""
    wake_commit_when_put_message: bool = True
    """Wake the commit thread when enough pages wait; under load, buffers that survive are written every 10 ms."""

    # Flush
    flush_disk_type: Literal["ASYNC_FLUSH", "SYNC_FLUSH"] = "ASYNC_FLUSH"
    """ASYNC_FLUSH answers before the disk has the message (a power loss can lose the last half second); SYNC_FLUSH
    answers after fdatasync."""
    flush_interval_commit_log: int = 500
    """ASYNC_FLUSH: how often the log is synced."""
    flush_commit_log_timed: bool = True
    """Sync on that interval even if appends wake the flush thread earlier."""
    flush_commit_log_least_pages: int = 4
    """Pages of 4 KiB that must wait before a sync; 0: any."""
    flush_commit_log_thorough_interval: int = 10_000
    """How often whatever waits is synced."""
    sync_flush_timeout: int = 5000
    """SYNC_FLUSH: how long a send waits for the sync; then FLUSH_DISK_TIMEOUT."""
    checkpoint_interval: int = 10_000
    """Ours: how often queues are synced and the checkpoint is written, if anything was stored since."""
    sync_on_close: bool = True
    """Ours: sync everything at a clean stop. False leaves that to the system: safe against the end of the process, not
    against power loss; for short-lived stores in tests.
    """

    # Consume queues
    mapped_file_size_consume_queue: int = 300_000 * CONSUME_QUEUE_ENTRY_BYTES
    """Bytes of one consume-queue file, 20 an entry."""
    flush_interval_consume_queue: int = 1000
    """How often consume queues are written."""

    # Index
    message_index_enable: bool = True
    """Keep the key index, by which messages are found by key and unique id."""
    message_index_safe: bool = False
    """Recover the log from before the last index file too, so that no entry of the index is missing after a crash."""
    max_hash_slot_num: int = 5_000_000
    """Hash slots of one index file."""
    max_index_num: int = 20_000_000
    """Entries of one index file."""

    # Reads
    max_transfer_bytes_on_message_in_memory: int = 262_144
    """Maximum bytes of the answer to a pull of messages in memory."""
    max_transfer_count_on_message_in_memory: int = 32
    """Maximum number of messages of that answer."""
    max_transfer_bytes_on_message_in_disk: int = 65_536
    """Maximum bytes of the answer to a pull of older messages."""
    max_transfer_count_on_message_in_disk: int = 8
    """Maximum number of messages of that answer."""
    access_message_in_memory_max_ratio: int = 40
    """Percent of the machine's memory that the newest messages are taken to be in; older ones count as on disk."""

    # Retention
    file_reserved_time: int = 72
    """Hours that a segment of the log is kept after its last change."""
    delete_when: str = "04"
    """Hours of the day, local time, at which segments beyond ``file_reserved_time`` are removed: ``04``, ``04;16``."""
    disk_free_bytes_min: int = 0
    """Ours: with fewer free bytes on the disk sends are refused; a new file of the log is made only if as many are left
    besides it. 0: a quarter of ``mapped_file_size_commit_log``.
    """
    disk_max_used_space_ratio: int = 0
    """Percent of the disk: above it segments beyond ``file_reserved_time`` are removed at any hour (RocketMQ: 75, and
    clamped to 10 to 95). 0: when the disk has no room for two more files of the log.
    """
    disk_space_clean_forcibly_ratio: int = 0
    """Percent of the disk: above it, with ``clean_file_forcibly_enable``, the oldest segments are removed regardless of
    their age (RocketMQ: 85). 0: when the next file of the log has no room.
    """
    disk_space_warning_level_ratio: int = 0
    """Percent of the disk: above it sends are refused (RocketMQ: 90). 0: only ``disk_free_bytes_min`` counts."""
    clean_file_forcibly_enable: bool = False
    """Whether messages younger than ``file_reserved_time`` may be removed, read or not, to make room (RocketMQ: true).
    """
    clean_resource_interval: int = 10_000
    """How often segments to remove are looked for."""
    delete_commit_log_files_interval: int = 100
    """Pause between the removals of two segments."""

    # Delayed messages
    message_delay_level: str = DEFAULT_DELAY_LEVELS
    """The delay of each level, in s, m, h or d."""
    flush_delay_offset_interval: int = 10_000
    """How often the progress of deliveries is written. After a crash, later deliveries are repeated."""
    timer_wheel_enable: bool = True
    """Take messages with TIMER_DELAY_SEC, TIMER_DELAY_MS or TIMER_DELIVER_MS (RocketMQ 5)."""
    timer_max_delay_sec: int = 259_200
    """Longest delay of a message with a time of its own, in seconds."""
    timer_congest_num_each_slot: int = (1 << 31) - 1
    """Maximum number of messages due in one second; more are refused (RocketMQ refuses at random above it, and all
    above twice as many).
    """
    timer_memory_bytes_max: int = 64 << 20
    """Ours: memory for messages that are due next, 20 bytes each; later ones are found again in their queue."""

    # Replication (docs/replication.md)
    in_sync_replicas: int = 2
    """Copies, the master's included, that must have a message before a SYNC_MASTER answers SEND_OK (RocketMQ 5's name,
    whose default of 1 waits for no slave; 2 waits for one slave, as 4.9 does).
    """
    total_replicas: int = 2
    """Copies in all, the master's included (RocketMQ 5's name). It determines how many nodes must agree to a promotion,
    so a SYNC_MASTER refuses further slaves.
    """
    slave_timeout: int = 3000
    """How long a send waits for its slaves; then FLUSH_SLAVE_TIMEOUT."""
    ha_slave_fallbehind_max: int = 268_435_456
    """Sends do not wait for a slave that lacks so many bytes; with too few others they get SLAVE_NOT_AVAILABLE."""
    ha_listen_port: int = 0
    """Where slaves connect; 0: the broker's port + 1; -1 (ours): the system chooses."""
    ha_master_address: str = ""
    """A slave's master, host:port of its HA port; empty: the address from the name server."""
    ha_send_heartbeat_interval: int = 5000
    """How often a connection without traffic carries a heartbeat."""
    ha_housekeeping_interval: int = 20_000
    """Either side closes a connection that has been silent for so long."""
    ha_transfer_batch_size: int = 1 << 20
    """Maximum bytes of the log in one frame (RocketMQ: 32 KiB, which still applies to RocketMQ's slaves)."""
    max_ha_transfer_byte_in_second: int = 0
    """Limit for each slave while it catches up; 0: no limit (RocketMQ 5: 100 MiB, off unless ``haFlowControlEnable``).
    New appends are never delayed."""
    ha_recover_wait_ms: int = 10_000
    """Ours: how long a master that did not stop cleanly waits for slaves that may have its lost messages."""
    slave_ack_policy: Literal["WRITTEN", "FLUSHED"] = "WRITTEN"
    """Ours: a slave confirms bytes once written to its log, or only once synced to its disk."""
    ha_rocketmq_allowed_slaves: str = ""
    """Ours: addresses or networks (10.0.0.7;10.1.0.0/16) whose slaves may speak RocketMQ's protocol, in which every
    peer that sends eight bytes is a slave; empty: none.
    """
    accept_loss: bool = False
    """Ours: let a master start, and a slave cut its log, although confirmed messages are lost by it."""

    # Recovery
    check_crc_on_recover: bool = True
    """Check the CRC of each body that recovery reads."""
    recovery_quarantine_bytes_max: int = 1 << 30
    """Ours: maximum bytes of cut or damaged log that one recovery copies to ``pocketmq/quarantine``."""

    # Checked but unused: known because RocketMQ's own files contain them
    flush_consume_queue_least_pages: int = 2
    """Checked, not used: RocketMQ's files contain it."""
    flush_consume_queue_thorough_interval: int = 60_000
    """Checked, not used: RocketMQ's files contain it."""
    default_query_max_num: int = 32
    """Checked, not used: RocketMQ's files contain it."""
    max_msgs_num_batch: int = 64
    """Checked, not used: RocketMQ's files contain it."""

    def __post_init__(self) -> None:
        """Refuse impossible values; the error names the key."""
        segment_bytes = self.mapped_file_size_commit_log
        if segment_bytes % PAGE_BYTES or segment_bytes < PAGE_BYTES or segment_bytes > 1 << 31:
            raise _refuse("mapped_file_size_commit_log", segment_bytes, "a multiple of 4096, at most 2 GiB")
        queue_bytes = self.mapped_file_size_consume_queue
        if queue_bytes <= 0 or queue_bytes % CONSUME_QUEUE_ENTRY_BYTES or queue_bytes > 1 << 31:
            raise _refuse("mapped_file_size_consume_queue", queue_bytes, "a multiple of 20 above 0, at most 2 GiB")
        for key, (lowest, highest) in _RANGES.items():
            if not lowest <= getattr(self, key) <= highest:
                raise _refuse(key, getattr(self, key), f"from {lowest:,} to {highest:,}".replace(",", "_"))
        DelayLevels(self.message_delay_level)
        self.delete_hours()
        self._check_replicas()
        self.rocketmq_slave_networks()
        self._check_pool_files()
        if self.transient_store_pool_enable:
            self._check_pool()
        if self.warm_maped_file_enable and not self.is_mapped:
            raise _impossible(
                "warm_maped_file_enable=true with append_mode=written",
                "no segment is mapped, so there is nothing to warm up",
                "set append_mode=mapped, or leave the warm-up off",
            )

    @property
    def pool_buffer_bytes(self) -> int:
        """Return the size of one write buffer."""
        return self.transient_store_pool_buffer_size or self.mapped_file_size_commit_log

    @property
    def pool_survives(self) -> bool:
        """Return whether there is a write-buffer pool whose buffers outlive the process."""
        return self.transient_store_pool_enable and self.transient_store_pool_path != ANONYMOUS

    def _check_pool_files(self) -> None:
        """Refuse a path or a size that no buffer can have."""
        size, path = self.transient_store_pool_buffer_size, self.transient_store_pool_path
        if size % PAGE_BYTES or not 0 <= size <= self.mapped_file_size_commit_log:
            raise _refuse(
                "transient_store_pool_buffer_size",
                size,
                "a multiple of 4096, from 0 to mapped_file_size_commit_log",
            )
        if path != ANONYMOUS and (not path.startswith("/") or "\0" in path or len(path) > POOL_PATH_CHARS_MAX):
            raise ConfigError(
                "setting refused",
                why=f"store.transient_store_pool_path={path[:100]!r}",
                hint=f"write an absolute path of a directory in shared memory, as {SHARED_MEMORY}, or {ANONYMOUS}",
            )

    def _check_pool(self) -> None:
        """Refuse settings that contradict a write-buffer pool.

        Every value of ``append_mode`` is allowed: it applies to segments without a buffer (the last one after a
        restart, and those made while no buffer is free).
        """
        if self.flush_disk_type == "SYNC_FLUSH":
            raise _impossible(
                "transient_store_pool_enable=true with flush_disk_type=SYNC_FLUSH",
                "the pool acknowledges from memory, a synchronous flush from the disk",
                "choose one of them",
            )
        if self.broker_role == "SLAVE":
            raise _impossible(
                "transient_store_pool_enable=true with broker_role=SLAVE",
                "a slave confirms only bytes in its log, not in a buffer",
                "leave the pool off on slaves",
            )

    def _check_replicas(self) -> None:
        """Refuse numbers of copies with which a synchronous master would wait for no slave, or for ever."""
        if self.broker_role == "SYNC_MASTER" and not 2 <= self.in_sync_replicas <= self.total_replicas:
            raise _impossible(
                f"broker_role=SYNC_MASTER with in_sync_replicas={self.in_sync_replicas} and"
                f" total_replicas={self.total_replicas}",
                "a synchronous master waits for at least one slave, and no more copies than there are can confirm",
                "set in_sync_replicas from 2 to total_replicas, or broker_role=ASYNC_MASTER",
            )
        if self.ha_housekeeping_interval <= self.ha_send_heartbeat_interval:
            raise _impossible(
                f"ha_housekeeping_interval={self.ha_housekeeping_interval} with"
                f" ha_send_heartbeat_interval={self.ha_send_heartbeat_interval}",
                "an idle connection would be closed before its next heartbeat",
                "set the housekeeping interval to several heartbeats",
            )

    def rocketmq_slave_networks(self) -> tuple[IpNetwork, ...]:
        """Return the networks of ``ha_rocketmq_allowed_slaves``. Raises ``ConfigError``."""
        texts = [text.strip() for text in self.ha_rocketmq_allowed_slaves.split(";") if text.strip()]
        try:
            return tuple(ipaddress.ip_network(text) for text in texts)
        except ValueError as error:
            raise ConfigError(
                "setting refused",
                why=f"store.ha_rocketmq_allowed_slaves={self.ha_rocketmq_allowed_slaves[:100]!r}: {error}",
                hint="write addresses or networks with ; between them, as in 10.0.0.7;10.1.0.0/16",
            ) from None

    @property
    def is_mapped(self) -> bool:
        """Return whether appends go to a map of their segment."""
        if self.append_mode == "auto":
            return self.flush_disk_type == "ASYNC_FLUSH" or self.warm_maped_file_enable
        return self.append_mode == "mapped"

    def delete_hours(self) -> frozenset[int]:
        """Return the hours of ``delete_when``. Raises ``ConfigError``."""
        hours = [text.strip() for text in self.delete_when.split(";") if text.strip()]
        if not all(text.isdecimal() and len(text) <= 2 and int(text) < 24 for text in hours):
            raise ConfigError(
                "setting refused",
                why=f"store.delete_when={self.delete_when[:100]!r}",
                hint="write hours from 00 to 23 with ; between them, as in 04;16",
            )
        return frozenset(map(int, hours))

    @property
    def group_bytes_max(self) -> int:
        """Return the largest group that can be appended: at most a segment without its blank end."""
        return min(self.append_group_bytes_max, self.mapped_file_size_commit_log - BLANK_BYTES_MIN)

    @property
    def record_bytes_max(self) -> int:
        """Return the largest record: a body of ``max_message_size`` and 64 KiB, if a segment holds that."""
        return max(RECORD_BYTES_MIN, min(self.max_message_size + RECORD_EXTRA_BYTES_MAX, self.group_bytes_max))


def _impossible(what: str, why: str, hint: str) -> ConfigError:
    return ConfigError("impossible settings", why=f"store: {what}: {why}", hint=hint)


def _refuse(key: str, value: int, must_be: str) -> ConfigError:
    return ConfigError("setting refused", why=f"store.{key}={value}", hint=f"it must be {must_be}")
