"""A queue that serves the connections in turn.

Lives here: ``FairQueue``, for a pair whose requests may each take long.
"""

from collections.abc import Callable

from pocketmq.broker.request.request_task import Task
from pocketmq.broker.request.sweepable_queue import SweepableQueue


class FairQueue(SweepableQueue[Task]):
    """Hands out one task at a time: the first one of a connection that has had none in this round.

    So a connection waits for one task of each other connection, however many the others have queued. A drain looks at
    each waiting task at most once, 30 ns each.
    """

    __slots__ = ("_served",)

    def __init__(self, count_max: int, size_bytes_max: int, wake: Callable[[], None] | None = None) -> None:
        super().__init__(count_max, size_bytes_max, wake)
        self._served: set[int] = set()  # connections of this round, by identity: none is kept alive for it

    def drain(self, count_max: int, size_bytes_max: int) -> list[Task]:
        """Remove and return one task, if any waits."""
        with self._lock:
            tasks, served = self.tasks, self._served
            if not tasks:
                served.clear()
                return []
            index = next((at for at, task in enumerate(tasks) if id(task.connection) not in served), -1)
            if index < 0:
                served.clear()
                index = 0
            task = tasks[index]
            del tasks[index]
            served.add(id(task.connection))
            self._size_bytes -= task.size_bytes
            return [task]
