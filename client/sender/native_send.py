"""Sections as PocketMQ's native append: one request for all sections of a frame.

Lives here: ``NativeSend``: the record builder of each kind of broker, records of a section, the request.
"""

from pocketmq.client.arrow.packed import PackedRecords, packed_ids
from pocketmq.client.connection.instance import BrokerConnection
from pocketmq.client.sender.section import BODY_OF, Section, native_body
from pocketmq.common.record_codec import PlainRecordBuilder, build_alike
from pocketmq.remoting.codec import Body
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.send import NativeAppendRequestHeader


class NativeSend:
    """Builds the native requests of one producer group."""

    def __init__(self, producer_group: str) -> None:
        self._group = producer_group
        self._builders: dict[tuple[str, int], PlainRecordBuilder] = {}

    def builder(self, connection: BrokerConnection, half: bool = False) -> PlainRecordBuilder | None:
        """Return the record builder for a broker, or None if it takes only RocketMQ's requests. ``half``: of halves."""
        announcement = connection.announcement
        if announcement is None or not announcement.native or (half and not announcement.transactions):
            return None
        key = (announcement.cluster, announcement.family)
        builder = self._builders.get(key)
        if builder is None:
            builder = self._builders[key] = PlainRecordBuilder(*key)
        return builder

    @staticmethod
    def build(builder: PlainRecordBuilder, section: Section, connection: BrokerConnection) -> None:
        """Build the records of a section placed before the kind of its broker was known."""
        announcement = connection.announcement
        assert announcement is not None
        if section.rows is not None:
            made = section.rows.records(announcement.cluster, announcement.family, section.queue_id, section.born_ms)
            if isinstance(made, PackedRecords):
                section.packed = made
            else:
                section.records = made
        elif section.alike is not None:
            topic, bodies = section.queue.topic, list(map(BODY_OF, section.messages))
            ids = packed_ids(section.all_ids).rows()
            sizes, data = build_alike(builder, topic, section.alike, bodies, section.queue_id, ids, section.born_ms)
            section.packed = PackedRecords(memoryview(data), sizes)
        else:
            section.records = [
                builder.build(message, section.queue_id, uniq_key, section.born_ms)
                for message, uniq_key in zip(section.messages, section.uniq_keys, strict=True)
            ]

    def request(
        self, sections: list[Section], wait: bool, left_ms: float
    ) -> tuple[int, NativeAppendRequestHeader, Body]:
        """Return (request code, header, body) for sections with records."""
        header = NativeAppendRequestHeader(
            producer_group=self._group,
            wait=wait,
            sections=[(section.queue.topic, section.queue_id, section.count) for section in sections],
            timeout_ms=max(int(left_ms), 1),
        )
        code = RequestCode.NATIVE_HALF_APPEND if sections[0].half else RequestCode.NATIVE_APPEND
        return code, header, native_body(sections)
