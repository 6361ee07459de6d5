"""All staged transactions and their states.

Lives here: ``StagedTable``, which applies the events of the log. No I/O.

A transaction is a transactional id and a version: for a stream of Spark the query and the number of its micro-batch.
Chunks are staged by attempts (a task, and each repetition of it, is one); the commit lists the attempts that count, the
others are dropped. A commit is remembered by its version, so that a repeated commit or chunk changes nothing.
"""

from collections import deque

from pocketmq.broker.staged.staged_records import (
    AnyEvent,
    BrokersAdded,
    Committed,
    Delivered,
    DoneEntry,
    Dropped,
    IdDone,
    Manifest,
    Prepared,
    Snapshot,
    Staged,
)
from pocketmq.broker.staged.staged_state import (
    ATTEMPTS_MAX,
    CHUNKS_MAX,
    DONE_MAX,
    HOUR_MS,
    IDS_MAX,
    Attempt,
    Chunk,
    Delivery,
    Done,
    KnownId,
    Open,
    Place,
    StagedState,
    dropped_parts,
)
from pocketmq.common.bounds import bounded


@bounded("staged chunks", limit=CHUNKS_MAX, size="chunks", entry_bytes=256)
@bounded("staged attempts", limit=ATTEMPTS_MAX, size="attempts", entry_bytes=2048)
@bounded("staged transactional ids", limit=IDS_MAX, size="__len__", entry_bytes=16_384)
class StagedTable:
    """Not thread-safe: ``staged_log`` holds its lock."""

    def __init__(self) -> None:
        self._ids: dict[str, KnownId] = {}
        self.deliveries: deque[Delivery] = deque()
        self.attempts = 0
        self.chunks = 0
        self.staged_bytes = 0
        """Of chunks without a commit."""
        self.snapshot_ms = 0
        """Time of the last snapshot."""
        self.first_ms = 0
        """Time of the first event."""
        self.events_since_snapshot = 0
        self._base = -1
        """Physical offset of the last snapshot that is safe, or of the first event."""
        self._next_base = -1
        self._parts: list[tuple[list[IdDone], Place]] = []

    def __len__(self) -> int:
        return len(self._ids)

    # ---- events

    def apply(self, event: AnyEvent, place: Place) -> None:
        """Apply an event of the log. Events from before the last snapshot may be applied again."""
        if isinstance(event, Snapshot):
            self._snapshot(event, place)
            return
        self.events_since_snapshot += 1
        if self._base < 0:
            self._base, self.first_ms = place.physical_offset, place.store_ms
        if isinstance(event, Delivered):
            self._delivered(event, place)
            return
        known = self._ids.setdefault(event.transactional_id, KnownId())
        if isinstance(event, Staged):
            self._staged(known, event, place)
        elif isinstance(event, Prepared):
            if event.version not in known.done:
                opened = known.open.setdefault(event.version, Open())
                opened.prepared, opened.prepared_place = event, place
        elif isinstance(event, Committed):
            self._committed(known, event, place)
        elif isinstance(event, BrokersAdded):
            known.brokers, known.brokers_ms, known.brokers_keep_hours = event.brokers, place.store_ms, event.keep_hours
        else:
            self._dropped(known, event)
        if not known.open and not known.done and not known.brokers:
            del self._ids[event.transactional_id]

    def _staged(self, known: KnownId, event: Staged, place: Place) -> None:
        if event.version in known.done:
            return
        attempts = known.open.setdefault(event.version, Open()).attempts
        attempt = attempts.get(event.attempt)
        if attempt is None:
            attempt = attempts[event.attempt] = Attempt(first_ms=place.store_ms)
            self.attempts += 1
        if event.index not in attempt.chunks:
            attempt.chunks[event.index] = Chunk(place, event.rows)
            for topic, home in zip(event.topics, event.homes or [("", 0)] * len(event.topics), strict=True):
                identity, highest = attempt.topics.get(topic, home)
                # keep an older identity: the commit is then refused
                attempt.topics[topic] = (identity or home[0], max(highest, home[1]))
            self.chunks += 1
            self.staged_bytes += place.size_bytes
        attempt.last_ms = max(attempt.last_ms, place.store_ms)

    def _committed(self, known: KnownId, event: Committed, place: Place) -> None:
        if event.version in known.done:
            return
        opened = known.open.pop(event.version, Open())
        chunks: list[Chunk | None] = []
        for attempt, count in event.manifest:
            found = opened.attempts.get(attempt, Attempt()).chunks
            chunks += [found.get(index) for index in range(count)]
        for each in opened.attempts.values():
            self._forget_attempt(each)
        known.done[event.version] = Done(place.store_ms, event.keep_hours, event.participants, event.token)
        while len(known.done) > DONE_MAX:
            del known.done[min(known.done)]
        if chunks:
            self.deliveries.append(Delivery(event.transactional_id, event.version, chunks, place.end))

    def _delivered(self, event: Delivered, place: Place) -> None:
        delivery = self.delivery(event.transactional_id, event.version)
        if delivery is None:  # known from a snapshot, and delivered
            return
        delivery.at, delivery.logged_at = event.chunks, place.end
        done = self.get(event.transactional_id, event.version)[2]
        if done is not None:
            done.lost = event.lost
        delivery.done.clear()
        if delivery.at >= len(delivery.chunks):
            self.deliveries.remove(delivery)

    def _dropped(self, known: KnownId, event: Dropped) -> None:
        opened = known.open.get(event.version)
        if opened is None:
            return
        for attempt in event.attempts:
            given_up = opened.attempts.pop(attempt, None)
            if given_up is not None:
                self._forget_attempt(given_up)
        if event.unprepared:
            opened.prepared = opened.prepared_place = None
        if not opened.attempts and opened.prepared is None:
            del known.open[event.version]

    def _forget_attempt(self, attempt: Attempt) -> None:
        self.attempts -= 1
        self.chunks -= len(attempt.chunks)
        self.staged_bytes -= sum(chunk.place.size_bytes for chunk in attempt.chunks.values())

    def _snapshot(self, event: Snapshot, place: Place) -> None:
        """Take a part of a snapshot; with the last one, add the state that this table lacks."""
        self._parts.append((event.ids, place))
        if not event.parts:
            return
        parts, self._parts = self._parts[-event.parts :], []
        for ids, _ in parts:
            for each in ids:
                known = self._ids.setdefault(each.transactional_id, KnownId())
                for entry in each.done:
                    done = Done(entry.store_ms, entry.keep_hours, entry.participants, entry.token, entry.lost)
                    known.done.setdefault(entry.version, done)
                if not known.brokers:
                    known.brokers, known.brokers_ms = each.brokers, each.brokers_ms
                    known.brokers_keep_hours = each.brokers_keep_hours
        self._next_base, self.snapshot_ms = parts[0][1].physical_offset, place.store_ms
        self.events_since_snapshot = 0

    def confirm_snapshot(self) -> None:
        """Rely on the last snapshot from now on: it is durable and readable."""
        if self._next_base >= 0:
            self._base, self._next_base = self._next_base, -1

    @property
    def base(self) -> int:
        """The physical offset from which the log has the remembered state."""
        return self._base

    # ---- state

    def get(self, transactional_id: str, version: int) -> tuple[StagedState, Open | None, Done | None]:
        """Return the state of a transaction, with its attempts while it is open, or its commit."""
        known = self._ids.get(transactional_id)
        if known is None:
            return StagedState.UNKNOWN, None, None
        done = known.done.get(version)
        if done is not None:
            return StagedState.COMMITTED, None, done
        opened = known.open.get(version)
        if opened is None:
            return StagedState.UNKNOWN, None, None
        return (StagedState.STAGED if opened.prepared is None else StagedState.PREPARED), opened, None

    def behind(self, transactional_id: str, version: int) -> int | None:
        """Return the lowest remembered version if ``version`` is below it and so may be forgotten; else None."""
        known = self._ids.get(transactional_id)
        if known is None or len(known.done) < DONE_MAX:
            return None
        lowest = min(known.done)
        return lowest if version < lowest else None

    def has(self, transactional_id: str) -> bool:
        """Return whether this transactional id is known."""
        return transactional_id in self._ids

    def brokers(self, transactional_id: str) -> tuple[list[str], int]:
        """Return the brokers that may know a transactional id, if several, and until when that is remembered."""
        known = self._ids.get(transactional_id)
        if known is None or not known.brokers:
            return [], 0
        return known.brokers, known.brokers_ms + known.brokers_keep_hours * HOUR_MS

    def make_room(self, now_ms: int) -> bool:
        """Forget the oldest ids that need to be remembered for an hour only; return whether there were any."""
        found = [
            (known.last_ms, transactional_id) for transactional_id, known in self._ids.items() if known.is_brief(now_ms)
        ]
        under_way = {each.transactional_id for each in self.deliveries}
        found = sorted(each for each in found if each[1] not in under_way)[: max(1, IDS_MAX // 16)]
        for _, transactional_id in found:
            del self._ids[transactional_id]
        return bool(found)

    def delivery(self, transactional_id: str, version: int) -> Delivery | None:
        """Return a commit under delivery."""
        for each in self.deliveries:
            if each.version == version and each.transactional_id == transactional_id:
                return each
        return None

    def missing(self, opened: Open | None, manifest: Manifest, min_offset: int = 0) -> str:
        """Return which part of a manifest is not staged here, as text; empty if none is missing. ``min_offset``: the
        start of the log; chunks below it are gone.
        """
        for attempt, count in manifest:
            known = None if opened is None else opened.attempts.get(attempt)
            have = 0 if known is None else len(known.chunks)
            if have != count or (known is not None and any(index not in known.chunks for index in range(count))):
                return f"attempt {attempt} has {have} chunks here, not {count}"
            if known is not None and known.is_below(min_offset):
                return f"a chunk of attempt {attempt} was removed from the log, whose disk was full"
        return ""

    def expired(self, before_ms: int, prepared_before_ms: int, min_offset: int = 0) -> list[Dropped]:
        """Return the events that drop expired attempts: without a chunk since ``before_ms``, or with a chunk below
        ``min_offset``; and attempts and prepared transactions that began before ``prepared_before_ms``.
        """
        found: list[Dropped] = []
        for transactional_id, known in self._ids.items():
            for version, opened in known.open.items():
                prepared, place = opened.prepared, opened.prepared_place
                unprepared = place is not None and place.store_ms < prepared_before_ms
                held = set() if prepared is None or unprepared else {attempt for attempt, _ in prepared.manifest}
                old = [
                    key
                    for key, each in opened.attempts.items()
                    if key not in held
                    and (each.last_ms < before_ms or each.first_ms < prepared_before_ms or each.is_below(min_offset))
                ]
                if old or unprepared:
                    found += dropped_parts(transactional_id, version, old, unprepared)
        return found

    def forget(self, now_ms: int) -> int:
        """Forget transactional ids whose commits need no longer be remembered; return how many."""
        old = [
            transactional_id
            for transactional_id, known in self._ids.items()
            if not known.is_kept(now_ms)
            and not any(each.transactional_id == transactional_id for each in self.deliveries)
        ]
        for transactional_id in old:
            del self._ids[transactional_id]
        return len(old)

    def remembered(self) -> list[IdDone]:
        """Return the content of a snapshot, without undelivered commits: the queue still has them."""
        under_way = {(each.transactional_id, each.version) for each in self.deliveries}
        return [
            IdDone(
                transactional_id,
                [
                    DoneEntry(version, each.store_ms, each.keep_hours, each.participants, each.token, each.lost)
                    for version, each in known.done.items()
                    if (transactional_id, version) not in under_way
                ],
                known.brokers,
                known.brokers_ms,
                known.brokers_keep_hours,
            )
            for transactional_id, known in self._ids.items()
            if known.done or known.brokers
        ]

    def from_offset(self, end: int) -> int:
        """Return the queue offset of the oldest open or undelivered event; ``end`` without any."""
        return min((place.queue_offset for place in self._needed()), default=end)

    def wanted_from(self, end: int) -> int:
        """Return the physical offset from which the log is needed."""
        if not self._ids:
            return end
        return min(self._base, *(place.physical_offset for place in self._needed()), end)

    def _needed(self) -> list[Place]:
        places = [
            chunk.place
            for known in self._ids.values()
            for opened in known.open.values()
            for attempt in opened.attempts.values()
            for chunk in attempt.chunks.values()
        ]
        places += [
            opened.prepared_place
            for known in self._ids.values()
            for opened in known.open.values()
            if opened.prepared_place is not None
        ]
        places += [chunk.place for each in self.deliveries for chunk in each.chunks if chunk is not None]
        return places
