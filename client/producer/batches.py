"""Splitting a batch, and collecting its receipts.

Lives here: sorting by queue, cutting into parts of about one frame, waiting for all parts. No state.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar, Union

from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.connection.route import TopicRoute
from pocketmq.client.message.receipts import Receipt, Receipts
from pocketmq.client.producer.selectors import select_by_hash
from pocketmq.client.sender.section import FRAME_BYTES_TARGET, unbuilt_sizes
from pocketmq.common.message import Message

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Places = Union[list[int], "NDArray[np.int64]"]
"""The positions of a part's messages in their batch."""
PlacesT = TypeVar("PlacesT", list[int], "NDArray[np.int64]")


def sort_by_queue(
    route: TopicRoute, indexes: PlacesT, keys: Sequence[str] | None
) -> list[tuple[MessageQueue | None, PlacesT | list[int]]]:
    """Sort messages by the queue of their sharding key; those without one come first, with None for any queue."""
    if keys is None or not any(keys):
        return [(None, indexes)]
    queues: dict[str, MessageQueue | None] = {"": None}
    groups: dict[MessageQueue | None, list[int]] = {}
    for index, key in zip(indexes, keys, strict=True):
        if key not in queues:
            queues[key] = select_by_hash(key, route.write_queues)
        groups.setdefault(queues[key], []).append(index)
    return list(groups.items())


def cut_into_parts(batch: Sequence[Message], indexes: list[int]) -> list[list[int]]:
    """Cut a group into parts of about one frame."""
    chosen = batch if len(indexes) == len(batch) else [batch[index] for index in indexes]
    sizes = unbuilt_sizes(chosen)
    if sum(sizes) <= FRAME_BYTES_TARGET:
        return [indexes]
    parts: list[list[int]] = [[]]
    size = 0
    for index, cost in zip(indexes, sizes, strict=True):
        if parts[-1] and size + cost > FRAME_BYTES_TARGET:
            parts.append([])
            size = 0
        parts[-1].append(index)
        size += cost
    return parts


async def collect(waits: "list[tuple[Places, asyncio.Future[Sequence[Receipt]]]]") -> Receipts:
    """Wait for all parts, then return the receipts in order, or raise the first part's error."""
    try:
        done = await asyncio.gather(*(future for _, future in waits), return_exceptions=True)
    except asyncio.CancelledError:
        for _, future in waits:
            future.cancel()
        raise
    parts: list[tuple[Places, Sequence[Receipt]]] = []
    for (places, _), result in zip(waits, done, strict=True):
        if isinstance(result, BaseException):
            raise result
        parts.append((places, result))
    return Receipts(parts)
