"""Tells the service manager that started this process how far it is: systemd's ``Type=notify``.

Lives here: ``ServiceManager``, which sends datagrams to ``$NOTIFY_SOCKET`` (sd_notify(3)), and none where that is not
set.
"""

import socket
import threading
from collections.abc import MutableMapping
from typing import Final

from pocketmq.common.clock import Clock

VARIABLE: Final = "NOTIFY_SOCKET"
EXTEND_US: Final = 120_000_000
"""How much longer a start may take after each notice of progress; less than a stalled disk takes to be noticed."""
NOTICE_NS: Final = 1_000_000_000
"""Least time between two notices of progress."""


class ServiceManager:
    """Sends what it is told, never blocks and never fails. Any thread."""

    def __init__(self, environment: MutableMapping[str, str], clock: Clock) -> None:
        """Take the socket out of ``environment``, so that no process of this one answers for it."""
        self._clock = clock
        self._lock = threading.Lock()
        self._noticed_ns = clock.monotonic_ns()
        path = environment.pop(VARIABLE, "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        if not path.startswith(("/", "@")):  # vsock: of a whole virtual machine
            self._address = ""

    def starting(self, offset: int, end: int) -> None:
        """Ask for more time: a long recovery is no failure. One notice a second is sent, none in the first."""
        if not self._address:
            return
        with self._lock:
            now_ns = self._clock.monotonic_ns()
            if now_ns - self._noticed_ns < NOTICE_NS:
                return
            self._noticed_ns = now_ns
        self._send(f"EXTEND_TIMEOUT_USEC={EXTEND_US}", f"STATUS=recovering the store: {offset:,} of {end:,} bytes")

    def ready(self, status: str) -> None:
        """Say that it serves; ``status`` is shown by ``systemctl status``."""
        self._send("READY=1", f"STATUS={status}")

    def stopping(self) -> None:
        """Say that it stops, and that this is meant."""
        self._send("STOPPING=1", "STATUS=answering what waits, then closing the store")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
                notify.setblocking(False)
                notify.sendto("\n".join(lines).encode(), self._address)
        except OSError:  # nobody listens any more: serving matters more than saying so
            pass
