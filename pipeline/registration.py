"""Making the formats known to a Spark session.

Lives here: ``register_all``.
"""

import contextlib
import os
import sys
from typing import Final

from pyspark import SparkFiles
from pyspark.sql import SparkSession

from pocketmq.pipeline.source.log_source import PocketMQLogSource
from pocketmq.pipeline.source.source import PocketMQSource

STREAM_FOLDER: Final = "streaming_job"


def register_all(spark: SparkSession) -> None:
    """Register both formats; a second call replaces the first.

    Spark starts its Python workers with ``python3`` from the path unless PYSPARK_PYTHON says otherwise, which in a
    virtual environment that is not activated is one without this package. On ``local`` masters this interpreter is
    taken.
    """
    context = getattr(spark, "sparkContext", None)  # Spark Connect has none: its server's Python is set up there
    if context is not None:
        if (context.master or "").startswith("local") and "PYSPARK_PYTHON" not in os.environ:
            context.pythonExec = sys.executable
        _show_files_to_streams(SparkFiles.getRootDirectory())
    spark.dataSource.register(PocketMQSource)
    spark.dataSource.register(PocketMQLogSource)


def _show_files_to_streams(directory: str) -> None:
    """Let the process that plans a stream find what ``--py-files`` and ``addPyFile`` brought.

    Spark (4.3) tells that process to look into a folder ``streaming_job`` of the driver's files, which it never makes:
    without this link a package that is shipped as a file works in batch queries only.
    """
    if not os.path.isabs(directory):  # Spark's word for: there is none
        return
    with contextlib.suppress(OSError):  # there already, or not ours to write: then as Spark does it
        os.symlink(".", os.path.join(directory, STREAM_FOLDER))
