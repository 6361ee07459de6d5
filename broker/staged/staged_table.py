"""Which named transactions there are, and what became of each.

Lives here: ``NamedTable``: what the events in the log mean. No I/O.

A transaction is (name, sequence): for a stream of Spark the query and the number of its micro-batch. Chunks are staged
by attempts (a task, and each repetition of it, is one); the commit names the attempts that count, the others are
dropped. What was committed is remembered by its sequence, so that a commit or a chunk that comes again changes nothing.
"""

from collections import deque

from pocketmq.broker.staged.staged_records import (
    AnyEvent,
    Committed,
    Delivered,
    DoneEntry,
    Dropped,
    Enlisted,
    Manifest,
    NameDone,
    Sealed,
    Snapshot,
    Staged,
)
from pocketmq.broker.staged.staged_state import (
    DONE_MAX,
    HOUR_MS,
    NAMES_MAX,
    Attempt,
    Chunk,
    Delivery,
    Done,
    Name,
    NamedState,
    Open,
    Place,
    dropped_parts,
)


class NamedTable:
    """Not thread-safe: ``named_log`` holds its lock."""

    def __init__(self) -> None:
        self._names: dict[str, Name] = {}
        self.deliveries: deque[Delivery] = deque()
        self.attempts = 0
        self.chunks = 0
        self.staged_bytes = 0
        """Of chunks without a commit."""
        self.snapshot_ms = 0
        """When the last snapshot was stored."""
        self.first_ms = 0
        """When the first event was."""
        self.events_since_snapshot = 0
        self._base = -1
        """Physical offset of the last snapshot that is safe, or of the first event."""
        self._next_base = -1
        self._parts: list[tuple[list[NameDone], Place]] = []

    def __len__(self) -> int:
        return len(self._names)

    # ---- what happened

    def apply(self, event: AnyEvent, place: Place) -> None:
        """Learn an event that is in the log. Events of before the last snapshot may come again."""
        if isinstance(event, Snapshot):
            self._snapshot(event, place)
            return
        self.events_since_snapshot += 1
        if self._base < 0:
            self._base, self.first_ms = place.physical_offset, place.store_ms
        if isinstance(event, Delivered):
            self._delivered(event, place)
            return
        name = self._names.setdefault(event.name, Name())
        if isinstance(event, Staged):
            self._staged(name, event, place)
        elif isinstance(event, Sealed):
            if event.sequence not in name.done:
                opened = name.open.setdefault(event.sequence, Open())
                opened.seal, opened.seal_place = event, place
        elif isinstance(event, Committed):
            self._committed(name, event, place)
        elif isinstance(event, Enlisted):
            name.brokers, name.brokers_ms, name.brokers_keep_hours = event.brokers, place.store_ms, event.keep_hours
        else:
            self._dropped(name, event)
        if not name.open and not name.done and not name.brokers:
            del self._names[event.name]

    def _staged(self, name: Name, event: Staged, place: Place) -> None:
        if event.sequence in name.done:
            return
        attempts = name.open.setdefault(event.sequence, Open()).attempts
        attempt = attempts.get(event.attempt)
        if attempt is None:
            attempt = attempts[event.attempt] = Attempt(first_ms=place.store_ms)
            self.attempts += 1
        if event.index not in attempt.chunks:
            attempt.chunks[event.index] = Chunk(place, event.rows)
            for topic, home in zip(event.topics, event.homes or [("", 0)] * len(event.topics), strict=True):
                identity, highest = attempt.topics.get(topic, home)
                # one of an older identity is refused at the commit: keep it
                attempt.topics[topic] = (identity or home[0], max(highest, home[1]))
            self.chunks += 1
            self.staged_bytes += place.size_bytes
        attempt.last_ms = max(attempt.last_ms, place.store_ms)

    def _committed(self, name: Name, event: Committed, place: Place) -> None:
        if event.sequence in name.done:
            return
        opened = name.open.pop(event.sequence, Open())
        chunks: list[Chunk | None] = []
        for attempt, count in event.manifest:
            found = opened.attempts.get(attempt, Attempt()).chunks
            chunks += [found.get(index) for index in range(count)]
        for each in opened.attempts.values():
            self._forget_attempt(each)
        name.done[event.sequence] = Done(place.store_ms, event.keep_hours, event.participants, event.token)
        while len(name.done) > DONE_MAX:
            del name.done[min(name.done)]
        if chunks:
            self.deliveries.append(Delivery(event.name, event.sequence, chunks, place.end))

    def _delivered(self, event: Delivered, place: Place) -> None:
        delivery = self.delivery(event.name, event.sequence)
        if delivery is None:  # known from a snapshot, and over
            return
        delivery.at, delivery.told_at = event.chunks, place.end
        done = self.get(event.name, event.sequence)[2]
        if done is not None:
            done.lost = event.lost
        delivery.done.clear()
        if delivery.at >= len(delivery.chunks):
            self.deliveries.remove(delivery)

    def _dropped(self, name: Name, event: Dropped) -> None:
        opened = name.open.get(event.sequence)
        if opened is None:
            return
        for attempt in event.attempts:
            known = opened.attempts.pop(attempt, None)
            if known is not None:
                self._forget_attempt(known)
        if event.unsealed:
            opened.seal = opened.seal_place = None
        if not opened.attempts and opened.seal is None:
            del name.open[event.sequence]

    def _forget_attempt(self, attempt: Attempt) -> None:
        self.attempts -= 1
        self.chunks -= len(attempt.chunks)
        self.staged_bytes -= sum(chunk.place.size_bytes for chunk in attempt.chunks.values())

    def _snapshot(self, event: Snapshot, place: Place) -> None:
        """Take a part of a snapshot; with the last one, what it remembers and this table does not."""
        self._parts.append((event.names, place))
        if not event.parts:
            return
        parts, self._parts = self._parts[-event.parts :], []
        for names, _ in parts:
            for each in names:
                known = self._names.setdefault(each.name, Name())
                for entry in each.done:
                    done = Done(entry.store_ms, entry.keep_hours, entry.participants, entry.token, entry.lost)
                    known.done.setdefault(entry.sequence, done)
                if not known.brokers:
                    known.brokers, known.brokers_ms = each.brokers, each.brokers_ms
                    known.brokers_keep_hours = each.brokers_keep_hours
        self._next_base, self.snapshot_ms = parts[0][1].physical_offset, place.store_ms
        self.events_since_snapshot = 0

    def confirm_snapshot(self) -> None:
        """Rely on the last snapshot from now on: it is safe, and can be read."""
        if self._next_base >= 0:
            self._base, self._next_base = self._next_base, -1

    @property
    def base(self) -> int:
        """The physical offset from which on the log tells what is remembered."""
        return self._base

    # ---- what is known

    def get(self, name: str, sequence: int) -> tuple[NamedState, Open | None, Done | None]:
        """Return what a transaction is."""
        known = self._names.get(name)
        if known is None:
            return NamedState.UNKNOWN, None, None
        done = known.done.get(sequence)
        if done is not None:
            return NamedState.COMMITTED, None, done
        opened = known.open.get(sequence)
        if opened is None:
            return NamedState.UNKNOWN, None, None
        return (NamedState.STAGED if opened.seal is None else NamedState.SEALED), opened, None

    def behind(self, name: str, sequence: int) -> int | None:
        """Return the lowest sequence that is remembered, if this one is so far below it that what became of it was
        forgotten; else None.
        """
        known = self._names.get(name)
        if known is None or len(known.done) < DONE_MAX:
            return None
        lowest = min(known.done)
        return lowest if sequence < lowest else None

    def has(self, name: str) -> bool:
        """Whether anything of this name is known."""
        return name in self._names

    def brokers(self, name: str) -> tuple[list[str], int]:
        """Return which brokers may know something of a name, if they are several, and until when that is remembered."""
        known = self._names.get(name)
        if known is None or not known.brokers:
            return [], 0
        return known.brokers, known.brokers_ms + known.brokers_keep_hours * HOUR_MS

    def make_room(self, now_ms: int) -> bool:
        """Forget the oldest of the names that were to be remembered for an hour only; return whether there were any."""
        found = [(known.last_ms, name) for name, known in self._names.items() if known.is_brief(now_ms)]
        under_way = {each.name for each in self.deliveries}
        found = sorted(each for each in found if each[1] not in under_way)[: max(1, NAMES_MAX // 16)]
        for _, name in found:
            del self._names[name]
        return bool(found)

    def delivery(self, name: str, sequence: int) -> Delivery | None:
        """Return a commit that is not delivered yet."""
        for each in self.deliveries:
            if each.sequence == sequence and each.name == name:
                return each
        return None

    def missing(self, opened: Open | None, manifest: Manifest, min_offset: int = 0) -> str:
        """Return what of a manifest is not staged here, as text; empty if nothing is missing. ``min_offset``: the start
        of the log; what lay below it is gone.
        """
        for attempt, count in manifest:
            known = None if opened is None else opened.attempts.get(attempt)
            have = 0 if known is None else len(known.chunks)
            if have != count or (known is not None and any(index not in known.chunks for index in range(count))):
                return f"attempt {attempt} has {have} chunks here, not {count}"
            if known is not None and known.is_below(min_offset):
                return f"a chunk of attempt {attempt} was removed from the log, whose disk was full"
        return ""

    def expired(self, before_ms: int, sealed_before_ms: int, min_offset: int = 0) -> list[Dropped]:
        """Return what is to be dropped: attempts that staged nothing since ``before_ms``, or that have a chunk below
        ``min_offset``; attempts, and seals with what they hold, that began before ``sealed_before_ms``.
        """
        found: list[Dropped] = []
        for name, known in self._names.items():
            for sequence, opened in known.open.items():
                seal, place = opened.seal, opened.seal_place
                unsealed = place is not None and place.store_ms < sealed_before_ms
                held = set() if seal is None or unsealed else {attempt for attempt, _ in seal.manifest}
                old = [
                    key
                    for key, each in opened.attempts.items()
                    if key not in held
                    and (each.last_ms < before_ms or each.first_ms < sealed_before_ms or each.is_below(min_offset))
                ]
                if old or unsealed:
                    found += dropped_parts(name, sequence, old, unsealed)
        return found

    def forget(self, now_ms: int) -> int:
        """Forget names whose commits need not be remembered any more; return how many."""
        old = [
            name
            for name, known in self._names.items()
            if not known.is_kept(now_ms) and not any(each.name == name for each in self.deliveries)
        ]
        for name in old:
            del self._names[name]
        return len(old)

    def remembered(self) -> list[NameDone]:
        """Return what a snapshot has to say. A commit that is not delivered yet is left out: the queue tells it."""
        under_way = {(each.name, each.sequence) for each in self.deliveries}
        return [
            NameDone(
                name,
                [
                    DoneEntry(sequence, each.store_ms, each.keep_hours, each.participants, each.token, each.lost)
                    for sequence, each in known.done.items()
                    if (name, sequence) not in under_way
                ],
                known.brokers,
                known.brokers_ms,
                known.brokers_keep_hours,
            )
            for name, known in self._names.items()
            if known.done or known.brokers
        ]

    def from_offset(self, end: int) -> int:
        """Return from where on the queue tells what is open or undelivered; ``end`` if nothing is."""
        return min((place.queue_offset for place in self._needed()), default=end)

    def wanted_from(self, end: int) -> int:
        """Return the physical offset from which on the log is needed."""
        if not self._names:
            return end
        return min(self._base, *(place.physical_offset for place in self._needed()), end)

    def _needed(self) -> list[Place]:
        places = [
            chunk.place
            for known in self._names.values()
            for opened in known.open.values()
            for attempt in opened.attempts.values()
            for chunk in attempt.chunks.values()
        ]
        places += [
            opened.seal_place
            for known in self._names.values()
            for opened in known.open.values()
            if opened.seal_place is not None
        ]
        places += [chunk.place for each in self.deliveries for chunk in each.chunks if chunk is not None]
        return places
