"""Answers to RocketMQ's sends that took the short path.

Lives here: ``RocketMQRoute`` and ``RocketMQFrame`` (what the check of a send leaves for its answer),
``RocketMQAnswers``.

An answer is a template by the number of digits of its queue offset and the length of its unique key, made once for each
route by the usual encoder; so it equals that of the wide way byte for byte.
"""

from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final

import msgspec

from pocketmq.auth.session import Session
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.request.request_task import Task
from pocketmq.broker.send.rocketmq_send import RocketMQSend
from pocketmq.broker.send.send_batch import Appended
from pocketmq.broker.send.short_rocketmq_templates import LONG_KEY_BYTES
from pocketmq.common.record_group import UNIQ_KEY_BYTES, RecordMeta
from pocketmq.remoting.codec import Request, encode_response
from pocketmq.remoting.frame import JSON, PREFIX, PREFIX_BYTES
from pocketmq.remoting.protocol.send import SendMessageResponseHeader
from pocketmq.store.short_append import ShortSection

_opaque_bytes = Struct(">i").pack
# Stand in an answer's template for what differs; each must be found once.
_PLACE: Final = 0x5AFE_C0DE_0B0E_7E57
_KEY_MARKS: Final = {
    UNIQ_KEY_BYTES: "ThisIsTheUniqueKeyOfATemplate32X",
    LONG_KEY_BYTES: "ThisIsTheUniqueKeyOfATemplateThatHasFiftySixCharacters56",
}
_OPAQUE_MARK: Final = 0x5A5B_5C5D
_DIGITS: Final = "1928374655647382910"


@dataclass(slots=True, eq=False)
class RocketMQRoute:
    """Everything that the constant part of a header says, checked under two generations."""

    generation: int
    topics_generation: int
    request: Request
    header_type: Any
    lead: tuple[Any, ...]
    """The header's fields before the born timestamp."""
    rest: tuple[Any, ...]
    """The header's fields behind the properties."""
    section: ShortSection
    topic_field: bytes
    sys_flag: int
    flag: int
    answers: dict[int, bytes] = field(default_factory=dict)
    """Digits of the queue offset → the format of an answer."""
    long_answers: dict[int, bytes] = field(default_factory=dict)
    """The same for unique keys of ``LONG_KEY_BYTES``."""
    permitted: set[Session] = field(default_factory=set)
    """The users, with their addresses, that may send to its topic, of those that were asked about."""


class RocketMQFrame(msgspec.Struct, eq=False):
    """What the answer to one checked send needs beside its ``ShortFrame``."""

    route: RocketMQRoute
    answers: dict[int, bytes]
    uniq_key: bytes
    wait: bool


class RocketMQAnswers:
    """Encodes the answers of one broker. Belongs to a send thread."""

    def __init__(self, config: BrokerConfig, store_host: bytes) -> None:
        """``store_host``: the broker's address, as offset message ids name it."""
        self._config = config
        self._store_host = store_host

    def answer(self, task: Task) -> bytes:
        """Return the answer to a stored send, as ``RocketMQSend.encode`` does."""
        sent: RocketMQFrame
        frame, _, sent = task.context
        route = sent.route
        queue_offset, position = frame.places[0]
        digits = b"%d" % queue_offset
        pattern = sent.answers.get(len(digits))
        if pattern is None:
            pattern = sent.answers[len(digits)] = self._pattern(route, len(digits), _KEY_MARKS[len(sent.uniq_key)])
        request = task.request
        if not pattern:
            stored = Appended(0, "", frame.store_timestamp, [queue_offset], [[(position, 1)]])
            return b"".join(self.send_of(task, 0).encode(stored))
        if request.serialize_type == JSON:
            head = pattern % (position, digits, sent.uniq_key, request.opaque)
            header_bytes = len(head)
            return PREFIX.pack(4 + header_bytes, header_bytes) + head
        return pattern % (_opaque_bytes(request.opaque), position, digits, sent.uniq_key)

    def send_of(self, task: Task, position: int) -> RocketMQSend:
        """Return a stored send for the usual acknowledgement; ``position``: of its section in the append."""
        frame, _, sent = task.context
        section = sent.route.section
        return RocketMQSend(
            task,
            section.topic,
            section.queue_id,
            sent.wait,
            [frame.buffer],
            [RecordMeta(section.topic, section.queue_id, uniq_key=sent.uniq_key)],
            frame.size_bytes,
            self._store_host,
            self._config,
            section.queue_id,
            None,
            position,
        )

    def _pattern(self, route: RocketMQRoute, digit_count: int, key_mark: str) -> bytes:
        """Return the format of answers, made by the usual encoder; empty bytes where a mark is not found once."""
        kind = route.request.serialize_type
        digits = _DIGITS[:digit_count]
        header = SendMessageResponseHeader(
            msg_id=self._store_host.hex().upper() + f"{_PLACE:016X}",
            queue_id=route.section.queue_id,
            queue_offset=int(digits),
            transaction_id=key_mark,
            msg_region=self._config.region_id,
            trace_on=self._config.trace_on,
        )
        encoded = bytes(encode_response(0, _OPAQUE_MARK, route.request.code, header=header, serialize_type=kind)[0])
        encoded = encoded[PREFIX_BYTES if kind == JSON else 0 :].replace(b"%", b"%%")
        # Each mark with what stands before it: a queue offset of one digit is found anywhere.
        if kind == JSON:
            offset_mark, offset_to = b'"queueOffset":"%s"' % digits.encode(), b'"queueOffset":"%b"'
            opaque_mark, opaque_to = b'"opaque":%d,' % _OPAQUE_MARK, b'"opaque":%d,'
        else:
            length = digit_count.to_bytes(4, "big")
            offset_mark = b"\x00\x0bqueueOffset" + length + digits.encode()
            offset_to = b"\x00\x0bqueueOffset" + length + b"%b"
            opaque_mark, opaque_to = _opaque_bytes(_OPAQUE_MARK), b"%b"
        at = []
        for mark, to in (
            (b"%016X" % _PLACE, b"%016X"),
            (offset_mark, offset_to),
            (key_mark.encode(), b"%b"),
            (opaque_mark, opaque_to),
        ):
            if encoded.count(mark) != 1:
                return b""
            at.append(encoded.index(mark))
            encoded = encoded.replace(mark, to)
        in_order = at[:3] == sorted(at[:3]) and (at[3] > at[2] if kind == JSON else at[3] < at[0])
        return encoded if in_order else b""
