"""What messages, addresses and errors say about themselves in a span: never a body, and no property of the user's.

Lives here: ``of_message``, ``of_received``, ``of_server``, ``error_type``. Texts are cut: a span must stay small.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pocketmq.client.telemetry import conventions as names
from pocketmq.common import record
from pocketmq.common.errors import PocketMQError
from pocketmq.common.message import Message, ReceivedMessage
from pocketmq.common.record import COMPRESSED_FLAG
from pocketmq.remoting.codes import ResponseCode

TEXT_CHARS_MAX: Final = 256
KEYS_MAX: Final = 32
DIGITS_MAX: Final = 18
"""Of a number: 64 bits hold it."""
_CODES: Final = {int(code): code.name for code in ResponseCode}

Attributes = dict[str, Any]


def of_message(message: Message) -> Attributes:
    """Return what a message that is sent says."""
    system = getattr(message, "system_properties", None) or {}  # of requests and replies
    return _of_either(
        body_bytes=len(message.body),
        tags=message.tags,
        keys=message.keys_text,
        sharding_key=message.sharding_key,
        delay_level=message.delay_time_level,
        deliver_time_ms=message.deliver_time_ms,
        is_half=hasattr(message, "producer_group"),
        is_delayed=message.is_timed,
        correlation_id=system.get(record.CORRELATION_ID),
    )


def of_received(message: ReceivedMessage) -> Attributes:
    """Return what a message that was received says, with its place."""
    properties = message.properties
    # a body that is stored as it was sent is read by the handler anyway; another one is not unpacked for its size
    packed = message.sys_flag & COMPRESSED_FLAG
    result = _of_either(
        body_bytes=len(message.raw_body if packed else message.body),
        tags=properties.get(record.TAGS, ""),
        keys=properties.get(record.KEYS, ""),
        sharding_key=properties.get(record.SHARDING_KEY),
        delay_level=_number(properties, record.DELAY) or 0,
        deliver_time_ms=_number(properties, record.TIMER_OUT_MS, record.TIMER_DELIVER_MS),
        is_half=record.TRAN_MSG in properties,
        is_delayed=False,
        correlation_id=properties.get(record.CORRELATION_ID),
    )
    result[names.MESSAGE_ID] = message.msg_id[:TEXT_CHARS_MAX]
    result[names.PARTITION] = f"{message.broker_name}/{message.queue_id}"
    result[names.QUEUE_OFFSET] = message.queue_offset
    if message.reconsume_times:
        result[names.RECONSUME_TIMES] = message.reconsume_times
    return result


def _of_either(
    *,
    body_bytes: int,
    tags: str,
    keys: str,
    sharding_key: str | None,
    delay_level: int,
    deliver_time_ms: int | None,
    is_half: bool,
    is_delayed: bool,
    correlation_id: str | None,
) -> Attributes:
    result: Attributes = {names.BODY_SIZE: body_bytes}
    if is_half:
        kind = "transaction"
    elif delay_level or is_delayed or deliver_time_ms is not None:
        kind = "delay"
    else:
        kind = "fifo" if sharding_key else "normal"
    result[names.MESSAGE_TYPE] = kind
    if tags:
        result[names.MESSAGE_TAG] = tags[:TEXT_CHARS_MAX]
    if keys:
        result[names.MESSAGE_KEYS] = tuple(key[:TEXT_CHARS_MAX] for key in keys.split(None, KEYS_MAX)[:KEYS_MAX])
    if sharding_key:
        result[names.MESSAGE_GROUP] = sharding_key[:TEXT_CHARS_MAX]
    if delay_level:
        result[names.DELAY_LEVEL] = delay_level
    if deliver_time_ms is not None:
        result[names.DELIVERY_TIMESTAMP] = deliver_time_ms
    if correlation_id:
        result[names.CONVERSATION_ID] = correlation_id[:TEXT_CHARS_MAX]
    return result


def _number(properties: Mapping[str, str], *names_of_it: str) -> int | None:
    """Return the number of a property of a peer's: small enough for every exporter, or None."""
    text = next((properties[name] for name in names_of_it if name in properties), "")
    return int(text) if text.isdecimal() and len(text) <= DIGITS_MAX else None


def of_server(address: str) -> Attributes:
    """Return the parts of ``host:port``; nothing for an empty address."""
    host, _, port = address.rpartition(":")
    if not host:
        return {}
    result: Attributes = {names.SERVER_ADDRESS: host.strip("[]")}
    if port.isdecimal():
        result[names.SERVER_PORT] = int(port)
    return result


def error_type(error: BaseException) -> str:
    """Return RocketMQ's name of the response code of one of our errors, or the class of an error that has none."""
    if isinstance(error, PocketMQError):
        code = getattr(error, "answer_code", -1)
        name = code_name(code if code > 0 else error.code)
        if name and (code > 0 or error.code != PocketMQError.code):
            return name
    return error_class(error)


def error_class(error: BaseException) -> str:
    """Return the class of an error, with its module unless it is built in."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def code_name(code: int) -> str:
    """Return RocketMQ's name of a response code, the number of an unknown one, nothing where there was no answer."""
    if code <= 0:  # 0 is SUCCESS, below it there was no answer
        return ""
    return _CODES.get(code) or str(code)


def same(values: Sequence[str]) -> str:
    """Return the value that all have, or an empty string."""
    return values[0] if values and all(value == values[0] for value in values) else ""
