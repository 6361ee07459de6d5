"""The facts of one event of a log, as rows of one form that Spark can aggregate.

Lives here: ``Fact``, ``facts_of``, which chooses events and their fields. Logs are untrusted: unknown names are
dropped, texts are cut, numbers are checked.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pocketmq.common.errors import Cause

TEXT_CHARACTERS_MAX: Final = 400
COUNT_MAX: Final = 1 << 53
PART_MS: Final = 20.0
"""The time of a slow request in one stage is kept from this on."""
BUSY_MS: Final = 1000.0
"""RocketMQ osPageCacheBusyTimeOutMills, unless it was raised: a longer hold of the append lock makes the page cache
busy."""
CAUSES: Final = frozenset(cause.value for cause in Cause) | {"others"}
TAGS: Final = frozenset(
    ("REJECTREQUEST", "TIMEOUT_CLEAN_QUEUE", "PCBUSY_CLEAN_QUEUE", "PC_SYNCHRONIZED", "OVERLOAD", "FLOW_CONTROL")
)
"""RocketMQ's words in brackets; a fixed set, so that a table has a bounded number of columns."""
STAGES: Final = ("queue_wait", "lock_wait", "append", "flush_wait", "replica_wait", "process", "sync", "whole")
PHASES: Final = frozenset(("route", "connect", "local", "send", "answer", "stored", "others"))
GAUGES: Final = (
    "not_flushed_bytes",
    "dispatch_behind_bytes",
    "write_buffers",
    "write_buffers_available",
    "uncommitted_bytes",
    "copies_in_sync",
    "copies_needed",
    "slaves",
    "slave_behind_bytes_max",
    "slave_behind_ms_max",
    "slave_connected",
    "behind_bytes",
    "behind_ms",
)
SUMS: Final = (
    "put_count",
    "put_bytes",
    "put_failed_count",
    "refused_count",
    "page_cache_busy_episodes",
    "slave_timeouts",
    "slave_not_available",
)
TROUBLES: Final = (
    "append_failed",
    "commit_failed",
    "create_mapped_file_failed",
    "disk_full",
    "flush_disk_timeout",
    "flush_slave_timeout",
    "replica_wait_long",
    "slave_disk_failed",
    "thread_pool_busy",
    "write_buffers_lost",
)
"""Events that are trouble in themselves: a process that ends before its next ``interval`` leaves nothing else."""
EVENTS: Final = frozenset(
    (
        "append_failed",
        "checkpoint_failed",
        "commit_failed",
        "commit_slow",
        "commit_works_again",
        "consume_queue_write_failed",
        "consumer_disconnected",
        "create_mapped_file_failed",
        "create_mapped_file_timeout",
        "disk_full",
        "event_loop_blocked",
        "fault_injected",
        "fenced",
        "flush_disk_timeout",
        "flush_slave_timeout",
        "log_events_dropped",
        "log_fenced",
        "master_fenced",
        "queue_lock_expired",
        "queue_lock_lost",
        "queue_lock_over",
        "queue_lock_refused",
        "queue_lock_taken_away",
        "queue_locks_full",
        "queue_waits_for_lock",
        "read_failed",
        "replica_wait_long",
        "sends_held",
        "slave_connected",
        "slave_disconnected",
        "slave_disk_failed",
        "slave_disk_works_again",
        "slave_in_sync",
        "slave_lost_master",
        "slave_not_counted",
        "starts_fenced",
        "stop_overdue",
        "thread_dump",
        "write_buffer_pool_not_locked",
        "write_buffer_pool_opened",
        "write_buffer_pool_too_small",
        "write_buffers_lost",
    )
)
"""Names of events that can be evidence in a chain of causes."""
_RENAMED: Final = (
    ("too many requests and system thread pool busy", "thread_pool_busy"),
    ("TransientStorePool only remain", "transient_store_pool_low"),
)
_RENAMED_BEGINS: Final = tuple(words for words, _ in _RENAMED)
_EVENTS: Final = EVENTS | {ours for _, ours in _RENAMED}
_EVIDENCE: Final = _EVENTS | {
    *("interval", "interval_refusals", "append_lock_held", "append_lock_slow", "send_attempts", "broker_started")
}
_EVIDENCE_BEGINS: Final = ("refused_", "slow_request_", *_RENAMED_BEGINS)
_SKIPPED: Final = frozenset(("timestamp", "level", "logger", "event", "repeats_left_out", "exception"))
_NAME: Final = re.compile(r"[%|A-Za-z0-9_.\-]{1,127}")
_LEVELS: Final = frozenset(("warning", "error", "critical"))
_WATERMARK: Final = frozenset(("send", "pull", "query", "transaction"))


@dataclass(slots=True)
class Fact:
    """One row. ``kind`` and ``name``: see ``facts_of``; 0 and "" in fields that do not apply.

    Only the reader changes one, by adding an equal one; a frozen class would take twice as long to make one.
    ``target``: the broker of the fact, if the line names one. ``value``: ms, bytes or a gauge.
    """

    kind: str
    name: str
    target: str = ""
    cause: str = ""
    tag: str = ""
    code: int = 0
    count: int = 0
    again: int = 0
    ended: int = 0
    for_ms: int = 0
    value: float = 0.0
    p50: float = 0.0
    p99: float = 0.0
    text: str = ""


def is_evidence(name: str, level: object, logger: object) -> bool:
    """Return whether an event of this name may have facts: most events of a healthy broker have none."""
    return (
        name in _EVIDENCE
        or (isinstance(level, str) and level in _LEVELS)
        or logger == "watermark"
        or name.startswith(_EVIDENCE_BEGINS)
    )


def facts_of(event: Mapping[str, Any]) -> Iterator[Fact]:
    """Yield the facts of one event.

    Kinds: ``refusal`` (name ``line`` or ``interval``), ``stage`` (p50, p99, value: maximum in ms), ``slow`` (value:
    ms), ``part`` (time of a slow request in one stage, ms), ``hold`` (of the append lock, ms; tag ``calm``: above
    ``BUSY_MS`` and not busy), ``gauge``, ``sum``, ``attempt`` (of a client), ``event``, ``other`` (warnings and errors
    that no rule uses), ``broker`` (the owner of the log).
    """
    name = str(event.get("event", ""))
    logger = event.get("logger")
    if name.startswith("refused_"):
        count = _count(event, "count") + _count(event, "left_out") + _count(event, "repeats_left_out")
        yield _refusal("line", event, name.removeprefix("refused_"), count)
    elif name == "interval_refusals":
        yield _refusal("interval", event, str(event.get("cause", "")), _count(event, "count"))
    elif name == "interval":
        yield from _interval(event)
    elif name.startswith("slow_request_"):
        stage = name.removeprefix("slow_request_")
        if stage in STAGES or stage in ("read", "write"):
            count = (1 if "total_ms" in event else 0) + _count(event, "left_out")
            yield Fact("slow", stage, count=count, value=_number(event, "total_ms"))
            for part in STAGES:
                if _number(event, f"{part}_ms") >= PART_MS:
                    yield Fact("part", part, count=1, value=_number(event, f"{part}_ms"))
    elif name == "append_lock_held":
        held_ms, busy = _number(event, "held_ms"), event.get("page_cache_busy")
        tag = "busy" if busy is True else "calm" if busy is False and held_ms > BUSY_MS else ""
        yield Fact("hold", "held", count=1, tag=tag, value=held_ms)
    elif name == "append_lock_slow":
        yield Fact("hold", "ended", count=1, value=_number(event, "held_ms"), text=_lock_text(event))
    elif name == "send_attempts":
        yield _attempt(event)
    elif logger == "watermark":
        queue = event.get("queue")
        if isinstance(queue, str) and queue in _WATERMARK:
            yield Fact("gauge", f"{queue}_queue_size", value=_number(event, "queue_size"))
            yield Fact("gauge", f"{queue}_head_wait_ms", value=_number(event, "slow_time_mills"))
    elif name == "broker_started":
        if is_name(event.get("broker")):
            yield Fact("broker", str(event["broker"]))
    else:
        yield from _event(name, event)


def _event(name: str, event: Mapping[str, Any]) -> Iterator[Fact]:
    known = name
    if name.startswith(_RENAMED_BEGINS):
        known = next(ours for words, ours in _RENAMED if name.startswith(words))
    count = 1 + _count(event, "repeats_left_out")
    if known in _EVENTS:
        yield Fact("event", known, count=count, text=_said(event))
    elif event.get("level") in _LEVELS:
        yield Fact("other", "warnings and errors", count=count, text=cut_text(f"{name} {_said(event)}"))


def _refusal(source: str, event: Mapping[str, Any], cause: str, count: int) -> Fact:
    text = str(event.get("remark", ""))
    return Fact(
        "refusal",
        source,
        cause=cause if cause in CAUSES else "others",
        tag=_tag(text),
        code=_count(event, "code", 1 << 31),
        count=count,
        for_ms=_count(event, "for_ms", 1 << 40),
        text=cut_text(text),
    )


def _tag(text: str) -> str:
    tag = text[1 : text.find("]")] if text.startswith("[") and "]" in text[:26] else ""
    return tag if tag in TAGS else ""


def _interval(event: Mapping[str, Any]) -> Iterator[Fact]:
    if is_name(event.get("broker")):
        yield Fact("broker", str(event["broker"]))
    for_ms = _count(event, "for_ms", 1 << 40)
    for stage in STAGES:
        count = _count(event, f"{stage}_count")
        if count:
            p50, p99 = _number(event, f"{stage}_p50_ms"), _number(event, f"{stage}_p99_ms")
            longest = _number(event, f"{stage}_max_ms")
            yield Fact("stage", stage, count=count, for_ms=for_ms, value=max(longest, p99), p50=p50, p99=p99)
    for name in GAUGES:
        if name in event:
            yield Fact("gauge", name, value=_number(event, name))
    for name in SUMS:
        count = _count(event, name)
        if count:
            yield Fact("sum", name, count=count, for_ms=for_ms)
    held_ms = _number(event, "lock_held_now_ms")
    if held_ms >= 500:
        yield Fact("hold", "held", count=1, value=held_ms)


def _attempt(event: Mapping[str, Any]) -> Fact:
    phase, cause, broker = event.get("phase"), event.get("cause"), event.get("broker")
    text = str(event.get("answer", ""))
    return Fact(
        "attempt",
        phase if isinstance(phase, str) and phase in PHASES else "others",
        target=str(broker) if is_name(broker) else "",
        cause=cause if isinstance(cause, str) and cause in CAUSES else "",
        tag=_tag(text),
        code=_count(event, "code", 1 << 31),
        count=_count(event, "count"),
        again=_count(event, "again"),
        ended=_count(event, "ended"),
        for_ms=_count(event, "for_ms", 1 << 40),
        value=_number(event, "longest_ms"),
        text=cut_text(text),
    )


def _lock_text(event: Mapping[str, Any]) -> str:
    return f"held {_number(event, 'held_ms'):g} ms, waited for {_number(event, 'lock_wait_ms'):g} ms"


def _said(event: Mapping[str, Any]) -> str:
    """Return the fields of an event as text; of a thread dump the send thread's stack."""
    if event.get("event") == "thread_dump":
        stacks = [f"{key[7:]}: {stack}" for key, stack in event.items() if key.startswith("thread_SendMessageThread")]
        if stacks:
            return cut_text("; ".join(stack[: TEXT_CHARACTERS_MAX // len(stacks)] for stack in stacks))
    fields = [f"{key}={value}" for key, value in event.items() if key not in _SKIPPED and not isinstance(value, dict)]
    return cut_text(" ".join(fields))


def cut_text(text: str) -> str:
    """Return the text as it is cited: cut, on one line."""
    text = text if len(text) <= TEXT_CHARACTERS_MAX else text[: TEXT_CHARACTERS_MAX - 1] + "…"
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def is_name(value: object) -> bool:
    """Return whether it can be the name of a broker."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _count(event: Mapping[str, Any], key: str, limit: int = COUNT_MAX) -> int:
    value = event.get(key, 0)
    return value if type(value) is int and 0 <= value < limit else 0


def _number(event: Mapping[str, Any], key: str) -> float:
    value = event.get(key, 0)
    return float(value) if type(value) in (int, float) and math.isfinite(value) and 0 <= value < 1e15 else 0.0
