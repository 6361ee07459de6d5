"""The report of a verification.

Lives here: the structs of the report, which are also its JSON.
"""

from typing import Literal

import msgspec

FINDINGS_MAX = 1000
PROBLEM_QUEUES_MAX = 1000
AFFECTED_MAX = 100


class Affected(msgspec.Struct):
    """Messages of one queue whose consume-queue entries point into a bad range; offsets are queue offsets."""

    topic: str
    queue_id: int
    first_offset: int
    last_offset: int
    messages: int


class FindingReport(msgspec.Struct):
    """A bad range of the log, see ``log_walk.Finding``."""

    kind: Literal["damage", "suspect", "tail"]
    start: int
    end: int
    why: str
    check: str
    affects: list[Affected] = []


class TopicSummary(msgspec.Struct):
    """A topic's records in the log; times are store timestamps in ms."""

    topic: str
    records: int = 0
    bytes: int = 0
    first_ms: int = 0
    last_ms: int = 0


class QueueProblem(msgspec.Struct):
    """A consume queue that does not fit the log.

    ``missing``: records without an entry; ``wrong``: entries that do not point to their record; ``beyond``: entries
    that point beyond the end of the log; ``tags``: entries whose tags code differs from their record's.
    """

    topic: str
    queue_id: int
    missing: int = 0
    wrong: int = 0
    beyond: int = 0
    tags: int = 0
    first_offset: int = -1
    """Lowest queue offset that has one of these."""


class QueuesReport(msgspec.Struct):
    """Consume queues against the log. Counts are entries."""

    queues: int = 0
    entries: int = 0
    good: int = 0
    blank: int = 0
    expired: int = 0
    """Point below the first byte of the log."""
    superseded: int = 0
    """Records whose place in the queue belongs to a later record: the topic was deleted and created again."""
    pending: int = 0
    """Records of an open store whose entries are not written yet."""
    damaged: int = 0
    """Point into damaged ranges, or to suspect records that belong elsewhere by their own fields."""
    tags_checked: int = 0
    problems: list[QueueProblem] = []
    problems_left_out: int = 0


class IndexReport(msgspec.Struct):
    """The key index against the log. ``checked``: number of keys that were looked up."""

    files: int = 0
    entries: int = 0
    checked: int = 0
    missing: int = 0
    wrong: int = 0
    unreachable: int = 0
    """Entries that no chain reaches, among those looked up by their key."""
    beyond: int = 0
    """Entries that point behind the end of the log."""
    pending: int = 0
    unreadable: list[str] = []
    is_sample: bool = True


class VerifyReport(msgspec.Struct):
    """The whole result. ``ok``: nothing is wrong; notes do not count."""

    directory: str
    ok: bool = True
    written_by: Literal["PocketMQ", "RocketMQ"] = "RocketMQ"
    is_open: bool = False
    level: Literal["log", "normal", "full"] = "normal"
    segments: int = 0
    segment_bytes: int = 0
    start_offset: int = 0
    end_offset: int = 0
    """The end of the last good record."""
    last_store_ms: int = 0
    records: int = 0
    record_bytes: int = 0
    group_verified_bytes: int = 0
    walked_bytes: int = 0
    topics: list[TopicSummary] = []
    findings: list[FindingReport] = []
    findings_left_out: int = 0
    queues: QueuesReport | None = None
    index: IndexReport | None = None
    checkpoint: list[str] = []
    problems: list[str] = []
    illegal: list[str] = []
    """Records whose topic or queue id no queue can have: how many, which, where the first lies, and why."""
    notes: list[str] = []
    duration_s: float = 0.0
