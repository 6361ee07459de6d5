"""A protected server and its commands, as processes; a pair and a name server that prove themselves to each other."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import RunCommand, StartDaemon

pytestmark = pytest.mark.slow

ROOT = {"POCKETMQ_ACCESS_KEY": "root", "POCKETMQ_SECRET_KEY": "root-secret-1"}
PROTECTED = {
    "POCKETMQ_AUTH__AUTHENTICATION_ENABLED": "true",
    "POCKETMQ_AUTH__AUTHORIZATION_ENABLED": "true",
    "POCKETMQ_AUTH__INIT_USERNAME": "root",
    "POCKETMQ_AUTH__INIT_PASSWORD": "root-secret-1",
}
INNER = {"POCKETMQ_AUTH__INNER_ACCESS_KEY": "inner", "POCKETMQ_AUTH__INNER_SECRET_KEY": "inner-secret-1"}


class Commands:
    """Runs commands as a user, and keeps all that they print."""

    def __init__(self, run_command: RunCommand, namesrv: str) -> None:
        self.run_command = run_command
        self.namesrv = namesrv
        self.printed = ""

    def __call__(self, *arguments: str, user: dict[str, str] = ROOT, code: int = 0, stdin: bytes = b"") -> str:
        done = self.run_command(*arguments, env={"POCKETMQ_NAMESRV": self.namesrv, **user}, stdin=stdin)
        out, errors = done.stdout.decode(), done.stderr.decode()
        self.printed += out + errors
        assert done.returncode == code, errors
        assert "Traceback" not in errors
        return out if code == 0 else out + errors


def test_users_and_policies_by_hand(start_daemon: StartDaemon, run_command: RunCommand, tmp_path: Path) -> None:
    """From the first super user to an application that may send to one topic, through a restart."""
    data = tmp_path / "data"
    arguments = ("--namesrv-port", "0", "--broker-port", "0", "--data-dir", str(data))
    daemon = start_daemon("standalone", *arguments, env=PROTECTED)
    pocketmq = Commands(run_command, daemon.namesrv)
    assert "this server wants credentials" in pocketmq("topic", "list", user={}, code=1)
    who: Any = json.loads(pocketmq("whoami", "--json"))
    assert [(row["user"], row["type"], row["proved_by"]) for row in who] == [("root", "Super", "proof")]

    (tmp_path / "password").write_text("app-secret-1\n")
    pocketmq("user", "create", "app", "--password-file", "password")
    assert "existed" in pocketmq("user", "create", "app", "--password-file", "-", stdin=b"other-secret\n", code=1)
    assert "password of" not in pocketmq("user", "create", "app", "--generate", code=1), "no server has taken it"
    pocketmq("acl", "create", "app", "Topic:orders", "Pub", "Sub")
    assert "allowed" in pocketmq("acl", "test", "app", "Topic:orders", "Pub")
    assert "no matched policies." in pocketmq("acl", "test", "app", "Topic:payments", "Pub", code=1)
    users: Any = json.loads(pocketmq("user", "list", "--json"))
    assert [(row["user"], row["type"], row["status"], row["limits"]) for row in users] == [
        ("app", "Normal", "enable", ""),
        ("root", "Super", "enable", ""),
    ]
    app = {"POCKETMQ_ACCESS_KEY": "app", "POCKETMQ_SECRET_KEY": "app-secret-1"}
    pocketmq("produce", "orders", user=app, stdin=b"one\n")
    refused = pocketmq("produce", "payments", user=app, stdin=b"two\n", code=1)
    assert "User:app has no permission to access Topic:payments" in refused
    pocketmq("user", "update", "app", "--quota", "messages_in=1", "--quota", "topics=none")
    assert "topics=none" in pocketmq("user", "list")
    pocketmq("produce", "orders", user=app, stdin=b"x\n" * 1_000)
    over = pocketmq("produce", "orders", user=app, stdin=b"x\n", code=1)
    assert "[QUOTA]" in over
    assert "user app: messages sent, 1 a second" in over
    pocketmq("user", "update", "app", "--quota", "messages_in=default")
    pocketmq("produce", "orders", user=app, stdin=b"three\n")
    assert "there is no limit 'bytes'" in pocketmq("user", "update", "app", "--quota", "bytes=1", code=2)
    wrong = pocketmq("produce", "orders", user={**app, "POCKETMQ_SECRET_KEY": "wrong"}, stdin=b"x\n", code=1)
    assert "refused the credentials of app" in wrong
    assert "allowed" in pocketmq("acl", "test", "app", "SEND_MESSAGE_V2", "Topic:orders")
    pulls = pocketmq("acl", "test", "app", "PULL_MESSAGE", "Group:billing", code=1)
    assert "no matched policies." in pulls
    assert "PULL_MESSAGE needs each of: Topic Sub (`topic`), Group Sub (`consumer_group`)" in pulls
    denials: Any = json.loads(pocketmq("acl", "log", "--json"))
    assert {(row["user"], row["resource"]) for row in denials} >= {("app", "Topic:payments"), ("app", "-")}

    assert "last super user" in pocketmq("user", "delete", "root", "--yes", code=1)
    code, _, errors = daemon.end()
    assert code == 0
    assert (data / "config" / "auth.json").stat().st_mode & 0o777 == 0o600
    again = start_daemon("standalone", *arguments, env=PROTECTED)
    pocketmq.namesrv = again.namesrv
    assert "Topic:orders" in pocketmq("acl", "list")
    pocketmq("user", "delete", "app", "--yes")
    pocketmq("produce", "orders", user=app, stdin=b"x\n", code=1)
    errors += again.end()[2]
    for secret in ("root-secret-1", "app-secret-1", "other-secret"):
        assert secret not in pocketmq.printed
        assert secret not in errors


def test_members_of_a_cluster_prove_themselves(
    start_daemon: StartDaemon, run_command: RunCommand, tmp_path: Path
) -> None:
    """A master and a slave with the cluster's keys replicate, users included; a broker without them gets nowhere."""
    settings = {**PROTECTED, **INNER}
    namesrv = start_daemon("namesrv", "--namesrv-port", "0", env=settings)
    common = ("--namesrv", namesrv.namesrv, "--broker-port", "0", "--set", "store.mapped_file_size_commit_log=8388608")
    master = start_daemon("broker", *common, "--data-dir", "master", "--set", "broker_role=SYNC_MASTER", env=settings)
    pocketmq = Commands(run_command, namesrv.namesrv)
    slave = start_daemon(
        "broker",
        *common,
        "--data-dir",
        "slave",
        "--set",
        "broker_role=SLAVE",
        "--set",
        "broker_id=1",
        "--set",
        "slave_sync_interval=100",
        env=settings,
    )
    pocketmq("user", "create", "app", "--password-file", "-", stdin=b"app-secret-1\n")
    mirrored = tmp_path / "slave" / "config" / "auth.json"
    while not mirrored.exists() or b"app-secret-1" not in mirrored.read_bytes():
        time.sleep(0.05)  # the slave asks for them while it follows the log
    assert mirrored.stat().st_mode & 0o777 == 0o600
    stranger = start_daemon("broker", *common, "--data-dir", "stranger", "--set", "broker_name=stranger", env=PROTECTED)
    assert "registered=no" in stranger.ready
    brokers: Any = json.loads(pocketmq("brokers", "--json"))
    assert {row["broker"] for row in brokers} == {"broker-a"}
    for daemon in (stranger, slave, master, namesrv):
        assert daemon.end()[0] == 0
