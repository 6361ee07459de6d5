"""How a client proves who it is, and how it knows the server.

    security = client_security(Credentials("app", "secret"), TLS(ca="/etc/pocketmq/ca.pem"))

Lives here: ``TLS``, the files and names of a client's TLS; ``ClientSecurity``, which each channel takes;
``client_security``, which makes it from the arguments of the public classes.
"""

import os
import ssl
from dataclasses import dataclass, field

from pocketmq.common.errors import ConfigError
from pocketmq.remoting.security.credentials import Credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class TLS:
    """A client's TLS, from files in PEM.

    ``ca``: the certificates to trust, a file or a directory; empty: those of the system. ``cert`` and ``key``: the
    client's own certificate and its key, for servers that want one; ``key`` may be in the file of ``cert``.

    The server's certificate must name the host that the client connects to, which for brokers is the address that
    they register, mostly an IP. ``server_hostname`` is the name to look for instead, for all servers. (RocketMQ's
    clients compare no names.) ``verify=False`` accepts any certificate: the connection is encrypted, but with anyone.
    """

    ca: str = ""
    cert: str = ""
    key: str = ""
    key_password: str = field(default="", repr=False)
    server_hostname: str = ""
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """Read the files. Raise ``ConfigError``."""
        if self.key and not self.cert:
            raise ConfigError("TLS refused", why="there is a key without a certificate", hint="give cert= as well")
        if self.ca and not self.verify:
            raise ConfigError("TLS refused", why="verify=False does not use ca=", hint="leave one of them out")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif not self.ca:
            context.load_default_certs()
        else:
            try:
                is_directory = os.path.isdir(self.ca)
                context.load_verify_locations(**{"capath" if is_directory else "cafile": self.ca})
            except OSError as error:  # SSLError is one
                raise _illegal("ca", self.ca, error) from error
        if self.cert:
            try:
                # without a password OpenSSL would ask for it at the terminal
                context.load_cert_chain(self.cert, self.key or None, lambda: self.key_password)
            except OSError as error:
                raise _illegal("cert and key", " and ".join(filter(None, (self.cert, self.key))), error) from error
        return context


def _illegal(what: str, where: str, error: OSError) -> ConfigError:
    if isinstance(error, ssl.SSLError):
        why = f"OpenSSL cannot use {where}: {error.reason or error.strerror or 'no certificate or key in PEM'}"
    else:
        why = f"{where}: {error.strerror or error}"
    return ConfigError(f"TLS refused, {what}", why=why, hint="files in PEM; key_password= for a key that has one")


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """What every connection of one client has in common. Without ``context`` it is plain.

    ``server_hostname``: the name that the server's certificate must have; empty: the host of its address.
    """

    credentials: Credentials | None = None
    context: ssl.SSLContext | None = field(default=None, repr=False)
    server_hostname: str = ""


NO_SECURITY = ClientSecurity()
"""Plain, without credentials."""

TLSArgument = TLS | ssl.SSLContext | bool | None
"""The argument ``tls=``: True trusts the system's certificates; None and False are plain."""


def client_security(credentials: Credentials | None, tls: TLSArgument) -> ClientSecurity:
    """Return the security of a client from the arguments ``credentials=`` and ``tls=``; reads the files of ``tls``.

    Raise ``ConfigError``.
    """
    if credentials is not None and not isinstance(credentials, Credentials):
        raise ConfigError(
            "client refused",
            why=f"credentials is {type(credentials).__name__}",
            hint="credentials=Credentials(access_key, secret_key)",
        )
    if tls is None or tls is False:
        return ClientSecurity(credentials) if credentials is not None else NO_SECURITY
    if isinstance(tls, ssl.SSLContext):
        return ClientSecurity(credentials, tls)
    if tls is True:
        tls = TLS()
    if not isinstance(tls, TLS):
        raise ConfigError(
            "client refused", why=f"tls is {type(tls).__name__}", hint="tls=True, tls=TLS(ca=...), or an SSLContext"
        )
    return ClientSecurity(credentials, tls.context(), tls.server_hostname)
