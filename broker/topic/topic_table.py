"""The topics of a broker.

Lives here: ``TopicTable``: which topics exist, their automatic creation as in RocketMQ, the JSON of ``topics.json``;
``remake_topics`` for topics that the log has and the table lacks.
"""

import threading
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from copy import copy
from itertools import takewhile
from typing import Final

import msgspec

from pocketmq.auth.session import Session
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.topic.creators import claim, without_creator
from pocketmq.common.bounds import bounded
from pocketmq.common.clock import Clock
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.common.topics import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    HALF_TOPIC,
    OFFSET_MOVED_EVENT,
    OP_HALF_TOPIC,
    REPLY_SUFFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    STAGED_TOPIC,
    TIMER_TOPIC,
    TOPIC_ID_ATTRIBUTE,
    TRANS_CHECK_MAX_TIME_TOPIC,
    Perm,
    TopicConfig,
    TopicIllegal,
    check_topic_name,
    has_legal_characters,
)
from pocketmq.remoting.protocol.body import DataVersion
from pocketmq.store.disk.queue_paths import topic_error
from pocketmq.store.message_store import MessageStore

SCHEDULE_QUEUE_NUMS: Final = 18
"""One queue per delay level (RocketMQ TopicConfigManager)."""
BENCHMARK_QUEUE_NUMS: Final = 1024
CLUSTER_QUEUE_NUMS: Final = 16
QUEUE_NUMS_MAX: Final = 65_536
"""The default of ``topic_queue_nums_max``: tables with so many queues still load after the setting was lowered."""
TOPIC_BYTES: Final = 2048
"""One topic with its name and attributes (CPython 3.11, 64 bit)."""
PERM_MAX: Final = int(Perm.READ | Perm.WRITE | Perm.INHERIT | Perm.PRIORITY)
SYS_FLAG_MAX: Final = (1 << 31) - 1
CHANGES_MAX: Final = 10_000
"""Changes remembered one by one; a reader that missed more needs the whole table."""
NAMES_LOGGED_MAX = 20
QUEUES_MIN: Final = 4
"""Of a topic that is made again: as many as RocketMQ's clients ask for when a send creates it (their
``defaultTopicQueueNums``)."""
MASTER_GONE = "the old master was gone before it announced them"
OnIllegal = Callable[[str, str], None]
"""Called with (name, why) for an entry of a master's table that is not copied."""


class TableFull(PocketMQError):
    """A table of the broker is at its limit; nothing was changed."""

    default_cause = Cause.MEMORY_LIMIT


class _TopicsFile(msgspec.Struct, rename="camel"):
    topic_config_table: dict[str, TopicConfig]  # required: a file without it is damaged, not empty
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


@bounded("queues", limit="_config.queues_max", size="_queues", entry_bytes=16, setting="broker.queues_max")
@bounded("topics", limit="_config.topics_max", size="__len__", entry_bytes=TOPIC_BYTES, setting="broker.topics_max")
class TopicTable:
    """Topic → ``TopicConfig``. Thread-safe; ``get`` takes no lock.

    A config in the table is never changed in place: readers keep a consistent one. ``generation`` counts the changes,
    for persistence and registration. Bounded by ``topics_max`` and ``queues_max``: ``TableFull`` beyond.
    """

    def __init__(self, config: BrokerConfig, clock: Clock, on_change: Callable[[], None] | None = None) -> None:
        self._config = config
        self._clock = clock
        self._on_change = on_change
        self._lock = threading.Lock()
        self._topics: dict[str, TopicConfig] = {}
        self._queues = 0
        self.version = DataVersion(clock.now_ms(), 0)
        self.generation = 0
        self._nums_max = max(config.topic_queue_nums_max, QUEUE_NUMS_MAX)
        self._changes: deque[tuple[int, str]] = deque(maxlen=CHANGES_MAX)

    def get(self, topic: str) -> TopicConfig | None:
        """Return the settings of ``topic``, or None."""
        return self._topics.get(topic)

    def __len__(self) -> int:
        return len(self._topics)

    def names(self) -> list[str]:
        """Return all topics, in no order."""
        return list(self._topics)

    def snapshot(self) -> tuple[dict[str, TopicConfig], DataVersion]:
        """Return the whole table and its version, consistent with each other."""
        with self._lock:
            return dict(self._topics), DataVersion(self.version.timestamp, self.version.counter)

    def add_system_topics(self) -> None:
        """Add RocketMQ's system topics that are missing (constructor of RocketMQ's TopicConfigManager)."""
        for topic, queue_nums, perm in self._system_topics():
            self.create(topic, queue_nums, int(perm))

    def _system_topics(self) -> list[tuple[str, int, Perm]]:
        config = self._config
        open_perm = Perm.READ | Perm.WRITE
        cluster_perm = Perm.INHERIT | (open_perm if config.cluster_topic_enable else Perm.NONE)
        broker_perm = Perm.INHERIT | (open_perm if config.broker_topic_enable else Perm.NONE)
        wanted = [
            (SELF_TEST_TOPIC, 1, open_perm),
            (BENCHMARK_TOPIC, BENCHMARK_QUEUE_NUMS, open_perm),
            (config.broker_cluster_name, CLUSTER_QUEUE_NUMS, cluster_perm),
            (config.broker_name, 1, broker_perm),
            (OFFSET_MOVED_EVENT, 1, open_perm),
            (SCHEDULE_TOPIC, SCHEDULE_QUEUE_NUMS, open_perm),
            (TIMER_TOPIC, 1, open_perm),
            (HALF_TOPIC, 1, open_perm),
            (OP_HALF_TOPIC, 1, open_perm),
            (TRANS_CHECK_MAX_TIME_TOPIC, 1, open_perm),
            (STAGED_TOPIC, 1, open_perm),
            (config.broker_cluster_name + REPLY_SUFFIX, 1, open_perm),
        ]
        if config.trace_topic_enable:
            wanted.append((config.msg_trace_topic_name, 1, open_perm))
        if config.auto_create_topic_enable:
            wanted.insert(1, (AUTO_CREATE_TOPIC, config.default_topic_queue_nums, open_perm | Perm.INHERIT))
        return wanted

    def create(
        self, topic: str, queue_nums: int, perm: int = 6, topic_sys_flag: int = 0, session: Session | None = None
    ) -> TopicConfig:
        """Return ``topic``, created with these settings when it is missing. ``session``: of the user who creates it;
        raise ``QuotaExceeded`` where the user may create no more."""
        known = self.get(topic)
        if known is not None:
            return known
        queue_nums = min(max(queue_nums, 0), self._nums_max)  # a group's settings may ask for anything
        with self._lock:
            known = self.get(topic)
            if known is not None:
                return known
            created = TopicConfig(
                topic_name=topic,
                read_queue_nums=queue_nums,
                write_queue_nums=queue_nums,
                perm=perm,
                topic_sys_flag=topic_sys_flag,
                attributes=self._claim(session, topic),
            )
            self._store(created)
        self._changed()
        return created

    def create_on_send(
        self, topic: str, default_topic: str, client_queue_nums: int, session: Session | None = None
    ) -> TopicConfig | None:
        """Create ``topic`` for a message that was sent to it, or return None if that is not allowed.

        The default topic must exist and be inheritable; the new topic gets min(the client's number, the default's write
        queues) queues and the default's permissions without INHERIT (RocketMQ createTopicInSendMessageMethod).
        """
        model = self.get(default_topic)
        if default_topic == AUTO_CREATE_TOPIC and not self._config.auto_create_topic_enable:
            return None
        if model is None or not model.perm & Perm.INHERIT:
            return None
        queue_nums = max(0, min(client_queue_nums, model.write_queue_nums))
        return self.create(topic, queue_nums, model.perm & ~Perm.INHERIT, session=session)

    def _claim(self, session: Session | None, topic: str) -> dict[str, str]:
        return claim(session, "topic", topic, (known.attributes for known in self._topics.values()))

    def put(
        self,
        config: TopicConfig,
        session: Session | None = None,
        changes: Mapping[str, str | None] | None = None,
    ) -> None:
        """Create or change a topic as an administrator asks; raises ``TopicIllegal``, ``TableFull``, ``QuotaExceeded``
        or ``PocketMQError``. ``changes``: new values of attributes, None removes one; the others stay."""
        check_topic_name(config.topic_name)
        limit = self._config.topic_queue_nums_max
        for nums in (config.read_queue_nums, config.write_queue_nums):
            if not 0 <= nums <= limit:
                raise PocketMQError(
                    "topic refused",
                    why=f"{nums} queues, not 0 to {limit}",
                    cause=Cause.BAD_REQUEST,
                    hint="fewer queues",
                )
        with self._lock:
            config.attributes = without_creator(config.attributes)
            if self.get(config.topic_name) is None:
                config.attributes |= self._claim(session, config.topic_name)
            self._store(config, changes or {})
        self._changed()

    def delete(self, topic: str) -> bool:
        """Forget ``topic``; False when there was none."""
        with self._lock:
            known = self._topics.pop(topic, None)
            if known is None:
                return False
            self._queues -= _queue_nums(known)
            self._advance(topic)
        self._changed()
        return True

    def mirror(self, content: bytes, on_illegal: OnIllegal) -> list[str]:
        """Copy a master's table, as its ``encode`` returned it; return the topics that are gone.

        System topics of this broker stay. An entry that no request could have created, or for which there is no room,
        goes to ``on_illegal``; this broker's settings of that topic stay. Raises ``DECODE_ERRORS``.
        """
        masters = msgspec.json.decode(content, type=_TopicsFile, strict=False)
        topics: dict[str, TopicConfig] = {}
        own = {name: queue_nums for name, queue_nums, _ in self._system_topics()}
        missing = [name for name in own if name not in masters.topic_config_table]  # these are added below
        queues = sum(own[name] for name in missing)
        for topic, config in masters.topic_config_table.items():
            why = self._mirror_error(topic, config, own)
            if why is None and len(topics) + len(missing) >= self._config.topics_max:
                why = f"there are {len(topics)} topics before it: raise broker.topics_max"
            if why is None and queues + _queue_nums(config) > self._config.queues_max:
                why = f"there are {queues} queues before it: raise broker.queues_max"
            if why is not None:
                on_illegal(topic, why)
                known = self.get(topic)
                if known is None:
                    continue
                config = known
            config.topic_name = topic
            topics[topic] = config
            queues += _queue_nums(config)
        with self._lock:
            gone = [topic for topic in self._topics if topic not in topics]
            for topic in {*gone, *(name for name, config in topics.items() if self._topics.get(name) != config)}:
                self._changes.append((self.generation + 1, topic))
            self.generation += 1
            self._topics = topics
            self._queues = sum(map(_queue_nums, topics.values()))
            self.version = masters.data_version.bounded()
        self.add_system_topics()
        return [topic for topic in gone if topic not in self._topics]

    def _mirror_error(self, topic: str, config: TopicConfig, own: dict[str, int]) -> str | None:
        """Return why no request could have created this topic, or None. ``own``: this broker's system topics and their
        queues; clusters and brokers may have names that clients may not choose."""
        why = topic_error(topic)
        if topic not in own and why is not None:
            return why
        if topic not in own and not has_legal_characters(topic):
            return "its name has illegal characters"
        limit = max(self._config.topic_queue_nums_max, own.get(topic, 0))
        for nums in (config.read_queue_nums, config.write_queue_nums):
            if not 0 <= nums <= limit:
                return f"{nums} queues, not 0 to {limit}"
        if not 0 <= config.perm <= PERM_MAX:
            return f"perm {config.perm} is unknown"
        if not 0 <= config.topic_sys_flag <= SYS_FLAG_MAX:
            return f"topicSysFlag {config.topic_sys_flag} is unknown"
        return None

    def _store(self, config: TopicConfig, changes: Mapping[str, str | None] = {}) -> None:
        known = self.get(config.topic_name)
        before = {} if known is None else known.attributes or {}
        config.attributes = {TOPIC_ID_ATTRIBUTE: uuid.uuid4().hex[:16], **(config.attributes or {}), **before}
        for name, value in changes.items():
            if value is None:
                config.attributes.pop(name, None)
            else:
                config.attributes[name] = value
        queues = self._queues + _queue_nums(config) - (0 if known is None else _queue_nums(known))
        if known is None and len(self._topics) >= self._config.topics_max:
            raise TableFull(
                "topic not created", why=f"{len(self._topics)} topics exist", hint="raise broker.topics_max"
            )
        if queues > self._config.queues_max:
            raise TableFull("topic not created", why=f"{self._queues} queues exist", hint="raise broker.queues_max")
        self._advance(config.topic_name)  # first: a reader that sees the topic also sees that the table has changed
        self._topics[config.topic_name] = config
        self._queues = queues

    def _advance(self, topic: str) -> None:
        self.version = DataVersion(self._clock.now_ms(), self.version.counter + 1)
        self.generation += 1
        self._changes.append((self.generation, topic))

    def announce_again(self) -> None:
        """Count every topic as changed, since the permission of the whole broker is. Configs are new objects: who has
        checked one remembers it."""
        with self._lock:
            self._topics = {name: copy(config) for name, config in self._topics.items()}
            self.version = DataVersion(self._clock.now_ms(), self.version.counter + 1)
            self.generation += 1
            self._changes.clear()
        self._changed()

    def changed_since(self, generation: int) -> dict[str, TopicConfig] | None:
        """Return the topics put since ``generation``, without deleted ones; None when too many changed to know."""
        with self._lock:
            missed = self.generation - generation
            if missed > len(self._changes):
                return None
            newer = takewhile(lambda change: change[0] > generation, reversed(self._changes))
            names = {topic for _, topic in newer}
            return {name: self._topics[name] for name in names if name in self._topics}

    def _changed(self) -> None:
        if self._on_change is not None:
            self._on_change()

    def encode(self) -> bytes:
        """Return the content of ``topics.json``."""
        topics, version = self.snapshot()
        return msgspec.json.encode(_TopicsFile(topics, version))

    def _decode(self, content: bytes) -> _TopicsFile:
        """Decode a table; raises ``DECODE_ERRORS``.

        One topic with impossible numbers makes the whole table count as damaged: skipping it would lose the topic, and
        the backup most likely has it right.
        """
        table = msgspec.json.decode(content, type=_TopicsFile, strict=False)
        for topic, config in table.topic_config_table.items():
            if not 0 <= min(config.read_queue_nums, config.write_queue_nums) <= _queue_nums(config) <= self._nums_max:
                raise msgspec.ValidationError(
                    f"topic {topic[:128]!r} has {config.read_queue_nums} queues to read and {config.write_queue_nums} "
                    f"to write, not 0 to {self._nums_max}"
                )
            if not 0 <= config.perm <= PERM_MAX:
                raise msgspec.ValidationError(f"topic {topic[:128]!r} has perm {config.perm}, not 0 to {PERM_MAX}")
        return table

    def load(self, content: bytes) -> None:
        """Add the topics of a ``topics.json``; raises ``DECODE_ERRORS``."""
        loaded = self._decode(content)
        with self._lock:
            for topic, config in loaded.topic_config_table.items():
                config.topic_name = topic
                # a table of RocketMQ or of an older version has no ids
                config.attributes = {TOPIC_ID_ATTRIBUTE: uuid.uuid4().hex[:16], **(config.attributes or {})}
                known = self.get(topic)
                self._queues += _queue_nums(config) - (0 if known is None else _queue_nums(known))
                self._topics[topic] = config
            self.version = loaded.data_version


def _queue_nums(config: TopicConfig) -> int:
    return max(config.read_queue_nums, config.write_queue_nums)


def remake_topics(topics: TopicTable, store: MessageStore, log: EventLog, why: str = MASTER_GONE) -> list[str]:
    """Recreate topics that have messages in queues but are missing from the table; log and return their names.

    A slave fetches its master's topics about once a second, but the log at once. So a topic of the master's last moment
    may have messages in the slave's queues, some acknowledged with SEND_OK, that no consumer could read. The same holds
    for a broker whose ``topics.json`` is lost or damaged: its backup lacks the newest topic.

    Each gets as many queues as its highest queue id requires, at least ``QUEUES_MIN``: open transactions and delayed
    messages may have chosen a queue that has no message yet. Readable and writable. Deleted topics stay deleted. Reads
    the ends of queues: not for the event loop.
    """
    highest: dict[str, int] = {}
    for queue in store.consume_queues.all():
        topic = queue.topic
        if topics.get(topic) is None and queue.last_physical_end() > store.consume_queues.deleted.get(topic):
            highest[topic] = max(highest.get(topic, 0), queue.queue_id)
    made: list[str] = []
    for topic, queue_id in sorted(highest.items()):
        try:
            check_topic_name(topic)
            topics.create(topic, max(queue_id + 1, QUEUES_MIN), int(Perm.READ | Perm.WRITE))
        except (TopicIllegal, TableFull) as error:
            log.error("topic_not_made_again", topic=topic[:128], error=str(error))
        else:
            made.append(topic)
    if made:
        log.warning(
            "topics_made_again",
            count=len(made),
            topics=made[:NAMES_LOGGED_MAX],
            why=f"they have messages, and {why}",
            what_to_do="check whether they need more queues than were in use",
        )
    return made
