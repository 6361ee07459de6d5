"""Deleted topics, each with the end of the log at its deletion.

Lives here: ``DeletedTopics`` and its file ``pocketmq/deleted_topics.json``: topic → physical offset, and a checksum
(``common.sealed_json``). Records of the topic below that offset belong to the deleted one: when read again from the log
they must enter no queue, else they would take the places of messages sent after the topic was created again.
"""

from typing import Annotated, Final

import msgspec

from pocketmq.common.errors import DECODE_ERRORS, CorruptRecord
from pocketmq.common.sealed_json import seal, unseal
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.errors import StoreFull

TOPICS_MAX: Final = 100_000
"""Deleted topics that have records in the log, or had when they were deleted; retention forgets them with their log."""

Offset = Annotated[int, msgspec.Meta(ge=0)]


class _DeletedFile(msgspec.Struct, rename="camel"):
    deleted_topics: dict[str, Offset]


def decode_deleted(data: bytes) -> dict[str, int]:
    """Read the file: topic → where the log ended when it was deleted. Raises ``DECODE_ERRORS``."""
    content = unseal(data)
    table = msgspec.json.decode(content, type=dict[str, msgspec.Raw]).get("deletedTopics")
    if table is None or not bytes(table).startswith(b"{"):  # from an older version: topics alone
        return msgspec.json.decode(content, type=dict[str, Offset])
    return msgspec.json.decode(table, type=dict[str, Offset])


class DeletedTopics:
    """The table and its file. ``get`` takes no lock; one thread changes it at a time."""

    def __init__(self, file_system: FileSystem, path: str, *, durable: bool = True) -> None:
        self._file_system = file_system
        self._path = path
        self._durable = durable
        self._offsets: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def get(self, topic: str) -> int:
        """Return where the log ended when the topic was deleted; 0 when it never was."""
        return self._offsets.get(topic, 0)

    def table(self) -> dict[str, int]:
        """Return a copy of the table."""
        return dict(self._offsets)

    @property
    def last_offset(self) -> int:
        """Return where the log ended at the last deletion; -1 without one."""
        return max(self._offsets.values(), default=-1)

    def load(self, min_offset: int) -> None:
        """Read the file and forget topics deleted below ``min_offset``, the log's first byte.

        Raises ``CorruptRecord``: without the list deleted messages could come back in the place of acknowledged ones.
        """
        try:
            offsets = decode_deleted(self._file_system.read_all(self._path))
        except FileNotFoundError:
            offsets = {}
        except DECODE_ERRORS as error:
            raise CorruptRecord(
                "the store does not open",
                why=f"{self._path}: {error}",
                hint="move the file away: deleted topics that are in use again may then show old messages",
            ) from error
        self._offsets = {topic: offset for topic, offset in offsets.items() if offset > min_offset}

    def cut(self, end_offset: int) -> None:
        """Lower all offsets to the end of the log found by recovery: later records are new. Raises ``StoreError``."""
        offsets = {topic: min(offset, end_offset) for topic, offset in self._offsets.items()}
        if offsets != self._offsets:
            self._replace(offsets)

    def forget_below(self, min_offset: int) -> None:
        """Forget topics without records in the log. Raises ``StoreError``; then nothing has changed."""
        offsets = {topic: offset for topic, offset in self._offsets.items() if offset > min_offset}
        if len(offsets) < len(self._offsets):
            self._replace(offsets)

    def add(self, topic: str, end_offset: int) -> None:
        """Record that the topic is deleted up to ``end_offset``. Raises ``StoreError``; then nothing has changed."""
        if topic not in self._offsets and len(self._offsets) >= TOPICS_MAX:
            raise StoreFull(
                "the topic is not deleted",
                why=f"{len(self._offsets)} topics were deleted whose messages are still in the log",
                hint="wait until retention has removed old segments",
            )
        self._replace({**self._offsets, topic: end_offset})

    def _replace(self, offsets: dict[str, int]) -> None:
        self._file_system.replace(self._path, seal(msgspec.json.encode(_DeletedFile(offsets))), durable=self._durable)
        self._offsets = offsets
