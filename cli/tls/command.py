"""``pocketmq tls init | show``: certificates for a trial, and what a certificate says.

Lives here: options and output.
"""

import datetime
import ssl
import tempfile
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from pocketmq.cli.exit_codes import CommandFailed
from pocketmq.cli.output import print_json, printable
from pocketmq.cli.run import build_group
from pocketmq.common.errors import Cause, ConfigError
from pocketmq.remoting.security.certificates import CertificateFacts, read_certificate

HOSTS: Final = ("localhost", "127.0.0.1", "::1")
DAYS: Final = 365
DAYS_MAX: Final = 36_500
CONNECT_S: Final = 5.0


def build_app() -> typer.Typer:
    """Return the group of subcommands."""
    return build_group("Certificates for TLS: make some for a trial, look at one.", init=init, show=show)


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to put them; made if it is missing.")],
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="HOST", help="Name or address of a server; repeat. Default: this machine."),
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=DAYS_MAX, help="How long they are valid.")] = DAYS,
    client: Annotated[
        str, typer.Option("--client", metavar="NAME", help="The name in the client's certificate: its user.")
    ] = "client",
) -> None:
    """Make a CA, and certificates of it for servers and a client; print the settings to use them.

    For a trial: the CA's key lies beside the rest, without a password. Nothing is overwritten. Needs the package
    cryptography: pip install 'pocketmq[tls]'.
    """
    from pocketmq.cli.tls.making import make_certificates

    given = list(dict.fromkeys([*(hosts or ()), *HOSTS]))
    make_certificates(directory, given, days, client)
    where = directory.resolve()
    print(f"""\
# made in {where}: ca.pem, server.pem, client.pem and their keys; valid for {days} days
# servers: {printable(" ".join(given))}
# broker.toml and namesrv.toml:

[tls]
server_mode = "enforcing"        # "permissive" takes plain connections as well
server_cert_path = "{where}/server.pem"
server_key_path = "{where}/server.key"
server_trust_cert_path = "{where}/ca.pem"
server_need_client_auth = "optional"
enable = true
client_trust_cert_path = "{where}/ca.pem"

# Python:  TLS(ca="{where}/ca.pem", cert="{where}/client.pem", key="{where}/client.key")
# RocketMQ's Java clients, with a file tls.properties
#   (tls.test.mode.enable=false, tls.client.authServer=true, tls.client.trustCertPath={where}/ca.pem):
#   java -Dtls.enable=true -Dtls.config.file=tls.properties ...""")


def show(
    target: Annotated[str, typer.Argument(metavar="FILE|HOST:PORT", help="A PEM file, or a server that serves TLS.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the names, the issuer and the end of a certificate. It is not checked."""
    facts = _facts(target)
    left = facts.days_left(time.time())
    if as_json:
        print_json(
            {
                "subject": facts.subject,
                "issuer": facts.issuer,
                "names": list(facts.names),
                "not_before": _day(facts.not_before_s),
                "not_after": _day(facts.not_after_s),
                "days_left": left,
            }
        )
        return
    print(f"subject   {printable(facts.subject)}")
    print(f"issuer    {printable(facts.issuer)}")
    print(f"names     {printable(' '.join(facts.names)) or '-'}")
    print(f"valid     {_day(facts.not_before_s)} to {_day(facts.not_after_s)}, {left} days left")


def _facts(target: str) -> CertificateFacts:
    host, _, port = target.rpartition(":")
    try:
        if not port.isdecimal() or not host or Path(target).exists():
            return read_certificate(target)
        pem = ssl.get_server_certificate((host.strip("[]"), int(port)), timeout=CONNECT_S)
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(pem)
            file.flush()
            return read_certificate(file.name)
    except ConfigError as error:
        raise CommandFailed(error.what, why=error.why, hint=error.hint) from error
    except (OSError, OverflowError, ValueError) as error:
        hint = "does it serve TLS? does a server listen there?"
        raise CommandFailed(
            f"no certificate from {printable(target)}", why=str(error), hint=hint, cause=Cause.CONNECTION
        ) from error


def _day(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
