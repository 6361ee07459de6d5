"""Batches on their way into sections: lists of messages and Arrow rows, in one loop.

Lives here: ``BatchSend``: checks, groups of messages that may share a section, parts of about one frame.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pocketmq.client.arrow.packed import PackedIds
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.connection.route import TopicRoute
from pocketmq.client.connection.topic_making import make_topic
from pocketmq.client.message.identified_message import uniq_keys_of
from pocketmq.client.message.receipts import Receipt, Receipts
from pocketmq.client.message.validation import check_message
from pocketmq.client.producer.batches import Places, collect, cut_into_parts, sort_by_queue
from pocketmq.client.producer.sections import Sections
from pocketmq.client.sender.in_flight import InFlight
from pocketmq.client.sender.queue_choice import QueueChooser
from pocketmq.client.sender.section import FRAME_BYTES_TARGET, Section
from pocketmq.common.errors import MessageIllegal
from pocketmq.common.message import Message
from pocketmq.common.message_id import UNIQ_KEY_V4_CHARS
from pocketmq.common.topics import is_plain_topic

if TYPE_CHECKING:
    from pocketmq.client.arrow.row_records import MessageRows

ALIKE_MIN = 16
"""From so many on, messages that are alike are cheaper to build together."""

_Waits = list[tuple[Places, "asyncio.Future[Sequence[Receipt]]"]]


class BatchSend:
    """Sends the batches of one producer; each part is stored as a whole or not at all.

    ``is_simple``: whether a message needs no check beyond that of the first one like it; ``simple_bytes_max``: its
    limit of a body.
    """

    def __init__(
        self,
        sections: Sections,
        chooser: QueueChooser,
        in_flight: InFlight,
        attempts_max: int,
        max_message_size: int,
        is_simple: Callable[[Message], bool],
        simple_bytes_max: int,
    ) -> None:
        self._sections = sections
        self._instance = sections.instance
        self._clock = sections.instance.clock
        self._chooser = chooser
        self._in_flight = in_flight
        self._attempts_max = attempts_max
        self._max_message_size = max_message_size
        self._is_simple = is_simple
        self._simple_bytes_max = simple_bytes_max

    def group(self, batch: Sequence[Message]) -> "list[Group]":
        """Check messages, and group those that may share a section. Raises ``MessageIllegal``, ``TopicIllegal``."""
        groups: dict[tuple[str, bool, bool], list[int]] = {}
        judged: dict[tuple[str, str], list[int]] = {}
        alike: dict[tuple[str, bool, bool], str | None] = {}
        # the groups of simple messages by topic and tags: one like them was checked
        bytes_max = self._simple_bytes_max
        last_topic: object = None
        last_tags: object = None
        add: Callable[[int], None] = _never
        for index, message in enumerate(batch):
            # As ``is_simple``, without its calls: most batches are of one topic and tags.
            if (
                type(message) is Message
                and message.topic is last_topic
                and message.tags is last_tags
                and type(message.body) is bytes
                and 0 < len(message.body) <= bytes_max
                and message.keys == ()
                and not (
                    message.properties
                    or message.sharding_key
                    or message.delay_time_level
                    or message.flag
                    or message.delay_time_ms is not None
                    or message.deliver_time_ms is not None
                )
                and message.wait_store_msg_ok is True
            ):
                add(index)
                continue
            is_simple = type(message) is Message and type(message.topic) is str and self._is_simple(message)
            if is_simple:
                group = judged.get((message.topic, message.tags))
                if group is not None:
                    group.append(index)
                    last_topic, last_tags, add = message.topic, message.tags, group.append
                    continue
            plain = check_message(message, self._max_message_size)
            _check_batchable(index, message)
            kind = message.topic, message.wait_store_msg_ok, plain
            tags = message.tags if is_simple and plain else None
            if alike.setdefault(kind, tags) != tags:
                alike[kind] = None
            group = groups.setdefault(kind, [])
            group.append(index)
            if is_simple:
                judged[message.topic, message.tags] = group
                last_topic, last_tags, add = message.topic, message.tags, group.append
        return [
            (*kind, alike[kind] if len(indexes) >= ALIKE_MIN else None, indexes) for kind, indexes in groups.items()
        ]

    async def send(self, batch: Sequence[Message], groups: "list[Group]", timeout_ms: int) -> Receipts:
        """Send messages that were grouped; return their receipts in order, or raise the first part's error."""
        self._sections.check_running()
        waits: _Waits = []
        for topic, wait, plain, tags, indexes in groups:
            keys = [batch[index].sharding_key or "" for index in indexes] if tags is None else None
            route = await self._route(topic, keys, timeout_ms)

            def fill(section: Section, part: Any, tags: str | None = tags) -> None:
                section.messages = list(batch) if len(part) == len(batch) else [batch[index] for index in part]
                if tags is not None:
                    section.ids = ids = PackedIds.new(self._instance.ids, len(part))
                    section.alike = tags if ids.width == UNIQ_KEY_V4_CHARS else None
                else:
                    section.uniq_keys = uniq_keys_of(section.messages, self._instance.ids)

            for queue, chosen in sort_by_queue(route, indexes, keys):
                parts = cut_into_parts(batch, chosen)
                await self._send_parts(route, queue, parts, timeout_ms, plain, wait, fill, waits)
        return await collect(waits)

    async def send_rows(self, rows: "MessageRows", timeout_ms: int) -> Receipts:
        """Send the rows of a record batch or table; return their receipts in order."""
        from pocketmq.client.arrow.arrow_records import ArrowRows, by_topic, cut

        self._sections.check_running()
        waits: _Waits = []
        shards = rows.sharding_keys
        for topic, of_topic in by_topic(rows).items():
            keys = None if shards is None else [shards[index] for index in of_topic.tolist()]
            route = await self._route(topic, keys, timeout_ms)

            def fill(section: Section, part: Any, topic: str = topic) -> None:
                section.ids = ids = PackedIds.new(self._instance.ids, len(part))
                section.rows = ArrowRows(rows, topic, part, ids)

            for queue, of_queue in sort_by_queue(route, of_topic, keys):
                parts = cut(rows, of_queue, FRAME_BYTES_TARGET)
                await self._send_parts(route, queue, parts, timeout_ms, is_plain_topic(topic), True, fill, waits)
        return await collect(waits)

    async def _route(self, topic: str, keys: Sequence[str | None] | None, timeout_ms: int) -> TopicRoute:
        """Return the route of a topic, which is made first if keys choose queues and it does not exist yet."""
        route = await self._instance.route_for_send(topic, timeout_ms=timeout_ms)
        if route.borrowed and keys is not None and any(keys):
            route = await make_topic(self._instance, route, timeout_ms)
        return route

    async def _send_parts(
        self,
        route: TopicRoute,
        queue: MessageQueue | None,
        parts: Sequence[Any],
        timeout_ms: int,
        plain: bool,
        wait: bool,
        fill: Callable[[Section, Any], None],
        waits: _Waits,
    ) -> None:
        """Send parts for one queue (None: each for any queue); ``fill`` puts the messages of a part into its section.

        The timeout of each part counts from the moment its turn comes.
        """
        for part in parts:
            started_ns = self._clock.monotonic_ns()
            if self._in_flight.full:
                await self._in_flight.wait(asyncio.get_running_loop().time() + timeout_ms / 1000)
            section = self._sections.new(
                None,
                queue or self._chooser.first(route),
                started_ns=started_ns,
                deadline_ns=started_ns + timeout_ms * 1_000_000,
                attempts_max=self._attempts_max,
                plain=plain,
                wait=wait,
                may_move=queue is None,
            )
            fill(section, part)
            waits.append((part, self._sections.send(section)))
            await asyncio.sleep(0)  # this part leaves while the next one is built


Group = tuple[str, bool, bool, str | None, list[int]]
"""Topic, wait_store_msg_ok, plain, the tags that all have (None: they differ, or are too few), places in the batch."""


def _never(index: int) -> None:
    """Take no message: none is known yet that others may be like."""
    raise AssertionError(index)


def _check_batchable(index: int, message: Message) -> None:
    """Raise ``MessageIllegal`` for a message that no batch may hold."""
    if not message.is_plain_kind:
        raise MessageIllegal(
            "batch refused",
            why=f"message {index} is a {type(message).__name__}",
            hint="send requests and replies by themselves",
        )
    if message.delay_time_level or message.is_timed:
        raise MessageIllegal(
            "batch refused", why=f"message {index} is delayed", hint="send delayed messages by themselves"
        )
