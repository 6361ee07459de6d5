"""The doctor on who may connect, and what protects a broker."""

from typing import Any

import pytest

from pocketmq.cli.doctor.broker_metrics import BrokerSettings
from pocketmq.cli.doctor.diagnosis import diagnose, examine
from pocketmq.cli.doctor.finding import Area, Finding, Light, Severity
from pocketmq.remoting.telemetry import CertificateTelemetry, SecurityTelemetry
from tests.cli.doctor.snapshots import settings, snapshot, telemetry, the

DAY_MS = 86_400_000
NOW_MS = 1_000 * DAY_MS


def findings(**security: Any) -> list[Finding]:
    return diagnose(snapshot(telemetry(security=SecurityTelemetry(**security)), at_ms=NOW_MS), settings())


def line(told: Any) -> tuple[Light, str]:
    areas = examine(snapshot(told, at_ms=NOW_MS), BrokerSettings(settings())).areas
    return next((each.light, each.text) for each in areas if each.area is Area.ACCESS)


def certificate(days: float) -> CertificateTelemetry:
    return CertificateTelemetry(
        setting="tls.server_cert_path", subject="commonName=mq", not_after_ms=int(NOW_MS + days * DAY_MS)
    )


def test_a_broker_on_loopback_without_users_is_no_finding() -> None:
    assert findings() == []
    assert line(telemetry()) == (Light.GREEN, "nobody has to authenticate; TLS disabled")


def test_a_protected_broker_is_no_finding() -> None:
    protected = SecurityTelemetry(
        authentication=True,
        authorization=True,
        users=3,
        tls_mode="enforcing",
        certificates=[certificate(90)],
    )
    told = telemetry(security=protected)
    assert diagnose(snapshot(told, at_ms=NOW_MS), settings()) == []
    text = "3 users, policies decide; TLS enforcing; tls.server_cert_path ends in 90 days"
    assert line(told) == (Light.GREEN, text)


def test_what_is_not_told_is_no_data() -> None:
    """An older broker, or a RocketMQ."""
    assert line(telemetry(security=None))[0] is Light.NO_DATA
    assert line(None)[0] is Light.NO_DATA


def test_an_open_bind_is_a_warning_with_the_address() -> None:
    [found] = findings(open_binds=["broker.bind_address=0.0.0.0", "metrics.bind_address=::"])
    assert (found.key, found.severity) == ("open-bind", Severity.WARNING)
    assert found.evidence == ("broker.bind_address=0.0.0.0", "metrics.bind_address=::")


def test_weak_secrets_are_counted_and_not_named() -> None:
    found = the(
        findings(authentication=True, users=9, weak_secrets={"well known": 2, "equal to the name": 1, "other": 0}),
        "weak-secret",
    )
    assert found.title == "3 users have a secret that is easily guessed"
    assert found.evidence == ("1 equal to the name", "2 well known")


@pytest.mark.parametrize(("mode", "may"), [(0o044, "read"), (0o004, "read"), (0o066, "write"), (0o020, "write")])
def test_a_file_of_users_that_others_may_read(mode: int, may: str) -> None:
    found = the(findings(authentication=True, auth_file_mode=mode), "auth-file-open")
    assert found.title == f"others may {may} the file of users and policies"


@pytest.mark.parametrize(
    ("days", "key", "says"),
    [
        (-3.5, "certificate-ended", "ended 3 days ago"),
        (-0.5, "certificate-ended", "ended today"),
        (0, "certificate-ended", "ended today"),
        (0.5, "certificate-ends-soon", "ends today"),
        (1.5, "certificate-ends-soon", "ends in 1 day"),
        (29.9, "certificate-ends-soon", "ends in 29 days"),
    ],
)
def test_certificates_that_end(days: float, key: str, says: str) -> None:
    [found] = findings(certificates=[certificate(days)])
    assert found.key == key
    assert found.evidence == (f"tls.server_cert_path: commonName=mq {says}",)
    assert found.severity is (Severity.ERROR if days <= 0 else Severity.WARNING)


def test_a_certificate_with_a_month_left_is_fine() -> None:
    assert findings(certificates=[certificate(30)]) == []
