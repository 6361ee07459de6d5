"""A connection between master and slave over TLS.

The records go through memory (``ssl.MemoryBIO``): OpenSSL must not be entered by two threads at once, and the receiver
may wait in the socket while another thread sends. The lock is held over encryption and sends that do not wait, never
over a wait. The master's side shakes hands in its receiver's thread, as its first bytes arrive, so that ``accept``
waits for no stranger. In permissive mode a peer whose first byte is not 0x16 is served plain.

Lives here: ``HaTls``, ``TlsTransport``, ``TlsListener``, ``with_tls``, ``connect_tls``.
"""

import ssl
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pocketmq.common.clock import Clock
from pocketmq.store.ha.transport import Listener, Transport, TransportError

HANDSHAKE_BYTE: Final = 0x16
CIPHER_BYTES: Final = 128 << 10
"""Bytes that one receive takes from the socket."""
SEND_BYTES_MAX: Final = 256 << 10
"""Bytes that one send encrypts at most; so much may wait for the socket."""


@dataclass(frozen=True, slots=True)
class HaTls:
    """The TLS of a broker's HA port, and of its connection to a master.

    ``server`` returns the context for the next connection that is accepted, None: plain. ``enforcing``: plain peers
    are refused. ``client``: the context of the connection to a master, None: plain; ``server_name``: the name that the
    master's certificate must have, empty: the host of its address.
    """

    server: Callable[[], ssl.SSLContext | None]
    enforcing: bool = False
    client: ssl.SSLContext | None = None
    server_name: str = ""


class TlsTransport:
    """A ``Transport`` over another one."""

    __slots__ = (
        "_cipher",
        "_enforcing",
        "_first",
        "_incoming",
        "_is_ready",
        "_lock",
        "_outgoing",
        "_owed",
        "_plain",
        "_started",
        "_tls",
        "_transport",
        "_unsent",
        "peer",
    )

    def __init__(self, transport: Transport, context: ssl.SSLContext, *, server_name: str | None, enforcing: bool):
        """``server_name`` None: this is the master's side. ``enforcing`` False: it serves plain peers as well."""
        self._transport = transport
        self.peer = transport.peer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_name is None, server_hostname=server_name
        )
        self._enforcing = enforcing
        self._lock = threading.Lock()
        self._cipher = memoryview(bytearray(CIPHER_BYTES))
        self._unsent = memoryview(b"")
        self._owed = False
        """The last byte that was encrypted has not been reported: its record waits in ``_unsent``."""
        self._started = False
        """Whether a byte has been received."""
        self._is_ready = False
        self._plain = False
        self._first = b""
        """What a plain peer sent first."""

    # ---- the handshake

    def shake_hands(self, timeout_ms: float, clock: Clock) -> None:
        """Complete the handshake, or raise ``TransportError``. The slave's side."""
        limit_ns = clock.monotonic_ns() + int(timeout_ms * 1_000_000)
        while not self._step():
            left_ms = (limit_ns - clock.monotonic_ns()) / 1_000_000
            count = self._transport.receive_into(self._cipher, left_ms) if left_ms > 0 else None
            if count is None:
                raise TransportError("no connection to the master", why=f"{self.peer}: no TLS within {timeout_ms} ms")
            if count == 0:
                raise TransportError(
                    "no connection to the master",
                    why=f"{self.peer} closed the connection during the TLS handshake",
                    hint="does the master serve TLS (tls.server_cert_path)? does it want a client certificate?",
                )
            self._incoming.write(self._cipher[:count])

    def _step(self) -> bool:
        """Take the handshake as far as the received bytes allow; return whether it is complete."""
        with self._lock:
            try:
                self._tls.do_handshake()
                self._is_ready = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                self._flush()  # the alert
                raise _failed(self.peer, error) from error
            self._flush()
        return self._is_ready

    # ---- Transport

    def receive_into(self, buffer: memoryview, wait_ms: float) -> int | None:
        """See ``Transport``."""
        if self._plain:
            return self._receive_plain(buffer, wait_ms)
        if self._is_ready:
            count = self._read(buffer)
            if count is not None:
                return count
        received = self._transport.receive_into(self._cipher, wait_ms)
        if not received:
            return received
        if not self._started:
            self._started = True
            if self._cipher[0] != HANDSHAKE_BYTE and not self._enforcing:
                self._plain, self._first = True, bytes(self._cipher[:received])
                return self._receive_plain(buffer, wait_ms)
        self._incoming.write(self._cipher[:received])
        if not self._is_ready and not self._step():
            return None
        return self._read(buffer)

    def _receive_plain(self, buffer: memoryview, wait_ms: float) -> int | None:
        if not self._first:
            return self._transport.receive_into(buffer, wait_ms)
        count = min(len(buffer), len(self._first))
        buffer[:count] = self._first[:count]
        self._first = self._first[count:]
        return count

    def _read(self, buffer: memoryview) -> int | None:
        """Decrypt what has been received; None: no whole record is here."""
        count = 0
        with self._lock:
            try:
                while count < len(buffer):
                    found = self._tls.read(len(buffer) - count, buffer[count:])
                    if not found:
                        break
                    count += int(found)
            except ssl.SSLWantReadError:
                if not count:
                    self._flush()
                    return None
            except ssl.SSLZeroReturnError:
                pass
            except ssl.SSLError as error:
                raise _failed(self.peer, error) from error
            if self._outgoing.pending:
                self._flush()
        return count

    def send(self, parts: Sequence[bytes | memoryview]) -> int:
        """See ``Transport``. While the socket is full the last byte counts as unsent, so that the caller comes back."""
        if self._plain:
            return self._transport.send(parts)
        with self._lock:
            self._flush()
            if self._unsent:
                return 0
            skipped, self._owed = int(self._owed), False
            data = _up_to(parts, SEND_BYTES_MAX + skipped)[skipped:]
            if not data:
                return skipped
            try:
                written = self._tls.write(data)
            except ssl.SSLError as error:
                raise _failed(self.peer, error) from error
            self._flush()
            self._owed = bool(self._unsent) and skipped + written > 1  # 0 would mean that nothing was taken
            return skipped + written - int(self._owed)

    def _flush(self) -> None:
        """Send records without waiting. Under the lock."""
        if self._outgoing.pending:
            self._unsent = memoryview(bytes(self._unsent) + self._outgoing.read())
        if self._unsent:
            self._unsent = self._unsent[self._transport.send([self._unsent]) :]

    def wait_writable(self, wait_ms: float) -> bool:
        """See ``Transport``."""
        return self._transport.wait_writable(wait_ms)

    def cut(self) -> None:
        """See ``Transport``."""
        self._transport.cut()

    def close(self) -> None:
        """See ``Transport``."""
        self._transport.close()


class TlsListener:
    """A ``Listener`` whose connections are TLS."""

    def __init__(self, listener: Listener, tls: HaTls) -> None:
        self._listener = listener
        self._tls = tls
        self.port = listener.port

    def accept(self, wait_ms: float) -> Transport | None:
        """See ``Listener``."""
        transport, context = self._listener.accept(wait_ms), self._tls.server()
        if transport is None or context is None:
            return transport
        return TlsTransport(transport, context, server_name=None, enforcing=self._tls.enforcing)

    def close(self) -> None:
        """See ``Listener``."""
        self._listener.close()


def with_tls(listener: Listener, tls: HaTls | None) -> Listener:
    """Return a listener of TLS connections; where the HA port is plain, ``listener`` itself."""
    return listener if tls is None or tls.server() is None else TlsListener(listener, tls)


def connect_tls(transport: Transport, address: str, tls: HaTls | None, timeout_ms: float, clock: Clock) -> Transport:
    """Return a connection to a master over TLS, its handshake complete; where that is plain, ``transport`` itself.

    Raise ``TransportError``; the connection is closed then.
    """
    if tls is None or tls.client is None:
        return transport
    host = address.rpartition(":")[0].strip("[]")
    try:
        wrapped = TlsTransport(transport, tls.client, server_name=tls.server_name or host, enforcing=True)
        wrapped.shake_hands(timeout_ms, clock)
    except (ValueError, TransportError) as error:
        transport.close()
        if isinstance(error, TransportError):
            raise
        raise TransportError("no connection to the master", why=f"{address}: {error}") from error
    return wrapped


def _up_to(parts: Sequence[bytes | memoryview], count_max: int) -> bytes:
    """Return the first bytes of ``parts``, together."""
    taken: list[bytes | memoryview] = []
    left = count_max
    for part in parts:
        if left <= 0:
            break
        taken.append(part[:left])
        left -= len(part)
    return b"".join(taken)


def _failed(peer: str, error: ssl.SSLError) -> TransportError:
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = "set tls.client_trust_cert_path on slaves, tls.server_trust_cert_path on masters"
        return TransportError(
            "HA connection closed", why=f"{peer}: its certificate is refused: {error.verify_message}", hint=hint
        )
    return TransportError("HA connection closed", why=f"{peer}: TLS: {error.reason or error}")
