"""The constant parts of small native appends: what a frame to one broker, of one topic, to one queue always holds.

Lives here: ``ShortTargets``, which finds the next queue of a topic for ``short_path``, prepared as a ``ShortTarget``
on a ``ShortLine``. Bounded: as many topics as a route table holds, the oldest dropped first; their queues; and one
line for each connection and timeout.
"""

from asyncio import Future
from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

import msgspec

from pocketmq.client.connection.instance import BrokerConnection, ClientInstance
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.connection.route import TopicRoute
from pocketmq.client.message.receipts import Receipt, StoredAt
from pocketmq.client.message.validation import check_sendable_topic
from pocketmq.client.producer.producer_options import ProducerOptions
from pocketmq.client.sender.queue_choice import QueueChooser, RoundRobin
from pocketmq.client.sender.retry import RetryPolicy
from pocketmq.client.sender.sender import SectionSender
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message import Message
from pocketmq.common.record_codec import PlainRecordBuilder
from pocketmq.remoting.channel import ClientChannel
from pocketmq.remoting.codec_msgpack import encode_msgpack
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frame import MSGPACK, PREFIX_BYTES
from pocketmq.remoting.protocol.send import NativeAppendRequestHeader
from pocketmq.remoting.short_frames import OPAQUE_MAX, REQUEST_HEAD, REQUEST_LEAD

Template = tuple[bytes, bytes, int]
"""``PlainRecordBuilder.frame_of``: the bytes around a record's id, its size without the body."""

ShortSend = tuple[Message, "Future[Receipt]", Template, bytes, int]
"""A message, its future, the template of its tags, its body and the body's length."""

TOPICS_MAX: Final = 10_000
TAGS_MAX: Final = 256
"""Templates of one topic; when there are more, they are collected again."""

_encode = msgspec.msgpack.Encoder().encode
RECORDS_MAX: Final = 4096
"""Records of one frame: at this number a turn does not wait for its end."""
COUNTS: Final = [_encode(count) for count in range(RECORDS_MAX + 1)]
"""Record counts as msgpack."""


def array_head(length: int) -> bytes:
    """Return the beginning of a msgpack array."""
    return bytes((0x90 | length,)) if length < 16 else b"\xdc" + length.to_bytes(2, "big")


@dataclass(slots=True, eq=False)
class ShortLine:
    """One connection with one timeout. ``head`` and ``tail`` enclose the sections in the header of a request, from
    behind the opaque, which has ``header_bytes`` without them; ``pending`` and ``count`` collect the sections of a
    frame, and its records. ``pack_one`` packs the size of a single record and the record's header.
    """

    connection: BrokerConnection
    channel: ClientChannel
    builder: PlainRecordBuilder
    pack_one: Callable[..., bytes]
    head: bytes
    tail: bytes
    header_bytes: int
    timeout_ns: int
    pending: "list[tuple[ShortTarget, list[ShortSend]]]" = field(default_factory=list)
    count: int = 0


@dataclass(slots=True, eq=False)
class ShortTarget:
    """One queue on its line. ``section`` is the beginning of its section in a header: topic and queue id; ``one`` is
    all behind the opaque in the header of a single record, which has ``one_bytes``.
    """

    queue: MessageQueue
    queue_id: int
    line: ShortLine
    section: bytes
    section_bytes: int
    one: bytes
    one_bytes: int
    at: StoredAt


@dataclass(slots=True, eq=False)
class ShortTopic:
    """One topic: its route, whose queues become targets at their first use, and the templates of its tags.

    ``sends``: those of this turn, with their futures and templates. ``target``: the queue of this turn; ``turn`` is its
    number. ``cut``: a part of the turn has left for that queue.
    """

    name: str
    route: TopicRoute
    changes: int
    turns: RoundRobin
    count: int
    targets: list[ShortTarget | None]
    builder: PlainRecordBuilder
    timeout_ms: int
    templates: dict[str, Template] = field(default_factory=dict)
    sends: "list[ShortSend]" = field(default_factory=list)
    target: ShortTarget | None = None
    turn: int = 0
    cut: bool = False


class ShortTargets:
    """Topics, queues and connections of one producer that take small native appends.

    What is not known or not plain is None: then the usual way has to be taken, which looks up, connects and refuses.
    """

    def __init__(
        self,
        instance: ClientInstance,
        sender: SectionSender,
        chooser: QueueChooser,
        policy: RetryPolicy,
        options: ProducerOptions,
        group: str,
    ) -> None:
        self.topics: dict[str, ShortTopic] = {}
        self._routes = instance.routes
        self._instance = instance
        self._sender = sender
        self._chooser = chooser
        self._policy = policy
        self._options = options
        self._group = group
        self._lines: dict[tuple[str, int], ShortLine] = {}
        self._unfit: dict[str, tuple[int, int]] = {}  # topics not prepared, and what must change before they can be

    def topic(self, name: str) -> ShortTopic | None:
        """Prepare a topic whose route is known, and one of whose brokers is connected and takes plain records."""
        state = (self._routes.changes, self._instance.connections_opened)
        if self._unfit.get(name) == state:
            return None
        topic = self._topic(name)
        if topic is None:
            if len(self._unfit) >= TOPICS_MAX:
                self._unfit.clear()
            self._unfit[name] = state
        return topic

    def _topic(self, name: str) -> ShortTopic | None:
        route = self._routes.get(name)
        if route is None or not route.write_queues:
            return None
        try:
            if not check_sendable_topic(name):
                return None
        except PocketMQError:
            return None
        for broker in sorted(route.write_brokers()):
            connection = self._instance.open_connection(broker)
            if connection is None or connection.channel.serialize_type != MSGPACK:
                continue
            builder = self._sender.native.builder(connection)
            if builder is not None:
                break
        else:
            return None
        while len(self.topics) >= TOPICS_MAX:
            del self.topics[next(iter(self.topics))]
        queues = route.write_queues
        topic = self.topics[name] = ShortTopic(
            name,
            route,
            self._routes.changes,
            self._chooser.turns(name),
            len(queues),
            [None] * len(queues),
            builder,
            self._timeout_ms(route),
        )
        return topic

    def _timeout_ms(self, route: TopicRoute) -> int:
        """Return the time of a first attempt, as ``AttemptPlan.until_ns`` has it."""
        options = self._options
        timeout_ms = options.send_msg_timeout_ms
        may_move = options.retry_times_when_send_failed > 0 and len(route.write_brokers()) > 1
        return max(int(self._policy.attempt_ms(timeout_ms, may_move)), 1)

    def template(self, topic: ShortTopic, message: Message) -> Template | None:
        """Return the template of a message's tags; None: the usual way words the refusal."""
        try:
            template = topic.builder.frame_of(topic.name, message.tags)
        except PocketMQError:
            return None
        if len(topic.templates) >= TAGS_MAX:
            topic.templates.clear()
        topic.templates[message.tags] = template
        return template

    def next(self, topic: ShortTopic) -> ShortTarget | None:
        """Take turns: return the next queue of a topic. None: no turn was taken, and the usual way takes it."""
        if topic.changes != self._routes.changes and not self._is_current(topic):
            return None
        index = topic.turns.index + 1
        place = index % topic.count
        target = topic.targets[place]
        if target is None or target.line.channel.closed:
            target = topic.targets[place] = self._target(topic, topic.route.write_queues[place])
            if target is None:
                return None
        faults = self._chooser.faults
        if not target.line.channel.writable or (faults is not None and faults.avoided):
            return None
        topic.turns.index = topic.turn = index
        return target

    def give_back(self, topic: ShortTopic) -> None:
        """Give a turn back whose queue has got nothing."""
        topic.target = None
        if topic.turns.index == topic.turn:
            topic.turns.index -= 1

    def _is_current(self, topic: ShortTopic) -> bool:
        """After some route has changed: return whether this topic still has its own. Its brokers may have moved."""
        if self._routes.get(topic.name) is not topic.route:
            self.topics.pop(topic.name, None)
            return False
        topic.changes = self._routes.changes
        for place, target in enumerate(topic.targets):
            if target is not None:
                connection = target.line.connection
                if self._instance.open_connection(connection.broker_name) is not connection:
                    topic.targets[place] = None
        return True

    def _target(self, topic: ShortTopic, queue: MessageQueue) -> ShortTarget | None:
        connection = self._instance.open_connection(queue.broker_name)
        if connection is None or connection.channel.serialize_type != MSGPACK:
            return None
        if self._sender.native.builder(connection) is not topic.builder:  # of another cluster or family: other bytes
            return None
        key = (connection.address, topic.timeout_ms)
        line = self._lines.get(key)
        if line is None or line.connection is not connection:
            line = self._lines[key] = self._line(connection, topic)
        section = _encode((queue.topic, queue.queue_id, 0))[:-1]
        sections = array_head(1) + section + COUNTS[1]
        one = line.head + sections + line.tail
        one_bytes = line.header_bytes + len(sections)
        at = self._sender.stored_at(connection, queue)
        return ShortTarget(queue, queue.queue_id, line, section, len(section), one, one_bytes, at)

    def lines(self) -> list[ShortLine]:
        """Return the lines whose connection is open."""
        return [line for line in self._lines.values() if not line.channel.closed]

    def _line(self, connection: BrokerConnection, topic: ShortTopic) -> ShortLine:
        for key in [key for key, line in self._lines.items() if line.channel.closed]:
            del self._lines[key]
        header = NativeAppendRequestHeader(self._group, True, [], topic.timeout_ms)
        whole = bytes(encode_msgpack(RequestCode.NATIVE_APPEND, OPAQUE_MAX, 0, "", header, None))
        tail = _encode(topic.timeout_ms)
        assert whole[PREFIX_BYTES:].startswith(REQUEST_LEAD)
        assert whole.endswith(array_head(0) + tail)
        head = whole[REQUEST_HEAD.size : -len(tail) - 1]
        header_bytes = REQUEST_HEAD.size - PREFIX_BYTES + len(head) + len(tail)
        return ShortLine(
            connection,
            connection.channel,
            topic.builder,
            Struct(">I" + topic.builder.header_format.removeprefix(">")).pack,
            head,
            tail,
            header_bytes,
            topic.timeout_ms * 1_000_000,
        )
