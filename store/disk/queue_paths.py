"""The directories of consume queues, and the names allowed for them.

Lives here: the only functions that turn a topic and a queue id into a path. Both come from peers, from the records of a
log and from names on a disk, none of which may be trusted with a path.
"""

import re
from typing import Final

from pocketmq.common.topics import (
    DLQ_PREFIX,
    REPLY_SUFFIX,
    RETRY_PREFIX,
    SYSTEM_PREFIX,
    TOPIC_LENGTH_MAX,
    TopicIllegal,
)

DIRECTORY_BYTES_MAX: Final = 255
"""Maximum bytes of a file name (NAME_MAX of ext4, XFS, tmpfs, APFS)."""
QUEUE_ID_MAX: Final = (1 << 20) - 1
"""Sixteen times what ``topic_queue_nums_max`` allows by default; RocketMQ sets no limit."""
QUEUE_OFFSET_MAX: Final = (1 << 58) - 1
"""An entry has 20 bytes, and the file that begins with it is named by its first byte: that must stay an i64."""
LMQ_PREFIX: Final = "%LMQ%"
"""Light queues (RocketMQ 4.9.3)."""

_LONG_PREFIXES: Final = (RETRY_PREFIX, DLQ_PREFIX, LMQ_PREFIX, SYSTEM_PREFIX)
_REFUSED: Final = re.compile("[/\0-\x1f\x7f-\x9f\u2028\u2029\ufffd\ud800-\udfff]")
_QUEUE_DIRECTORY: Final = re.compile("0|[1-9][0-9]{0,6}", re.ASCII)


def topic_error(topic: str) -> str | None:
    """Return why ``topic`` cannot be the name of a directory, or None if it can.

    Allows more than clients may create: the names of clusters and brokers are topics as well (RocketMQ
    TopicConfigManager), and stores of other versions must open. Ordinary topics have at most RocketMQ's 127
    characters; derived ones (retry, dead letter, reply, light queues) at most those of a directory name.
    """
    if not topic:
        return "the topic is empty"
    if topic in (".", ".."):
        return "the topic is a special directory"
    found = _REFUSED.search(topic)
    if found is not None:
        return f"the topic contains the character {found[0]!a}"
    if len(topic) > TOPIC_LENGTH_MAX and not (topic.startswith(_LONG_PREFIXES) or topic.endswith(REPLY_SUFFIX)):
        return f"the topic has {len(topic)} characters, more than {TOPIC_LENGTH_MAX}"
    size_bytes = len(topic.encode())
    if size_bytes > DIRECTORY_BYTES_MAX:
        return f"the topic has {size_bytes} bytes, more than {DIRECTORY_BYTES_MAX}"
    return None


def queue_error(topic: str, queue_id: int) -> str | None:
    """Return why no queue of this topic and id can be on the disk, or None if it can."""
    if not 0 <= queue_id <= QUEUE_ID_MAX:
        return f"the queue id is {queue_id}, not 0 to {QUEUE_ID_MAX}"
    return topic_error(topic)


def queues_directory(root: str) -> str:
    """Return the directory of all consume queues of the store at ``root``."""
    return f"{root}/consumequeue"


def topic_directory(root: str, topic: str) -> str:
    """Return the directory of a topic's queues in the store at ``root``; raises ``TopicIllegal``."""
    why = topic_error(topic)
    if why is not None:
        raise TopicIllegal("no directory for a topic", why=f"{topic[:128]!a}: {why}")
    return f"{queues_directory(root)}/{topic}"


def queue_directory(root: str, topic: str, queue_id: int) -> str:
    """Return the directory of one queue in the store at ``root``; raises ``TopicIllegal``."""
    why = queue_error(topic, queue_id)
    if why is not None:
        raise TopicIllegal("no directory for a queue", why=f"queue {queue_id} of {topic[:128]!a}: {why}")
    return f"{queues_directory(root)}/{topic}/{queue_id}"


def queue_id_of(name: str) -> int | None:
    """Return the queue id whose directory has this name, None for a name that ``queue_directory`` never returns."""
    if not _QUEUE_DIRECTORY.fullmatch(name) or int(name) > QUEUE_ID_MAX:
        return None
    return int(name)
