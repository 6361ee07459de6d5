"""Topics and groups: their settings, permissions, and which names are allowed.

Lives here: ``TopicConfig``, permission bits, name checks, RocketMQ's reserved topics and groups.
"""

import enum
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from pocketmq.common.errors import Cause, PocketMQError

TOPIC_LENGTH_MAX: Final = 127
"""Characters of a topic (RocketMQ TopicValidator)."""
GROUP_LENGTH_MAX: Final = 255
"""Characters of a group (RocketMQ Validators)."""

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
REPLY_SUFFIX: Final = "_REPLY_TOPIC"
SYSTEM_PREFIX: Final = "rmq_sys_"

AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
"""Messages that wait for any other time than a delay level (RocketMQ 5 TimerMessageStore)."""
BENCHMARK_TOPIC: Final = "BenchmarkTest"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
STAGED_TOPIC: Final = "rmq_sys_pocketmq_named_transactions"
"""Ours: the chunks of staged transactions, and their outcomes (``broker.staged.staged_records``)."""
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"

SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        TRACE_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)
"""Topics that RocketMQ's TopicValidator calls system topics."""

SEND_FORBIDDEN_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        STAGED_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)
"""System topics to which no client may send (RocketMQ TopicValidator.isNotAllowedSendTopic; the timer's and the
staged transactions' are ours)."""

TOPICS_OF_ALL: Final = frozenset(
    {SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC, STAGED_TOPIC}
)
"""System topics that hold messages of all topics, on their way to them."""

SYSTEM_GROUPS: Final[Mapping[str, bool]] = {
    "TOOLS_CONSUMER": False,
    "FILTERSRV_CONSUMER": False,
    "SELF_TEST_C_GROUP": False,
    "CID_ONS-HTTP-PROXY": True,
    "CID_ONSAPI_PULL": True,
    "CID_ONSAPI_PERMISSION": True,
    "CID_ONSAPI_OWNER": True,
    "CID_RMQ_SYS_TRANS": True,
}
"""Groups that every broker makes for itself → whether broadcast is explicitly allowed (RocketMQ
SubscriptionGroupManager.init)."""

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)
_NAME_TEXT: Final = "^[%|a-zA-Z0-9_-]+$"


class TopicIllegal(PocketMQError):
    """A topic's name breaks RocketMQ's rules."""

    code = 29  # INVALID_PARAMETER, as RocketMQ 5.3 answers; 4.9 answers SYSTEM_ERROR
    default_cause = Cause.BAD_REQUEST


class GroupIllegal(PocketMQError):
    """A group's name breaks RocketMQ's rules."""

    code = 29  # INVALID_PARAMETER
    default_cause = Cause.BAD_REQUEST


class Perm(enum.IntFlag):
    """What may be done with a topic's queues (RocketMQ PermName)."""

    NONE = 0
    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8


def perm_string(perm: int) -> str:
    """Return ``RWX`` with ``-`` for each bit that is missing, as RocketMQ prints it."""
    read = "R" if perm & Perm.READ else "-"
    write = "W" if perm & Perm.WRITE else "-"
    inherit = "X" if perm & Perm.INHERIT else "-"
    return read + write + inherit


TOPIC_ID_ATTRIBUTE: Final = "pocketmq.topic.id"
"""Attribute (RocketMQ 5.3 has a map of them) with a random text that a topic gets when it is created: a topic deleted
and created again is another one, and offsets of the first mean nothing in the second."""


class TopicConfig(msgspec.Struct, kw_only=True, rename="camel"):
    """Settings of one topic on one broker; the JSON form is that of RocketMQ's ``config/topics.json``.

    ``perm`` holds ``Perm`` bits. Queue ids run from 0 to ``write_queue_nums - 1`` for producers and to
    ``read_queue_nums - 1`` for consumers. ``topic_sys_flag``: unit 1, unit subscription 2.
    """

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] | None = {}
    """RocketMQ 5's, kept as they are in a table that it wrote (null from some of its tools); ``TOPIC_ID_ATTRIBUTE``."""

    @property
    def is_batch_queue(self) -> bool:
        """Whether RocketMQ 5 keeps the topic in queues of its own format (``queue.type`` BatchCQ)."""
        return (self.attributes or {}).get("queue.type") == "BatchCQ"


def check_topic_name(name: str) -> None:
    """Raise ``TopicIllegal`` unless ``name`` is a legal topic (RocketMQ TopicValidator.validateTopic)."""
    if not name or name.isspace():
        raise TopicIllegal("topic refused", why="The specified topic is blank.", hint="give the topic a name")
    if len(name) > TOPIC_LENGTH_MAX:
        raise TopicIllegal(
            "topic refused", why=f"The specified topic is longer than topic max length {TOPIC_LENGTH_MAX}."
        )
    if not _NAME.fullmatch(name):
        raise TopicIllegal(
            "topic refused", why=f"The specified topic[{name}] contains illegal characters, allowing only {_NAME_TEXT}"
        )


def has_legal_characters(name: str) -> bool:
    """Return whether a topic or group consists of characters that RocketMQ allows, whatever its length."""
    return _NAME.fullmatch(name) is not None


def check_group_name(name: str) -> None:
    """Raise ``GroupIllegal`` unless ``name`` is a legal producer or consumer group (RocketMQ Validators.checkGroup)."""
    if not isinstance(name, str):
        raise GroupIllegal("group refused", why=f"group is {type(name).__name__}, not str")
    if not name or name.isspace():
        raise GroupIllegal("group refused", why="the specified group is blank", hint="give the group a name")
    if len(name) > GROUP_LENGTH_MAX:
        raise GroupIllegal(
            "group refused", why=f"the specified group is longer than group max length {GROUP_LENGTH_MAX}."
        )
    if not _NAME.fullmatch(name):
        raise GroupIllegal(
            "group refused", why=f"the specified group[{name}] contains illegal characters, allowing only {_NAME_TEXT}"
        )


def is_system_topic(name: str) -> bool:
    """Return whether RocketMQ keeps ``name`` for itself; some (``BenchmarkTest``) still take clients' messages."""
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_PREFIX)


def is_send_forbidden(name: str) -> bool:
    """Return whether no client may send to ``name``."""
    return name in SEND_FORBIDDEN_TOPICS


def retry_topic(group: str) -> str:
    """Return the topic that holds messages for ``group`` to consume again."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Return the topic that holds messages which ``group`` gave up."""
    return DLQ_PREFIX + group


def is_retry_topic(name: str) -> bool:
    """Return whether ``name`` is a retry topic."""
    return name.startswith(RETRY_PREFIX)


def is_dlq_topic(name: str) -> bool:
    """Return whether ``name`` is a dead-letter topic."""
    return name.startswith(DLQ_PREFIX)


def plain_topic_error(name: str) -> str | None:
    """Say why ``name`` cannot take plain records of a native append, or return None if it can.

    The client asks before it chooses between a native append and a typed SEND_MESSAGE, the broker before it stores.
    ``BenchmarkTest`` is open: RocketMQ counts it as a system topic, but it is made for clients.
    """
    if not 0 < len(name) <= TOPIC_LENGTH_MAX:
        return f"topic of {len(name)} characters, not 1 to {TOPIC_LENGTH_MAX}"
    if not _NAME.fullmatch(name):
        return f"topic[{name}] contains illegal characters, allowing only {_NAME_TEXT}"
    if name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return f"topic[{name}] takes no plain records"
    if is_system_topic(name) and name != BENCHMARK_TOPIC:
        return f"topic[{name}] is a system topic"
    return None


def is_plain_topic(name: str) -> bool:
    """Return whether messages to ``name`` may travel as plain records of a native append."""
    return plain_topic_error(name) is None
