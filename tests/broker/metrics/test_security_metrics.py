"""What a broker tells the doctor about who may connect."""

from pathlib import Path
from typing import Any

import pytest

from pocketmq.auth.config import AuthConfig
from pocketmq.auth.server_auth import ServerAuth
from pocketmq.auth.users import User
from pocketmq.broker.metrics.security_metrics import security_telemetry
from pocketmq.common.clock import ManualClock
from pocketmq.common.logs import CapturedLog
from pocketmq.remoting.refused_requests import RefusedRequests
from pocketmq.remoting.security.tls_config import TlsConfig
from pocketmq.remoting.security.tls_files import TlsFiles
from pocketmq.remoting.telemetry import SecurityTelemetry, TelemetrySnapshot, decode_telemetry, encode_telemetry
from tests.remoting.protected_servers import CERTIFICATES

BINDS = (("broker.bind_address", "0.0.0.0"), ("metrics.bind_address", "127.0.0.1"), ("other", ""))
STRONG = "9xV-kq27LmWz"


class Site:
    """The access control of one broker."""

    def __init__(self, path: Path, tls: TlsConfig | None = None, **settings: Any) -> None:
        self.log, clock = CapturedLog(), ManualClock(1_800_000_000_000)
        self.path = path / "auth.json"
        config = AuthConfig(**settings)
        refused = RefusedRequests(clock, self.log)
        self.auth = ServerAuth(config, str(self.path), cluster="C", clock=clock, log=self.log, refused=refused)
        self.auth.load()
        self.tls = TlsFiles(tls or TlsConfig(), clock, self.log)
        self.tls.load()

    def told(self) -> SecurityTelemetry:
        told = security_telemetry(self.auth, self.tls, BINDS)
        decoded = decode_telemetry(encode_telemetry(TelemetrySnapshot(security=told))).security
        assert decoded == told
        return told

    def events(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.log.events if event["event"] == name]


def protected(path: Path, password: str = STRONG, **settings: Any) -> Site:
    return Site(path, authentication_enabled=True, init_username="root", init_password=password, **settings)


def test_a_broker_without_users_names_the_addresses_that_others_reach(tmp_path: Path) -> None:
    told = Site(tmp_path, open=True).told()
    assert told.open_binds == ["broker.bind_address=0.0.0.0", "other="]
    assert (told.authentication, told.tls_mode, told.users) == (False, "disabled", 0)


def test_a_protected_broker_has_no_open_bind(tmp_path: Path) -> None:
    told = protected(tmp_path, authorization_enabled=True).told()
    assert told == SecurityTelemetry(authentication=True, authorization=True, users=1)


def test_weak_secrets_are_counted_by_reason_and_named_in_the_log_alone(tmp_path: Path) -> None:
    site = protected(tmp_path, "12345678", inner_access_key="inner", inner_secret_key="inner-2026")
    table = site.auth.table
    assert site.told().weak_secrets == {"well known": 1, "equal to the name": 1}
    assert [(event["user"], event["why"]) for event in site.events("weak_secret")] == [
        ("root", "well known"),
        ("inner", "equal to the name"),
    ]
    assert "12345678" not in str(site.log.events)
    table.replace(table.contents.with_user(User(username="root", password=STRONG)))
    assert site.told().weak_secrets == {"equal to the name": 1}


@pytest.mark.parametrize(("mode", "others"), [(0o600, 0), (0o640, 0o040), (0o606, 0o006)])
def test_a_file_that_others_may_read_meanwhile_is_seen_and_logged_once(tmp_path: Path, mode: int, others: int) -> None:
    site = protected(tmp_path)
    site.path.chmod(mode)
    for _ in range(3):
        site.auth.look()
    assert site.told().auth_file_mode == others
    assert len(site.events("auth_file_readable_by_others")) == bool(others)
    site.path.chmod(0o600)
    site.auth.look()
    assert site.told().auth_file_mode == 0


def test_certificates_in_force_have_their_end(tmp_path: Path) -> None:
    server = str(CERTIFICATES / "server.pem")
    site = Site(tmp_path, TlsConfig(server_cert_path=server, server_mode="enforcing"))
    [told] = site.told().certificates
    assert told.setting == "tls.server_cert_path"
    assert told.not_after_ms == site.tls.in_force["tls.server_cert_path"].not_after_s * 1000
    assert site.told().tls_mode == "enforcing"
