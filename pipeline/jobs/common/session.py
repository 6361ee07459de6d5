"""The Spark session of a job, and explanations of Spark's errors.

Lives here: ``job_session``, ``explained``.
"""

import importlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pocketmq.common.errors import Cause, ConfigError
from pocketmq.pipeline.java import use_java
from pocketmq.pipeline.jobs.common.command import INTERRUPTED, JobFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
}
CONSOLE: Final = "spark.ui.showConsoleProgress"
NEEDED: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # other readers than Spark read it without loss
}
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""spark-submit sets it for its script, and then chooses master and Java."""
_PYTHON: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)$", re.MULTILINE)
"""A traceback; the group is its last line, the error."""
_OURS: Final = re.compile(r"(?:pocketmq\.[\w.]+\.|\b)([A-Z]\w+): (.+)")
_WORDS: Final = (
    ("PATH_NOT_FOUND", "no such path", "check the spelling; nothing was written"),
    ("PATH_ALREADY_EXISTS", "the output exists", "name another directory, or --overwrite"),
    ("UNABLE_TO_INFER_SCHEMA", "no rows to read", "is it the directory of a dataset, and is there any file in it?"),
    ("UNRESOLVED_COLUMN", "no such column", ""),
    ("DATA_SOURCE_NOT_FOUND", "unknown format", ""),
    ("failed to connect back", "a Python worker of Spark did not start in time", "is the machine busy? Run it again"),
    ("Connection refused", "Spark's master is not reachable", "check --master"),
)


class SparkMissing(ConfigError):
    """PySpark is not installed."""


def import_spark() -> None:
    """Raise ``SparkMissing`` unless PySpark can be imported."""
    try:
        import pyspark.sql  # noqa: F401
    except ImportError as error:
        raise SparkMissing(
            "this needs Spark", why=f"pyspark is not installed ({error})", hint="pip install 'pocketmq[spark]'"
        ) from error


@contextmanager
def job_session(
    name: str,
    master: str = "",
    conf: Sequence[str] | None = None,
    py_files: Sequence[str] | None = None,
    *,
    stages: bool = False,
) -> "Iterator[SparkSession]":
    """Yield the session of a job with both formats registered: the active one, else a new one that ends with the job.

    ``stages``: on a terminal Spark shows its progress, for jobs without a display of their own.

    Raises ``SparkMissing``, ``JavaMissing``, ``ConfigError``, ``JobFailed`` (Spark's error, explained).
    """
    settings: dict[str, str] = {}
    for pair in conf or ():
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ConfigError("bad --conf", why=pair, hint="write KEY=VALUE")
        settings[key] = value
    import_spark()
    import typer
    from pyspark.sql import SparkSession

    from pocketmq.pipeline import register

    found = SparkSession.getActiveSession()
    try:
        with explained():
            session = found or _new_session(
                name, master, {CONSOLE: str(stages and sys.stderr.isatty()).lower()} | settings
            )
            before = {key: session.conf.get(key, None) for key in NEEDED}
            try:
                for key, value in (NEEDED | settings if found else NEEDED).items():
                    session.conf.set(key, value)
                register(session)
                for path in py_files or ():
                    session.sparkContext.addPyFile(path)
                yield session
            finally:
                if found is None:
                    session.stop()
                else:
                    for key, was in before.items():
                        if was is not None:
                            session.conf.set(key, was)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _new_session(name: str, master: str, settings: dict[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(f"pocketmq {name}")
    if SUBMITTED not in os.environ:
        use_java()
        builder = builder.master(master or "local[*]")
    elif master:
        builder = builder.master(master)
    for key, value in (DEFAULTS | settings).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel(settings.get("spark.log.level", "ERROR"))
    return session


@contextmanager
def explained() -> Iterator[None]:
    """Turn Spark's errors into ``JobFailed`` with the sentence that names the cause."""
    from pyspark.errors import PySparkException

    protocol: Any = importlib.import_module("py4j.protocol")  # it has no types
    try:
        yield
    except (PySparkException, protocol.Py4JJavaError) as error:
        raise explanation(str(error)) from error
    except protocol.Py4JError as error:
        raise JobFailed("Spark went away", why=str(error).splitlines()[0], hint="see its output above") from error


def explanation(text: str) -> JobFailed:
    """Return the error for a text of Spark: PocketMQ's error, raised by a source or sink in one of Spark's processes,
    else the end of Python's traceback, else the first line.
    """
    found = [match for match in _OURS.finditer(text) if match[0].startswith("pocketmq.")]
    if found:
        return JobFailed(found[-1][2].strip(), cause=Cause.BAD_REQUEST)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    python = list(_PYTHON.finditer(text))
    if python:
        first = python[-1][1].strip()
    for word, what, hint in _WORDS:
        if word in text:
            return JobFailed(what, why=first[:500], hint=hint)
    return JobFailed("Spark failed", why=first[:500], hint="--conf spark.log.level=WARN shows more")
