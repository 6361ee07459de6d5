"""``pocketmq tls``: certificates that work together, and what they say."""

import json
import ssl
from pathlib import Path
from typing import Any

import pytest

from pocketmq.cli.exit_codes import CommandFailed
from pocketmq.cli.tls import command
from pocketmq.common.clock import SystemClock
from pocketmq.common.logs import CapturedLog
from pocketmq.common.settings import SettingsReader
from pocketmq.remoting.security.client_security import TLS
from pocketmq.remoting.security.tls_config import TlsConfig
from pocketmq.remoting.security.tls_files import TlsFiles

CERTIFICATES = Path(__file__).parents[2] / "remoting" / "security" / "certificates"


def settings_of(text: str) -> TlsConfig:
    reader = SettingsReader({"tls": TlsConfig})
    return reader.merge(reader.from_file(text, "broker.toml")).get(TlsConfig)


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> Any:
    """Return the certificate that the client showed."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname=name)
    for each in (theirs, ours, theirs, ours):
        try:
            each.do_handshake()
        except ssl.SSLWantReadError:
            pass
    return ours.getpeercert()


def test_what_init_prints_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The settings start a server without a warning; the client's files get in, under its name."""
    pytest.importorskip("cryptography")
    folder = tmp_path / "certificates"
    command.init(folder, hosts=["mq.example.org", "10.1.2.3"], days=30, client="alice")
    log = CapturedLog()
    tls = TlsFiles(settings_of(capsys.readouterr().out), SystemClock(), log)
    tls.load()
    assert [event["event"] for event in log.events] == ["certificate_ends_soon"]  # 30 days
    context = TLS(ca=str(folder / "ca.pem"), cert=str(folder / "client.pem"), key=str(folder / "client.key")).context()
    if hasattr(ssl, "VERIFY_X509_STRICT"):
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    assert tls.server is not None
    assert tls.links.context is not None
    for name in ("mq.example.org", "10.1.2.3", "localhost", "127.0.0.1", "::1"):
        shown = shake_hands(tls.server, context, name)
        assert shown["subject"] == ((("commonName", "alice"),),)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(tls.server, context, "elsewhere.example.org")
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert modes == {
        f"{name}.{kind}": mode for name in ("ca", "server", "client") for kind, mode in (("pem", 0o644), ("key", 0o600))
    }


def test_init_overwrites_nothing(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    (tmp_path / "client.key").write_text("precious")
    with pytest.raises(CommandFailed) as raised:
        command.init(tmp_path, hosts=None, days=1, client="client")
    assert "client.key is there already" in raised.value.why
    assert [path.name for path in tmp_path.iterdir()] == ["client.key"]


@pytest.mark.parametrize(
    ("hosts", "client"), [(["müller.example"], "c"), (["h" * 65], "c"), (["h"], "c" * 65), (["h"], "")]
)
def test_init_refuses_names_that_no_certificate_can_have(tmp_path: Path, hosts: list[str], client: str) -> None:
    pytest.importorskip("cryptography")
    with pytest.raises(CommandFailed):
        command.init(tmp_path, hosts=hosts, days=1, client=client)
    assert not list(tmp_path.iterdir())


def test_init_without_its_package_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cryptography", None)
    with pytest.raises(CommandFailed) as raised:
        command.init(tmp_path, hosts=None, days=1, client="client")
    assert "pocketmq[tls]" in raised.value.hint


def test_show_says_what_a_file_has(capsys: pytest.CaptureFixture[str]) -> None:
    command.show(str(CERTIFICATES / "server.pem"), as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert (shown["subject"], shown["names"]) == ("commonName=server", ["localhost", "127.0.0.1"])
    assert shown["issuer"] == "commonName=PocketMQ test ca"
    command.show(str(CERTIFICATES / "expired.pem"))
    text = capsys.readouterr().out
    assert "names     -" in text
    assert "2020-01-01 00:00 UTC to 2021-01-01 00:00 UTC, -" in text


@pytest.mark.parametrize("target", ["none.pem", "127.0.0.1:0", "host:99999"])
def test_show_says_why_there_is_nothing(target: str) -> None:
    with pytest.raises(CommandFailed):
        command.show(target)
