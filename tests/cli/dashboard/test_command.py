"""``pocketmq dashboard``: what it refuses to start with, the doctor's findings, and one real start."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from pocketmq.cli.dashboard.findings import findings_of
from pocketmq.client.admin.admin import Admin
from pocketmq.testing import PocketBroker
from tests.cli.conftest import RunCommand, environment
from tests.dashboard.serving import token_of


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--https-cert", "cert.pem"), 2, "belong together"),
        (("--as-me",), 2, "this command has no user"),
        (("--host", "not-an-address", "--open"), 3, "cannot listen on not-an-address"),
        (("--port", "70000"), 2, "65535"),
    ],
)
def test_bad_options_are_refused(run_command: RunCommand, arguments: tuple[str, ...], code: int, says: str) -> None:
    result = run_command("dashboard", *arguments)
    assert result.returncode == code
    assert says in result.stderr.decode()


def test_strangers_are_not_shown_a_cluster_without_users(run_command: RunCommand) -> None:
    with PocketBroker() as broker:
        result = run_command("dashboard", "--host", "0.0.0.0", "--port", "0", "--namesrv", broker.namesrv)
    assert result.returncode == 3
    assert "the cluster demands no user" in result.stderr.decode()
    assert b"ready" not in result.stdout


@pytest.mark.slow
def test_it_serves_a_cluster_until_sigterm(tmp_path: Path) -> None:
    """And says on standard error who has changed what."""
    with PocketBroker() as broker:
        command = [sys.executable, "-m", "pocketmq.cli.main", "dashboard", "--port", "0", "--allow-writes"]
        process = subprocess.Popen(
            [*command, "--namesrv", broker.namesrv],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            cwd=tmp_path,
        )
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            assert ready.startswith("ready dashboard=http://127.0.0.1:")
            url = ready.strip().partition("=")[2]
            with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
                page = client.get("/")
                assert page.status_code == 200
                assert "1 broker answers" in page.text
                topic = client.get("/topics/BenchmarkTest")
                fields = {"token": token_of(topic), "body": "x"}
                assert client.post("/topics/BenchmarkTest/publish", data=fields).status_code == 303
            os.kill(process.pid, signal.SIGTERM)
            errors = process.communicate(timeout=60)[1]
            assert process.returncode in (0, 130, -signal.SIGTERM)
            assert "dashboard_change what=published" in errors
            assert "remote=127.0.0.1" in errors
            assert "Traceback" not in errors
        finally:
            process.kill()
            process.communicate()


async def test_the_doctor_s_findings_are_those_of_the_command() -> None:
    """The broker's settings give the doctor something to say."""
    settings = {"broker_fast_failure_enable": False}
    async with PocketBroker(broker=settings) as broker, Admin(broker.namesrv) as admin:
        found = await findings_of(admin, None)
    assert any("broker_fast_failure_enable is off" in each.title for each in found)
    assert all(each.severity in ("error", "warning", "note") and each.title and each.cure for each in found)
    assert {each.broker for each in found} == {"pocket"}
