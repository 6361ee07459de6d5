"""A connection between master and slave whose ends prove that they know the cluster's secret.

Before the first byte of the protocol (``wire``), in this order:

    slave -> master    PREFACE | nonce of 24 bytes
    master -> slave    PREFACE | nonce of 24 bytes
    slave -> master    client proof, 44 bytes
    master -> slave    server proof, 44 bytes

The proofs are those of ``common.proof`` for the user of the cluster (``auth.inner_access_key``). A master with a secret
serves no slave without one, RocketMQ's slaves included; a slave with a secret follows no master without one. The bytes
behind the proofs are neither encrypted nor signed: that is what TLS is for.

Lives here: ``ClusterSecret``, ``ProvedTransport``, ``ProvedListener``, ``proved``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pocketmq.common.proof import (
    NONCE_CHARACTERS,
    PROOF_CHARACTERS,
    client_proof,
    is_proof,
    new_nonce,
    server_proof,
)
from pocketmq.store.ha.transport import Listener, Transport, TransportError

PREFACE: Final = b"\xffPMQHA\x00\x81"
"""As ``wire.PREAMBLE`` begins; the last byte says that proofs follow."""
HELD_BYTES_MAX: Final = 2 << 20
"""Bytes that wait for the proofs: at most the slave's first frame."""
_HINT: Final = "set auth.inner_access_key and auth.inner_secret_key to the same values on all members"


@dataclass(frozen=True, slots=True)
class ClusterSecret:
    """The name and the secret that all members of a cluster share."""

    user: str
    secret: str = field(repr=False)


class ProvedTransport:
    """A ``Transport`` that receives nothing, and sends nothing of its user's, before both ends have proved themselves.

    ``receive_into`` takes the steps; it returns None while they go on.
    """

    __slots__ = (
        "_got",
        "_held",
        "_is_slave",
        "_nonce",
        "_peer_nonce",
        "_secret",
        "_transport",
        "_wanted",
        "is_proved",
        "peer",
    )

    def __init__(self, transport: Transport, secret: ClusterSecret, *, is_slave: bool) -> None:
        self._transport = transport
        self.peer = transport.peer
        self._secret = secret
        self._is_slave = is_slave
        self._nonce = new_nonce()
        self._peer_nonce = ""
        self._got = bytearray()
        self._wanted = len(PREFACE) + NONCE_CHARACTERS
        self._held = b""
        self.is_proved = False
        """Whether the other end has proved itself."""
        if is_slave:
            self._send_now(PREFACE + self._nonce.encode())

    def receive_into(self, buffer: memoryview, wait_ms: float) -> int | None:
        """See ``Transport``. Raise ``TransportError`` for an end that cannot prove itself."""
        if self.is_proved:
            return self._transport.receive_into(buffer, wait_ms)
        part = memoryview(bytearray(self._wanted - len(self._got)))
        count = self._transport.receive_into(part, wait_ms)
        if not count:
            if count == 0 and self._is_slave:
                raise TransportError("HA connection closed", why=f"{self.peer} took no proof", hint=_HINT)
            return count
        self._got += part[:count]
        if not PREFACE.startswith(bytes(self._got[: len(PREFACE)])) and not self._peer_nonce:
            raise TransportError(
                "HA connection closed", why=f"{self.peer} does not prove that it is of this cluster", hint=_HINT
            )
        if len(self._got) == self._wanted:
            self._step(bytes(self._got))
            self._got.clear()
        return None

    def _step(self, received: bytes) -> None:
        user, secret = self._secret.user, self._secret.secret
        if not self._peer_nonce:
            self._peer_nonce = received[len(PREFACE) :].decode("ascii", "replace")
            self._wanted = PROOF_CHARACTERS
            if self._is_slave:
                self._send_now(client_proof(secret, user, self._peer_nonce, self._nonce).encode())
            else:
                self._send_now(PREFACE + self._nonce.encode())
            return
        given = received.decode("ascii", "replace")
        if self._is_slave:
            expected = server_proof(secret, user, self._peer_nonce, self._nonce)
        else:
            expected = client_proof(secret, user, self._nonce, self._peer_nonce)
        if not is_proof(given, expected):
            raise TransportError("HA connection closed", why=f"{self.peer} has another secret", hint=_HINT)
        if not self._is_slave:
            self._send_now(server_proof(secret, user, self._nonce, self._peer_nonce).encode())
        self.is_proved = True
        held, self._held = self._held, b""
        if held:
            self._send_now(held)

    def _send_now(self, data: bytes) -> None:
        """Send a few bytes on a connection that has carried none but these."""
        left = memoryview(data)
        while left:
            left = left[self._transport.send([left]) :]
            if left and not self._transport.wait_writable(1_000):
                raise TransportError("HA connection closed", why=f"{self.peer} does not read")

    def send(self, parts: Sequence[bytes | memoryview]) -> int:
        """See ``Transport``; before the proofs the bytes are held."""
        if self.is_proved:
            return self._transport.send(parts)
        data = b"".join(parts)
        if len(self._held) + len(data) > HELD_BYTES_MAX:
            raise TransportError("HA connection closed", why=f"{len(data)} bytes before {self.peer} has proved itself")
        self._held += data
        return len(data)

    def wait_writable(self, wait_ms: float) -> bool:
        """See ``Transport``."""
        return self._transport.wait_writable(wait_ms)

    def cut(self) -> None:
        """See ``Transport``."""
        self._transport.cut()

    def close(self) -> None:
        """See ``Transport``."""
        self._transport.close()


class ProvedListener:
    """A ``Listener`` whose connections are proved."""

    def __init__(self, listener: Listener, secret: ClusterSecret) -> None:
        self._listener = listener
        self._secret = secret
        self.port = listener.port

    def accept(self, wait_ms: float) -> Transport | None:
        """See ``Listener``."""
        transport = self._listener.accept(wait_ms)
        return None if transport is None else ProvedTransport(transport, self._secret, is_slave=False)

    def close(self) -> None:
        """See ``Listener``."""
        self._listener.close()


def proved(listener: Listener, secret: ClusterSecret | None) -> Listener:
    """Return a listener of proved connections; without a secret, ``listener`` itself."""
    return listener if secret is None else ProvedListener(listener, secret)
