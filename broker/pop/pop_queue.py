"""One queue, as one group pops it: which messages are in flight, and until when.

Lives here: ``PopQueue``. It does no I/O and has no clock: its input is messages read, handles and the time.
"""

import enum
from array import array
from typing import Final

BUCKET_MS: Final = 100
"""Messages become visible again in steps of this: up to so much later than promised, never earlier."""
INVISIBLE_BITS: Final = 26
INVISIBLE_MASK: Final = (1 << INVISIBLE_BITS) - 1
WALK_MAX: Final = 64
HORIZON_MS: Final = 60_000
"""A message whose time ends later is looked at again after this: so a queue has a few hundred buckets at most."""
SPARE_ENTRIES: Final = 1_000


class Settled(enum.Enum):
    """What became of an acknowledgement, or of a change of the invisible time."""

    DONE = "done"
    ALREADY = "already acknowledged"
    """By this handle: its time is not over, and the message is not in flight."""
    EXPIRED = "its time is over, or the message has a newer handle"
    UNKNOWN = "no such message was given out"


def pack(pop_time: int, invisible_ms: int) -> int:
    """Return both times of a delivery in one number: a tuple would take three times the memory."""
    return pop_time << INVISIBLE_BITS | invisible_ms


def unpack(times: int) -> tuple[int, int]:
    """Return (pop time, invisible ms)."""
    return times >> INVISIBLE_BITS, times & INVISIBLE_MASK


class PopQueue:
    """The messages of a queue that a group has popped and not acknowledged.

    ``unacked`` maps offset → packed times, in ascending order of the offsets; negative: its time is over, and a copy
    for the retry topic is being made. Every other offset from ``low`` to ``next_offset`` is acknowledged, or was never
    wanted. Holds: ``low`` is the lowest key of ``unacked``, or ``next_offset`` when it is empty; ``low`` is committed.
    ``committed``: what this object last committed; another value in the table of offsets came from somebody else.
    ``buckets``: number of the step → offsets that may become visible then: each message waits in one at or before its
    time. Changes leave stale entries behind; when there are too many the buckets are made again.

    About 170 bytes for each message in flight.
    """

    __slots__ = (
        "buckets",
        "busy",
        "committed",
        "entries",
        "group",
        "low",
        "next_offset",
        "queue_id",
        "topic",
        "unacked",
    )

    def __init__(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self.group = group
        self.topic = topic
        self.queue_id = queue_id
        self.next_offset = offset
        self.low = offset
        self.committed = offset
        self.busy = False
        """Whether somebody reads the queue right now."""
        self.unacked: dict[int, int] = {}
        self.buckets: dict[int, array[int]] = {}
        self.entries = 0
        """Offsets in all buckets."""

    def take(self, offsets: list[int], next_offset: int, pop_time: int, invisible_ms: int) -> list[int]:
        """Note that these messages are given out, and that the queue is read up to ``next_offset``.

        Return the numbers of new buckets, as all methods do that change times: the caller has to look at each when its
        time comes.
        """
        unacked = self.unacked
        if not unacked:
            self.low = offsets[0] if offsets else next_offset
        self.next_offset = next_offset
        if not offsets:
            return []
        times = pack(pop_time, invisible_ms)
        for offset in offsets:
            unacked[offset] = times
        return self._wait(offsets, pop_time + invisible_ms, pop_time)

    def settle(self, offset: int, pop_time: int, invisible_ms: int, now_ms: int) -> Settled:
        """Acknowledge one message by the fields of its handle."""
        times = self.unacked.get(offset)
        if times is None or times != pack(pop_time, invisible_ms):
            return self._refused(offset, times, pop_time + invisible_ms, now_ms)
        del self.unacked[offset]
        if offset == self.low:
            self._advance()
        return Settled.DONE

    def change(
        self, offset: int, pop_time: int, invisible_ms: int, now_ms: int, new_invisible_ms: int
    ) -> tuple[Settled, list[int]]:
        """Let a message become visible ``new_invisible_ms`` from now; return also new buckets.

        Its handle is another one from now on: (``now_ms``, ``new_invisible_ms``).
        """
        times = self.unacked.get(offset)
        if times is None or times != pack(pop_time, invisible_ms):
            return self._refused(offset, times, pop_time + invisible_ms, now_ms), []
        self.unacked[offset] = pack(now_ms, new_invisible_ms)
        visible_ms = now_ms + new_invisible_ms
        if visible_ms >= pop_time + invisible_ms:  # the bucket that it waits in comes before
            return Settled.DONE, []
        return Settled.DONE, self._wait([offset], visible_ms, now_ms)

    def _refused(self, offset: int, times: int | None, expires_ms: int, now_ms: int) -> Settled:
        if offset >= self.next_offset:
            return Settled.UNKNOWN
        return Settled.ALREADY if times is None and now_ms < expires_ms else Settled.EXPIRED

    def due(self, bucket: int) -> tuple[list[tuple[int, int]], list[int]]:
        """Return the (offset, pop time) of each message whose time ends with a bucket, marked as being copied, and new
        buckets, of those that wait longer."""
        found: list[tuple[int, int]] = []
        later: dict[int, int] = {}
        unacked = self.unacked
        entries = self.buckets.pop(bucket, ())
        self.entries -= len(entries)
        now_ms = bucket * BUCKET_MS
        for offset in entries:
            times = unacked.get(offset)
            if times is None or times < 0:
                continue
            pop_time, invisible_ms = unpack(times)
            if pop_time + invisible_ms > now_ms:
                later[offset] = pop_time + invisible_ms
                continue
            unacked[offset] = -times
            found.append((offset, pop_time))
        fresh: list[int] = []
        for offset, visible_ms in later.items():
            fresh += self._wait([offset], visible_ms, now_ms)
        return found, fresh

    def copied(self, offsets: list[int]) -> None:
        """Forget messages whose copies are safe; one that is not being copied any more stays as it is."""
        unacked = self.unacked
        for offset in offsets:
            if unacked.get(offset, 0) < 0:
                del unacked[offset]
        if self.low not in unacked:
            self._advance()

    def put_back(self, offsets: list[int], visible_ms: int) -> list[int]:
        """Let messages that could not be copied wait until ``visible_ms``, which is soon; return new buckets. Their
        handles are good until then."""
        unacked = self.unacked
        back = [offset for offset in offsets if unacked.get(offset, 0) < 0]
        for offset in back:
            unacked[offset] = -unacked[offset]
        return self._wait(back, visible_ms, visible_ms) if back else []

    def moved(self, offset: int) -> None:
        """Follow a commit that came from somebody else: a consumer that pulls, or an administrator.

        What lies below is consumed. A commit below what was committed here is a step back: all from there on is given
        out again, and no handle of before counts.
        """
        if offset < self.committed:
            self.reset(offset)
        else:
            for known in [known for known in self.unacked if known < offset]:
                del self.unacked[known]
            self.next_offset = max(self.next_offset, offset)
            self._advance()
        self.committed = offset

    def reset(self, offset: int) -> None:
        """Give out everything from ``offset`` on again."""
        self.unacked.clear()
        self.buckets.clear()
        self.entries = 0
        self.next_offset = self.low = self.committed = offset

    def restore(self, in_flight: dict[int, int], now_ms: int) -> list[int]:
        """Take over messages in flight, offset → packed times, ascending; return new buckets."""
        fresh: list[int] = []
        for offset, times in in_flight.items():
            self.unacked[offset] = times
            pop_time, invisible_ms = unpack(times)
            fresh += self._wait([offset], pop_time + invisible_ms, now_ms)
        self._advance()
        return fresh

    def _wait(self, offsets: list[int], visible_ms: int, now_ms: int) -> list[int]:
        self.entries += len(offsets)
        if self.entries > 2 * len(self.unacked) + SPARE_ENTRIES:
            return self._renew(now_ms)
        number = -(-min(visible_ms, now_ms + HORIZON_MS) // BUCKET_MS)
        bucket = self.buckets.get(number)
        if bucket is None:
            self.buckets[number] = array("q", offsets)
            return [number]
        bucket.extend(offsets)
        return []

    def _renew(self, now_ms: int) -> list[int]:
        """Make the buckets again, without stale entries; return those that were not there."""
        old, self.buckets, self.entries = self.buckets, {}, 0
        for offset, times in self.unacked.items():
            if times >= 0:
                pop_time, invisible_ms = unpack(times)
                number = -(-min(pop_time + invisible_ms, now_ms + HORIZON_MS) // BUCKET_MS)
                self.buckets.setdefault(number, array("q")).append(offset)
                self.entries += 1
        return [number for number in self.buckets if number not in old]

    def _advance(self) -> None:
        """Find the lowest message in flight: usually it is one of the next few."""
        unacked = self.unacked
        if not unacked:
            self.low = self.next_offset
            return
        for offset in range(self.low, self.low + WALK_MAX):
            if offset in unacked:
                self.low = offset
                return
        self.low = next(iter(unacked))
