"""Certificates as files: read, refused with a reason, read again."""

import ssl
from pathlib import Path
from typing import Any

import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import ConfigError
from pocketmq.common.runner import SteppedRunner
from pocketmq.remoting.security.certificates import name_of, read_certificate
from pocketmq.remoting.security.tls_config import TlsConfig
from pocketmq.remoting.security.tls_files import TlsFiles
from tests.remoting.conftest import MemoryLog

CERTIFICATES = Path(__file__).parent / "certificates"
NOW_MS = 2_000_000_000_000
"""A time at which the certificates are valid."""
DAY_MS = 86_400_000


def parts(name: str) -> tuple[str, str]:
    """Certificate and key of a file."""
    text = (CERTIFICATES / name).read_text()
    at = text.index("-----BEGIN", 1)
    return text[:at], text[at:]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    certificate, key = parts("server.pem")
    (tmp_path / "server.pem").write_text(certificate)
    (tmp_path / "server.key").write_text(key)
    (tmp_path / "server.key").chmod(0o600)
    return tmp_path


def files(here: Path, log: MemoryLog, now_ms: int = NOW_MS, **settings: Any) -> TlsFiles:
    given = {"server_cert_path": str(here / "server.pem"), "server_key_path": str(here / "server.key"), **settings}
    return TlsFiles(TlsConfig(**given), ManualClock(now_ms), log)


def handshake_names(context: ssl.SSLContext | None) -> list[str]:
    """The names in the certificate that a server with this context shows."""
    assert context is not None
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.load_verify_locations(CERTIFICATES / "ca.pem")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = context.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server)
    for each in (theirs, ours, theirs):
        try:
            each.do_handshake()
        except ssl.SSLWantReadError:
            pass
    certificate = theirs.getpeercert()
    assert certificate is not None
    return [str(name[1]) for name in certificate["subjectAltName"]]


def test_a_server_shows_its_certificate_and_warns_of_nothing(here: Path, log: MemoryLog) -> None:
    tls = files(here, log)
    tls.load()
    assert handshake_names(tls.server) == ["localhost", "127.0.0.1"]
    assert tls.http is not tls.server
    assert tls.links.context is None
    assert not log.events


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"server_cert_path": "{here}/none.pem"}, "tls.server_cert_path: {here}/none.pem: No such file"),
        ({"server_key_path": "{here}/none.key"}, "tls.server_key_path: {here}/none.key: No such file"),
        ({"server_key_path": "{here}/other.key"}, "other.key is not the key of {here}/server.pem"),
        ({"server_key_path": "{here}/locked.key"}, "locked.key: wrong password, or none"),
        ({"server_key_path": "{here}/locked.key", "server_key_password": "x"}, "locked.key: wrong password, or none"),
        ({"server_key_path": "{here}/text"}, "text: OpenSSL cannot use it"),
        ({"server_cert_path": "{here}/text"}, "{here}/text has no certificate in PEM"),
        (
            {"server_trust_cert_path": "{here}/none.pem", "server_need_client_auth": "require"},
            "tls.server_trust_cert_path: {here}/none.pem: No such file",
        ),
        (
            {"server_trust_cert_path": "{here}/text", "server_need_client_auth": "require"},
            "tls.server_trust_cert_path: {here}/text",
        ),
        ({"enable": True, "client_trust_cert_path": "{here}/none.pem"}, "{here}/none.pem: No such file"),
        ({"enable": True, "client_cert_path": "{here}/none.pem"}, "tls.client_cert_path: {here}/none.pem"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(here: Path, log: MemoryLog, settings: dict[str, Any], why: str) -> None:
    (here / "other.key").write_text(parts("client.pem")[1])
    (here / "locked.key").write_text((CERTIFICATES / "client_locked.key").read_text())
    (here / "text").write_text("no certificate")
    given: dict[str, Any] = {
        name: value.format(here=here) if isinstance(value, str) else value for name, value in settings.items()
    }
    with pytest.raises(ConfigError) as raised:
        files(here, log, **given).load()
    assert why.format(here=here) in raised.value.why
    assert raised.value.hint


def test_a_certificate_out_of_its_time_stops_the_start(here: Path, log: MemoryLog) -> None:
    facts = read_certificate(str(here / "server.pem"))
    with pytest.raises(ConfigError, match="not started") as raised:
        files(here, log, int(facts.not_after_s * 1000) + 3 * DAY_MS).load()
    assert "ended 3 days ago" in raised.value.why
    with pytest.raises(ConfigError) as raised:
        files(here, log, int(facts.not_before_s * 1000) - DAY_MS).load()
    assert "not valid yet" in raised.value.why


def test_an_end_is_warned_of_once_a_step(here: Path, log: MemoryLog) -> None:
    """At 30 days, 7, 1 and 0."""
    end_ms = int(read_certificate(str(here / "server.pem")).not_after_s * 1000)
    clock = ManualClock(end_ms - 40 * DAY_MS)
    tls = TlsFiles(
        TlsConfig(server_cert_path=str(here / "server.pem"), server_key_path=str(here / "server.key")), clock, log
    )
    tls.load()
    for _ in range(42 * 4):
        clock.advance_ms(DAY_MS / 4)
        tls.step()
    assert [fields["days_left"] for name, fields in log.events if name == "certificate_ends_soon"] == [29, 6, 0, -1]


def test_a_key_that_others_can_read_is_warned_of(here: Path, log: MemoryLog) -> None:
    (here / "server.key").chmod(0o644)
    files(here, log).load()
    assert [name for name, _ in log.events] == ["key_file_readable_by_others"]


def test_changed_files_are_taken_while_it_runs(here: Path, log: MemoryLog) -> None:
    """A change of one file of two does not match, and is reported once; then both do."""
    tls = files(here, log)
    tls.load()
    runner = SteppedRunner()
    tls.start(runner)
    before = tls.server
    runner.step_all()
    assert tls.server is before
    certificate, key = parts("elsewhere.pem")
    (here / "server.pem").write_text(certificate)
    for _ in range(3):
        runner.step_all()
    assert tls.server is before
    assert log.count("tls_files_not_taken") == 1
    assert handshake_names(before) == ["localhost", "127.0.0.1"]
    (here / "server.key").write_text(key)
    runner.step_all()
    assert handshake_names(tls.server) == ["mq.example.org"]
    assert (tls.reloads, log.count("tls_files_taken")) == (1, 1)
    (here / "server.pem").unlink()
    runner.step_all()
    assert handshake_names(tls.server) == ["mq.example.org"]
    assert log.count("tls_files_not_taken") == 2
    tls.stop()


def test_links_take_a_changed_certificate_in_place(here: Path, log: MemoryLog) -> None:
    """A pool of connections keeps its context."""
    (here / "client.pem").write_text((CERTIFICATES / "client.pem").read_text())
    (here / "client.pem").chmod(0o600)
    tls = files(
        here,
        log,
        enable=True,
        client_trust_cert_path=str(CERTIFICATES / "ca.pem"),
        client_cert_path=str(here / "client.pem"),
        client_server_name="mq.example.org",
    )
    tls.load()
    context = tls.links.context
    assert context is not None
    assert tls.links.server_hostname == "mq.example.org"
    (here / "client.pem").write_text((CERTIFICATES / "elsewhere.pem").read_text())
    tls.step()
    assert tls.links.context is context
    assert tls.reloads == 1


def test_nothing_is_looked_at_without_files(log: MemoryLog) -> None:
    runner = SteppedRunner()
    tls = TlsFiles(TlsConfig(), ManualClock(NOW_MS), log)
    tls.load()
    tls.start(runner)
    assert (tls.server, tls.links.context, runner.workers) == (None, None, [])


@pytest.mark.parametrize(
    ("certificate", "name"),
    [
        (None, ""),
        ({}, ""),
        ({"subject": ((("organizationName", "o"),), (("commonName", "app"),))}, "app"),
        ({"subject": (), "subjectAltName": (("DNS", "app.example.org"), ("DNS", "b"))}, "app.example.org"),
        ({"subject": ((("commonName", "a\nb"),),)}, ""),
        ({"subject": ((("commonName", "a" * 256),),)}, ""),
    ],
)
def test_the_name_of_a_certificate(certificate: dict[str, Any] | None, name: str) -> None:
    assert name_of(certificate) == name
