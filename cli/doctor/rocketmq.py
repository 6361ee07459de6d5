"""What a RocketMQ broker says to an operator beside its runtime table: replication and the lag of groups.

Lives here: ``RocketMQState``, ``GroupLag``, and how both are read from the answers to 907 (5.x) and 317. An answer that
is missing, refused or nonsense is None: the doctor says less then.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from pocketmq.common.errors import DECODE_ERRORS, PocketMQError
from pocketmq.remoting.fastjson import standard_json
from pocketmq.remoting.protocol.body import decode_body
from pocketmq.remoting.protocol.ha import HaRuntimeBody

GROUPS_MAX: Final = 10_000
SYSTEM_GROUPS: Final = (
    "CID_ONS",
    "CID_RMQ_SYS_",
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_",
    "CID_HOUSEKEEPING",
)


@dataclass(frozen=True, slots=True)
class GroupLag:
    """Progress of a group on this broker. ``behind``: messages; ``consumed``: the sum of its offsets; ``tps``: now."""

    group: str
    behind: int
    consumed: int
    tps: float


@dataclass(frozen=True, slots=True)
class RocketMQState:
    """``ha`` None: not known (RocketMQ 4 has no request for it); ``groups`` None: not known."""

    ha: HaRuntimeBody | None = None
    groups: tuple[GroupLag, ...] | None = None


def decode_state(ha: bytes | None, stats: bytes | None) -> RocketMQState:
    """Return the state in two answers. Never raises."""
    return RocketMQState(_ha(ha), None if stats is None else decode_groups(stats))


def _ha(body: bytes | None) -> HaRuntimeBody | None:
    try:
        return None if body is None else decode_body(body, HaRuntimeBody)
    except PocketMQError:
        return None


def decode_groups(body: bytes) -> tuple[GroupLag, ...] | None:
    """Return the groups of GET_BROKER_CONSUME_STATS that have offsets, those furthest behind first; None: nonsense."""
    try:
        found = msgspec.json.decode(standard_json(body))
        rows = found["consumeStatsList"]
        groups = [
            _lag(str(group), topics)
            for row in rows[:GROUPS_MAX]
            for group, topics in row.items()
            if topics and not str(group).startswith(SYSTEM_GROUPS)
        ]
    except (*DECODE_ERRORS, PocketMQError, KeyError, TypeError, AttributeError, ValueError):
        return None
    return tuple(sorted(groups, key=lambda each: (-each.behind, each.group)))


def _lag(group: str, topics: list[Mapping[str, Any]]) -> GroupLag:
    behind = consumed = 0
    tps = 0.0
    for topic in topics:
        tps += float(topic.get("consumeTps") or 0)
        for offsets in topic.get("offsetTable", {}).values():
            offset = max(int(offsets["consumerOffset"]), 0)
            behind += max(int(offsets["brokerOffset"]) - offset, 0)
            consumed += offset
    return GroupLag(group, behind, consumed, tps)
