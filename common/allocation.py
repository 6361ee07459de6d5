"""How the queues of a topic are shared among the members of a consumer group: RocketMQ's two common strategies.

Every side computes the same answer from the same sorted lists: each member for itself, or a broker for a member that
asks it (QUERY_ASSIGNMENT).

Lives here: those strategies.
"""

from collections.abc import Sequence
from typing import TypeVar

QueueT = TypeVar("QueueT")


def allocate_averagely(
    consumer_group: str, client_id: str, queues: Sequence[QueueT], client_ids: Sequence[str]
) -> list[QueueT]:
    """Return a contiguous block; the remainder goes to the first clients (AllocateMessageQueueAveragely.java)."""
    index = position(client_id, client_ids)
    if index < 0:
        return []
    share, rest = divmod(len(queues), len(client_ids))
    start = index * share + min(index, rest)
    return list(queues[start : start + share + (1 if index < rest else 0)])


def allocate_by_circle(
    consumer_group: str, client_id: str, queues: Sequence[QueueT], client_ids: Sequence[str]
) -> list[QueueT]:
    """Deal the queues like cards (AllocateMessageQueueAveragelyByCircle.java)."""
    index = position(client_id, client_ids)
    return list(queues[index :: len(client_ids)]) if index >= 0 else []


def position(client_id: str, client_ids: Sequence[str]) -> int:
    """Return the place of a client among the members; -1: it is no member."""
    try:
        return client_ids.index(client_id)
    except ValueError:
        return -1
