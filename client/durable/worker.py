"""The thread that owns the retry store: group commit, limits, reopening after a fault.

Lives here: ``StoreWorker`` and its jobs. The event loop hands jobs over and gets each answer by one hop back; it never
waits for the store.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pocketmq.client.durable.entry import SEQ_TIME_SHIFT, Entry, KeptMessage, encode_kept
from pocketmq.client.durable.errors import (
    RetryStoreCorrupt,
    RetryStoreError,
    RetryStoreFull,
    RetryStoreLocked,
    RetryStoreRefused,
    RetryStoreUnreachable,
)
from pocketmq.client.durable.options import RetryOptions
from pocketmq.client.durable.ownership import Patience, StoreWait
from pocketmq.client.durable.store import Changes, RetryStore, Summary
from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.common.runner import LoopMailbox, Runner, Worker

GROUP_BYTES = 4 << 20
GROUP_ENTRIES = 4_000
"""At most so much goes into one write of the store."""
KEEP_ALIVE_SHARE = 3
"""A lease is renewed three times before it would run out."""

Answer = Callable[[Any, RetryStoreError | None], None]
"""Called in the event loop with the result of a job: (result, None) or (None, error)."""


@dataclass(slots=True)
class ToKeep:
    """A message on its way into the store. ``lane``: as in ``Entry``; ``pause_ms``: until its first resend."""

    message: KeptMessage
    lane: str
    pause_ms: int


@dataclass(slots=True)
class _Add:
    items: list[ToKeep]
    answer: Answer


@dataclass(slots=True)
class _Change:
    changes: Changes
    answer: Answer


@dataclass(slots=True)
class _Read:
    work: Callable[[RetryStore], Any]
    answer: Answer


class StoreWorker:
    """Uses one ``RetryStore`` in a thread of its own. ``count`` and ``size_bytes`` include given-up entries.

    ``opened(summary, note)``, ``failed(error)`` and ``waits(wait, error)`` are called in the event loop. After a fault
    not caused by a message the store is closed; jobs then fail at once, and every ``reopen_ms`` the worker tries to
    open it. While its owner is another process that may be dead, the worker tries more often, and calls ``waits``
    instead of ``failed``, about once a second. A corrupt store is repaired (or moved aside) at its next opening, at
    most once in ``REPAIR_GAP_MS``.
    """

    REPAIR_GAP_MS = 60_000

    def __init__(
        self,
        store: RetryStore,
        runner: Runner,
        mailbox: LoopMailbox,
        clock: Clock,
        log: EventLog,
        options: RetryOptions,
        *,
        opened: Callable[[Summary, str], None],
        failed: Callable[[RetryStoreError], None],
        waits: Callable[[StoreWait, RetryStoreError], None] | None = None,
    ) -> None:
        self.store = store
        self.summary = Summary()
        self.fault: RetryStoreError | None = RetryStoreUnreachable("retry store not used", why="it is not open yet")
        self._runner = runner
        self._mailbox = mailbox
        self._clock = clock
        self._log = log
        self._options = options
        self._keep_alive_ms = options.lease_ms / KEEP_ALIVE_SHARE
        self._opened = opened
        self._failed = failed
        self._waits = waits
        self._patience = Patience(store.name, clock, self._report_wait)
        self._jobs: deque[_Add | _Change | _Read] = deque()
        self._worker: Worker | None = None
        self._next_open_ns = 0
        self._renewed_ns = 0
        self._looked_ns = 0
        self._repaired_ns: int | None = None
        self._corrupt = False
        self._stopping = False
        self._closed: Callable[[], None] = _nothing
        self._in_doubt: dict[int, Entry] = {}
        """Entries whose removal failed, although the store may have removed them. The removal is repeated."""
        self._ended = threading.Event()

    # -- the event loop's side ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread; the first thing it does is to open the store."""
        self._worker = self._runner.start("pocketmq-retry-store", self.step)

    def add(self, items: list[ToKeep], answer: Answer) -> None:
        """Keep messages, all or none; the answer is the list of their entries, in the same order."""
        self._post(_Add(items, answer))

    def change(self, changes: Changes, answer: Answer) -> None:
        """Remove, move or give up entries."""
        self._post(_Change(changes, answer))

    def read(self, work: Callable[[RetryStore], Any], answer: Answer) -> None:
        """Call ``work(store)`` after all earlier jobs."""
        self._post(_Read(work, answer))

    def _post(self, job: _Add | _Change | _Read) -> None:
        if self._ended.is_set() or self._worker is None:
            self._mailbox.post(job.answer, None, _stopped())
            return
        self._jobs.append(job)
        self._worker.wake()

    def stop(self, closed: Callable[[], None]) -> None:
        """Finish the jobs handed over, then close the store and call ``closed`` in the event loop."""
        self._closed = closed
        self._stopping = True
        if self._worker is not None:
            self._worker.wake()

    def join(self) -> None:
        """End the thread, which has no more work."""
        if self._worker is not None:
            self._worker.stop()

    @property
    def ended(self) -> bool:
        """Whether the store is closed for good."""
        return self._ended.is_set()

    # -- the thread's side -------------------------------------------------------------------------------------

    def step(self) -> float | None:
        """Do all waiting jobs; return the ms until the next renewal of the ownership or attempt to open."""
        if self._ended.is_set():
            return None
        if self.fault is not None:
            self._try_open()
        while self._jobs:
            self._group()
        if self._stopping:
            self.store.close()
            self._ended.set()
            while self._jobs:  # came in between; the thread takes no further step
                self._mailbox.post(self._jobs.popleft().answer, None, _stopped())
            self._mailbox.post(self._closed)
            return None
        if self.fault is None:
            self._look_for_oldest()
        return self._keep_alive() if self.fault is None else self._until_open_ms()

    def _look_for_oldest(self) -> None:
        """Find out how old the oldest message is, at most once a second."""
        summary, now_ns = self.summary, self._clock.monotonic_ns()
        if not summary.count or now_ns - self._looked_ns < 1_000_000_000:
            return
        self._looked_ns = now_ns
        try:
            summary.oldest_seq = self.store.oldest_seq(summary.oldest_seq)
        except RetryStoreError as error:
            self._note(error)

    def _group(self) -> None:
        """Carry out the next job; consecutive additions and changes become one write."""
        job = self._jobs.popleft()
        if self.fault is not None:
            if isinstance(job, _Change):  # a repair may lose these entries
                self._doubt(job.changes)
            self._mailbox.post(job.answer, None, self.fault)
            return
        if isinstance(job, _Read):
            self._read(job)
            return
        group: list[tuple[_Add | _Change, Changes]] = []
        entries = size_bytes = 0
        while True:
            changes = self._prepare(job)
            if changes is not None:
                group.append((job, changes))
                entries += len(changes.added)
                size_bytes += sum(len(entry.payload) for entry in changes.added)
            if entries >= GROUP_ENTRIES or size_bytes >= GROUP_BYTES or not self._jobs:
                break
            following = self._jobs[0]
            if isinstance(following, _Read):
                break
            job = following
            self._jobs.popleft()
        self._write(group)

    def _prepare(self, job: "_Add | _Change") -> Changes | None:
        """Give new entries their numbers; refuse those over a limit."""
        if isinstance(job, _Change):
            return job.changes
        summary = self.summary
        now_ms = self._clock.now_ms()
        seq = max(summary.last_seq + 1, now_ms << SEQ_TIME_SHIFT)
        added: list[Entry] = []
        for number, item in enumerate(job.items):
            try:
                payload = encode_kept(item.message)
            except Exception as fault:  # invalid Unicode, for instance: one caller's fault, and its error
                refused = RetryStoreRefused("message not kept", why=f"it cannot be written: {fault}")
                self._mailbox.post(job.answer, None, refused)
                return None
            key, msg_id = item.message.order_key, item.message.uniq_key.decode("ascii", "replace")
            added.append(Entry(seq + number, now_ms + item.pause_ms, 0, item.lane, key, payload, msg_id))
        size_bytes = sum(entry.size_bytes for entry in added)
        why = ""
        if self._total_count() + len(added) > self._options.count_max:
            why = f"{self._total_count()} messages are in it, count_max is {self._options.count_max}"
        elif self._total_bytes() + size_bytes > self._options.size_bytes_max:
            why = f"{self._total_bytes()} bytes are in it, size_bytes_max is {self._options.size_bytes_max}"
        elif any(entry.lane for entry in added) and sum(map(len, summary.lanes.values())) >= self._options.keys_max:
            known = summary.lanes
            if any(entry.order_key not in known.get(entry.lane, ()) for entry in added):
                why = f"messages of {self._options.keys_max} keys wait, keys_max"
        if why:
            error = RetryStoreFull("retry store is full", why=why, hint="wait until it drains, or raise the limit")
            self._mailbox.post(job.answer, None, error)
            return None
        summary.last_seq = seq + len(added) - 1
        for entry in added:  # counted now: later jobs of the same write see it
            summary.add(entry.seq, entry.size_bytes, entry.lane, entry.order_key)
        return Changes(added=added)

    def _total_count(self) -> int:
        return self.summary.count + self.summary.given_up_count

    def _total_bytes(self) -> int:
        return self.summary.size_bytes + self.summary.given_up_bytes

    def _write(self, group: "list[tuple[_Add | _Change, Changes]]") -> None:
        if not group:
            return
        together = Changes()
        for _, changes in group:
            together.merge(changes)
        error = self._attempt(together)
        # one job is refused, or finds no room: removals must go on, they make room
        if isinstance(error, RetryStoreRefused | RetryStoreFull) and len(group) > 1:
            for job, changes in group:
                self._settle(job, changes, self._attempt(changes))
            return
        for job, changes in group:
            self._settle(job, changes, error)

    def _attempt(self, changes: Changes) -> RetryStoreError | None:
        try:
            self.store.write(changes)
        except RetryStoreError as error:
            self._note(error)
            return error
        except Exception as error:  # a store that breaks its contract must not end the thread and leave callers waiting
            fault = RetryStoreUnreachable("retry store not written", why=f"{type(error).__name__}: {error}")
            self._note(fault)
            return fault
        self._renewed_ns = self._clock.monotonic_ns()
        return None

    def _settle(self, job: "_Add | _Change", changes: Changes, error: RetryStoreError | None) -> None:
        if error is not None:
            for entry in changes.added:
                self._uncount(entry)
            if self.fault is not None:
                self._doubt(changes)
            self._mailbox.post(job.answer, None, error)
            return
        for entry in changes.removed:
            self._in_doubt.pop(entry.seq, None)
            self._uncount(entry)
        for entry, _ in changes.given_up:
            self._in_doubt.pop(entry.seq, None)
            self._uncount(entry)
            self.summary.add_given_up(entry.seq, entry.size_bytes)
        self._mailbox.post(job.answer, changes.added, None)

    def _uncount(self, entry: Entry) -> None:
        summary = self.summary
        summary.count -= 1
        summary.size_bytes -= entry.size_bytes
        if not summary.count:
            summary.oldest_seq = 0
        if entry.lane:
            keys = summary.lanes.get(entry.lane, {})
            left = keys.get(entry.order_key, 0) - 1
            if left > 0:
                keys[entry.order_key] = left
            else:
                keys.pop(entry.order_key, None)
                if not keys:
                    summary.lanes.pop(entry.lane, None)

    def _read(self, job: _Read) -> None:
        try:
            result = job.work(self.store)
        except RetryStoreError as error:
            self._note(error)
            self._mailbox.post(job.answer, None, error)
        except Exception as error:
            fault = RetryStoreUnreachable("retry store not read", why=f"{type(error).__name__}: {error}")
            self._note(fault)
            self._mailbox.post(job.answer, None, fault)
        else:
            self._mailbox.post(job.answer, result, None)

    def purged(self, entries: list[Entry]) -> None:
        """Take given-up entries out of the counts; called inside a ``read`` job that purged them."""
        for entry in entries:
            self.summary.given_up_count -= 1
            self.summary.given_up_bytes -= entry.size_bytes

    # -- faults ------------------------------------------------------------------------------------------------

    def _note(self, error: RetryStoreError) -> None:
        """Close the store after a fault not caused by a message."""
        if not isinstance(error, RetryStoreLocked | RetryStoreCorrupt | RetryStoreUnreachable):
            return
        self._corrupt = isinstance(error, RetryStoreCorrupt)
        self.fault = error
        self._patience.end()
        self.store.close()
        self._next_open_ns = self._clock.monotonic_ns() + self._options.reopen_ms * 1_000_000
        self._log.error(
            "retry_store_failed", store=self.store.name, error=str(error), reopen_ms=self._options.reopen_ms
        )
        self._mailbox.post(self._failed, error)

    def _try_open(self) -> None:
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._next_open_ns:
            return
        note = ""
        try:
            if self._corrupt:
                note = self._repair(now_ns)
            self.summary = self._open()
            self._count_doubtful(self.summary)
        except RetryStoreError as error:
            if isinstance(error, RetryStoreCorrupt) and not self._corrupt:
                self._corrupt = True
                self._log.error("retry_store_corrupt", store=self.store.name, error=str(error))
                self._try_open()
                return
            if isinstance(error, RetryStoreLocked) and self._wait(error):
                return
            self._note(error)
            return
        self._patience.end()
        self.fault, self._corrupt = None, False
        self._renewed_ns = now_ns
        if note:
            self._log.error("retry_store_repaired", store=self.store.name, result=note)
        self._log.info(
            "retry_store_opened",
            store=self.store.name,
            waiting=self.summary.count,
            waiting_bytes=self.summary.size_bytes,
            given_up=self.summary.given_up_count,
        )
        # a copy: the thread's own summary goes on changing
        lanes = {lane: dict(keys) for lane, keys in self.summary.lanes.items()}
        self._mailbox.post(self._opened, Summary(self.summary.count, self.summary.size_bytes, lanes=lanes), note)

    def _wait(self, error: RetryStoreLocked) -> bool:
        """Come back soon to a store whose owner may be dead; return False if there is nothing to wait for."""
        self.fault = error
        pause_ms = self._patience.pause_ms(error)
        if not pause_ms:
            return False
        self.store.close()
        self._next_open_ns = self._clock.monotonic_ns() + int(pause_ms * 1_000_000)
        return True

    def _report_wait(self, wait: StoreWait) -> None:
        if self._waits is not None:
            self._mailbox.post(self._waits, wait, self.fault)

    def _open(self) -> Summary:
        try:
            return self.store.open()
        except RetryStoreError:
            raise
        except Exception as error:
            self.store.close()
            raise RetryStoreUnreachable("retry store not opened", why=f"{type(error).__name__}: {error}") from error

    def _doubt(self, changes: Changes) -> None:
        self._in_doubt.update((entry.seq, entry) for entry in changes.removed)
        self._in_doubt.update((entry.seq, entry) for entry, _ in changes.given_up)

    def _count_doubtful(self, summary: Summary) -> None:
        """Count entries that the store removed without confirming it: until then they count as waiting.

        The resender repeats the removal, and only then uncounts the message; otherwise it would be uncounted twice, and
        a later message of its key would overtake waiting ones.
        """
        for entry in self._in_doubt.values():
            if entry.lane:
                found = self.store.lane(entry.lane, entry.seq, 1, 1)
            else:
                found = self.store.due((entry.due_ms, entry.seq), entry.due_ms, 1, 1)
            if not found or found[0].seq != entry.seq:
                summary.add(entry.seq, entry.size_bytes, entry.lane, entry.order_key)
                given_up = self.store.given_up(entry.seq, 1)
                if given_up and given_up[0][0].seq == entry.seq:
                    summary.given_up_count -= 1
                    summary.given_up_bytes -= entry.size_bytes

    def _repair(self, now_ns: int) -> str:
        if self._repaired_ns is not None and now_ns - self._repaired_ns < self.REPAIR_GAP_MS * 1_000_000:
            raise RetryStoreCorrupt(
                "retry store not opened", why="it is corrupt again, soon after a repair", hint="check its disk"
            )
        self._repaired_ns = now_ns
        return self.store.repair()

    def _until_open_ms(self) -> float:
        return max((self._next_open_ns - self._clock.monotonic_ns()) / 1e6, 1.0)

    def _keep_alive(self) -> float:
        now_ns = self._clock.monotonic_ns()
        left_ms = self._keep_alive_ms - (now_ns - self._renewed_ns) / 1e6
        if left_ms > 0:
            return left_ms
        self._renewed_ns = now_ns
        try:
            self.store.keep_alive()
        except RetryStoreError as error:
            self._note(error)
            return self._until_open_ms()
        return self._keep_alive_ms


def _stopped() -> RetryStoreUnreachable:
    return RetryStoreUnreachable("retry store not used", why="the producer is stopped")


def _nothing() -> None:
    """Do nothing: no caller waits for the end."""
