"""What a certificate says: names, issuer, life.

Lives here: ``CertificateFacts``, ``read_certificate``, ``name_of``.
"""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pocketmq.common.errors import ConfigError

NAME_CHARACTERS_MAX: Final = 255


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """The first certificate of a file. Times in seconds since 1970. ``names``: those it is good for (DNS, IP)."""

    subject: str
    issuer: str
    names: tuple[str, ...]
    not_before_s: float
    not_after_s: float

    def days_left(self, now_s: float) -> int:
        """Return the whole days until it ends, negative when it has ended."""
        return int((self.not_after_s - now_s) // 86_400)


def read_certificate(path: str) -> CertificateFacts:
    """Return what the first certificate of a PEM file says; it is not checked. Blocks. Raise ``ConfigError``."""
    try:
        # The decoder's own error does not say what is wrong with the file.
        with open(path, "rb"):
            pass
        fields: dict[str, Any] = ssl._ssl._test_decode_cert(path)  # type: ignore[attr-defined]
        return CertificateFacts(
            _text(fields.get("subject", ())),
            _text(fields.get("issuer", ())),
            tuple(str(value) for _, value in fields.get("subjectAltName", ())),
            ssl.cert_time_to_seconds(fields["notBefore"]),
            ssl.cert_time_to_seconds(fields["notAfter"]),
        )
    except ssl.SSLError as error:
        raise ConfigError(
            "certificate not read",
            why=f"{path} has no certificate in PEM",
            hint="convert it: openssl x509 -inform DER -in FILE",
        ) from error
    except OSError as error:
        raise ConfigError(
            "certificate not read", why=f"{path}: {error.strerror or error}", hint="check path and permissions"
        ) from error
    except (ValueError, KeyError) as error:
        raise ConfigError("certificate not read", why=f"{path}: {error!r}", hint="is it damaged?") from error


def _text(name: Sequence[Sequence[tuple[str, str]]]) -> str:
    return ", ".join(f"{key}={value}" for part in name for key, value in part)


def name_of(certificate: Mapping[str, Any] | None) -> str:
    """Return the name of a checked peer certificate (``getpeercert()``): its common name, else its first alternative
    name; empty if it has none that can be printed, or there is no certificate."""
    if not certificate:
        return ""
    found = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    found += [value for _, value in certificate.get("subjectAltName", ())]
    name = str(found[0]) if found else ""
    return name if name.isprintable() and len(name) <= NAME_CHARACTERS_MAX else ""
