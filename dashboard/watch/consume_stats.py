"""The progress of all groups of a broker, from one answer (GET_BROKER_CONSUME_STATS, 317).

RocketMQ writes objects as keys, which is no JSON. The general rewrite of such text takes a second for 2,300 groups;
here a regular expression does it, since these keys are flat, and the general one is asked where that fails.

Lives here: ``GroupProgress``, ``decode_consume_stats``.
"""

import re
from dataclasses import dataclass, field
from typing import Final

import msgspec

from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.remoting.errors import BodyIllegal
from pocketmq.remoting.fastjson import standard_json

GROUPS_MAX: Final = 20_000
"""Groups and topics that a watch keeps; a cluster with more is shown in part."""
_KEY: Final = re.compile(rb"(?<=[{,])\s*\{([^{}]*)\}\s*(?=:)")


class _Queue(msgspec.Struct, rename="camel"):
    topic: str = ""
    broker_name: str = ""
    queue_id: int = 0


class _Offsets(msgspec.Struct, rename="camel"):
    broker_offset: int = 0
    consumer_offset: int = 0
    last_timestamp: int = 0


class _Stats(msgspec.Struct, rename="camel"):
    offset_table: dict[str, _Offsets] = {}
    consume_tps: float = 0.0


class _Answer(msgspec.Struct, rename="camel"):
    consume_stats_list: list[dict[str, list[_Stats]]] = []


_QUEUE: Final = msgspec.json.Decoder(_Queue)
_ANSWER: Final = msgspec.json.Decoder(_Answer)


@dataclass(slots=True)
class GroupProgress:
    """A group in a topic on a broker: messages it has not committed, messages a second it got, and when the last
    message that it committed was stored (ms since 1970, 0: none). ``ends``: the end of each queue.
    """

    group: str
    topic: str
    lag: int = 0
    tps: float = 0.0
    last_ms: int = 0
    ends: dict[tuple[str, int], int] = field(default_factory=dict)


def decode_consume_stats(body: bytes) -> list[GroupProgress]:
    """Return every (group, topic) of an answer, at most ``GROUPS_MAX``. Raise ``BodyIllegal``."""
    try:
        try:
            answer = _ANSWER.decode(_KEY.sub(_as_text, body))
        except DECODE_ERRORS:
            answer = _ANSWER.decode(standard_json(body))
        found = [
            progress
            for row in answer.consume_stats_list
            for group, topics in row.items()
            for stats in topics
            for progress in _progress(group, stats)
        ]
    except DECODE_ERRORS as error:
        raise BodyIllegal("progress of groups refused", why=str(error)) from error
    return found[:GROUPS_MAX]


def _as_text(match: re.Match[bytes]) -> bytes:
    inner = match[1].replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    return b'"{' + inner + b'}"'


def _progress(group: str, stats: _Stats) -> list[GroupProgress]:
    by_topic: dict[str, GroupProgress] = {}
    for key, offsets in stats.offset_table.items():
        queue = _QUEUE.decode(key)
        progress = by_topic.get(queue.topic)
        if progress is None:
            progress = by_topic[queue.topic] = GroupProgress(group, queue.topic, tps=stats.consume_tps)
        progress.lag += max(offsets.broker_offset - max(offsets.consumer_offset, 0), 0)
        progress.last_ms = max(progress.last_ms, offsets.last_timestamp)
        progress.ends[queue.broker_name, queue.queue_id] = offsets.broker_offset
    return list(by_topic.values())
