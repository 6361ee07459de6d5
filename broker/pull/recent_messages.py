"""Which messages count as still in memory: RocketMQ's guess, by distance from the end of the log.

Lives here: ``RecentMessages``, asked by pulls (smaller answers from disk) and by a new group's first offset.
"""

from pocketmq.store.message_store import MessageStore


class RecentMessages:
    """A message is "on disk" when more than ``in_memory_bytes`` of log lie behind it (facts §3.16: RAM times
    ``access_message_in_memory_max_ratio``, 40 %; RocketMQ DefaultMessageStore.checkInDiskByCommitOffset).
    """

    __slots__ = ("_in_memory_bytes", "_store")

    def __init__(self, store: MessageStore, in_memory_bytes: int) -> None:
        self._store = store
        self._in_memory_bytes = in_memory_bytes

    def is_on_disk(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Tell whether a queue's message counts as on disk; one that does not exist does not."""
        end_offset = self._store.committed_offset
        if end_offset <= self._in_memory_bytes:
            return False  # the whole log counts as in memory: the usual case, and no look-up
        physical_offset = self._store.physical_offset(topic, queue_id, queue_offset)
        return physical_offset is not None and end_offset - physical_offset > self._in_memory_bytes
