"""Halves of transactions in a native append: plain records become half messages.

Lives here: ``NativeHalves``: gives checked plain records the half topic and the properties of half messages, by joining
bytes; registers each half once it is stored.
"""

import struct
from functools import partial
from typing import Final

import numpy as np

from pocketmq.broker.request.request_task import Drain, Refusal, encode_refusal
from pocketmq.broker.send.native_append import NativeSend
from pocketmq.broker.send.send_batch import PlannedSend, SendBatch
from pocketmq.broker.transaction.transaction_plan import HalfPlan
from pocketmq.broker.transaction.transaction_table import Half
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.record import (
    PGROUP,
    PROPERTIES_BYTES_MAX,
    REAL_QID,
    REAL_TOPIC,
    TRAN_MSG,
    body_at,
    encode_properties,
)
from pocketmq.common.record_columns import starts_of
from pocketmq.common.record_group import GroupSection, RecordGroup
from pocketmq.common.topics import HALF_TOPIC, check_group_name
from pocketmq.remoting.codes import ResponseCode
from pocketmq.store.append_result import AppendResult

_TOPIC: Final = len(HALF_TOPIC).to_bytes(1, "big") + HALF_TOPIC.encode()
_QUEUE: Final = bytes(4)
_U32 = struct.Struct(">I")
_U16 = struct.Struct(">H")
_I32 = struct.Struct(">i")


class NativeHalves:
    """Belongs to one send thread."""

    def __init__(self, plan: HalfPlan) -> None:
        self._plan = plan

    def refusal(self, send: NativeSend) -> Refusal | None:
        """Return why a frame of halves is refused as a whole, or None."""
        try:
            check_group_name(send.header.producer_group)
        except PocketMQError as error:
            return Refusal(int(ResponseCode.MESSAGE_ILLEGAL), str(error), Cause.BAD_REQUEST)
        return self._plan.refusal(send.header.producer_group, sum(count for _, _, count in send.header.sections))

    def convert(self, batch: SendBatch, drain: Drain) -> SendBatch | None:
        """Return the batch with its plain records made half messages; None if every frame was refused.

        A frame is refused as a whole if the properties of a record become too long.
        """
        group = batch.group
        groups: list[str] = [""] * len(group.sections)
        for send in batch.sends:
            assert isinstance(send, NativeSend)
            for position in send.positions:
                groups[position] = send.header.producer_group
        records: list[bytes] = []
        sections: list[GroupSection] = []
        too_long: set[int] = set()
        view = group.buffer.tobytes()
        unpack, pack = _I32.unpack_from, _U32.pack
        starts, sizes = group.starts.tolist(), group.sizes.tolist()
        for position, section in enumerate(group.sections):
            more = encode_properties(
                {TRAN_MSG: "true", PGROUP: groups[position], REAL_TOPIC: section.topic, REAL_QID: str(section.queue_id)}
            )
            jointed = b"\x02" + more
            topic_bytes = 1 + len(section.topic)
            shape: tuple[bytes, int] | None = None
            for index in range(section.first, section.first + section.count):
                start, size = starts[index], sizes[index]
                body_start = start + body_at(view[start + 39])
                body_end = body_start + unpack(view, body_start - 4)[0]
                properties_at = body_end + topic_bytes + 2
                end = start + size
                last = jointed if end > properties_at and view[end - 1] != 2 else more
                length = end - properties_at + len(last)
                if shape is None or shape[1] != length:  # most records of a section have properties of one length
                    if length > PROPERTIES_BYTES_MAX:
                        too_long.add(position)
                        length = PROPERTIES_BYTES_MAX
                    shape = (_TOPIC + _U16.pack(length), length)
                records.append(
                    b"".join(
                        (
                            pack(body_end - start + len(_TOPIC) + 2 + length),
                            view[start + 4 : start + 12],
                            _QUEUE,
                            view[start + 16 : body_end],
                            shape[0],
                            view[properties_at:end],
                            last,
                        )
                    )
                )
            sections.append(GroupSection(HALF_TOPIC, 0, section.first, section.count))
        new_sizes = np.array([len(record) for record in records], np.int64)
        halves = RecordGroup(
            np.frombuffer(bytearray(b"".join(records)), np.uint8),
            starts_of(new_sizes),
            new_sizes,
            group.tags_codes,
            sections,
            group.uniq_keys,
            group.keys,
            group.other_uniq_keys,
            group.indexed,
            group.in_queue,
        )
        sends = list(batch.sends)
        if too_long:
            sends, halves = self._without(sends, halves, too_long, drain)
            records = [halves.record(index).tobytes() for index in range(len(halves))] if sends else []
        return SendBatch(sends, halves, partial(self._stored, sends, records)) if sends else None

    @staticmethod
    def _without(
        sends: list[PlannedSend], group: RecordGroup, bad: set[int], drain: Drain
    ) -> tuple[list[PlannedSend], RecordGroup]:
        """Refuse the frames with sections in ``bad``; return the others and their group."""
        text = f"properties of more than {PROPERTIES_BYTES_MAX} bytes with those of a half message"
        refusal = Refusal(int(ResponseCode.MESSAGE_ILLEGAL), text, Cause.BAD_REQUEST)
        kept: list[PlannedSend] = []
        positions: list[int] = []
        for send in sends:
            assert isinstance(send, NativeSend)
            if bad.isdisjoint(send.positions):
                old, send.positions = send.positions, range(len(positions), len(positions) + len(send.positions))
                positions += old
                kept.append(send)
            else:
                drain.answer(send.task, encode_refusal(send.task.request, refusal))
        return kept, group.select(positions) if kept else group

    def _stored(self, sends: list[PlannedSend], records: list[bytes], result: AppendResult) -> None:
        """Register every half, and note their places for the answer."""
        each = iter(records)
        halves: list[Half] = []
        store_ms = result.store_timestamp
        for send in sends:
            assert isinstance(send, NativeSend)
            send.half_runs = {}
            producer_group = send.header.producer_group
            for position in send.positions:
                queue_offset = result.first_queue_offsets[position]
                runs: list[tuple[int, int]] = []
                for physical_offset, count in result.runs[position]:
                    at = physical_offset
                    for _ in range(count):
                        record = next(each)
                        size = len(record)
                        halves.append(Half(queue_offset, at, size, store_ms, producer_group, 0, 0, 0, record))
                        runs.append((at, 1))
                        queue_offset += 1
                        at += size
                send.half_runs[position] = runs
        self._plan.add(halves)
