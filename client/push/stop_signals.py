"""Signals that end the consumers of a loop: SIGTERM of a container or systemd, SIGINT of a terminal.

Lives here: ``StopSignals``. A signal that the application handles itself is left to it.
"""

import asyncio
import contextlib
import signal
import threading
import weakref
from collections.abc import Callable, Collection
from typing import Any, Final

DEFAULT_SIGNALS: Final[tuple[signal.Signals, ...]] = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Calls ``stop`` when one of ``wanted`` arrives, while the context is entered.

    Only in the main thread of the process, only where the loop can handle signals, and only for signals without a
    handler of the application's own; else it does nothing. Several at once in one loop are all called. A second SIGINT
    acts as it did before; a second SIGTERM changes nothing.
    """

    def __init__(self, wanted: Collection[signal.Signals], stop: Callable[[], None]) -> None:
        self._wanted = tuple(wanted)
        self._stop = stop

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            loop = asyncio.get_running_loop()
            hold = _HOLDS.setdefault(loop, _Hold())
            for number in self._wanted:
                hold.add(loop, number, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        if threading.current_thread() is threading.main_thread():
            loop = asyncio.get_running_loop()
            hold = _HOLDS.get(loop)
            if hold is not None:
                hold.remove(loop, self._stop)


class _Hold:
    """The signals that one loop handles for its consumers."""

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._stops: dict[int, list[Callable[[], None]]] = {}

    def add(self, loop: asyncio.AbstractEventLoop, number: signal.Signals, stop: Callable[[], None]) -> None:
        if number not in self._stops:
            before = signal.getsignal(number)
            if not _is_default(before):
                return
            try:
                loop.add_signal_handler(number, self._arrived, loop, number)
            except (NotImplementedError, RuntimeError, ValueError):  # Windows, or a loop without signals
                return
            self._before[number] = before
            self._stops[number] = []
        self._stops[number].append(stop)

    def remove(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        for number, stops in list(self._stops.items()):
            if stop in stops:
                stops.remove(stop)
            if not stops:
                self._restore(loop, number)

    def _restore(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        self._stops.pop(number, None)
        before = self._before.pop(number, None)
        if before is not None:
            with contextlib.suppress(RuntimeError, ValueError):  # the loop is being closed
                loop.remove_signal_handler(number)
                signal.signal(number, before)

    def _arrived(self, loop: asyncio.AbstractEventLoop, number: signal.Signals) -> None:
        for stop in list(self._stops.get(number, ())):
            stop()
        if number == signal.SIGINT:
            self._restore(loop, number)


def _is_default(handler: Any) -> bool:
    """Return whether nobody but Python handles the signal: ``asyncio.run`` has a handler for SIGINT."""
    if handler in (signal.SIG_DFL, signal.default_int_handler):
        return True
    return getattr(getattr(handler, "func", None), "__qualname__", "") == "Runner._on_sigint"


_HOLDS: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Hold]" = weakref.WeakKeyDictionary()
"""By loop: signals belong to the process, and several consumers of one loop share them."""
