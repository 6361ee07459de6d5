"""How far streaming queries are behind their topics, after each micro-batch.

    from pocketmq.pipeline.lag import LagListener
    spark.streams.addListener(LagListener(namesrv="127.0.0.1:9876"))

Spark's API for Python sources has no metrics, but a query's progress has the offsets where a micro-batch ended, and the
ends of the topics as the source knew them then: their difference is the lag in rows. With ``namesrv`` brokers are asked
for the rest: the size of the records that are not read yet (rows by the mean size of the next ones), and the age of the
oldest of them.

Lives here: ``Lag``, ``LagListener``.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from pocketmq.common.errors import PocketMQError
from pocketmq.common.units import bytes_text
from pocketmq.pipeline.access import NO_ACCESS, Access
from pocketmq.pipeline.source.notes import print_note
from pocketmq.pipeline.source.planner import Planner
from pocketmq.pipeline.source.positions import Positions, QueueKey

GROUP: Final = "pocketmq-spark-lag"
ASK_MS: Final = 2_000
"""How long a listener tries to reach brokers: it holds up the reports of all queries."""


@dataclass(slots=True, frozen=True)
class Lag:
    """The lag of one query behind its topics when a micro-batch ended.

    ``topics``: rows by topic. ``size_bytes``, ``seconds``: of the messages that are not read; the age of the oldest.
    None: brokers were not asked, or did not answer.
    """

    query_id: str
    query_name: str
    batch_id: int
    rows: int
    topics: Mapping[str, int]
    size_bytes: int | None = None
    seconds: float | None = None

    def __str__(self) -> str:
        parts = [f"{self.rows:,} rows"]
        if self.size_bytes is not None:
            parts.append(f"about {bytes_text(self.size_bytes)}")
        if self.seconds is not None:
            parts.append(f"{self.seconds:,.1f} s")
        return f"{self.query_name or self.query_id}, micro-batch {self.batch_id}: behind by {', '.join(parts)}"


class LagListener(StreamingQueryListener):
    """Reports the lag of all queries of a session that read topics.

    ``report``: gets a ``Lag`` after each micro-batch, in Spark's listener thread: it must return soon, and may not
    raise. Default: one line on standard error. ``namesrv``, ``access``: to ask brokers for bytes and seconds.
    """

    def __init__(
        self, report: Callable[[Lag], None] | None = None, *, namesrv: str = "", access: Access = NO_ACCESS
    ) -> None:
        self._report = report or (lambda lag: print_note(str(lag)))
        self._namesrv = namesrv
        self._access = access
        self._planner: Planner | None = None

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """See ``StreamingQueryListener``; nothing to do."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """See ``StreamingQueryListener``; nothing to do."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Close the connections; a query that still runs opens them again."""
        self.stop()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Report the lag, if the query reads a topic."""
        progress = event.progress
        behind = dict(unread(progress.sources))
        if not behind and not any(is_ours(source) for source in progress.sources):
            return
        topics: dict[str, int] = {}
        for key, (start, end) in behind.items():
            topics[key.topic] = topics.get(key.topic, 0) + end - start
        size_bytes, seconds = self._asked(behind) if self._namesrv else (None, None)
        rows = sum(topics.values())
        name = progress.name or ""
        self._report(Lag(str(progress.id), name, progress.batchId, rows, topics, size_bytes, seconds))

    def stop(self) -> None:
        """Close the connections."""
        planner, self._planner = self._planner, None
        if planner is not None:
            planner.close()

    def _asked(self, behind: Mapping[QueueKey, tuple[int, int]]) -> tuple[int | None, float | None]:
        """Return bytes and seconds, as brokers say."""
        starts = {key: start for key, (start, end) in behind.items() if start < end}
        if not starts:
            return 0, 0.0
        try:
            if self._planner is None:
                self._planner = Planner(self._namesrv, GROUP, ASK_MS, self._access)
            self._planner.queues({key.topic for key in starts}, starts)  # routes to their brokers
            rows = sum(end - start for start, end in behind.values())
            size_bytes = int(rows * self._planner.mean_bytes(Positions(starts)))
            times_ms = self._planner.store_times(starts)
        except PocketMQError as error:
            print_note(f"lag: {error}")
            self.stop()
            return None, None
        seconds = max(0.0, time.time() - min(times_ms.values()) / 1000) if times_ms else None
        return size_bytes, seconds


def unread(sources: Any) -> "Iterator[tuple[QueueKey, tuple[int, int]]]":
    """Yield (queue, (first offset not read, end of the queue)) of the sources of a progress that are topics."""
    for source in sources:
        if not is_ours(source):
            continue
        read = Positions.from_json(json.loads(source.endOffset)).offsets
        ends = Positions.from_json(json.loads(source.latestOffset)).offsets
        for key, end in ends.items():
            at = read.get(key)
            if at is not None:
                yield key, (at, max(at, end))


def is_ours(source: Any) -> bool:
    """Return whether the source of a progress has this package's offsets."""
    for text in (source.endOffset, source.latestOffset):
        try:
            Positions.from_json(json.loads(text))
        except (PocketMQError, TypeError, ValueError):
            return False
    return True
