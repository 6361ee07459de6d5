"""The topics of delayed messages, when they are due, and of transactions that a start finds open.

A slave fetches its master's topics about once a second, but the log at once. A topic of the master's last moment that
has only delayed messages, or open transactions, is in no queue yet: after the promotion no consumer would find what is
delivered to it, and no producer of the topic would come for a check.

Lives here: ``TargetTopics``.
"""

import msgspec

from pocketmq.broker.topic.topic_table import QUEUES_MIN, TableFull, TopicTable
from pocketmq.common.events import EventLog
from pocketmq.common.topics import Perm, TopicIllegal
from pocketmq.store.message_store import MessageStore


class TargetTopics:
    """Makes topics again that messages are delivered to and that the table lacks. One thread."""

    __slots__ = ("_log", "_made", "_store", "_topics", "_what")

    def __init__(
        self, topics: TopicTable, store: MessageStore, log: EventLog, what: str = "delayed messages that are due"
    ) -> None:
        """``what``: what the topics have, for the log."""
        self._topics = topics
        self._store = store
        self._log = log
        self._made: set[str] = set()
        self._what = what

    def need(self, topic: str, queue_id: int, physical_offset: int) -> None:
        """See that consumers find this queue of ``topic``. A topic that was deleted after the message had been stored,
        at ``physical_offset``, stays deleted."""
        known = self._topics.get(topic)
        if known is not None:
            if topic in self._made and queue_id >= known.read_queue_nums:
                wider = msgspec.structs.replace(known, read_queue_nums=queue_id + 1, write_queue_nums=queue_id + 1)
                self._topics.put(wider)
            return
        if physical_offset < self._store.consume_queues.deleted.get(topic):
            return
        try:
            self._topics.create(topic, max(queue_id + 1, QUEUES_MIN), int(Perm.READ | Perm.WRITE))
        except (TopicIllegal, TableFull) as error:
            self._log.error("topic_not_made_again", topic=topic[:128], error=str(error))
            return
        self._made.add(topic)
        self._log.warning(
            "topics_made_again",
            count=1,
            topics=[topic],
            why=f"it has {self._what}, and its former master has not handed it over",
            what_to_do="check whether it needs more queues than were in use",
        )
