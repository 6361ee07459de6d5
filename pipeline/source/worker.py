"""What the Python workers of Spark keep from task to task.

Lives here: ``settle``.
"""

import functools
import gc

from pyspark import TaskContext


def settle() -> None:
    """Let the garbage collector of a worker pass over what the modules hold; call it when a task has read.

    Spark's daemon collects after each task, which costs it 0.1 to 0.3 µs a row at 125,000 rows a task: it looks at all
    objects of pyarrow, NumPy and Spark. Does nothing outside of tasks: a user's program has a life of its own.
    """
    if TaskContext.get() is not None:
        _freeze()


@functools.cache
def _freeze() -> None:
    gc.collect()
    gc.freeze()
