"""Input of a job: a topic, written ``topic:NAME``, or a table at a path.

Lives here: ``Input``.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pocketmq.common.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC: Final = "topic:"
FORMATS: Final = ("parquet", "csv", "json", "orc")
ENDINGS: Final = {"csv": "csv", "json": "json", "jsonl": "json", "orc": "orc"}


@dataclass(slots=True, frozen=True)
class Input:
    """A topic or a path; exactly one of them is not empty."""

    text: str
    topic: str = ""
    path: str = ""
    format: str = "parquet"

    @classmethod
    def of(cls, text: str, format_name: str = "") -> "Input":
        """Read an argument. ``format_name``: of a table; by default that of the path's ending, else Parquet."""
        if text.startswith(TOPIC):
            name = text.removeprefix(TOPIC)
            if not name:
                raise ConfigError("bad input", why=text, hint="write topic:NAME")
            return cls(text, topic=name)
        if not text:
            raise ConfigError("bad input", why="it is empty", hint="write topic:NAME or a path")
        ending = text.rstrip("/").rpartition(".")[2].lower()
        chosen = format_name or ENDINGS.get(ending, "parquet")
        if chosen not in FORMATS:
            raise ConfigError("unknown format", why=chosen, hint="one of " + ", ".join(FORMATS))
        return cls(text, path=text, format=chosen)

    def check(self, namesrv: str, wait_ms: int) -> int | None:
        """Return the number of messages of a topic, None for a path; raise for an unknown topic."""
        if not self.topic:
            return None
        from pocketmq.pipeline.jobs.common.topics import check_topic

        return check_topic(namesrv, self.topic, wait_ms)

    def read(self, spark: "SparkSession", namesrv: str, wait_ms: int, *, with_properties: bool) -> "DataFrame":
        """Return all present rows."""
        if self.topic:
            from pocketmq.pipeline.access import job_access

            return (
                spark.read.format("pocketmq")
                .option("namesrv", namesrv)
                .option("subscribe", self.topic)
                .option("includeProperties", str(with_properties).lower())
                .option("brokerWaitMs", wait_ms)
                .options(**job_access().options())
                .load()
            )
        reader = spark.read.format(self.format)
        if self.format == "csv":
            reader = reader.option("header", "true")
        return reader.load(self.path)
