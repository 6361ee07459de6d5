"""The short path of RocketMQ's clients: SEND_MESSAGE_V2 and SEND_MESSAGE with JSON or RocketMQ's binary headers.

    record = header | body | topic field | length of the properties, UNIQ_KEY | the key | the other properties

Lives here: ``ShortRocketMQ``, which turns such a frame into a task for the send pair's queue.

    short_rocketmq_header     two sends of a producer to one queue differ in opaque, born timestamp, properties and
                              body; the rest of the header is the key of a ``RocketMQRoute``, learned once through the
                              usual decoder
    short_rocketmq_templates  properties of one kind differ in their unique key (of 32 or 56 characters); without it
                              they are the key of a ``Template``: the bytes that a record gets, with what the broker
                              adds
    short_rocketmq_answers    answers are templates as well, written by the send thread

Nothing is refused here: a frame that is not plainly good is left to ``RocketMQSends``, byte for byte. Where users are
known, this path takes frames in the V2 form with a JSON header whose signature is that of the user who signed the last
request, and whose user may send to the topic; the guard judges all others, and the first of each user, on the wide way.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

import msgspec

from pocketmq.auth.session import Session
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.request.request_task import Task
from pocketmq.broker.send.short_rocketmq_answers import RocketMQFrame, RocketMQRoute
from pocketmq.broker.send.short_rocketmq_header import (
    BORN_CHARS,
    CODES,
    SIGNED_NAMES,
    cut_binary,
    decode_long,
    decode_short,
    decode_signed,
    is_cut_at_fields,
)
from pocketmq.broker.send.short_rocketmq_templates import KEY_END, KEY_ENDS, LONG_KEY_MORE, NAME_BYTES, Templates
from pocketmq.broker.send.short_routes import permits
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.common.hashes import crc32
from pocketmq.common.plain_check import PlainChecker
from pocketmq.common.plain_rules import topic_field
from pocketmq.common.record import CRC_MASK, MAGIC_V1, PLAIN_SYS_FLAGS
from pocketmq.common.record_group import UNIQ_PREFIX
from pocketmq.common.topics import is_dlq_topic, is_retry_topic
from pocketmq.remoting.codec import Request, decode_request
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.errors import HeaderIllegal, WrongDirection
from pocketmq.remoting.frame import BINARY, JSON, PREFIX_BYTES, Frame
from pocketmq.remoting.security.signature import is_signature
from pocketmq.store.gate import SendGate
from pocketmq.store.short_append import PATCHED_AT, ShortFrame, ShortSection

ROUTES_MAX: Final = 20_000
"""Routes remembered; a full table starts again."""
ROUTE_BYTES_MAX: Final = 4096
"""Longest header that makes a route, so that hostile ones take bounded memory; usual ones have about 300 bytes."""
TASK_BYTES: Final = 1024
"""As ``admission`` counts a queued request."""
_EXTRA: Final[dict[str, str]] = {}
UNSIGNED: Final[frozenset[str]] = frozenset()
_join = bytearray().join
# total size, magic, CRC, queue, flag, two offsets, sysFlag, born time, born host, store time, store host, reconsume
# times, prepared offset, body length; the append fills in offsets, hosts and the store time
_HEAD_V4: Final = Struct(">IIIii16xiq8x8x8x12xi")
_HEAD_V6: Final = Struct(">IIIii16xiq20x8x20x12xi")


class ShortRocketMQ:
    """Takes the plain sends of RocketMQ's clients. Belongs to the loop."""

    def __init__(
        self,
        config: BrokerConfig,
        view: memoryview,
        gate: SendGate,
        topics: TopicTable,
        section_of: Callable[[str, int], ShortSection | None],
        checker: PlainChecker,
        is_v6: bool,
    ) -> None:
        """``view``: the loop's read buffer. ``section_of`` returns the queue that may be sent to now, or None.
        ``checker`` knows the largest body and the bits of sysFlag for hosts."""
        self._view = view
        self._gate = gate
        self._topics = topics
        self._section_of = section_of
        self._body_max = checker.body_max
        self._host_bits = checker.host_bits
        head = _HEAD_V6 if is_v6 else _HEAD_V4
        self._pack_head = head.pack
        self._head_bytes = head.size
        self._routes: dict[tuple[Any, ...], RocketMQRoute] = {}
        self._templates = Templates(config)

    def task(
        self,
        connection: Connection,
        kind: int,
        at: int,
        body_at: int,
        end: int,
        begin_ns: int,
        signer: Session | None = None,
    ) -> Task | None:
        """Return the send at ``at`` of the read buffer as a task with its checked record; None: it is not for this
        path. ``kind``: its serialize type; the buffer holds it up to ``end``. ``signer``: the user who must have signed
        it, whose signatures the guard has let in on this connection; None: nobody has to."""
        data = bytes(self._view[at + PREFIX_BYTES : body_at])
        if signer is not None and (kind != JSON or end - body_at > self._body_max):
            return None
        key: tuple[Any, ...]
        text: str | None
        born: str | bytes | None
        if kind == JSON:
            # Names that the header must hold, before any decoding: other requests pass here as well.
            if b'"i"' in data:
                decode = decode_short if signer is None else decode_signed
            elif b'"properties"' in data and signer is None:
                decode = decode_long
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
            if signer is not None and not self._is_signed(fields, signer, body_at, end):
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
            cut = cut_binary(data)
            if cut is None:
                return None
            opaque, born, properties, key = cut
            text = None
        else:
            return None
        uniq_at = properties.find(UNIQ_PREFIX)
        key_end, templates = uniq_at + KEY_END, self._templates.usual
        if properties[key_end : key_end + 1] not in KEY_ENDS:
            key_end, templates = key_end + LONG_KEY_MORE, self._templates.long
        uniq_key = properties[uniq_at + NAME_BYTES : key_end]
        if (
            uniq_at < 0
            or len(born) != BORN_CHARS
            or not born.isascii()
            or not born.isdigit()
            or not uniq_key.isalnum()
            or not properties[key_end - 1 : key_end]  # it is shorter
        ):
            return None
        known = properties[: uniq_at + NAME_BYTES] + properties[key_end:]
        try:
            template = templates[known]
        except KeyError:
            template = self._templates.judge(templates, known, properties, uniq_at, key_end)
        route = self._routes.get(key)
        if (
            template is None
            or route is None
            or route.generation != self._gate.generation
            or route.topics_generation != self._topics.generation
        ):
            route = None if template is None else self._learn(key, kind, data, signed=signer is not None)
            if template is None or route is None:
                return None
        if (
            signer is not None
            and signer.checks
            and signer not in route.permitted
            and not permits(route.permitted, (route.section.topic,), signer)
        ):
            return None
        body = bytes(self._view[body_at:end])
        body_bytes = end - body_at
        if body_bytes > self._body_max:
            return None
        section, topic = route.section, route.topic_field
        before, after = template.before, template.after
        size = self._head_bytes + body_bytes + len(topic) + len(before) + key_end - uniq_at - NAME_BYTES + len(after)
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
        request.session = signer
        frame = ShortFrame(
            ((section, [(PATCHED_AT, size, sys_flag, born_ms, template.tags_code, uniq_key)]),),
            memoryview(record),
            1,
            size,
            connection.remote_host,
            route.generation,
        )
        answers = route.answers if templates is self._templates.usual else route.long_answers
        context = (frame, connection.direct_turn(), RocketMQFrame(route, answers, uniq_key, template.wait))
        return Task(connection, request, begin_ns, end - body_at + TASK_BYTES, context)

    def _is_signed(self, fields: Any, signer: Session, body_at: int, end: int) -> bool:
        """Return whether ``signer`` has signed this frame; the guard refuses and counts those who have not."""
        user = signer.user
        return fields.AccessKey == user.username and is_signature(
            fields.Signature, user.password, fields.signed(bytes(self._view[body_at:end]))
        )

    def _learn(self, key: tuple[Any, ...], kind: int, data: bytes, *, signed: bool) -> RocketMQRoute | None:
        """Decode a header in the usual way and check everything that the gate stands for; None: not for this
        path."""
        if len(data) > ROUTE_BYTES_MAX:
            return None
        generation, topics_generation = self._gate.generation, self._topics.generation  # before what they stand for
        try:
            request = decode_request(Frame(kind, data, b""))
        except (HeaderIllegal, WrongDirection):
            return None
        if (
            request.code not in CODES
            or request.oneway
            or request.extra.keys() != (SIGNED_NAMES if signed else UNSIGNED)
        ):
            return None
        header: Any = request.header
        topic: str = header.topic
        if (
            header.batch
            or header.reconsume_times
            or header.sys_flag & ~PLAIN_SYS_FLAGS
            or is_retry_topic(topic)
            or is_dlq_topic(topic)
            or (kind == BINARY and not is_cut_at_fields(data, key))
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
