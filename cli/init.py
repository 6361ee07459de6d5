"""``pocketmq init --secure``: settings, an administrator and certificates that work together.

Lives here: the command.
"""

import os
import secrets
from pathlib import Path
from typing import Annotated, Final

import typer

from pocketmq.cli.exit_codes import CommandFailed
from pocketmq.cli.output import printable
from pocketmq.common.addresses import address_text
from pocketmq.common.errors import ConfigError

HOSTS: Final = ("localhost", "127.0.0.1", "::1")
SETTINGS: Final = "pocketmq.toml"
CONNECTIONS: Final = "connections.toml"
CERTIFICATES: Final = "tls"
SECRET_BYTES: Final = 24
ADMIN: Final = "admin"


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to put the files; made if it is missing.")],
    secure: Annotated[bool, typer.Option("--secure", help="Users, policies and TLS; the only kind there is.")] = False,
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="HOST", help="Name or address under which clients reach the server; repeat."),
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=36_500, help="How long certificates are valid.")] = 365,
) -> None:
    """Write settings for a protected server into DIR, with an administrator, certificates, and keys for its clients.

    Nothing is overwritten, and all files are for their owner alone. Needs cryptography: pip install 'pocketmq[tls]'.
    """
    if not secure:
        raise ConfigError(
            "nothing written", why="an open server needs no files", hint="pocketmq init --secure DIR, or standalone"
        )
    for name in (SETTINGS, CONNECTIONS):
        if (directory / name).exists():
            raise CommandFailed(
                "nothing written", why=f"{directory / name} is there already", hint="choose another directory"
            )
    from pocketmq.cli.tls.making import make_certificates

    given = list(dict.fromkeys([*(hosts or ()), *HOSTS]))
    make_certificates(directory / CERTIFICATES, given, days, ADMIN)
    where = directory.resolve()
    password, inner = secrets.token_urlsafe(SECRET_BYTES), secrets.token_urlsafe(SECRET_BYTES)
    _write(directory / SETTINGS, _settings(where / CERTIFICATES, password, inner))
    _write(directory / CONNECTIONS, _connections(where / CERTIFICATES, given[0], password))
    print(f"""\
made in {where}: {SETTINGS}, {CONNECTIONS}, {CERTIFICATES}/; certificates for {printable(" ".join(given))}, {days} days

start it:      pocketmq standalone --config {directory / SETTINGS} {_listen(given[0]) if hosts else "--host 127.0.0.1"}
look at it:    POCKETMQ_CONNECTIONS_FILE={directory / CONNECTIONS} pocketmq --connection {ADMIN} whoami
let others in: pocketmq user create, pocketmq acl create""")


def _listen(host: str) -> str:
    """Return the options with which other machines reach a server under ``host``."""
    return f"--host 0.0.0.0 --advertise {address_text(host, 0).removesuffix(':0')}"


def _settings(tls: Path, password: str, inner: str) -> str:
    return f"""\
# A protected server: pocketmq standalone --config {SETTINGS}. Keep this file: it holds secrets.

[auth]
authentication_enabled = true
authorization_enabled = true
init_username = "{ADMIN}"
init_password = "{password}"
inner_access_key = "inner"
inner_secret_key = "{inner}"

[tls]
server_mode = "enforcing"
server_cert_path = "{tls}/server.pem"
server_key_path = "{tls}/server.key"
server_trust_cert_path = "{tls}/ca.pem"
server_need_client_auth = "optional"
enable = true
client_trust_cert_path = "{tls}/ca.pem"
"""


def _connections(tls: Path, host: str, password: str) -> str:
    return f"""\
# For clients: pocketmq --connection {ADMIN} ..., from here or from ~/.config/pocketmq/{CONNECTIONS}.

[{ADMIN}]
namesrv = "{host}:9876"
access_key = "{ADMIN}"
secret_key = "{password}"
tls_ca = "{tls}/ca.pem"
"""


def _write(path: Path, text: str) -> None:
    """Create a file for its owner alone; never follow or replace one that is there."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
    except OSError as error:
        raise CommandFailed("not written", why=f"{path}: {error.strerror or error}") from error
