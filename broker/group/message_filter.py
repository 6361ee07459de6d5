"""The filter of a pull: tags, compared in the consume queue, or SQL92 on the properties of the records.

Lives here: ``MessageFilter``, made from a subscription; ``parse_tags``; ``get_filtered``.
"""

from typing import Final, NamedTuple

import numpy as np

from pocketmq.broker.request.budget import EVALUATIONS, Budget
from pocketmq.common.hashes import java_string_hash
from pocketmq.common.record import QUEUE_OFFSET_AT
from pocketmq.common.record_columns import received_messages
from pocketmq.common.refusals import FILTER_NOT_SUPPORTED
from pocketmq.common.sql_filter import SQL92_TYPE, TAG_TYPE, FilterIllegal, SqlFilter, compile_filter
from pocketmq.store.consumequeue.get import SCAN_ENTRIES_MIN, GetMessageStatus, GetResult
from pocketmq.store.message_store import MessageStore

ALL: Final = "*"
TAGS_MAX: Final = 4096
SCAN_BYTES_MAX: Final = 4 << 20
"""Maximum bytes of records that one pull reads to filter by properties."""


class FilterNotSupported(FilterIllegal):
    """A kind of filter that this broker lacks, or that is switched off."""

    code = 1  # SYSTEM_ERROR, as RocketMQ


class MessageFilter(NamedTuple):
    """Tags, or SQL, or neither: every message passes."""

    tags: frozenset[int] | None = None
    sql: SqlFilter | None = None

    def __bool__(self) -> bool:
        """Return whether the filter can reject messages."""
        return self.tags is not None or self.sql is not None


EVERYTHING: Final = MessageFilter()


def parse_tags(expression: str | None) -> frozenset[int] | None:
    """Return the codes of the wanted tags, or None for all; raises ``FilterIllegal`` (RocketMQ FilterAPI).

    The code of a tag is its Java hash, sign-extended, as in the consume queue.
    """
    if not expression or expression == ALL:
        return None
    tags = [tag.strip() for tag in expression.split("||")]
    tags = [tag for tag in tags if tag]
    if not tags:
        raise FilterIllegal("subscription refused", why=f"no tag in {expression[:128]!r}", hint="write a || b, or *")
    if len(tags) > TAGS_MAX:
        raise FilterIllegal("subscription refused", why=f"{len(tags)} tags, limit {TAGS_MAX}")
    return frozenset(java_string_hash(tag) for tag in tags)


def message_filter(expression_type: str | None, expression: str | None, *, properties_enabled: bool) -> MessageFilter:
    """Return the filter of a subscription; raises ``FilterNotSupported``, ``FilterIllegal``.

    ``properties_enabled``: the setting ``enable_property_filter``.
    """
    if expression_type in (None, "", TAG_TYPE):
        tags = parse_tags(expression)
        return EVERYTHING if tags is None else MessageFilter(tags=tags)
    if expression_type != SQL92_TYPE or not properties_enabled:
        raise FilterNotSupported(
            FILTER_NOT_SUPPORTED.template % str(expression_type)[:64],
            hint="broker.enable_property_filter is off" if expression_type == SQL92_TYPE else "use TAG or SQL92",
        )
    return MessageFilter(sql=compile_filter(expression or ""))


def get_filtered(
    store: MessageStore,
    topic: str,
    queue_id: int,
    offset: int,
    wanted: MessageFilter,
    *,
    max_messages: int,
    max_bytes: int,
    budget: Budget | None = None,
) -> GetResult:
    """Return the messages of a queue that pass the filter, as ``MessageStore.get`` does.

    A filter by properties reads the next 800 records (or ``max_messages``, if more; docs/rocketmq.md, "Reading a
    queue"), at most 4 MiB of them. It ends where ``budget`` is over, behind at least one record: the next offset is
    that of the first record that was not evaluated.
    """
    if wanted.sql is None:
        return store.get(
            topic, queue_id, offset, max_messages=max_messages, max_bytes=max_bytes, tags_codes=wanted.tags
        )
    result = store.get(
        topic,
        queue_id,
        offset,
        max_messages=max(SCAN_ENTRIES_MIN, max_messages),
        max_bytes=max(SCAN_BYTES_MAX, max_bytes),
    )
    if result.status is not GetMessageStatus.FOUND:
        return result
    passed, evaluated = _passed(result, wanted.sql, budget)
    if not passed:
        if evaluated < len(result.sizes):
            result.next_begin_offset = _queue_offset_at(result, evaluated)
        result.status = GetMessageStatus.NO_MATCHED_MESSAGE
        result.sizes, result.body = result.sizes[:0], result.body[:0]
        return result
    ends = np.cumsum(result.sizes.astype(np.int64))
    sizes = result.sizes[passed].astype(np.int64)
    count = min(max(1, int(np.searchsorted(np.cumsum(sizes), max_bytes, side="right"))), max_messages, len(passed))
    if count < len(passed):
        evaluated = passed[count]
    if evaluated < len(result.sizes):
        result.next_begin_offset = _queue_offset_at(result, evaluated)
    chosen = passed[:count]
    body = result.body
    result.body = np.concatenate([body[int(ends[at] - result.sizes[at]) : int(ends[at])] for at in chosen])
    result.sizes = result.sizes[chosen]
    return result


def _passed(result: GetResult, sql: SqlFilter, budget: Budget | None) -> tuple[list[int], int]:
    """Return the records that pass, and how many were evaluated until the budget was over: at least one."""
    matches = sql.matches
    step = len(result.sizes) if budget is None else max(1, EVALUATIONS // sql.comparisons)
    ends = np.cumsum(result.sizes.astype(np.int64)).tolist()
    passed: list[int] = []
    for part in range(0, len(ends), SCAN_ENTRIES_MIN):  # decoding takes time, too
        end = min(part + SCAN_ENTRIES_MIN, len(ends))
        body = result.body[ends[part - 1] if part else 0 : ends[end - 1]]
        messages = received_messages(body, result.sizes[part:end], "")
        for first in range(part, end, step):
            last = min(first + step, end)
            passed += [at for at in range(first, last) if matches(messages[at - part].properties)]
            if last < len(ends) and budget is not None and budget.is_over():
                return passed, last
    return passed, len(ends)


def _queue_offset_at(result: GetResult, index: int) -> int:
    """Return the queue offset of a record that was read."""
    start = int(result.sizes[:index].astype(np.int64).sum())
    return int.from_bytes(result.body[start + QUEUE_OFFSET_AT : start + QUEUE_OFFSET_AT + 8].tobytes(), "big")
