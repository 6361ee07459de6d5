"""``pocketmq init --secure``: what it writes works together."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import RunCommand, StartDaemon


def test_nothing_is_written_without_the_word_or_over_files(run_command: RunCommand, tmp_path: Path) -> None:
    refused = run_command("init", "here")
    assert refused.returncode == 2
    assert b"--secure" in refused.stderr
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "pocketmq.toml").write_text("mine")
    refused = run_command("init", "here", "--secure")
    assert refused.returncode == 1
    assert b"is there already" in refused.stderr
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["pocketmq.toml"]


@pytest.mark.slow
def test_a_protected_server_in_a_minute(start_daemon: StartDaemon, run_command: RunCommand, tmp_path: Path) -> None:
    """Settings, administrator, certificates and the client's keys; a stranger, with TLS or without, gets nothing."""
    pytest.importorskip("cryptography")
    done = run_command("init", "secure", "--secure")
    assert done.returncode == 0, done.stderr
    files = tmp_path / "secure"
    for name in ("pocketmq.toml", "connections.toml", "tls/server.key", "tls/ca.key"):
        assert (files / name).stat().st_mode & 0o777 == 0o600, name
    password = (files / "connections.toml").read_text().partition('secret_key = "')[2].partition('"')[0]
    assert len(password) > 20
    assert password.encode() not in done.stdout + done.stderr

    ports = ("--namesrv-port", "0", "--broker-port", "0")
    daemon = start_daemon("standalone", "--config", "secure/pocketmq.toml", *ports)
    env = {"POCKETMQ_CONNECTIONS_FILE": str(files / "connections.toml"), "POCKETMQ_NAMESRV": daemon.namesrv}
    admin = ("--connection", "admin")
    who = run_command(*admin, "whoami", "--namesrv", daemon.namesrv, "--json", env=env)
    assert who.returncode == 0, who.stderr
    rows: Any = json.loads(who.stdout)
    assert [(row["user"], row["type"]) for row in rows] == [("admin", "Super")]
    sent = run_command(*admin, "produce", "orders", "--namesrv", daemon.namesrv, env=env, stdin=b"one\n")
    assert sent.returncode == 0
    plain = run_command("topic", "list", env={"POCKETMQ_NAMESRV": daemon.namesrv})
    assert plain.returncode == 4  # not reachable
    assert b"tls" in plain.stderr
    encrypted = {"POCKETMQ_NAMESRV": daemon.namesrv, "POCKETMQ_TLS_CA": str(files / "tls" / "ca.pem")}
    nobody = run_command("topic", "list", env=encrypted)
    assert nobody.returncode == 1
    assert b"wants credentials" in nobody.stderr
    code, _, errors = daemon.end()
    assert code == 0
    assert password not in errors


@pytest.mark.slow
def test_the_command_that_it_prints_serves_under_the_name(
    start_daemon: StartDaemon, run_command: RunCommand, tmp_path: Path
) -> None:
    """For other machines: on all addresses, and advertised under the name that the certificates have."""
    pytest.importorskip("cryptography")
    done = run_command("init", "secure", "--secure", "--host", "localhost")
    [line] = [line for line in done.stdout.decode().splitlines() if line.startswith("start it:")]
    command = shlex.split(line.removeprefix("start it:"))
    assert command[:2] == ["pocketmq", "standalone"]
    assert command[-4:] == ["--host", "0.0.0.0", "--advertise", "localhost"]
    daemon = start_daemon(*command[1:], "--namesrv-port", "0", "--broker-port", "0")
    assert daemon.broker.startswith("localhost:")
    env = {"POCKETMQ_CONNECTIONS_FILE": str(tmp_path / "secure" / "connections.toml")}
    sent = run_command("--connection", "admin", "produce", "T", "-m", "x", "--namesrv", daemon.namesrv, env=env)
    assert sent.returncode == 0, sent.stderr
    code, _, errors = daemon.end()
    assert code == 0
    assert "loopback_advertised" in errors
