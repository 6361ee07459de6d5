"""The short path of RocketMQ's clients: SEND_MESSAGE_V2 and SEND_MESSAGE with JSON or RocketMQ's binary headers.

    record = header | body | topic field | length of the properties, UNIQ_KEY | the key | the other properties

Lives here: ``ShortRocketMQ``, which turns such a frame into a task for the send pair's queue; ``RocketMQFrame``, the
checked frame with what its answer needs.

Two sends of a producer to one queue differ in opaque, born timestamp, properties and body. The rest of the header is
the key of a ``RocketMQRoute``, learned once through the usual decoder. Properties of one kind differ in their unique
key (of 32 or 56 characters); without it they are the key of a ``_Template``: the bytes that a record gets, with what the broker adds. Answers
are templates as well, made by the usual encoder.

Nothing is refused here: a frame that is not plainly good is left to ``RocketMQSends``, byte for byte.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final

import msgspec

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.request.request_task import Task
from pocketmq.broker.send.rocketmq_send import RocketMQSend, of_broker
from pocketmq.broker.send.send_batch import Appended
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.errors import DECODE_ERRORS, MessageIllegal
from pocketmq.common.hashes import crc32
from pocketmq.common.plain_rules import topic_field
from pocketmq.common.record import (
    CRC_MASK,
    KEYS,
    MAGIC_V1,
    PLAIN_SYS_FLAGS,
    TAGS,
    WAIT,
    decode_properties,
    encode_properties,
    is_plain_forbidden,
)
from pocketmq.common.record_group import UNIQ_KEY_BYTES, UNIQ_PREFIX, RecordMeta, tags_code_of
from pocketmq.common.topics import is_dlq_topic, is_retry_topic
from pocketmq.remoting.codec import Request, decode_request, encode_response
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.errors import HeaderIllegal, WrongDirection
from pocketmq.remoting.frame import BINARY, JSON, PREFIX, PREFIX_BYTES, Frame
from pocketmq.remoting.protocol.send import SendMessageRequestHeader, SendMessageResponseHeader
from pocketmq.remoting.protocol.spec import Int
from pocketmq.remoting.string_map import wire_names
from pocketmq.store.gate import SendGate
from pocketmq.store.short_append import PATCHED_AT, ShortFrame, ShortSection

ROUTES_MAX: Final = 20_000
"""Routes remembered; a full table starts again."""
ROUTE_BYTES_MAX: Final = 4096
"""Longest header that makes a route, so that hostile ones take bounded memory; usual ones have about 300 bytes."""
TEMPLATES_MAX: Final = 4096
"""Kinds of properties remembered, each of at most ``TEMPLATE_BYTES_MAX`` bytes; a full table starts again."""
TEMPLATE_BYTES_MAX: Final = 1024
TASK_BYTES: Final = 1024
"""As ``admission`` counts a queued request."""
_BORN_CHARS: Final = 13
"""Digits of a time in ms from 2001 to 2286."""
_CODES: Final = (int(RequestCode.SEND_MESSAGE), int(RequestCode.SEND_MESSAGE_V2))
_NAME_BYTES: Final = len(UNIQ_PREFIX)
_KEY_END: Final = _NAME_BYTES + UNIQ_KEY_BYTES
_LONG_KEY_BYTES: Final = 56
"""Characters of a key that a Java client makes on a host with a public IPv6 address, which it prefers: 28 bytes in hex
(RocketMQ MessageClientIDSetter); 32 are those of an IPv4 address."""
_LONG_KEY_MORE: Final = _LONG_KEY_BYTES - UNIQ_KEY_BYTES
_KEY_ENDS: Final = (b"\x02", b"")
_EXTRA: Final[dict[str, str]] = {}
_join = bytearray().join
# total size, magic, CRC, queue, flag, two offsets, sysFlag, born time, born host, store time, store host, reconsume
# times, prepared offset, body length; the append fills in offsets, hosts and the store time
_HEAD_V4: Final = Struct(">IIIii16xiq8x8x8x12xi")
_HEAD_V6: Final = Struct(">IIIii16xiq20x8x20x12xi")
_BINARY_HEAD: Final = Struct(">hBhiiii")
"""Code, language, version, opaque, flag, bytes of the remark (none here), bytes of the fields."""
_FIELDS_AT: Final = _BINARY_HEAD.size
_opaque_bytes = Struct(">i").pack
_length_of = Struct(">i").unpack_from
# Stand in an answer's template for what differs; each must be found once.
_PLACE: Final = 0x5AFE_C0DE_0B0E_7E57
_KEY_MARKS: Final = {
    UNIQ_KEY_BYTES: "ThisIsTheUniqueKeyOfATemplate32X",
    _LONG_KEY_BYTES: "ThisIsTheUniqueKeyOfATemplateThatHasFiftySixCharacters56",
}
_OPAQUE_MARK: Final = 0x5A5B_5C5D
_DIGITS: Final = "1928374655647382910"


class _Fields(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The fields of SEND_MESSAGE_V2, all strings."""

    a: str | None = None
    b: str | None = None
    c: str | None = None
    d: str | None = None
    e: str | None = None
    f: str | None = None
    g: str | None = None
    h: str | None = None
    i: str | None = None
    j: str | None = None
    k: str | None = None
    l: str | None = None  # noqa: E741 (the name on the wire)
    m: str | None = None
    n: str | None = None


_LONG_FIELDS: Final = msgspec.defstruct(
    "_LongFields",
    [(name, str | None, None) for name in _Fields.__struct_fields__],
    rename=dict(zip(_Fields.__struct_fields__, wire_names(SendMessageRequestHeader).values(), strict=True)),
    gc=False,
    forbid_unknown_fields=True,
)
"""The same fields of SEND_MESSAGE, under RocketMQ's long names."""


class _Command(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A request as ``codec_json`` reads it, with typed fields and nothing else."""

    extFields: _Fields
    code: Int = 0
    flag: Int = 0
    language: str | None = None
    opaque: Int = 0
    remark: str | None = None
    serializeTypeCurrentRPC: str | None = None
    version: Int = 0


_LONG_COMMAND: Final[Any] = msgspec.defstruct(
    "_LongCommand", [("extFields", _LONG_FIELDS)], bases=(_Command,), gc=False, forbid_unknown_fields=True
)
_decode_short: Final[Callable[[bytes], _Command]] = msgspec.json.Decoder(_Command).decode
_decode_long: Final[Callable[[bytes], _Command]] = msgspec.json.Decoder(_LONG_COMMAND).decode


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
    """The same for unique keys of ``_LONG_KEY_BYTES``."""


@dataclass(slots=True, eq=False)
class _Template:
    """The properties of a record, around the unique key."""

    before: bytes
    """Length of all of them, and the name of the first one."""
    after: bytes
    tags_code: int
    wait: bool


class RocketMQFrame(msgspec.Struct, eq=False):
    """What the answer to one checked send needs beside its ``ShortFrame``."""

    route: RocketMQRoute
    answers: dict[int, bytes]
    uniq_key: bytes
    wait: bool


class ShortRocketMQ:
    """Takes the plain sends of RocketMQ's clients. Belongs to the loop, but for the two functions of answers."""

    def __init__(
        self,
        config: BrokerConfig,
        view: memoryview,
        gate: SendGate,
        topics: TopicTable,
        section_of: Callable[[str, int], ShortSection | None],
        store_host: bytes,
        body_max: int,
        is_v6: bool,
        host_bits: int,
    ) -> None:
        """``view``: the loop's read buffer. ``section_of`` returns the queue that may be sent to now, or None.
        ``store_host``: the broker's address, as offset message ids name it. ``host_bits``: those of sysFlag."""
        self._config = config
        self._view = view
        self._gate = gate
        self._topics = topics
        self._section_of = section_of
        self._store_host = store_host
        self._body_max = body_max
        head = _HEAD_V6 if is_v6 else _HEAD_V4
        self._pack_head = head.pack
        self._head_bytes = head.size
        self._host_bits = host_bits
        self._of_broker = of_broker(config)
        self._routes: dict[tuple[Any, ...], RocketMQRoute] = {}
        self._templates: dict[bytes, _Template | None] = {}
        self._long_templates: dict[bytes, _Template | None] = {}

    # ---- on the loop

    def task(self, connection: Connection, kind: int, at: int, body_at: int, end: int, begin_ns: int) -> Task | None:
        """Return the send at ``at`` of the read buffer as a task with its checked record; None: it is not for this
        path. ``kind``: its serialize type; the buffer holds it up to ``end``."""
        data = bytes(self._view[at + PREFIX_BYTES : body_at])
        key: tuple[Any, ...]
        text: str | None
        born: str | bytes | None
        if kind == JSON:
            # Names that the header must hold, before any decoding: other requests pass here as well.
            if b'"i"' in data:
                decode = _decode_short
            elif b'"properties"' in data:
                decode = _decode_long
            else:
                return None
            try:
                command = decode(data)
                fields = command.extFields
                text, born = fields.i, fields.g
                if text is None or born is None:
                    return None
                properties = text.encode()
            except DECODE_ERRORS:
                return None
            opaque = command.opaque
            key = (
                command.code,
                command.flag,
                command.language,
                command.version,
                fields.a,
                fields.b,
                fields.c,
                fields.d,
                fields.e,
                fields.f,
                fields.h,
                fields.j,
                fields.k,
                fields.l,
                fields.m,
                fields.n,
            )
        elif kind == BINARY:
            cut = _cut(data)
            if cut is None:
                return None
            opaque, born, properties, key = cut
            text = None
        else:
            return None
        uniq_at = properties.find(UNIQ_PREFIX)
        key_end, templates = uniq_at + _KEY_END, self._templates
        if properties[key_end : key_end + 1] not in _KEY_ENDS:
            key_end, templates = key_end + _LONG_KEY_MORE, self._long_templates
        uniq_key = properties[uniq_at + _NAME_BYTES : key_end]
        if (
            uniq_at < 0
            or len(born) != _BORN_CHARS
            or not born.isascii()
            or not born.isdigit()
            or not uniq_key.isalnum()
            or not properties[key_end - 1 : key_end]  # it is shorter
        ):
            return None
        known = properties[: uniq_at + _NAME_BYTES] + properties[key_end:]
        try:
            template = templates[known]
        except KeyError:
            template = self._judge(templates, known, properties, uniq_at, key_end)
        route = self._routes.get(key)
        if (
            template is None
            or route is None
            or route.generation != self._gate.generation
            or route.topics_generation != self._topics.generation
        ):
            route = None if template is None else self._learn(key, kind, data)
            if template is None or route is None:
                return None
        body = bytes(self._view[body_at:end])
        body_bytes = end - body_at
        if body_bytes > self._body_max:
            return None
        section, topic = route.section, route.topic_field
        before, after = template.before, template.after
        size = self._head_bytes + body_bytes + len(topic) + len(before) + key_end - uniq_at - _NAME_BYTES + len(after)
        born_ms = int(born)
        sys_flag = route.sys_flag
        head = self._pack_head(
            size,
            MAGIC_V1,
            crc32(body) & CRC_MASK,
            section.queue_id,
            route.flag,
            sys_flag,
            born_ms,
            body_bytes,
        )
        record = _join((head, body, topic, before, uniq_key, after))
        model = route.request
        request = Request(
            model.code,
            opaque,
            False,
            model.version,
            model.language,
            kind,
            route.header_type(
                *route.lead, born_ms, route.flag, properties.decode() if text is None else text, *route.rest
            ),
            body,
            _EXTRA,
            body_at - at - PREFIX_BYTES,
            begin_ns,
        )
        frame = ShortFrame(
            ((section, [(PATCHED_AT, size, sys_flag, born_ms, template.tags_code, uniq_key)]),),
            memoryview(record),
            1,
            size,
            connection.remote_host,
            route.generation,
        )
        answers = route.answers if templates is self._templates else route.long_answers
        context = (frame, connection.direct_turn(), RocketMQFrame(route, answers, uniq_key, template.wait))
        return Task(connection, request, begin_ns, end - body_at + TASK_BYTES, context)

    def _learn(self, key: tuple[Any, ...], kind: int, data: bytes) -> RocketMQRoute | None:
        """Decode a header in the usual way and check everything that the gate stands for; None: not for this path."""
        if len(data) > ROUTE_BYTES_MAX:
            return None
        generation, topics_generation = self._gate.generation, self._topics.generation  # before what they stand for
        try:
            request = decode_request(Frame(kind, data, b""))
        except (HeaderIllegal, WrongDirection):
            return None
        if request.code not in _CODES or request.oneway or request.extra:
            return None
        header: Any = request.header
        topic: str = header.topic
        if (
            header.batch
            or header.reconsume_times
            or header.sys_flag & ~PLAIN_SYS_FLAGS
            or is_retry_topic(topic)
            or is_dlq_topic(topic)
            or (kind == BINARY and not _is_cut_at_fields(data, key))
        ):
            return None
        section = self._section_of(topic, header.queue_id)
        if section is None:
            return None
        values = msgspec.structs.astuple(header)
        route = RocketMQRoute(
            generation,
            topics_generation,
            request,
            type(header),
            values[:6],
            values[9:],
            section,
            topic_field(topic),
            header.sys_flag | self._host_bits,
            header.flag,
        )
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
        self._routes[key] = route
        return route

    def _judge(
        self, templates: dict[bytes, _Template | None], known: bytes, properties: bytes, uniq_at: int, key_end: int
    ) -> _Template | None:
        """Return the template of properties that are not known yet; None: they are not for this path."""
        if len(known) > TEMPLATE_BYTES_MAX:
            return None
        template = self._template_of(properties, uniq_at, key_end)
        if len(templates) >= TEMPLATES_MAX:
            templates.clear()
        templates[known] = template
        return template

    def _template_of(self, properties: bytes, uniq_at: int, key_end: int) -> _Template | None:
        """Make of properties what ``RocketMQSends.plan`` makes of them, where it does nothing else."""
        if (
            properties.count(UNIQ_PREFIX) != 1
            or (uniq_at and properties[uniq_at - 1] != 2)
            or properties[key_end : key_end + 1] not in _KEY_ENDS
        ):
            return None
        try:
            properties.decode()  # RocketMQ's binary header is refused where it is no UTF-8
            pairs = decode_properties(properties)
            if any(name == KEYS or (name != WAIT and is_plain_forbidden(name)) for name in pairs):
                return None
            wait = pairs.pop(WAIT, "true").lower() != "false"
            pairs.update(self._of_broker)
            encoded = encode_properties(pairs)
        except (UnicodeDecodeError, MessageIllegal):
            return None
        return _Template(
            len(encoded).to_bytes(2, "big") + encoded[:_NAME_BYTES],
            encoded[key_end - uniq_at :],
            tags_code_of(pairs.get(TAGS, "")),
            wait,
        )

    # ---- in a send thread

    def answer(self, task: Task) -> bytes:
        """Return the answer to a stored send, as ``RocketMQSend.encode`` does."""
        frame, _, sent = task.context
        route: RocketMQRoute = sent.route
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


_NAMES: Final = (
    (b"\x00\x01g\x00\x00\x00\x0d", b"\x00\x01i"),
    (b"\x00\x0dbornTimestamp\x00\x00\x00\x0d", b"\x00\x0aproperties"),
)
"""Names of the two fields that differ, with their lengths, and the length of the first one's value; of
SEND_MESSAGE_V2, of SEND_MESSAGE."""


def _cut(data: bytes) -> tuple[int, bytes, bytes, tuple[Any, ...]] | None:
    """Return opaque, born timestamp, properties and all other bytes of a binary header, by a search for the two fields
    that differ; ``_is_cut_at_fields`` proves once for those other bytes that it found fields."""
    if len(data) < _FIELDS_AT:
        return None
    code, _, _, opaque, _, remark_bytes, fields_bytes = _BINARY_HEAD.unpack_from(data)
    if code not in _CODES or remark_bytes or fields_bytes != len(data) - _FIELDS_AT:
        return None
    born_name, properties_name = _NAMES[code == _CODES[0]]
    born_at = data.find(born_name, _FIELDS_AT)
    at = data.find(properties_name, _FIELDS_AT)
    value_at = at + len(properties_name) + 4
    if born_at < 0 or at < 0 or value_at > len(data):
        return None
    (count,) = _length_of(data, value_at - 4)
    born_from = born_at + len(born_name)
    born_end, end = born_from + _BORN_CHARS, value_at + count
    if count < 0 or max(born_end, end) > len(data):
        return None
    if born_end <= at:
        parts = (data[_FIELDS_AT:born_from], data[born_end : value_at - 4], data[end:], True)
    elif end <= born_at:
        parts = (data[_FIELDS_AT : value_at - 4], data[end:born_from], data[born_end:], False)
    else:
        return None
    return opaque, data[born_from:born_end], data[value_at:end], (data[:5], data[9:13], *parts)


def _is_cut_at_fields(data: bytes, key: tuple[Any, ...]) -> bool:
    """Tell whether ``_cut`` found whole fields of a well-formed header, each of them once: then every header with the
    same other bytes has its fields at the same places."""
    _, _, before, between, _, born_first = key
    values: dict[bytes, int] = {}
    at = _FIELDS_AT
    while at < len(data):
        middle = at + 2 + int.from_bytes(data[at : at + 2], "big")
        name = data[at + 2 : middle]
        if name in values:
            return False
        values[name] = middle + 4
        at = middle + 4 + int.from_bytes(data[middle : middle + 4], "big")
    born_name, properties_name = _NAMES[int.from_bytes(data[:2], "big") == _CODES[0]]
    born, properties = values.get(born_name[2:-4]), values.get(properties_name[2:])
    if at != len(data) or born is None or properties is None:
        return False
    first = _FIELDS_AT + len(before)
    if born_first:
        return first == born and born + _BORN_CHARS + len(between) == properties - 4
    properties_end = properties + int.from_bytes(data[properties - 4 : properties], "big")
    return first == properties - 4 and properties_end + len(between) == born
