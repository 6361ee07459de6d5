"""Kept messages as the rows of a section: their records are built from the stored fields.

Lives here: ``KeptRows``.

A ``Message`` is made only for a broker that takes RocketMQ's requests.
"""

from typing import cast

from pocketmq.client.durable.entry import KeptMessage
from pocketmq.common.message import Message
from pocketmq.common.record_codec import PlainRecordBuilder


class RecordBuilders:
    """The builders of a resender, one for each kind of broker."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], PlainRecordBuilder] = {}

    def of(self, cluster: str, family: int) -> PlainRecordBuilder:
        """Return the builder for brokers of a cluster and an address family."""
        builder = self._known.get((cluster, family))
        if builder is None:
            builder = self._known[cluster, family] = PlainRecordBuilder(cluster, family)
        return builder


class KeptRows:
    """``Rows`` of a section (``client.sender.section``). All of one topic, and plain or all not."""

    __slots__ = ("_builders", "_kept", "size_bytes")

    def __init__(self, kept: list[KeptMessage], builders: RecordBuilders, size_bytes: int) -> None:
        self._kept = kept
        self._builders = builders
        self.size_bytes = size_bytes

    def __len__(self) -> int:
        return len(self._kept)

    def records(self, cluster: str, family: int, queue_id: int, born_ms: int) -> list[bytes]:
        """Return the rows as plain records."""
        build = self._builders.of(cluster, family).build
        return [
            # a kept message has every attribute that a builder reads
            build(cast(Message, kept), queue_id, kept.uniq_key, born_ms, 0, kept.body)
            for kept in self._kept
        ]

    def messages(self) -> list[Message]:
        """Return the rows as messages."""
        return [kept.message() for kept in self._kept]
