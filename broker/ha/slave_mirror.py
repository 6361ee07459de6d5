"""The tables that a slave copies from its master beside the log: topics, groups, offsets, delay progress.

Lives here: ``SlaveMirror``, which changes the tables; ``LocalCommits``, offsets that consumers committed to this slave.
"""

import threading
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from pocketmq.broker.delay.delay_offsets import DelayOffsets
from pocketmq.broker.delay.delay_service import OFFSETS_FILE, TIMER_FILE, DelayProgressBody
from pocketmq.broker.delay.timer_queue import TimerProgress
from pocketmq.broker.group.consumer_offsets import SEPARATOR
from pocketmq.broker.ha.ha_environment import ReplicationEnvironment
from pocketmq.broker.persisted_table import PersistedTable, Table
from pocketmq.common.topics import is_system_topic
from pocketmq.store.disk.queue_paths import QUEUE_ID_MAX, QUEUE_OFFSET_MAX, topic_error
from pocketmq.store.message_store import MessageStore

COMMITS_FILE: Final = "pocketmq/slaveCommits.json"
ENTRIES_LOGGED_MAX: Final = 100
"""Illegal entries of a master's tables that are logged one by one."""
Commit = tuple[str, str, int, int]
"""(group, topic, queue id, next offset to consume)"""


class _Deletions(msgspec.Struct, rename="camel"):
    """The addition of our masters to GET_ALL_TOPIC_CONFIG: topic → end of the log when it was deleted."""

    deleted_topics: dict[str, int] = {}


class LocalCommits:
    """Offsets that consumers committed here while their master was away, for the master when it is back.

    ``topic@group`` → queue id → offset. Thread-safe. Bounded by the table of offsets, which accepted each commit first.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._table: dict[str, dict[int, int]] = {}
        self.generation = 0

    def note(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Remember one commit."""
        with self._lock:
            self._table.setdefault(f"{topic}{SEPARATOR}{group}", {})[queue_id] = offset
            self.generation += 1

    def ahead_of(self, master: dict[str, dict[int, int]]) -> list[Commit]:
        """Return the commits that are ahead of the master's offsets; forget the others."""
        commits: list[Commit] = []
        with self._lock:
            for key, queues in list(self._table.items()):
                known = master.get(key, {})
                topic, _, group = key.partition(SEPARATOR)
                for queue_id, offset in list(queues.items()):
                    if offset > known.get(queue_id, -1):
                        commits.append((group, topic, queue_id, offset))
                    else:
                        del queues[queue_id]
                        self.generation += 1
                if not queues:
                    del self._table[key]
        return commits

    def done(self, commit: Commit) -> None:
        """Forget a commit that the master has, unless a later one replaced it."""
        group, topic, queue_id, offset = commit
        with self._lock:
            queues = self._table.get(f"{topic}{SEPARATOR}{group}", {})
            if queues.get(queue_id) == offset:
                del queues[queue_id]
                self.generation += 1

    def remove_topic(self, topic: str) -> None:
        """Forget the commits of a topic that is gone."""
        with self._lock:
            for key in [key for key in self._table if key.partition(SEPARATOR)[0] == topic]:
                del self._table[key]
                self.generation += 1

    def clear(self) -> None:
        """Forget all commits: this broker is the master now."""
        with self._lock:
            if self._table:
                self._table.clear()
                self.generation += 1

    def encode(self) -> bytes:
        """Return the content of the file."""
        with self._lock:
            return msgspec.json.encode(self._table)

    def load(self, content: bytes) -> None:
        """Take over a file's content; raises ``DECODE_ERRORS``."""
        table = msgspec.json.decode(content, type=dict[str, dict[int, int]], strict=False)
        with self._lock:
            self._table = table


class SlaveMirror:
    """Applies the tables that ``slave_sync`` fetched. One worker thread; blocks on the disk.

    Progress of delayed messages is written only once the slave's log reaches the end that the master sent with it:
    every delivery that it counts is then in this log as well. A promotion before that repeats deliveries, loses none.
    """

    def __init__(
        self,
        environment: ReplicationEnvironment,
        store: MessageStore,
        commits: LocalCommits,
        other_files: Sequence[PersistedTable],
    ) -> None:
        """``settle`` writes ``other_files`` as well, when they have changed."""
        self.commits = commits
        self._other_files = other_files
        self._topics = environment.topics
        self._groups = environment.groups
        self._offsets = environment.offsets
        self._store = store
        self._log = log = environment.logger("ha")
        self._delay_offsets = DelayOffsets()
        self._timer_progress = TimerProgress()
        root, durable = store.config.store_path_root_dir, store.config.sync_on_close
        files: tuple[tuple[Table, str], ...] = (self._delay_offsets, OFFSETS_FILE), (self._timer_progress, TIMER_FILE)
        self._files = [
            PersistedTable(table, f"{root}/{name}", environment.file_system, log, durable=durable)
            for table, name in files
        ]
        self._waiting_progress: DelayProgressBody | None = None
        self._deleted: dict[str, int] = {}  # topic → end of the master's log when the topic was found to be gone
        self._early: dict[str, int] = {}  # deletions beyond the end of the master's log
        self._repeated: dict[str, int] = {}  # deletions that were done here, and that the master still lists
        self._logged: set[tuple[str, str]] = set()

    def _illegal(self, table: str, name: str, why: str) -> None:
        """Log an entry that is skipped: each once, and at most ``ENTRIES_LOGGED_MAX`` of them."""
        key = table, name[:256]
        if key in self._logged or len(self._logged) > ENTRIES_LOGGED_MAX:
            return
        self._logged.add(key)
        if len(self._logged) > ENTRIES_LOGGED_MAX:
            self._log.warning("master_entries_left_out", why=f"more than {ENTRIES_LOGGED_MAX} illegal entries")
            return
        self._log.warning(
            "master_entry_skipped",
            table=table,
            name=ascii(name[:128]),
            why=why,
            what_to_do="check which broker is the master of this slave, and how the entry came into its table",
        )

    def topics(self, content: bytes, master_end: int) -> bool:
        """Copy the topics, and repeat the master's deletions at the same place of the log.

        A topic that the master lacks without listing its deletion loses its queues here once this log reaches
        ``master_end``: all its records have arrived by then. Entries that no PocketMQ master can have are skipped and
        logged. Returns False if a topic was deleted beyond ``master_end``: the master has not committed its latest
        records yet, so ask again. Raises ``DECODE_ERRORS``, ``StoreError``.
        """
        deleted = msgspec.json.decode(content, type=_Deletions).deleted_topics
        early: dict[str, int] = {}
        repeated: dict[str, int] = {}
        for topic, end_offset in deleted.items():
            why = topic_error(topic)
            if why is None and is_system_topic(topic):
                why = "system topics are not deleted"
            if why is None and end_offset < 0:
                why = f"it was deleted at {end_offset}"
            if why is None and end_offset > master_end:
                early[topic] = end_offset
                if self._early.get(topic) == end_offset:
                    self._illegal("deletedTopics", topic, f"deleted at {end_offset}, the log ends at {master_end}")
                continue
            if why is not None:
                self._illegal("deletedTopics", topic, why)
                continue
            # the store forgets a deletion with the log before it, of which the master may have more
            if end_offset > max(self._store.consume_queues.deleted.get(topic), self._repeated.get(topic, -1)):
                self._forget_offsets(topic)  # first: they would skip messages of a new topic of this name
                self._store.delete_topic_below(topic, end_offset)
                self._log.info("topic_deleted", topic=topic, end_offset=end_offset, why="its master has deleted it")
            repeated[topic] = end_offset
        self._early, self._repeated = early, repeated
        for topic in self._topics.mirror(content, partial(self._illegal, "topics")):
            if any(queue[0] == topic for queue in self._store.queues()):
                self._deleted[topic] = master_end
            self._forget_offsets(topic)
        return not early

    def _forget_offsets(self, topic: str) -> None:
        self._offsets.remove_topic(topic)
        self.commits.remove_topic(topic)

    def groups(self, content: bytes) -> None:
        """Copy the consumer groups."""
        self._groups.mirror(content, partial(self._illegal, "groups"))

    def offsets(self, content: bytes) -> list[Commit]:
        """Copy the consumer offsets; return the commits made here that are ahead of them."""
        known = self._offsets.mirror(content, partial(self._illegal, "offsets"))
        commits = self.commits.ahead_of(known)
        for group, topic, queue_id, offset in commits:
            self._offsets.commit(group, topic, queue_id, offset)
        return commits

    def progress(self, content: bytes) -> None:
        """Copy the progress of delayed messages, at once or when the log has arrived. Raises ``DECODE_ERRORS``."""
        body = msgspec.json.decode(content, type=DelayProgressBody, strict=False)
        for level, offset in list(body.offset_table.items()):
            if not (0 <= level <= QUEUE_ID_MAX and 0 <= offset <= QUEUE_OFFSET_MAX):
                self._illegal("delayOffset", str(level), f"offset {offset} of level {level}")
                del body.offset_table[level]
                known = self._delay_offsets.get(level)
                if known:
                    body.offset_table[level] = known
        if self._waiting_progress is None or body.end_offset < self._waiting_progress.end_offset:
            self._waiting_progress = body

    def settle(self) -> None:
        """Apply the changes that waited for the log. Raises ``StoreError``, ``DECODE_ERRORS``."""
        for file in self._other_files:
            file.persist()
        for topic, master_end in list(self._deleted.items()):
            if self._topics.get(topic) is not None:
                del self._deleted[topic]
            elif self._store.dispatched_offset >= master_end:
                self._store.delete_topic(topic)
                del self._deleted[topic]
                self._log.info("topic_deleted", topic=topic, why="its master has deleted it")
        body = self._waiting_progress
        if body is not None and self._store.committed_offset >= body.end_offset:
            self._waiting_progress = None
            self._delay_offsets.mirror(body.offset_table)
            try:
                self._timer_progress.mirror(bytes(body.timer_progress))
            finally:
                for file in self._files:
                    file.persist()

    def load(self) -> None:
        """Read the progress that was mirrored before. Blocks. Raises ``CorruptRecord``, ``StoreError``."""
        for file in self._files:
            file.load()
