"""Accepts plain and TLS connections at one port, as RocketMQ does: the first byte of a TLS connection is 0x16.

A plain frame begins with its length; 0x16 would be one of more than 369 MB, which no server takes. So one byte decides.
It is looked at, not read (MSG_PEEK), and the loop takes the connection over with ``connect_accepted_socket``. asyncio
and uvloop listen by themselves where TLS is off; this module serves only where it is on. (The PROXY protocol, which
RocketMQ finds before that byte, is not known here.)

What a stranger costs:

- Until its first byte, and until the first TLS record is whole, a connection is one descriptor and one small object,
  counted like any other (``Door``), closed after ``handshake_timeout_mills``; one that has been silent for
  ``SILENT_NS`` gives way where there are too many.
- The private key's operation runs on the loop. So a handshake begins only when its first record is here and holds the
  whole ClientHello, and when it is its turn (``handshakes``).

Lives here: ``Acceptor``, ``Door``, ``TlsSource``.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from typing import Final, Protocol

from pocketmq.common.clock import Clock
from pocketmq.common.events import EventLog
from pocketmq.remoting.handshakes import NS_PER_S, Handshakes
from pocketmq.remoting.security.tls_config import ENFORCING, TlsConfig

HANDSHAKE_BYTE: Final = 0x16
"""Content type of a TLS handshake record (RFC 8446, 5.1)."""
CLIENT_HELLO: Final = 1
RECORD_HEAD_BYTES: Final = 5
HELLO_HEAD_BYTES: Final = 4
RECORD_BYTES_MAX: Final = 1 << 14
PEEKS_MAX: Final = 16
ACCEPTS_AT_ONCE: Final = 64
"""Connections taken in one turn of the loop."""
SILENT_NS: Final = 2_000_000_000
NO_DESCRIPTOR_WAIT_S: Final = 1.0
LOG_EVERY_NS: Final = 10_000_000_000
SHUTDOWN_S: Final = 1.0
"""How long a closing TLS connection waits for the peer's last word."""


class Door(Protocol):
    """The server, which counts connections from their first moment."""

    def welcomes(self, host: str) -> bool:
        """Return whether this host may make a further connection now; asked once for each."""
        ...

    def enter(self, host: str) -> bool:
        """Count a connection that has sent nothing yet; False refuses it."""
        ...

    def leave(self, host: str) -> None:
        """Stop counting it: it is gone, or about to be counted as a ``Connection``."""
        ...


class TlsSource(Protocol):
    """The certificate of a listener."""

    config: TlsConfig
    server: ssl.SSLContext | None
    """For new connections; it may change."""


class _Caller:
    """One accepted socket, until it is a connection or closed."""

    __slots__ = ("counted", "deadline_ns", "host", "opened_ns", "peeks", "protocol", "sock", "task")

    def __init__(self, sock: socket.socket, host: str, now_ns: int, deadline_ns: int) -> None:
        self.sock = sock
        self.host = host
        self.opened_ns = now_ns
        self.deadline_ns = deadline_ns
        self.counted = True
        self.peeks = 0
        self.task: asyncio.Task[None] | None = None
        self.protocol: asyncio.BufferedProtocol | None = None
        """Of the connection that the loop is making; the socket is the loop's from then on."""


class Acceptor:
    """The listening sockets of one server. Loop thread only.

    ``factory`` makes the protocol of a connection. When that is made, its ``connection_made`` calls ``arrived`` before
    it counts itself, so that no connection counts twice.
    """

    def __init__(
        self,
        factory: Callable[[], asyncio.BufferedProtocol],
        door: Door,
        tls: TlsSource,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        log: EventLog,
    ) -> None:
        self._factory = factory
        self._door = door
        self._tls = tls
        self._loop = loop
        self._clock = clock
        self._log = log
        self._timeout_ns = tls.config.handshake_timeout_mills * 1_000_000
        self._sockets: list[socket.socket] = []
        self._callers: dict[_Caller, None] = {}
        """All that are no connection yet, the oldest first."""
        self._protocols: dict[asyncio.BaseProtocol, _Caller] = {}
        """Protocols whose connection is being made."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._handshakes: Handshakes[_Caller] = Handshakes(tls.config.handshakes_per_second_max)
        self._pump_timer: asyncio.TimerHandle | None = None
        self._refused: dict[str, int] = {}
        """Why → connections refused since the last line in the log."""
        self._logged_ns = 0
        self._last_host = ""
        self._closed = False
        self.handshakes = 0
        """TLS connections made."""
        self.failed = 0
        """Connections closed before they were made: plain ones where only TLS is served, bad and slow handshakes."""

    # ---- listening -------------------------------------------------------------------------------------------------

    async def listen(self, host: str, port: int, backlog: int) -> int:
        """Listen at every address of ``host``; return the port. Raise ``OSError``."""
        found = await self._loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        opened: list[socket.socket] = []
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                sock = socket.socket(family, kind, protocol)
                opened.append(sock)
                sock.setblocking(False)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                sock.bind((address[0], port, *address[2:]))
                sock.listen(backlog)
                port = port or sock.getsockname()[1]
        except BaseException:
            for sock in opened:
                sock.close()
            raise
        for sock in opened:
            self._loop.add_reader(sock.fileno(), self._accept, sock)
        self._sockets += opened
        return port

    def close(self) -> None:
        """Close the ports and every connection that is not made yet."""
        self._closed = True
        if self._pump_timer is not None:
            self._pump_timer.cancel()
        for sock in self._sockets:
            self._loop.remove_reader(sock.fileno())
            sock.close()
        self._sockets.clear()
        for caller in list(self._callers):
            self._drop(caller)

    async def wait_closed(self) -> None:
        """Return when the handshakes that ``close`` has cancelled are over."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._wait_for_descriptors(listening, error)
                return
            sock.setblocking(False)
            host = str(address[0])
            if not self._door.welcomes(host):
                sock.close()
                continue
            if not self._door.enter(host) and not (self._make_room(host) and self._door.enter(host)):
                sock.close()
                continue
            now_ns = self._clock.monotonic_ns()
            caller = _Caller(sock, host, now_ns, now_ns + self._timeout_ns)
            self._callers[caller] = None
            self._loop.add_reader(sock.fileno(), self._peek, caller)

    def _wait_for_descriptors(self, listening: socket.socket, error: OSError) -> None:
        self._log.error("accept_failed", error=str(error), hint="raise the limit of open files (ulimit -n)")
        self._loop.remove_reader(listening.fileno())

        def listen_again() -> None:
            if not self._closed:
                self._loop.add_reader(listening.fileno(), self._accept, listening)

        self._loop.call_later(NO_DESCRIPTOR_WAIT_S, listen_again)

    def _make_room(self, host: str) -> bool:
        """Drop the oldest silent one, of this host before others; return whether there was one."""
        silent_ns = self._clock.monotonic_ns() - SILENT_NS
        oldest: _Caller | None = None
        for caller in self._callers:
            if caller.opened_ns > silent_ns:
                break
            if caller.host == host:
                oldest = caller
                break
            oldest = oldest or caller
        if oldest is None:
            return False
        self._refuse(oldest, "others need its place")
        return True

    # ---- the first bytes -------------------------------------------------------------------------------------------

    def _peek(self, caller: _Caller) -> None:
        """Decide what the connection is, as soon as enough of it is here."""
        try:
            head = caller.sock.recv(RECORD_HEAD_BYTES + HELLO_HEAD_BYTES, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._drop(caller)
            return
        if not head:
            self._drop(caller)
        elif head[0] != HANDSHAKE_BYTE:
            if self._tls.config.server_mode == ENFORCING:
                self._refuse(caller, "plain, and only TLS is served")
            else:
                self._loop.remove_reader(caller.sock.fileno())
                self._begin(caller, None)
        else:
            self._take_record(caller, head)

    def _take_record(self, caller: _Caller, head: bytes) -> None:
        """Wait until the first record is whole: the system says so (SO_RCVLOWAT), nothing is copied until then."""
        caller.peeks += 1
        if caller.peeks > PEEKS_MAX:  # a peer that has closed makes its socket readable, however little it has sent
            self._drop(caller)
            return
        wanted = RECORD_HEAD_BYTES + HELLO_HEAD_BYTES
        if len(head) == wanted:
            record_bytes, hello_bytes = int.from_bytes(head[3:5], "big"), int.from_bytes(head[6:9], "big")
            if head[1] != 3 or head[5] != CLIENT_HELLO or not 0 < record_bytes <= RECORD_BYTES_MAX:
                self._refuse(caller, "no TLS handshake behind the byte 0x16")
                return
            if hello_bytes + HELLO_HEAD_BYTES > record_bytes:
                self._refuse(caller, "a ClientHello in more than one record")
                return
            wanted = RECORD_HEAD_BYTES + record_bytes
            if len(caller.sock.recv(wanted, socket.MSG_PEEK)) == wanted:
                self._loop.remove_reader(caller.sock.fileno())
                caller.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
                self._handshakes.join(caller.host, caller)
                self._pump()
                return
        caller.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)

    # ---- handshakes ------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Begin the next handshake if one may begin now, else when one may."""
        if self._pump_timer is not None or self._closed or not self._handshakes.is_awaited:
            return
        now_ns = self._clock.monotonic_ns()
        slow = self._handshakes.slow(now_ns)
        if slow is not None:
            self._refuse(slow, "a slow handshake, and others wait")
        caller = self._handshakes.next(now_ns)
        if caller is not None:
            self._begin(caller, self._tls.server)
        if self._handshakes.is_awaited:
            self._pump_timer = self._loop.call_later(self._handshakes.wait_ns(now_ns) / NS_PER_S, self._pump_again)

    def _pump_again(self) -> None:
        self._pump_timer = None
        self._pump()

    def _begin(self, caller: _Caller, context: ssl.SSLContext | None) -> None:
        now_ns = self._clock.monotonic_ns()
        left_s = max(1, caller.deadline_ns - now_ns) / NS_PER_S
        caller.task = self._loop.create_task(self._connect(caller, context, left_s))
        self._tasks.add(caller.task)
        caller.task.add_done_callback(self._tasks.discard)

    async def _connect(self, caller: _Caller, context: ssl.SSLContext | None, left_s: float) -> None:
        def factory() -> asyncio.BufferedProtocol:
            caller.protocol = self._factory()
            self._protocols[caller.protocol] = caller
            return caller.protocol

        try:
            caller.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is None:
                await self._loop.connect_accepted_socket(factory, caller.sock)
            else:
                await self._loop.connect_accepted_socket(
                    factory,
                    caller.sock,
                    ssl=context,
                    ssl_handshake_timeout=left_s,
                    ssl_shutdown_timeout=SHUTDOWN_S,
                )
                self.handshakes += 1
        except OSError as error:  # of ssl and of time as well
            self._note_failed(caller, error)
        finally:
            if caller.protocol is not None:
                self._protocols.pop(caller.protocol, None)
            self._end(caller)
            if context is not None:
                self._pump()

    def arrived(self, protocol: asyncio.BaseProtocol) -> bool:
        """Give up the place of a connection that is made now, which counts itself from here on; False: it did not come
        this way."""
        caller = self._protocols.pop(protocol, None)
        if caller is None:
            return False
        self._end(caller)
        return True

    def _end(self, caller: _Caller) -> None:
        """Forget one that is a connection now, or has failed."""
        self._callers.pop(caller, None)
        self._handshakes.end(caller.host, caller)
        if caller.counted:
            caller.counted = False
            self._door.leave(caller.host)

    # ---- the end of those that are not made ------------------------------------------------------------------------

    def _drop(self, caller: _Caller) -> None:
        self._end(caller)
        if caller.task is not None:
            caller.task.cancel()
        else:
            self._loop.remove_reader(caller.sock.fileno())
        if caller.protocol is None:  # else the loop closes it
            caller.sock.close()

    def _refuse(self, caller: _Caller, why: str) -> None:
        self._count(why, caller.host)
        self._drop(caller)

    def _note_failed(self, caller: _Caller, error: OSError) -> None:
        if isinstance(error, TimeoutError) or "handshake is taking longer" in str(error):
            why = "the handshake took too long"
        elif isinstance(error, ssl.SSLCertVerificationError):
            why = f"its certificate is refused: {error.verify_message}"
        elif isinstance(error, ssl.SSLError):
            why = f"handshake failed: {error.reason or error}"
        else:
            why = "it closed the connection during the handshake"
        self._count(why, caller.host)

    def _count(self, why: str, host: str) -> None:
        """Count a refusal; ``expire`` logs them, every ten seconds at most."""
        self.failed += 1
        self._refused[why] = self._refused.get(why, 0) + 1
        self._last_host = host
        if self.failed == 1:
            self._log_refused()

    def _log_refused(self) -> None:
        self._logged_ns = self._clock.monotonic_ns()
        refused, self._refused = self._refused, {}
        for why, count in refused.items():
            self._log.warning("tls_refused", why=why, count=count, last_host=self._last_host)

    def expire(self, now_ns: int) -> None:
        """Close those whose time is over. The server calls it every second."""
        for caller in list(self._callers):
            if caller.deadline_ns > now_ns:
                break
            if caller.task is None:  # else the handshake has its own deadline, the same
                self._refuse(caller, "no first byte, or half a ClientHello, in time")
        if self._refused and now_ns - self._logged_ns >= LOG_EVERY_NS:
            self._log_refused()
