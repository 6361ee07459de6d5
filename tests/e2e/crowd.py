"""The loads of every kind in one life of real brokers, judged by what the masters' logs hold.

Lives here: ``Crowd``; ``records_of``, which reads the log of a broker that may be running.
"""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Self

from pocketmq.common.errors import PocketMQError
from pocketmq.common.record_codec import Record, decode_record, is_blank_at, record_size_at
from tests.e2e.kinds import LOADS, Excused, Found, KindLoad
from tests.e2e.load import SEND_OK, TOPIC, Sent
from tests.e2e.nodes import SEGMENT_BYTES
from tests.torture.kill_daemon import body_of

SETTLE_S_MAX: Final = 90.0
LOOK_S: Final = 0.25
SAID_MAX: Final = 5


def records_of(store: Path) -> Iterator[Record]:
    """Yield the records in the files of a log, up to the first that is not whole."""
    for path in sorted(path for path in (store / "commitlog").iterdir() if path.name.isdigit()):
        data, at = path.read_bytes(), 0
        while at < SEGMENT_BYTES and not is_blank_at(data, at):
            try:
                record = decode_record(data, at)
            except PocketMQError:
                return
            assert record.physical_offset == int(path.name) + at, f"{path}: a record of another place at {at}"
            yield record
            at += record_size_at(data, at)


def never(sent_ns: int, acknowledged_ns: int) -> bool:
    """Excuse nothing."""
    return False


class Crowd:
    """All loads but the plain one. A context manager that opens and closes them."""

    def __init__(self, namesrv: str, seed: int, rng: random.Random, kinds: tuple[str, ...]) -> None:
        self.loads: list[KindLoad] = [LOADS[kind](namesrv, seed, rng) for kind in kinds if kind in LOADS]
        self._topics = {load.topic for load in self.loads}

    async def __aenter__(self) -> Self:
        for load in self.loads:
            await load.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        for load in self.loads:
            await load.cancel()
            with contextlib.suppress(PocketMQError):
                await load.close()

    def start(self) -> None:
        """Start all loads."""
        for load in self.loads:
            load.start()

    async def stop(self) -> None:
        """Stop all loads."""
        await asyncio.gather(*(load.stop() for load in self.loads))

    def found(self, stores: Mapping[str, Path]) -> Found:
        """Return the messages of all kinds in the logs of the masters, whose names are the keys."""
        found: Found = {}
        for name, store in stores.items():
            for record in records_of(store):
                if record.topic in self._topics:
                    found.setdefault(bytes(record.body), []).append((name, record))
        return found

    async def settle(self, stores: Mapping[str, Path], excused: Excused = never) -> None:
        """Return once the logs have all that was promised; fail if that takes too long, or if they have more."""
        until_s = time.monotonic() + SETTLE_S_MAX
        while True:
            found = self.found(stores)
            missing = [text for load in self.loads for text in load.missing(found, excused)]
            wrong = [text for load in self.loads for text in load.wrong(found)]
            assert not wrong, f"{len(wrong)} wrong: {wrong[:SAID_MAX]}"
            if not missing:
                return
            assert time.monotonic() < until_s, f"{len(missing)} missing: {missing[:SAID_MAX]}"
            await asyncio.sleep(LOOK_S)

    def counts(self) -> Counter[str]:
        """Return how many messages of each kind were promised."""
        return Counter(
            {load.kind: sum(load.is_due(promise) for promise in load.promises.values()) for load in self.loads}
        )


def lost_plain(store: Path, sent: list[Sent], given: int, excused: Excused = never) -> list[Sent]:
    """Return the plain sends with SEND_OK that are not at their place. Fail on changed bytes, and on messages that are
    none of the first ``given``, which were sent.
    """
    places: set[tuple[int, int, int, int]] = set()
    for record in records_of(store):
        if record.topic == TOPIC:
            number = int(record.body.split(b":", 1)[0])
            assert record.body == body_of(number), f"message {number} has changed"
            assert number < given, f"message {number} was never sent"
            places.add((number, record.queue_id, record.queue_offset, record.physical_offset))
    return [
        each
        for each in sent
        if each.status == SEND_OK
        and (each.number, each.queue_id, each.queue_offset, each.physical_offset) not in places
        and not excused(each.sent_ns, each.answered_ns)
    ]
