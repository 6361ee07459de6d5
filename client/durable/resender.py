"""Resends waiting messages: on time, in order where asked, and as fast as the producer sends.

Lives here: ``Resender``: reads due entries into a bounded window, makes sections of them, settles each message.

Messages without an order are read by due time and sent in sections of one topic, several at once. Messages with an
order wait in lanes; of each lane one section is in flight. An entry leaves the store only after its outcome is known:
after a crash in between it is read again.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from pocketmq.client.connection.instance import TaskSet
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.connection.route import TopicRoute
from pocketmq.client.durable.entry import Entry, KeptMessage, decode_kept, queue_of
from pocketmq.client.durable.errors import EntryUnreadable, GivenUpError, RetryStoreError
from pocketmq.client.durable.options import RetryOptions
from pocketmq.client.durable.policy import DELAYED, PLAIN, RetryRule, rule_for
from pocketmq.client.durable.rows import KeptRows, RecordBuilders
from pocketmq.client.durable.store import DUE_MS_MAX, Changes, RetryStore
from pocketmq.client.durable.worker import StoreWorker
from pocketmq.client.errors import NotStarted, SendFailed
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.producer.selectors import select_by_hash
from pocketmq.client.producer.send_port import SendPort
from pocketmq.client.sender.section import FRAME_BYTES_TARGET
from pocketmq.common.errors import MessageIllegal, PocketMQError, Stored
from pocketmq.remoting.errors import AuthenticationFailed

READ_COUNT = 2_000
"""Entries read from the store at once."""
IDLE_MS = 60_000
ROUND_GAP_MS = 1_000
"""Between two rounds that try everything before its due time because a topic answers again."""
CLOCK_SLACK_MS = 1_000
RESULTS_KEPT = 10_000
_NO_RULE = RetryRule()


class Owner(Protocol):
    """The component that the resender reports to."""

    def key_queue(self, entry: Entry, topic: str, choose: Callable[[], MessageQueue]) -> MessageQueue:
        """Return the queue of an ordered message."""
        ...

    def left(self, entry: Entry, message: KeptMessage | None, result: "Receipt | PocketMQError") -> None:
        """Handle a message that has left the store."""
        ...


@dataclass(slots=True)
class _Item:
    """A message that is about to be resent. ``result``: its outcome; None: it is tried again later."""

    entry: Entry
    kept: KeptMessage
    rule: RetryRule
    given_up: str = ""
    result: "Receipt | PocketMQError | None" = None
    why: str = ""


@dataclass(slots=True)
class _LaneState:
    due_ms: int
    failures: int = 0
    running: bool = False
    dirty: bool = False
    """An entry was added since the last read."""
    next_seq: int = 0
    """No entry before it waits; the next read starts here."""


class Resender:
    """Resends for one producer, in its event loop, from ``start`` to ``stop``."""

    def __init__(self, port: SendPort, worker: StoreWorker, options: RetryOptions, owner: Owner) -> None:
        self._port = port
        self._worker = worker
        self._options = options
        self._owner = owner
        self._tasks = TaskSet(port.supervisor)
        self._wake = asyncio.Event()
        self._lanes: dict[str, _LaneState] = {}
        self._taken: set[int] = set()
        self._taken_bytes = 0
        self._from: tuple[int, int] = (0, 0)
        self._low: tuple[int, int] = (0, 0)
        """The first position added since the current read began."""
        self._round_asked = self._in_round = False
        """A round tries everything once; it begins with the next look, so that none asked for during a look is lost."""
        self._last_round_ms = self._checked_ms = 0
        self._failing: set[str] = set()
        self._builders = RecordBuilders()
        self._sections: asyncio.Semaphore = asyncio.Semaphore(options.resend_sections_max)
        self._running = False
        self._looking: asyncio.Task[Any]
        self.resent = 0
        """Resends of messages; each try counts."""

    # -- life --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to resend due messages."""
        self._running = True
        self._looking = self._tasks.keep(self._run, "pocketmq-resend")

    async def stop(self, timeout_s: float) -> None:
        """Resend nothing more; wait for what is in flight. The rest stays in the store for the next producer."""
        if self._running:
            self._running = False
            self._looking.cancel()
            await self._tasks.wait(timeout_s)
        await self._tasks.cancel()

    def opened(self, lanes: Iterable[str]) -> None:
        """Start over: the store was opened. Everything is tried once: the due times may come from another clock."""
        self._from = (0, 0)
        self._round_asked = True
        now_ms = self._port.clock.now_ms()
        for lane in lanes:
            state = self._lanes.setdefault(lane, _LaneState(now_ms))
            state.dirty, state.next_seq = True, 0
        self._wake.set()

    def resend_now(self) -> None:
        """Try everything once before its due time."""
        self._round_asked, self._last_round_ms = True, self._port.clock.now_ms()
        self._wake.set()

    def added(self, entries: list[Entry]) -> None:
        """Take note of new entries in the store."""
        for entry in entries:
            if entry.lane:
                state = self._lanes.get(entry.lane)
                if state is None:
                    self._lanes[entry.lane] = _LaneState(entry.due_ms, dirty=True)
                else:
                    state.dirty = True
            else:
                self._lower(entry.due_ms, entry.seq)
        self._wake.set()

    def _lower(self, due_ms: int, seq: int) -> None:
        """Let the next read begin no later than here."""
        self._from = min(self._from, (due_ms, seq))
        self._low = min(self._low, (due_ms, seq))

    @property
    def taken(self) -> int:
        """Messages in memory that are being resent."""
        return len(self._taken)

    # -- when --------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                wait_ms = await self._start_due()
            except RetryStoreError:
                wait_ms = float(self._options.reopen_ms)  # the thread reopens it and logs that
            try:
                async with asyncio.timeout(max(wait_ms, 1.0) / 1000):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _start_due(self) -> float:
        """Start due resends; return the ms until the next ones."""
        now_ms = self._port.clock.now_ms()
        if now_ms < self._checked_ms - CLOCK_SLACK_MS:  # the clock was set back: nothing would be due for that long
            self.resend_now()
        self._checked_ms = now_ms
        if self._round_asked:
            self._round_asked, self._in_round = False, True
        wait_ms = float(IDLE_MS)
        for lane, state in list(self._lanes.items()):
            if state.running:
                continue
            if state.due_ms <= now_ms or self._in_round:
                state.running = True
                self._tasks.spawn(self._run_lane(lane, state), "pocketmq-resend-lane")
            else:
                wait_ms = min(wait_ms, state.due_ms - now_ms)
        until_ms = DUE_MS_MAX if self._in_round else now_ms
        while self._taken_bytes < self._options.resend_bytes_max:
            start, self._low = self._from, (DUE_MS_MAX, 0)
            entries: list[Entry] = await self._read(partial(_due, start=start, until_ms=until_ms))
            if not entries:
                self._in_round = False
                first_ms: int | None = await self._read(lambda store: store.first_due_ms(self._from))
                if first_ms is not None:
                    wait_ms = min(wait_ms, max(first_ms - self._port.clock.now_ms(), 1))
                return wait_ms
            self._from = min((entries[-1].due_ms, entries[-1].seq + 1), self._low)
            fresh = [entry for entry in entries if entry.seq not in self._taken]
            for entry in fresh:
                self._taken.add(entry.seq)
                self._taken_bytes += len(entry.payload)
            for group in _groups(self._opened_items(fresh)):
                self._tasks.spawn(self._run_group(group), "pocketmq-resend-section")
            await asyncio.sleep(0)
        return wait_ms  # woken when there is room

    async def _read(self, work: Callable[[RetryStore], Any]) -> Any:
        return await ask(lambda answer: self._worker.read(work, answer))

    # -- without an order --------------------------------------------------------------------------------------

    def _opened_items(self, entries: list[Entry]) -> list[_Item]:
        """Decode entries. An unreadable or exhausted one is marked as given up and settled with the others."""
        items: list[_Item] = []
        now_ms = self._port.clock.now_ms()
        rules: dict[tuple[str, str], RetryRule] = {}
        for entry in entries:
            try:
                kept = decode_kept(entry.payload)
            except EntryUnreadable as error:
                items.append(_Item(entry, KeptMessage(topic="", body=b"", uniq_key=b""), _NO_RULE, str(error)))
                continue
            name = (kept.topic, DELAYED if kept.delay_time_level or kept.deliver_time_ms is not None else PLAIN)
            rule = rules.get(name)
            if rule is None:  # kept under earlier rules: resent all the same
                rule = rules[name] = rule_for(self._options.rules, *name) or _NO_RULE
            items.append(_Item(entry, kept, rule, rule.exhausted(entry.attempts, entry.kept_ms, now_ms)))
        return items

    async def _run_group(self, group: list[_Item]) -> None:
        try:
            async with self._sections:
                if not self._running:
                    return
                await self._send_group(group)
            await self._settle(group)
        except BaseException:
            for item in group:  # no outcome is written: they are read again
                self._lower(item.entry.due_ms, item.entry.seq)
            raise
        finally:
            for item in group:
                self._taken.discard(item.entry.seq)
                self._taken_bytes -= len(item.entry.payload)
            self._wake.set()

    async def _send_group(self, group: list[_Item]) -> None:
        """Send messages of one topic and kind that may go to any queue, or all to one."""
        items = [item for item in group if not item.given_up]
        if not items:
            return
        kept = items[0].kept
        try:
            route = await self._port.route(kept.topic)
        except PocketMQError as error:
            self._failed(items, error)
            return
        parts: dict[MessageQueue | None, list[_Item]] = {}
        for item in items:
            parts.setdefault(self._queue_without_order(item.kept, route), []).append(item)
        for queue, part in parts.items():
            await self._send(part, queue or self._port.any_queue(route), may_move=queue is None)

    @staticmethod
    def _queue_without_order(kept: KeptMessage, route: TopicRoute) -> MessageQueue | None:
        """Return the chosen queue; if that is gone, choose again by the key."""
        queue = kept.queue
        if kept.sharding_key and (queue is None or queue not in route.write_queues):
            return select_by_hash(kept.sharding_key, route.write_queues)
        return queue

    # -- in order ----------------------------------------------------------------------------------------------

    async def _run_lane(self, lane: str, state: _LaneState) -> None:
        """Resend the entries of a lane in order until it is empty, or a section fails."""
        try:
            while self._running:
                state.dirty = False
                entries: list[Entry] = await self._read(partial(_lane_from, lane=lane, start_seq=state.next_seq))
                if not entries:
                    if state.dirty:
                        continue
                    del self._lanes[lane]
                    return
                batch = _uniform(self._opened_items(entries))
                async with self._sections:
                    if not self._running:
                        return
                    await self._send_lane(lane, batch)
                await self._settle(batch)
                left = [item for item in batch if item.result is None and not item.given_up]
                if left:
                    state.next_seq = left[0].entry.seq
                    state.failures += 1
                    rule = batch[0].rule
                    state.due_ms = self._port.clock.now_ms() + rule.pause_ms(state.failures - 1, self._port.random)
                    return
                state.failures = 0
                state.next_seq = batch[-1].entry.seq + 1
        except RetryStoreError:
            state.due_ms = self._port.clock.now_ms() + self._options.reopen_ms
        finally:
            state.running = False
            self._wake.set()

    async def _send_lane(self, lane: str, batch: list[_Item]) -> None:
        items = [item for item in batch if not item.given_up]
        if not items:
            return
        try:
            fixed = queue_of(lane)
            route = await self._port.route(fixed.topic)
        except PocketMQError as error:
            self._failed(items, error)
            return
        parts: dict[MessageQueue, list[_Item]] = {}
        for item in items:
            key = item.kept.sharding_key or ""
            choose = partial(select_by_hash, key, route.write_queues)
            queue = self._owner.key_queue(item.entry, fixed.topic, choose)
            parts.setdefault(queue, []).append(item)
        await asyncio.gather(*(self._send(part, queue, may_move=False) for queue, part in parts.items()))

    # -- one section -------------------------------------------------------------------------------------------

    async def _send(self, items: list[_Item], queue: MessageQueue, *, may_move: bool) -> None:
        """Send items as one section; a message that a broker refuses for good is found by halving."""
        self.resent += len(items)
        first = items[0]
        try:
            sent = self._port.send(
                KeptRows(
                    [item.kept for item in items], self._builders, sum([len(item.entry.payload) for item in items])
                ),
                queue,
                plain=first.kept.plain,
                wait=first.kept.wait_store_msg_ok,
                may_move=may_move,
                uniq_keys=[item.kept.uniq_key for item in items],
            )
            receipts = await asyncio.shield(sent)  # the section itself goes on when the waiter is cancelled
        except PocketMQError as error:
            if error.stored is Stored.YES:
                for item in items:
                    item.result = error  # a broker has it, but could not say where
                return
            refused = isinstance(error, AuthenticationFailed)  # the client, and not the message
            if not refused and is_permanent(error, self._port.retry_response_codes):
                if len(items) > 1:
                    half = len(items) // 2
                    await self._send(items[:half], queue, may_move=may_move)
                    await self._send(items[half:], queue, may_move=may_move)
                else:
                    first.given_up = str(error)
                return
            self._failed(items, error)
            return
        for item, receipt in zip(items, receipts, strict=True):
            item.result = receipt
        topic = first.kept.topic
        if topic in self._failing:
            self._failing.discard(topic)
            now_ms = self._port.clock.now_ms()
            if now_ms - self._last_round_ms >= ROUND_GAP_MS:  # it answers again: skip the pauses
                self._round_asked, self._last_round_ms = True, now_ms
                self._wake.set()

    def _failed(self, items: list[_Item], error: PocketMQError) -> None:
        for item in items:
            item.why = str(error)
        if isinstance(error, NotStarted):
            raise asyncio.CancelledError  # the producer stops: no outcome is known, none is written
        if len(self._failing) >= RESULTS_KEPT:
            self._failing.clear()
        topic = items[0].kept.topic
        self._failing.add(topic)
        self._port.instance.invalidate_route(topic)  # its broker may be back, but missing in our route
        self._in_round = False

    # -- afterwards --------------------------------------------------------------------------------------------

    async def _settle(self, items: list[_Item]) -> None:
        """Write the outcome of messages to the store, then report it to their callers."""
        changes = Changes()
        now_ms = self._port.clock.now_ms()
        failed = 0
        for item in items:
            entry = item.entry
            if item.result is None and not item.given_up:
                attempts = entry.attempts + 1
                item.given_up = item.rule.exhausted(attempts, entry.kept_ms, now_ms)
                if not item.given_up:
                    failed += 1
                    due_ms = 0 if entry.lane else now_ms + item.rule.pause_ms(attempts, self._port.random)
                    changes.moved.append((entry, due_ms, attempts))
                    continue
                item.given_up = f"{item.given_up}; last: {item.why}"
            if item.given_up and not self._taken_over(item):
                changes.given_up.append((entry, item.given_up))
            else:
                changes.removed.append(entry)
        await self._write(changes)
        for entry, due_ms, _ in changes.moved:
            if not entry.lane:
                self._lower(due_ms, entry.seq)
        for item in items:
            if item.given_up:
                self._port.log.warning(
                    "retry_given_up",
                    topic=item.kept.topic,
                    msg_id=item.kept.uniq_key.decode("ascii", "replace"),
                    attempts=item.entry.attempts,
                    why=item.given_up,
                )
                gone = GivenUpError(
                    "message given up", why=item.given_up, hint="see pocketmq retry-store list --given-up"
                )
                self._owner.left(item.entry, item.kept, gone)
            elif item.result is not None:
                self._owner.left(item.entry, item.kept, item.result)
        if failed:
            self._port.log.info("resend_failed", count=failed, topic=items[0].kept.topic, why=items[0].why)

    async def _write(self, changes: Changes) -> None:
        """Write until it succeeds: messages stay taken, so none is resent because its removal failed."""
        while changes:
            try:
                await ask(lambda answer: self._worker.change(changes, answer))
                return
            except RetryStoreError:
                if self._worker.ended:
                    raise asyncio.CancelledError from None
                await asyncio.sleep(self._options.reopen_ms / 1000)

    def _taken_over(self, item: _Item) -> bool:
        callback = self._options.on_given_up
        if callback is None or not item.kept.topic:
            return False
        try:
            return callback(item.kept, item.given_up) is True
        except Exception as error:  # the application's fault must not lose its message
            self._port.log.error("on_given_up_raised", error=f"{type(error).__name__}: {error}")
            return False


def is_permanent(error: BaseException, retry_response_codes: set[int]) -> bool:
    """Return whether sending the same message again cannot help."""
    if not isinstance(error, PocketMQError):
        return True
    if error.stored is Stored.YES:
        return True
    if isinstance(error, NotStarted):
        return False
    if isinstance(error, SendFailed) and error.attempts:
        last = error.attempts[-1]
        return last.phase == "answer" and last.answer_code not in retry_response_codes
    return isinstance(error, MessageIllegal) or not error.retriable


async def ask(job: "Callable[[Callable[[Any, RetryStoreError | None], None]], None]") -> Any:
    """Hand a job to the store's thread and wait for its answer."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answer(result: Any, error: RetryStoreError | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    job(answer)
    return await future


def _due(store: RetryStore, *, start: tuple[int, int], until_ms: int) -> list[Entry]:
    return store.due(start, until_ms, READ_COUNT, FRAME_BYTES_TARGET)


def _lane_from(store: RetryStore, *, lane: str, start_seq: int) -> list[Entry]:
    return store.lane(lane, start_seq, READ_COUNT, FRAME_BYTES_TARGET)


def _groups(items: list[_Item]) -> list[list[_Item]]:
    """Sort items into sections: one topic, one kind, one way of waiting, about a frame's bytes; delayed ones alone."""
    groups: list[list[_Item]] = []
    open_groups: dict[tuple[str, bool, bool], tuple[list[_Item], int]] = {}
    name: tuple[str, bool, bool] | None = None
    group: list[_Item] = []
    size_bytes = 0
    for item in items:
        kept = item.kept
        if kept.delay_time_level or kept.deliver_time_ms is not None:
            groups.append([item])
            continue
        its_name = (kept.topic, kept.wait_store_msg_ok, kept.plain)
        if its_name != name:  # neighbours are mostly of one kind
            if name is not None:
                open_groups[name] = (group, size_bytes)
            name = its_name
            group, size_bytes = open_groups.get(name, ([], FRAME_BYTES_TARGET))
        size_bytes += len(item.entry.payload)
        if size_bytes > FRAME_BYTES_TARGET:
            group, size_bytes = [], len(item.entry.payload)
            groups.append(group)
        group.append(item)
    return groups


def _uniform(items: list[_Item]) -> list[_Item]:
    """Return the first items of a lane that fit into one section."""
    first = items[0].kept
    for count, item in enumerate(items):
        if item.kept.plain != first.plain or item.kept.wait_store_msg_ok != first.wait_store_msg_ok:
            return items[:count]
    return items
