"""A topic to a Parquet dataset: messages since the last run, exactly once.

Lives here: ``archive_topic``, and checks of a dataset before anything is written.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.pipeline.access import job_access
from pocketmq.pipeline.errors import OptionIllegal
from pocketmq.pipeline.jobs.archive.files import Files
from pocketmq.pipeline.jobs.archive.publishing import OWN, Publisher, read_own
from pocketmq.pipeline.jobs.archive.swapping import Swapper
from pocketmq.pipeline.jobs.common.command import JobFailed
from pocketmq.pipeline.source.planner import Planner
from pocketmq.pipeline.source.positions import Positions, QueueKey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STATE: Final = f"{OWN}/archive.json"
QUERY: Final = f"{OWN}/query"
"""The id of the checkpoint that writes the archive. PocketMQ replaces none of its files: not every file system can."""
CHECKPOINT: Final = f"{OWN}/checkpoint"
LOCK: Final = f"{OWN}/lock"
TIMES: Final = {"store": "store_timestamp", "born": "born_timestamp"}
POLL_S: Final = 1
GROUP: Final = "pocketmq-archive"


@dataclass(slots=True, frozen=True)
class Archive:
    """The topic to archive, and how."""

    namesrv: str
    topic: str
    by: str = "store"
    starting: str = "earliest"
    batch_rows: int = 1_000_000
    fail_on_data_loss: bool = True
    broker_wait_ms: int = 30_000


class State(msgspec.Struct, frozen=True):
    """The topic and layout of an archive; written before its first row. ``starting``: its start, for the source: a run
    that finds no message leaves nothing in Spark's checkpoint.
    """

    topic: str
    by: str
    starting: str = "earliest"


def read_state(files: Files) -> State | None:
    """Return the state of the archive in a directory; None for an empty one. Raises ``JobFailed`` for others."""
    state = read_own(files, STATE, State)
    if state is not None:
        return state
    if [name for name in files.names("") if name != OWN]:
        raise JobFailed(
            "the output exists", why=f"{files.root} is not empty and no archive", hint="name another directory"
        )
    return None


def pending(archive: Archive, files: Files) -> int:
    """Return an estimate of the messages to archive. Raises ``TopicUnknown``, ``BrokerAway``."""
    archived = _archived(files).offsets
    return sum(max(0, high - max(low, archived.get(key, 0))) for key, (low, high) in _bounds(archive).items())


def _bounds(archive: Archive) -> dict[QueueKey, tuple[int, int]]:
    with contextlib.closing(Planner(archive.namesrv, GROUP, archive.broker_wait_ms, job_access())) as planner:
        return planner.bounds(planner.queues([archive.topic]))


def _archived(files: Files) -> Positions:
    """Return the positions of the checkpoint."""
    numbers = [int(name) for name in files.names(f"{CHECKPOINT}/offsets") if name.isdecimal()]
    committed = [int(name) for name in files.names(f"{CHECKPOINT}/commits") if name.isdecimal()]
    both = set(numbers) & set(committed)
    if both:
        data = files.read(f"{CHECKPOINT}/offsets/{max(both)}") or b""
        try:
            return Positions.from_json(msgspec.json.decode(data.splitlines()[-1]))
        except (IndexError, *DECODE_ERRORS, OptionIllegal):
            pass  # only the count of the progress display depends on it
    return Positions()


def _query_id(files: Files) -> str:
    """Return Spark's id of the checkpoint; empty without one."""
    data = files.read(f"{CHECKPOINT}/metadata")
    try:
        return str(msgspec.json.decode(data)["id"]) if data else ""
    except (*DECODE_ERRORS, KeyError, TypeError):
        return ""


def check_state(archive: Archive, files: Files) -> State:
    """Return the state of the archive, a new one for an empty directory. Raises ``JobFailed`` for another archive, and
    for one that another checkpoint wrote.
    """
    state = read_state(files)
    if state is None:
        state = State(archive.topic, archive.by, _ends(archive) if archive.starting == "latest" else "earliest")
        files.write(STATE, msgspec.json.encode(state))
        return state
    for what, was, now in (("topic", state.topic, archive.topic), ("--by", state.by, archive.by)):
        if was != now:
            raise JobFailed(
                "not this archive",
                why=f"{files.root} was written with {what} {was}, not {now}",
                hint="use another output",
            )
    query = files.read(QUERY)
    if query and _query_id(files) != query.decode(errors="replace"):
        raise JobFailed(
            "the checkpoint is missing",
            why=f"{files.root}/{CHECKPOINT} is not the one that wrote this archive; every message would be in it twice",
            hint="restore it, or archive into a new directory",
        )
    return state


def _ends(archive: Archive) -> str:
    """Return the present ends of the queues in the form of ``startingOffsets``."""
    brokers: dict[str, dict[str, int]] = {}
    for key, (_, high) in _bounds(archive).items():
        brokers.setdefault(key.broker, {})[str(key.queue_id)] = high
    return msgspec.json.encode({archive.topic: brokers}).decode()


def archive_topic(
    spark: "SparkSession",
    archive: Archive,
    state: State,
    files: Files,
    reached: Callable[[int], None] = lambda rows: None,
) -> int:
    """Write the messages since the last run and return their number; ``reached`` gets the number of visible rows.

    The caller holds the lock. Raises the source's errors, through Spark.
    """
    publisher = Publisher(files)
    rows = 0

    def write(batch: "DataFrame", number: int) -> None:
        nonlocal rows
        _remember(files)
        note = publisher.publish(number, lambda path: _write(batch, TIMES[archive.by], path))
        rows += note.rows
        reached(rows)

    stream = (
        spark.readStream.format("pocketmq")
        .option("namesrv", archive.namesrv)
        .option("subscribe", archive.topic)
        .option("startingOffsets", state.starting)
        .option("includeProperties", "true")
        .option("maxOffsetsPerTrigger", archive.batch_rows)
        .option("failOnDataLoss", str(archive.fail_on_data_loss).lower())
        .option("brokerWaitMs", archive.broker_wait_ms)
        .options(**job_access().options())
        .load()
    )
    query = (
        stream.writeStream.foreachBatch(write)
        .option("checkpointLocation", f"{files.root}/{CHECKPOINT}")
        .trigger(availableNow=True)
        .start()
    )
    try:
        while not query.awaitTermination(POLL_S):
            pass
    finally:
        query.stop()
    return rows


def _remember(files: Files) -> None:
    """Store the id of the checkpoint that writes the archive, before its first batch is visible."""
    query = _query_id(files)
    if query and files.read(QUERY) is None:
        files.write(QUERY, query.encode())


def _write(batch: "DataFrame", time: str, path: str) -> int:
    """Write a batch below ``path``, by date and hour, and return its rows."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    seen = Observation("archived")
    (
        batch.withColumns({"date": F.date_format(time, "yyyy-MM-dd"), "hour": F.date_format(time, "HH")})
        .observe(seen, F.count(F.lit(1)).alias("rows"))
        .write.partitionBy("date", "hour")
        .parquet(path)
    )
    return int(seen.get["rows"])


def recover(files: Files) -> None:
    """Repair a dataset after a job on it was killed. The caller holds the lock."""
    Swapper(files).recover()
    Publisher(files).recover()
