"""Rules: who may connect to a broker, and what protects it.

Lives here: open binds, weak secrets, certificates that have ended or soon end, a file of users that others may read;
the line of the area.
"""

from collections.abc import Iterator
from typing import Final

from pocketmq.cli.doctor.broker_metrics import BrokerMetrics
from pocketmq.cli.doctor.finding import Area, Finding, error, warning
from pocketmq.cli.doctor.words import clean, count_text
from pocketmq.common.units import plural
from pocketmq.remoting.telemetry import CertificateTelemetry, SecurityTelemetry

DAY_MS: Final = 86_400_000
ENDS_SOON_DAYS: Final = 30
"""As the broker's own warnings begin (``remoting.security.tls_files``)."""
SHOWN_MAX: Final = 10


def security_rules(metrics: BrokerMetrics) -> Iterator[Finding]:
    """Yield a finding for each way in that is open, or will be shut to everybody."""
    security = _security(metrics)
    if security is None:
        return
    yield from _open_binds(security)
    yield from _weak_secrets(security)
    yield from _auth_file(security)
    yield from _certificates(security, metrics.snapshot.at_ms)


def security_line(metrics: BrokerMetrics) -> Iterator[str]:
    """Yield the parts of the area's line."""
    security = _security(metrics)
    if security is None:
        return
    if not security.authentication:
        yield "nobody has to authenticate"
    else:
        rights = "policies decide" if security.authorization else "each of them may do everything"
        yield f"{plural(security.users, 'user')}, {rights}"
    yield f"TLS {clean(security.tls_mode)}"
    for certificate in security.certificates[:SHOWN_MAX]:
        yield f"{clean(certificate.setting)} {_ends(certificate, metrics.snapshot.at_ms)}"


def _security(metrics: BrokerMetrics) -> SecurityTelemetry | None:
    return None if metrics.telemetry is None else metrics.telemetry.security


def _open_binds(security: SecurityTelemetry) -> Iterator[Finding]:
    if not security.open_binds:
        return
    yield warning(
        key="open-bind",
        area=Area.ACCESS,
        title="other machines can connect, and nobody has to authenticate",
        evidence=tuple(map(clean, security.open_binds[:SHOWN_MAX])),
        cause="Whoever reaches these addresses can read, write and delete every message and topic. The start was told "
        "that the network is trusted (--open, auth.open).",
        cure="Set auth.authentication_enabled and auth.authorization_enabled, and make users (docs/security.md; "
        "pocketmq init --secure writes it all), or bind to 127.0.0.1. A firewall that lets only known machines through "
        "is the least.",
    )


def _weak_secrets(security: SecurityTelemetry) -> Iterator[Finding]:
    found = {why: count for why, count in security.weak_secrets.items() if count > 0}
    if not found:
        return
    yield warning(
        key="weak-secret",
        area=Area.ACCESS,
        title=f"{plural(sum(found.values()), 'user has', 'users have')} a secret that is easily guessed",
        evidence=tuple(f"{count_text(count)} {clean(why)}" for why, count in sorted(found.items())[:SHOWN_MAX]),
        cause="Who may connect can try secrets; who records one request of a RocketMQ client without TLS can try "
        "millions a second, unseen.",
        cure="Give these users long random secrets: pocketmq user update NAME --generate. The broker's log names them "
        "(weak_secret).",
    )


def _auth_file(security: SecurityTelemetry) -> Iterator[Finding]:
    if not security.auth_file_mode:
        return
    may = "write" if security.auth_file_mode & 0o022 else "read"
    yield warning(
        key="auth-file-open",
        area=Area.ACCESS,
        title=f"others may {may} the file of users and policies",
        evidence=(f"permissions of group and others: {security.auth_file_mode & 0o077:03o}",),
        cause="It holds the secrets of all users as they are, since RocketMQ's signatures need them. The broker will "
        "not start with such a file.",
        cure="chmod 600 config/auth.json in the broker's store (or auth.auth_file). Where other people have accounts "
        "on that machine, give all users new secrets.",
    )


def _certificates(security: SecurityTelemetry, now_ms: int) -> Iterator[Finding]:
    ended = [each for each in security.certificates if each.not_after_ms <= now_ms]
    ending = [each for each in security.certificates if 0 < each.not_after_ms - now_ms < ENDS_SOON_DAYS * DAY_MS]
    cure = (
        "Have it signed anew and replace the files: the broker takes them within five seconds, without a restart "
        "(pocketmq tls show FILE says what a certificate has)."
    )
    if ended:
        yield error(
            key="certificate-ended",
            area=Area.ACCESS,
            title=f"{plural(len(ended), 'certificate')} of this broker has ended"
            if len(ended) == 1
            else f"{len(ended)} certificates of this broker have ended",
            evidence=_evidence(ended, now_ms),
            cause="Clients that check certificates, PocketMQ's all, refuse the next connection; those that are open go "
            "on. The broker itself will not start again with it.",
            cure=cure,
        )
    if ending:
        yield warning(
            key="certificate-ends-soon",
            area=Area.ACCESS,
            title=f"a certificate of this broker {_ends(min(ending, key=lambda each: each.not_after_ms), now_ms)}",
            evidence=_evidence(ending, now_ms),
            cause="When it has ended, clients that check certificates connect no more.",
            cure=cure,
        )


def _evidence(certificates: list[CertificateTelemetry], now_ms: int) -> tuple[str, ...]:
    return tuple(
        f"{clean(each.setting)}: {clean(each.subject)} {_ends(each, now_ms)}" for each in certificates[:SHOWN_MAX]
    )


def _ends(certificate: CertificateTelemetry, now_ms: int) -> str:
    days = abs(certificate.not_after_ms - now_ms) // DAY_MS
    if certificate.not_after_ms <= now_ms:
        return "ended today" if not days else f"ended {plural(days, 'day')} ago"
    return "ends today" if not days else f"ends in {plural(days, 'day')}"
