"""Registration of the formats with a Spark session.

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

    Without PYSPARK_PYTHON, Spark starts its Python workers with ``python3`` from PATH, which lacks this package if the
    virtual environment is not activated. On ``local`` masters the workers use this interpreter instead.
    """
    context = getattr(spark, "sparkContext", None)  # Spark Connect has none: its server's Python is set up there
    if context is not None:
        if (context.master or "").startswith("local") and "PYSPARK_PYTHON" not in os.environ:
            context.pythonExec = sys.executable
        _show_files_to_streams(SparkFiles.getRootDirectory())
    spark.dataSource.register(PocketMQSource)
    spark.dataSource.register(PocketMQLogSource)


def _show_files_to_streams(directory: str) -> None:
    """Let the process that plans a stream find the files of ``--py-files`` and ``addPyFile``.

    Spark (4.3) points that process to a folder ``streaming_job`` in the driver's files, but never creates it: without
    this link a package shipped as a file works in batch queries only.
    """
    if not os.path.isabs(directory):  # Spark's value for none
        return
    with contextlib.suppress(OSError):  # it exists, or the directory is not writable: as without this function
        os.symlink(".", os.path.join(directory, STREAM_FOLDER))
