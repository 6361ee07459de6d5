"""Which broker a consumer should pull from next, with masters and slaves, and the meaning of an offset on a slave.

Lives here: ``ReadAdvice``; ``RecentMessages``, RocketMQ's estimate of which messages are still in memory, also used for
the size of a pull's answer and for a new group's first offset.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Final

from pocketmq.broker.group.subscription_groups import SubscriptionGroups
from pocketmq.remoting.codes import ResponseCode
from pocketmq.store.message_store import MessageStore

MASTER_ID: Final = 0
_BEYOND: Final = ("OFFSET_OVERFLOW_BADLY", "NO_MESSAGE_IN_QUEUE", "NO_MATCHED_LOGIC_QUEUE")
_MOVED: Final = int(ResponseCode.PULL_OFFSET_MOVED)
_NOT_FOUND: Final = int(ResponseCode.PULL_NOT_FOUND)
_RETRY: Final = int(ResponseCode.PULL_RETRY_IMMEDIATELY)


@dataclass(slots=True, eq=False)
class RecentMessages:
    """A message is "on disk" when more than ``in_memory_bytes`` of log lie behind it (RocketMQ: RAM times
    ``access_message_in_memory_max_ratio``, 40 %; RocketMQ DefaultMessageStore.checkInDiskByCommitOffset).
    """

    store: MessageStore
    in_memory_bytes: int

    def is_on_disk(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Return whether a queue's message counts as on disk; False if it does not exist."""
        end_offset = self.store.committed_offset
        if end_offset <= self.in_memory_bytes:
            return False  # the whole log counts as in memory: the usual case, without reading the queue
        physical_offset = self.store.physical_offset(topic, queue_id, queue_offset)
        return physical_offset is not None and end_offset - physical_offset > self.in_memory_bytes


@dataclass(slots=True, eq=False)
class ReadAdvice:
    """RocketMQ's suggestion (PullMessageProcessor), and a slave's answers that move no consumer back. Thread-safe."""

    groups: SubscriptionGroups
    recent: RecentMessages
    _: KW_ONLY
    enabled: bool
    """The setting ``slave_read_enable``."""
    is_slave: bool
    has_master: Callable[[], bool]
    """Whether this slave's master answers now."""
    show_all: Callable[[], None]
    """Dispatches all stored messages."""

    def must_read_again(self, status_name: str, offset: int) -> bool:
        """Return whether a queue that seemed to end before ``offset`` must be read again, after dispatching all.

        A slave may show a message before its master does: the consumer then asks the master for the messages behind it,
        and must not be moved back. Blocks for a pass of the dispatch.
        """
        if self.is_slave or offset == 0 or status_name not in _BEYOND:
            return False
        self.show_all()
        return True

    def suggest(self, group: str, topic: str, queue_id: int, next_offset: int) -> int:
        """Return the id of the broker to pull from next: the group's slave while the next message is only on disk."""
        if not self.enabled:
            return MASTER_ID
        known = self.groups.get(group)
        if known is None:
            return MASTER_ID
        if self.recent.is_on_disk(topic, queue_id, max(0, next_offset - 1)):
            return known.which_broker_when_consume_slowly
        return known.broker_id

    def correct(self, code: int, status_name: str, offset: int, next_offset: int) -> tuple[int, int]:
        """Return the (code, next offset) of a slave's answer; a master's stay as they are.

        A slave without the offset yet is behind: the consumer waits there instead of going back (RocketMQ answers 20,
        which its clients repeat without a pause). A slave that has already removed it sends the consumer to the master;
        without a master, its own oldest message is the best answer.
        """
        if not self.is_slave or code != _MOVED:
            return code, next_offset
        if status_name == "OFFSET_TOO_SMALL":
            return (_RETRY, offset) if self.has_master() else (code, next_offset)
        return _NOT_FOUND, offset
