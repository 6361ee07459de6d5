"""Admission control: every request is queued or refused here, on the loop, at once.

Lives here: ``Admission``, the request handler of the broker's server.
"""

from collections.abc import Callable
from typing import Any, Final

from pocketmq.broker.flow_control.refusal_stats import RefusalStats
from pocketmq.broker.request.executor import DrainExecutor
from pocketmq.broker.request.request_table import RequestTable
from pocketmq.broker.request.request_task import OVERLOAD, SHUTTING_DOWN, Refusal, Task, encode_refusal
from pocketmq.common import refusals
from pocketmq.common.clock import Clock
from pocketmq.common.errors import Cause
from pocketmq.common.events import EventLog
from pocketmq.remoting.codec import Request
from pocketmq.remoting.server import Connection

TASK_BYTES: Final = 1024
"""Approximate memory of a queued request without its body: objects and a usual header. So the limit in bytes also
bounds empty requests."""
_HEADER_FACTOR: Final = 4
"""Each byte of a longer header counts four times: one wide character makes a whole text four bytes wide."""
_ENTRY_BYTES: Final = 128
"""Memory of one field or section of a longer header as an object: on the wire it may have had five bytes."""

LOG_INTERVAL_NS: Final = 1_000_000_000
"""RocketMQ logs its line only when the clock's ms happen to be a multiple of 10,000."""
STARTING: Final = Refusal(
    refusals.STARTING.code,
    refusals.STARTING.template,
    Cause.SHUTTING_DOWN,
    retry_after_ms=refusals.AFTER_START.ms_max,
)


class Admission:
    """Takes requests from the server; never blocks. Closed until ``open``. A refused oneway request is dropped and
    counted."""

    def __init__(
        self,
        on_connection_closed: Callable[[Connection], None],
        clock: Clock,
        log: EventLog,
        refusal_stats: RefusalStats | None = None,
    ) -> None:
        """``refusal_stats``: the broker's; without them this object keeps its own."""
        self._refusals = refusal_stats or RefusalStats(clock, log)
        self._table: RequestTable | None = None
        self._on_connection_closed = on_connection_closed
        self._clock = clock
        self._log = log
        self._closed_with = STARTING
        self._overload_logged_ns: dict[str, int] = {}
        self.oneway_dropped = 0
        self.refused: dict[str, int] = {}
        """Refusals by cause."""

    def open(self, table: RequestTable) -> None:
        """Admit requests from now on."""
        self._table = table

    def close(self) -> None:
        """Refuse every request from now on: the broker stops."""
        self._table = None
        self._closed_with = SHUTTING_DOWN

    def serves(self, code: int) -> bool:
        """Return whether requests with this code can be served; True while that is not known."""
        return self._table is None or self._table.serves(code)

    def on_request(self, connection: Connection, request: Request) -> None:
        """Queue one request, or refuse it."""
        table = self._table
        if table is None:
            self._refuse(connection, request, self._closed_with)
            return
        pair = table.pair_for(request.code)
        refusal = pair.processor.reject_request()
        if refusal is not None:
            self._refuse(connection, request, refusal)
            return
        size_bytes = len(request.body) + TASK_BYTES
        if request.header_bytes > TASK_BYTES:
            size_bytes += _header_memory_bytes(request)
        task = Task(connection, request, self._clock.monotonic_ns(), size_bytes)
        if not pair.offer(task):
            self._log_overload(pair, request.code, task.created_ns)
            self._refuse(connection, request, OVERLOAD)

    def _log_overload(self, pair: DrainExecutor, request_code: int, now_ns: int) -> None:
        """Log RocketMQ's line, at most once a second for each pair: the log must not make a flood worse."""
        if now_ns - self._overload_logged_ns.get(pair.name, now_ns - LOG_INTERVAL_NS) < LOG_INTERVAL_NS:
            return
        self._overload_logged_ns[pair.name] = now_ns
        self._log.warning(
            "too many requests and system thread pool busy, RejectedExecutionException",
            pair=pair.name,
            queue_size=len(pair.queue),
            queue_bytes=pair.queue.size_bytes,
            refused=pair.refused,
            request_code=request_code,
        )

    def on_open(self, connection: Connection) -> None:
        """Do nothing: a connection matters from its first request on."""

    def on_close(self, connection: Connection, reason: str) -> None:
        """Forget a connection and everything that belongs to it."""
        self._on_connection_closed(connection)

    def _refuse(self, connection: Connection, request: Request, refusal: Refusal) -> None:
        cause = refusal.cause.value
        self.refused[cause] = self.refused.get(cause, 0) + 1
        self._refusals.note(cause, refusal.code, refusal.remark)
        if request.oneway:
            self.oneway_dropped += 1
        elif not connection.closed:
            connection.respond(encode_refusal(request, refusal))


def _header_memory_bytes(request: Request) -> int:
    """Return approximately the maximum memory of a decoded header."""
    header: Any = request.header
    entries = len(request.extra)
    for field in ("sections", "queues"):
        entries += len(getattr(header, field, None) or ())
    return _HEADER_FACTOR * request.header_bytes + _ENTRY_BYTES * entries
