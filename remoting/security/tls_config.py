"""Settings of TLS: section ``[tls]``, the same for a broker and a name server.

Names are RocketMQ's (``tls.server.certPath`` is ``server_cert_path``). All files are PEM.

Lives here: ``TlsConfig``.
"""

from typing import Final

import msgspec

from pocketmq.common.errors import ConfigError
from pocketmq.common.settings import Secret

DISABLED, PERMISSIVE, ENFORCING = "disabled", "permissive", "enforcing"
MODES: Final = (DISABLED, PERMISSIVE, ENFORCING)
CLIENT_AUTH: Final = ("none", "optional", "require")
INT_MAX: Final = (1 << 31) - 1


class TlsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Certificates of the listeners, and of the connections that a server opens itself. Times in ms."""

    server_mode: str = PERMISSIVE
    """With a certificate: ``permissive`` serves TLS and plain connections at the same port, ``enforcing`` refuses plain
    ones, ``disabled`` serves plain ones only. Without ``server_cert_path`` every listener is plain. The same holds
    for the HA port; the HTTP port serves one kind: TLS, unless ``disabled``."""
    server_cert_path: str = ""
    """File of the server's certificate, and behind it those between it and its CA; empty: no TLS."""
    server_key_path: str = ""
    """File of the certificate's private key; empty: it is in ``server_cert_path``. Nobody else should be able to read
    it (mode 0600)."""
    server_key_password: Secret = ""
    """Password of that key, if it is encrypted."""
    server_trust_cert_path: str = ""
    """File of the CAs whose client certificates are accepted."""
    server_need_client_auth: str = "none"
    """Whether clients show a certificate: ``none``, ``optional`` (one that is shown is checked), ``require``. Its name
    is the client's user. The HTTP port takes none."""

    enable: bool = False
    """Whether connections that this server opens (to name servers, to other brokers, to its master's HA port) use
    TLS (RocketMQ: ``tls.enable``)."""
    client_trust_cert_path: str = ""
    """File of the CAs whose servers those connections accept; empty: those of the system."""
    client_cert_path: str = ""
    """File of the certificate that those connections show; empty: none."""
    client_key_path: str = ""
    """File of its private key; empty: it is in ``client_cert_path``."""
    client_key_password: Secret = ""
    """Password of that key, if it is encrypted."""
    client_auth_server: bool = True
    """Whether those connections check the other server's certificate. RocketMQ's default is false; without the check
    anybody between two servers can read along."""
    client_server_name: str = ""
    """Ours: the name that the other server's certificate must have; empty: the host of its address."""

    handshake_timeout_mills: int = 10_000
    """Ours: a connection that has sent no byte, or has not finished its handshake, by then is closed."""
    handshakes_per_second_max: int = 200
    """Ours: handshakes that one listener begins in a second; more wait. Each takes the event loop for about half a
    millisecond with an ECDSA key, for nearly one with RSA-2048."""
    reload_interval: int = 5_000
    """Ours: how often the files are looked at; new connections get a changed certificate."""

    def __post_init__(self) -> None:
        for name, values in (("server_mode", MODES), ("server_need_client_auth", CLIENT_AUTH)):
            if getattr(self, name) not in values:
                raise ConfigError("bad setting", why=f"tls.{name}={getattr(self, name)!r}", hint=", ".join(values))
        for name in ("handshake_timeout_mills", "handshakes_per_second_max", "reload_interval"):
            if not 0 < getattr(self, name) <= INT_MAX:
                raise ConfigError("bad setting", why=f"tls.{name}={getattr(self, name)}", hint=f"from 1 to {INT_MAX}")
        if not self.server_cert_path:
            self._check_without_certificate()
        elif self.server_need_client_auth != "none" and not self.server_trust_cert_path:
            raise ConfigError(
                "bad setting",
                why=f"tls.server_need_client_auth={self.server_need_client_auth} without tls.server_trust_cert_path",
                hint="name the file of the CA that signs the clients' certificates",
            )
        if self.client_key_path and not self.client_cert_path:
            raise ConfigError("bad setting", why="tls.client_key_path without tls.client_cert_path", hint="give both")

    def _check_without_certificate(self) -> None:
        """A server that is meant to speak TLS must not serve plain connections for want of a file name."""
        meant = [name for name in ("server_key_path", "server_trust_cert_path") if getattr(self, name)]
        if self.server_mode == ENFORCING:
            meant.append("server_mode=enforcing")
        if self.server_need_client_auth != "none":
            meant.append(f"server_need_client_auth={self.server_need_client_auth}")
        if meant:
            raise ConfigError(
                "bad setting",
                why=f"tls.{meant[0]} without tls.server_cert_path",
                hint="name the file of the certificate; pocketmq tls init makes one to try it",
            )

    @property
    def serves_tls(self) -> bool:
        """Whether the listeners take TLS connections."""
        return bool(self.server_cert_path) and self.server_mode != DISABLED
