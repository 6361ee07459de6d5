"""What a slave takes over from its master beside the log: topics, groups, offsets, progress of delayed messages.

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
from pocketmq.broker.group.consumer_offsets import SEPARATOR, ConsumerOffsets
from pocketmq.broker.group.subscription_groups import SubscriptionGroups
from pocketmq.broker.persisted_table import PersistedTable
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.events import EventLog
from pocketmq.common.topics import is_system_topic
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.disk.queue_paths import QUEUE_ID_MAX, QUEUE_OFFSET_MAX, topic_error
from pocketmq.store.message_store import MessageStore

COMMITS_FILE: Final = "pocketmq/slaveCommits.json"
ENTRIES_TOLD_MAX: Final = 100
"""Illegal entries of a master's tables that are told of one by one."""
Commit = tuple[str, str, int, int]
"""(group, topic, queue id, next offset to consume)"""


class _Deletions(msgspec.Struct, rename="camel"):
    """What our masters add to GET_ALL_TOPIC_CONFIG: topic -> where the log ended when it was deleted."""

    deleted_topics: dict[str, int] = {}


class LocalCommits:
    """Offsets that consumers committed here while their master was away; the master gets them when it is back.

    ``topic@group`` → queue id → offset. Thread-safe. Bounded by the table of offsets, which took each commit first.
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
        """Forget a commit that the master has, unless it moved on."""
        group, topic, queue_id, offset = commit
        with self._lock:
            queues = self._table.get(f"{topic}{SEPARATOR}{group}", {})
            if queues.get(queue_id) == offset:
                del queues[queue_id]
                self.generation += 1

    def remove_topic(self, topic: str) -> None:
        """Forget what was committed of a topic that is gone."""
        with self._lock:
            for key in [key for key in self._table if key.partition(SEPARATOR)[0] == topic]:
                del self._table[key]
                self.generation += 1

    def clear(self) -> None:
        """Forget all: this broker is the master now."""
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
    """Applies what ``slave_sync`` fetched. One worker thread; blocks on the disk.

    Progress of delayed messages is written only once the slave's log reaches the end that the master named with it:
    every delivery that it counts is then here as well. Before that a promotion repeats deliveries; it loses none.
    """

    def __init__(
        self,
        topics: TopicTable,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        commits: LocalCommits,
        other_files: Sequence[PersistedTable],
        store: MessageStore,
        file_system: FileSystem,
        log: EventLog,
        *,
        durable: bool,
    ) -> None:
        """``other_files`` are written by ``settle`` as well, when they have changed."""
        self._other_files = other_files
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self.commits = commits
        self._store = store
        self._log = log
        self._delay_offsets = DelayOffsets()
        self._timer_progress = TimerProgress()
        root = store.config.store_path_root_dir
        self._files = [
            PersistedTable(self._delay_offsets, f"{root}/{OFFSETS_FILE}", file_system, log, durable=durable),
            PersistedTable(self._timer_progress, f"{root}/{TIMER_FILE}", file_system, log, durable=durable),
        ]
        self._waiting_progress: DelayProgressBody | None = None
        self._deleted: dict[str, int] = {}  # topic -> end of the master's log when it was found to be gone
        self._early: dict[str, int] = {}  # deletions behind the end of the master's log
        self._told: set[tuple[str, str]] = set()

    def _illegal(self, table: str, name: str, why: str) -> None:
        """Report an entry that is not taken over: each once, and no more of them than ``ENTRIES_TOLD_MAX``."""
        key = table, name[:256]
        if key in self._told or len(self._told) > ENTRIES_TOLD_MAX:
            return
        self._told.add(key)
        if len(self._told) > ENTRIES_TOLD_MAX:
            self._log.warning("master_entries_untold", why=f"more than {ENTRIES_TOLD_MAX} illegal entries")
            return
        self._log.warning(
            "master_entry_skipped",
            table=table,
            name=ascii(name[:128]),
            why=why,
            what_to_do="look who says to be the master of this slave, and what put this into its table",
        )

    def topics(self, content: bytes, master_end: int) -> bool:
        """Take over the topics, and forget what the master has deleted, at the same place of the log.

        What a topic has here that the master does not have any more, and does not know to be deleted, goes once the log
        is at ``master_end``: what it had then has come by that time. Entries that no master of ours has are skipped and
        reported. Returns False if a topic was deleted behind ``master_end``: what the master appended is not committed
        yet, so ask again. Raises ``DECODE_ERRORS``, ``StoreError``.
        """
        deleted = msgspec.json.decode(content, type=_Deletions).deleted_topics
        early: dict[str, int] = {}
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
            if end_offset > self._store.consume_queues.deleted.get(topic):
                self._forget_offsets(topic)  # first: they would skip what the topic gets when it is created anew
                self._store.delete_topic_below(topic, end_offset)
                self._log.info("topic_deleted", topic=topic, end_offset=end_offset, why="its master has deleted it")
        self._early = early
        for topic in self._topics.mirror(content, partial(self._illegal, "topics")):
            if any(queue[0] == topic for queue in self._store.queues()):
                self._deleted[topic] = master_end
            self._forget_offsets(topic)
        return not early

    def _forget_offsets(self, topic: str) -> None:
        self._offsets.remove_topic(topic)
        self.commits.remove_topic(topic)

    def groups(self, content: bytes) -> None:
        """Take over the consumer groups."""
        self._groups.mirror(content, partial(self._illegal, "groups"))

    def offsets(self, content: bytes) -> list[Commit]:
        """Take over the consumer offsets; return what consumers committed here beyond them."""
        told = self._offsets.mirror(content, partial(self._illegal, "offsets"))
        commits = self.commits.ahead_of(told)
        for group, topic, queue_id, offset in commits:
            self._offsets.commit(group, topic, queue_id, offset)
        return commits

    def progress(self, content: bytes) -> None:
        """Take over the progress of delayed messages, now or when the log is there. Raises ``DECODE_ERRORS``."""
        told = msgspec.json.decode(content, type=DelayProgressBody, strict=False)
        for level, offset in list(told.offset_table.items()):
            if not (0 <= level <= QUEUE_ID_MAX and 0 <= offset <= QUEUE_OFFSET_MAX):
                self._illegal("delayOffset", str(level), f"offset {offset} of level {level}")
                del told.offset_table[level]
                known = self._delay_offsets.get(level)
                if known:
                    told.offset_table[level] = known
        if self._waiting_progress is None or told.end_offset < self._waiting_progress.end_offset:
            self._waiting_progress = told

    def settle(self) -> None:
        """Do what waited for the log. Raises ``StoreError``, ``DECODE_ERRORS``."""
        for file in self._other_files:
            file.persist()
        for topic, master_end in list(self._deleted.items()):
            if self._topics.get(topic) is not None:
                del self._deleted[topic]
            elif self._store.dispatched_offset >= master_end:
                self._store.delete_topic(topic)
                del self._deleted[topic]
                self._log.info("topic_deleted", topic=topic, why="its master has deleted it")
        told = self._waiting_progress
        if told is not None and self._store.committed_offset >= told.end_offset:
            self._waiting_progress = None
            self._delay_offsets.mirror(told.offset_table)
            try:
                self._timer_progress.mirror(bytes(told.timer_progress))
            finally:
                for file in self._files:
                    file.persist()

    def load(self) -> None:
        """Read what was mirrored before. Blocks. Raises ``CorruptRecord``, ``StoreError``."""
        for file in self._files:
            file.load()
