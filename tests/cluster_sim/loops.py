"""An event loop of asyncio on virtual time, one for each process.

Lives here: ``SimLoop`` with its tasks and futures, ``SimServer``.
"""

import asyncio
import contextvars
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from tests.cluster_sim.kernel import Kernel, Strand, StrandKilled
from tests.cluster_sim.network import Endpoint
from tests.cluster_sim.transports import LoopTransport

if TYPE_CHECKING:
    from tests.cluster_sim.machines import Process

T = TypeVar("T")


class SimTask(asyncio.Task[Any]):
    """A task whose place in a set depends on when it was made, not on where it lies in memory."""

    def __init__(self, number: int, work: Coroutine[Any, Any, Any], **options: Any) -> None:
        self._number = number
        super().__init__(work, **options)

    def __hash__(self) -> int:
        return self._number


class SimFuture(asyncio.Future[Any]):
    """A future with such a place."""

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class SimServer:
    """A listening port, as ``create_server`` returns it."""

    def __init__(self, process: "Process", port: int) -> None:
        self.sockets = (self,)
        self._process = process
        self._port = port

    def getsockname(self) -> tuple[str, int]:
        return self._process.machine.host, self._port

    def close(self) -> None:
        self._process.machine.network.unlisten(self._process.machine.host, self._port)

    async def wait_closed(self) -> None:
        pass


class SimLoop(asyncio.AbstractEventLoop):
    """The loop of one process; its turns are strands."""

    def __init__(self, kernel: Kernel, process: "Process") -> None:
        self._kernel = kernel
        self._process = process
        self._clock = process.machine.clock
        self._ready: deque[asyncio.Handle] = deque()
        self._strand = Strand(process, "loop", kernel.number())
        self._planned = False
        self.unhandled: list[dict[str, Any]] = []
        self.made: list[object] = []
        """Every task: none is collected, and closed by that, before the run is over."""

    # ---- calls

    def time(self) -> float:
        return self._clock.monotonic_ns() / 1e9

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        self._plan()
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)

        def due() -> None:
            if not handle.cancelled():
                self._ready.append(handle)
                self._plan()

        # A timer of asyncio never fires before its time, by the loop's own clock.
        self._kernel.at(self._clock.kernel_ns(int(when * 1e9)) + 1000 + self._kernel.soon_ns(), self._process, due)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            self._kernel.after(self._kernel.soon_ns(20_000), self._process, self._turn)

    def _turn(self) -> None:
        self._kernel.run_strand(self._strand, self._run_ready)

    def _run_ready(self) -> None:
        ready = self._ready
        events._set_running_loop(self)
        try:
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle.cancelled():
                    handle._run()
                if not self._process.alive:
                    return
        finally:
            events._set_running_loop(None)
        self._planned = False
        if ready:
            self._plan()

    # ---- tasks and futures

    def create_future(self) -> "asyncio.Future[Any]":
        return SimFuture(self._kernel.number(), self)

    def create_task(
        self,
        coro: Any,
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **_: Any,
    ) -> "asyncio.Task[Any]":
        task = SimTask(self._kernel.number(), coro, loop=self, name=name, context=context)
        self.made.append(task)
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = self.create_future()
        strand = Strand(self._process, "executor", self._kernel.number())

        def finish(error: BaseException | None, result: T | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        def call() -> None:
            try:
                result = func(*args)
            except StrandKilled:
                raise
            except BaseException as error:
                self.call_soon(finish, error, None)
            else:
                self.call_soon(finish, None, result)

        self._kernel.after(self._kernel.soon_ns(), self._process, lambda: self._kernel.run_strand(strand, call))
        return future

    # ---- the network

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        transport = await self._process.machine.network.connect(self._process, str(host), int(port))
        protocol = protocol_factory()
        transport.begin(protocol)
        return transport, protocol

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        machine = self._process.machine

        def accept(endpoint: Endpoint) -> None:
            transport = LoopTransport(endpoint)
            self.call_soon(lambda: transport.begin(protocol_factory()))

        bound = machine.network.listen(self._process, machine.host, int(port or 0), accept)
        return SimServer(self._process, bound)

    # ---- the rest

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._process.alive and not self._process.ended:
            self.unhandled.append(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def get_exception_handler(self) -> None:
        return None

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return not self._process.alive

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        pass
