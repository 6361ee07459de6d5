"""The connection between master and slave, and the port that accepts it.

Lives here: ``Transport`` and ``Listener`` as protocols, their sockets, ``connect`` and ``listen``.

Calls block for at most the given time, so they belong in workers of a ``Runner``, never in the event loop.
"""

import ipaddress
import select
import socket
import struct
from collections.abc import Sequence
from typing import Final, Protocol

from pocketmq.common.addresses import address_text
from pocketmq.common.errors import Cause, ConfigError, PocketMQError

BACKLOG: Final = 16
PORT_MAX: Final = 65_535


class TransportError(PocketMQError):
    """A connection between master and slave failed or broke."""

    retriable = True
    default_cause = Cause.CONNECTION


class Transport(Protocol):
    """One connection. One thread receives, one thread at a time sends; any thread may ``cut``."""

    peer: str
    """The other side's address, host:port."""

    def receive_into(self, buffer: memoryview, wait_ms: float) -> int | None:
        """Receive available bytes; return how many, 0 when the peer has closed, None when none arrived in time.
        Raises ``TransportError``."""
        ...

    def send(self, parts: Sequence[bytes | memoryview]) -> int:
        """Send, without waiting, as much of ``parts`` back to back as fits; return how many bytes.

        Raises ``TransportError``.
        """
        ...

    def wait_writable(self, wait_ms: float) -> bool:
        """Wait until ``send`` accepts bytes again; return False if it does not in time."""
        ...

    def cut(self) -> None:
        """Shut down both directions; blocked ``receive_into`` and ``wait_writable`` calls return."""
        ...

    def close(self) -> None:
        """Cut, and release the descriptor. Only the receiving thread calls it."""
        ...


class Listener(Protocol):
    """A port that accepts connections."""

    port: int

    def accept(self, wait_ms: float) -> Transport | None:
        """Return the next connection, None when none arrived in time. Raises ``TransportError`` (no descriptors)."""
        ...

    def close(self) -> None:
        """Release the port; a blocked ``accept`` returns."""
        ...


class SocketTransport:
    """A ``Transport`` over TCP.

    The socket is in blocking mode with a receive timeout of the system: one call per receive, where Python's own
    timeouts cost an extra ``poll``. Sends use MSG_DONTWAIT.
    """

    __slots__ = ("_socket", "_wait_ms", "peer")

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(True)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._wait_ms = 0.0
        try:
            name = connected.getpeername()
        except OSError:  # gone already: the first receive reports it
            name = ("?", 0)
        self.peer = address_text(str(name[0]), name[1])

    def receive_into(self, buffer: memoryview, wait_ms: float) -> int | None:
        """See ``Transport``."""
        try:
            if wait_ms <= 0:
                return self._socket.recv_into(buffer, 0, socket.MSG_DONTWAIT)
            if wait_ms != self._wait_ms:
                micros = max(1000, int(wait_ms * 1000))
                limit = struct.pack("ll", micros // 1_000_000, micros % 1_000_000)
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
                self._wait_ms = wait_ms
            return self._socket.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            raise _broken(self.peer, error) from error

    def send(self, parts: Sequence[bytes | memoryview]) -> int:
        """See ``Transport``."""
        try:
            return self._socket.sendmsg(parts, (), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise _broken(self.peer, error) from error

    def wait_writable(self, wait_ms: float) -> bool:
        """See ``Transport``."""
        poll = select.poll()
        try:
            poll.register(self._socket, select.POLLOUT)
            return bool(poll.poll(max(0.0, wait_ms)))
        except (OSError, ValueError):  # closed meanwhile: the next send reports it
            return True

    def cut(self) -> None:
        """See ``Transport``."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # the peer was faster
            pass

    def close(self) -> None:
        """See ``Transport``."""
        self.cut()
        self._socket.close()


class SocketListener:
    """A ``Listener`` on a TCP port."""

    def __init__(self, listening: socket.socket) -> None:
        self._socket = listening
        self.port: int = listening.getsockname()[1]

    def accept(self, wait_ms: float) -> Transport | None:
        """See ``Listener``."""
        try:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            if not poll.poll(max(0.0, wait_ms)):
                return None
            connected, _ = self._socket.accept()
            return SocketTransport(connected)
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None
        except (OSError, ValueError) as error:
            raise TransportError("no connection accepted", why=str(error)) from error

    def close(self) -> None:
        """See ``Listener``."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # macOS: a listening socket cannot be shut down; the wait in accept is short
            pass
        self._socket.close()


def listen(bind_address: str, port: int) -> SocketListener:
    """Open a port; 0 lets the system choose. Raises ``ConfigError``."""
    family = socket.AF_INET6 if ":" in bind_address else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((bind_address, port))
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except (OSError, OverflowError) as error:
        listening.close()
        raise ConfigError(
            "HA port not opened",
            why=f"{address_text(bind_address, port)}: {error}",
            hint="choose another port with store.ha_listen_port, or end the process that has this one",
        ) from error
    return SocketListener(listening)


def connect(address: str, timeout_ms: float) -> SocketTransport:
    """Connect to host:port. Raises ``TransportError``, also for an invalid address."""
    host, _, port = address.rpartition(":")
    try:
        if not 0 < int(port) <= PORT_MAX:  # getaddrinfo takes it modulo 65,536: the peer would be a stranger
            raise ValueError(f"port {port} is not from 1 to {PORT_MAX}")
        return SocketTransport(
            socket.create_connection((host.strip("[]"), int(port)), timeout=max(0.001, timeout_ms / 1000))
        )
    except (OSError, ValueError, OverflowError) as error:
        raise TransportError("no connection to the master", why=f"{address}: {error}") from error


def host_of(peer: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address in a ``Transport.peer`` (IPv4 even if mapped into IPv6); None if it is invalid."""
    try:
        address = ipaddress.ip_address(peer.rpartition(":")[0].strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _broken(peer: str, error: OSError) -> TransportError:
    return TransportError("HA connection broken", why=f"{peer}: {error}")
