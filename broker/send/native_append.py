"""Native append: records that clients built, from many frames into one group.

Lives here: ``NativeAppend``: splits frames, gathers their records into private memory with one copy, checks them all at
once and writes their socket's born host into them; the response per section.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pocketmq.broker.request.request_task import Buffers, Drain, Refusal, Task, encode_answer
from pocketmq.broker.send.send_batch import Appended, PlannedSend, SendBatch
from pocketmq.broker.send.send_checks import SendChecks
from pocketmq.common.errors import Cause, MessageIllegal
from pocketmq.common.plain_check import ALIKE_MIN, PlainChecker, PlainRules, check_plain
from pocketmq.common.record import BORN_HOST_AT, HOST_V4_BYTES, HOST_V6_BYTES, host_bytes_of
from pocketmq.common.record_columns import windows
from pocketmq.common.record_group import GroupSection, RecordGroup, sections_of
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.send import NativeAppendRequestHeader, NativeAppendResponseHeader

SECTIONS_MAX: Final = 65_536
"""Sections of one frame."""
_JOIN_BYTES_MAX: Final = 131_072
"""Up to this, ``bytearray.join`` gathers frames faster than NumPy (which releases the GIL while it copies)."""
_SMALL_COUNT: Final = 32
"""Up to this, hosts are written one by one: 0.1 µs each, against 2.5 µs for NumPy."""
_SUM_SMALL_COUNT: Final = 200
"""Up to this, ``struct`` adds the sizes faster than NumPy: 10 ns each, against 2 µs."""
_V4_IN_V6: Final = bytes(10) + b"\xff\xff"
"""Prefix of an IPv4 address written as IPv6 (RFC 4291)."""

SectionResult = tuple[int, int, list[tuple[int, int]], str]
"""(response code, first queue offset, runs, remark)"""


@dataclass(slots=True, eq=False)
class NativeSend:
    """One frame: the refused sections so far, and the positions of the good ones in the group.

    ``records_kept`` counts the records of good sections; ``positions`` are the places of those sections.
    """

    task: Task
    header: NativeAppendRequestHeader
    wait: bool
    sizes: memoryview
    records: memoryview
    records_kept: int
    size_bytes: int
    host: bytes
    half: bool
    refusals: dict[int, SectionResult]
    verdicts: dict[int, Refusal]
    positions: Sequence[int] = ()
    half_runs: dict[int, list[tuple[int, int]]] | None = None
    """For halves of transactions: a run for each record, by position; known once they are stored."""

    def shift(self, sections: int) -> None:
        """Move the positions behind ``sections`` sections of other runs."""
        self.positions = [position + sections for position in self.positions]

    def refuse(self, section: int, refusal: Refusal) -> None:
        """Refuse a section."""
        self.verdicts[section] = refusal
        self.refusals[section] = (int(refusal.code), -1, [], refusal.remark)
        self.records_kept -= self.header.sections[section][2]

    def encode(self, appended: Appended) -> Buffers:
        """Return the response after the append."""
        code, remark = appended.code, appended.remark
        offsets = appended.first_queue_offsets
        runs = appended.runs if self.half_runs is None else self.half_runs
        results: list[SectionResult] = [(code, offsets[at], runs[at], remark) for at in self.positions]
        if self.refusals:
            stored = iter(results)
            refusals = self.refusals
            results = [refusals[at] if at in refusals else next(stored) for at in range(len(self.header.sections))]
        return encode_answer(self.task.request, header=NativeAppendResponseHeader(appended.store_timestamp, results))

    def kinds_refused(self) -> list[Refusal]:
        """Return one refusal for each kind (cause and code) among the sections."""
        return list({(refusal.cause, refusal.code): refusal for refusal in self.verdicts.values()}.values())

    def encode_all_refused(self) -> Buffers:
        """Return the response of a frame without a good section: the refusal of its first one."""
        results = [self.refusals[at] for at in range(len(self.header.sections))]
        refusal = self.verdicts[0]
        header = NativeAppendResponseHeader(store_timestamp=0, results=results)
        return encode_answer(
            self.task.request, refusal.code, header=header, remark=refusal.remark, extra=refusal.extra()
        )


class NativeAppend:
    """Turns native-append requests into a group. Belongs to one worker thread at a time."""

    def __init__(self, rules: PlainRules, checks: SendChecks) -> None:
        self._checks = checks
        self._checker = PlainChecker(rules)
        self._host_bytes = host_bytes_of(rules.family)

    def plan(self, task: Task) -> NativeSend:
        """Split one frame and check its sections' topics; raises ``MessageIllegal`` for a malformed frame."""
        header: Any = task.request.header
        sections = header.sections
        if not 1 <= len(sections) <= SECTIONS_MAX:
            raise _illegal(f"{len(sections)} sections, not 1 to {SECTIONS_MAX}")
        body = memoryview(task.request.body)
        if len(sections) == 1:
            count = sections[0][2]
        else:
            count = 0
            for _, _, section_count in sections:
                if section_count < 1:
                    raise _illegal(f"a section of {section_count} records")
                count += section_count
        if count < 1:
            raise _illegal(f"a section of {count} records")
        sizes_end = 4 * count
        if sizes_end > len(body):
            raise _illegal(f"{count} records announced, but the body has {len(body)} bytes")
        sizes = body[:sizes_end]
        if count <= _SUM_SMALL_COUNT:
            total = sum(struct.unpack(f">{count}I", sizes))
        else:
            total = int(np.frombuffer(sizes, ">u4").sum(dtype=np.int64))
        if total != len(body) - sizes_end:
            raise _illegal(f"sizes add up to {total}, but {len(body) - sizes_end} bytes of records follow")
        host = task.connection.remote_host
        if len(host) != self._host_bytes:
            host = self._host_of(host)
        records, is_half = body[sizes_end:], task.request.code == RequestCode.NATIVE_HALF_APPEND
        size_bytes = len(records)
        send = NativeSend(task, header, header.wait, sizes, records, count, size_bytes, host, is_half, {}, {})
        check, session = self._checks.check, task.request.session
        for index, (topic, queue_id, _) in enumerate(sections):
            if queue_id < 0:
                send.refuse(index, _illegal_section(f"queue id {queue_id} is impossible"))
                continue
            verdict = check(topic, queue_id, session=session)
            if isinstance(verdict, Refusal):
                send.refuse(index, verdict)
        return send

    def _host_of(self, host: bytes) -> bytes:
        """Return a socket's host in the family of this broker's records."""
        if len(host) == HOST_V4_BYTES:
            return _V4_IN_V6 + host
        if len(host) == HOST_V6_BYTES and host.startswith(_V4_IN_V6):
            return host[12:]
        return bytes(self._host_bytes - 4) + host[-4:]  # an IPv6 peer of an IPv4 broker: only its port fits

    def check(self, sends: list[NativeSend], drain: Drain) -> SendBatch | None:
        """Check all records of ``sends`` at once; answer frames without a good section, return the others."""
        sections: list[GroupSection] = []
        records = 0
        owners: list[tuple[NativeSend, int]] = []
        sizes_parts: list[memoryview] = []
        record_parts: list[memoryview] = []
        for send in sends:
            refusals = send.refusals
            if not refusals:
                sizes_parts.append(send.sizes)
                record_parts.append(send.records)
            elif send.records_kept:
                _append_chosen(send, sizes_parts, record_parts)
            for index, (topic, queue_id, count) in enumerate(send.header.sections):
                if not refusals or index not in refusals:
                    sections.append(GroupSection(topic, queue_id, records, count))
                    records += count
                    owners.append((send, index))
        group: RecordGroup | None = None
        if sections:
            sizes_bytes = sizes_parts[0] if len(sizes_parts) == 1 else b"".join(sizes_parts)
            count = len(sizes_bytes) // 4
            sizes: NDArray[Any] | tuple[int, ...] = (
                struct.unpack(f">{count}I", sizes_bytes) if count < ALIKE_MIN else np.frombuffer(sizes_bytes, ">u4")
            )
            checked = check_plain(_gather(record_parts), sizes, sections, self._checker)
            group = checked.group
            for (send, index), error in zip(owners, checked.errors, strict=True):
                if error is not None:
                    send.refuse(index, _illegal_section(error))
        kept: list[NativeSend] = []
        position = 0
        for send in sends:
            good = len(send.header.sections) - len(send.refusals)
            if good:
                send.positions = range(position, position + good)
                position += good
                kept.append(send)
            else:
                drain.answer(send.task, send.encode_all_refused())
        if group is None:
            return None
        self._patch_hosts(group, kept)
        return SendBatch(list[PlannedSend](kept), group)

    def check_alone(self, send: NativeSend) -> RecordGroup:
        """Check the records of one frame, all or nothing, and write its born host into them.

        Raises ``MessageIllegal``, which names the first bad record.
        """
        sections = sections_of(send.header.sections)
        sizes: NDArray[Any] = np.frombuffer(send.sizes, ">u4")
        checked = check_plain(_gather([send.records]), sizes, sections, self._checker)
        for section, error in zip(sections, checked.errors, strict=True):
            if error is not None:
                raise _illegal(f"{section.topic} queue {section.queue_id}: {error}")
        group = checked.group
        assert group is not None
        self._patch_hosts(group, [send])
        return group

    def _patch_hosts(self, group: RecordGroup, sends: list[NativeSend]) -> None:
        """Write each frame's peer address into its records."""
        width = self._host_bytes
        if len(group) <= _SMALL_COUNT:
            view = group.buffer.data
            starts = iter(group.starts.tolist())
            for send in sends:
                for _ in range(send.records_kept):
                    at = next(starts) + BORN_HOST_AT
                    view[at : at + width] = send.host
            return
        hosts: NDArray[np.void] = np.frombuffer(b"".join([send.host for send in sends]), f"V{width}")
        if len(sends) > 1:
            hosts = np.repeat(hosts, [send.records_kept for send in sends])
        windows(group.buffer, width)[group.starts + BORN_HOST_AT] = hosts


def _append_chosen(send: NativeSend, sizes_parts: list[memoryview], record_parts: list[memoryview]) -> None:
    """Add the good sections of a frame that also has bad ones."""
    sizes = struct.unpack(f">{len(send.sizes) // 4}I", send.sizes)
    first = at = 0
    for index, (_, _, count) in enumerate(send.header.sections):
        end = at + sum(sizes[first : first + count])
        if index not in send.refusals:
            sizes_parts.append(send.sizes[4 * first : 4 * (first + count)])
            record_parts.append(send.records[at:end])
        first += count
        at = end


def _gather(parts: list[memoryview]) -> NDArray[np.uint8]:
    """Return private, writable memory with all parts back to back, in at most one copy.

    A single large frame is used in place: its body is writable memory of its own (``remoting.frame``), which has no
    other reader. A small body is ``bytes``.
    """
    if len(parts) == 1 and not parts[0].readonly:
        return np.frombuffer(parts[0], np.uint8)
    if sum(map(len, parts)) <= _JOIN_BYTES_MAX:
        return np.frombuffer(bytearray().join(parts), np.uint8)
    return np.concatenate([np.frombuffer(part, np.uint8) for part in parts])


def _illegal(why: str) -> MessageIllegal:
    return MessageIllegal("native append refused", why=why)


def _illegal_section(why: str) -> Refusal:
    return Refusal(int(ResponseCode.MESSAGE_ILLEGAL), why, Cause.BAD_REQUEST)
