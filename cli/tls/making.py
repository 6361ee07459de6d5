"""A CA and certificates of it, for a trial or a closed network.

ECDSA P-256: a handshake costs a third of one with RSA-2048, and every client of RocketMQ's knows it.

Lives here: ``make_certificates``, ``FILES``.
"""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pocketmq.cli.exit_codes import CommandFailed

FILES: Final = ("ca.pem", "ca.key", "server.pem", "server.key", "client.pem", "client.key")
KEY_MODE: Final = 0o600
CERTIFICATE_MODE: Final = 0o644
BACKDATED: Final = datetime.timedelta(hours=1)
"""So that a machine whose clock is a little late takes a new certificate."""


def make_certificates(folder: Path, hosts: Sequence[str], days: int, client: str) -> None:
    """Write ``FILES`` into ``folder``, which is made; keys are readable by their owner alone.

    ``hosts``: names and addresses of the servers. ``client``: the name in the client's certificate, its user. Raise
    ``CommandFailed`` if ``cryptography`` is missing, a file is there already, or one cannot be written.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID
    except ImportError as error:
        raise CommandFailed(
            "no certificates made",
            why="the package cryptography is not installed",
            hint="pip install 'pocketmq[tls]', or make them with openssl",
        ) from error
    there = [name for name in FILES if (folder / name).exists()]
    if there:
        raise CommandFailed(
            "no certificates made", why=f"{folder / there[0]} is there already", hint="name another directory"
        )
    alternatives = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = _name("PocketMQ trial CA")
    ca = _signed(
        ca_name,
        ca_name,
        ca_key.public_key(),
        ca_key,
        days,
        [(x509.BasicConstraints(True, 0), True), (_ca_usage(), True)],
    )
    made: dict[str, tuple[Any, Any]] = {"ca": (ca, ca_key)}
    for name, subject, use, more in (
        ("server", hosts[0], ExtendedKeyUsageOID.SERVER_AUTH, [(alternatives, False)]),
        ("client", client, ExtendedKeyUsageOID.CLIENT_AUTH, []),
    ):
        key = ec.generate_private_key(ec.SECP256R1())
        # a broker shows its server certificate where it is a client as well
        uses = [use] if name == "client" else [use, ExtendedKeyUsageOID.CLIENT_AUTH]
        extensions = [(x509.BasicConstraints(False, None), True), (x509.ExtendedKeyUsage(uses), False), *more]
        made[name] = _signed(_name(subject), ca_name, key.public_key(), ca_key, days, extensions), key
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, (certificate, key) in made.items():
            _write(folder / f"{name}.key", _key_text(key), KEY_MODE)
            _write(folder / f"{name}.pem", _text(certificate), CERTIFICATE_MODE)
    except OSError as error:
        raise CommandFailed("no certificates made", why=f"{error.filename}: {error.strerror}") from error


def _name(text: str) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
    except ValueError as error:  # X.509 allows 64 characters
        raise CommandFailed("no certificates made", why=f"{text!r} is no name for a certificate: {error}") from error


def _ca_usage() -> Any:
    """Return what OpenSSL's strict mode, the default of Python 3.13, wants of a CA."""
    from cryptography import x509

    return x509.KeyUsage(False, False, False, False, False, True, True, False, False)


def _general_name(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise CommandFailed("no certificates made", why=f"{host!r} is no host: {error}", hint="ASCII names") from error


def _signed(
    subject: Any, issuer: Any, public_key: Any, ca_key: Any, days: int, extensions: Sequence[tuple[Any, bool]]
) -> Any:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=public_key,
        serial_number=x509.random_serial_number(),
        not_valid_before=now - BACKDATED,
        not_valid_after=now + datetime.timedelta(days=days),
    )
    extensions = [
        *extensions,
        (x509.SubjectKeyIdentifier.from_public_key(public_key), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), False),
    ]
    for extension, is_critical in extensions:
        builder = builder.add_extension(extension, is_critical)
    return builder.sign(ca_key, hashes.SHA256())


def _text(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    text: bytes = certificate.public_bytes(Encoding.PEM)
    return text


def _key_text(key: Any) -> bytes:
    """PKCS#8, which Netty's SslContextBuilder reads as well."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    text: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return text


def _write(path: Path, data: bytes, mode: int) -> None:
    """Create a file; never follow or replace one that is there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
