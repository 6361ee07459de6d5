"""``pocketmq acl import``: a plain_acl.yml of RocketMQ 4.9 on a server that knows its users."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import RunCommand, StartDaemon
from tests.cli.stories.test_access import PROTECTED, Commands

pytest.importorskip("yaml")
pytestmark = pytest.mark.slow

FILE = """\
globalWhiteRemoteAddresses:
  - 10.10.103.*
accounts:
  - accessKey: app-user
    secretKey: app-secret-1
    defaultTopicPerm: DENY
    topicPerms: [orders=PUB|SUB, secrets=DENY]
    groupPerms: [readers=SUB]
  - accessKey: other-admin
    secretKey: other-secret-1
    admin: true
"""
APP = {"POCKETMQ_ACCESS_KEY": "app-user", "POCKETMQ_SECRET_KEY": "app-secret-1"}


def test_accounts_become_users_with_their_permissions(
    start_daemon: StartDaemon, run_command: RunCommand, tmp_path: Path
) -> None:
    daemon = start_daemon(
        "standalone",
        *("--namesrv-port", "0", "--broker-port", "0", "--data-dir", str(tmp_path / "data")),
        env=PROTECTED,
    )
    pocketmq = Commands(run_command, daemon.namesrv)
    (tmp_path / "plain_acl.yml").write_text(FILE)
    (tmp_path / "bad.yml").write_text(FILE.replace("secrets=DENY", "secrets*=DENY"))
    assert "line 7: " in pocketmq("acl", "import", "bad.yml", "--yes", code=1)
    assert "nothing was imported" in pocketmq("acl", "import", "plain_acl.yml", code=2)
    assert "app-user" not in pocketmq("user", "list")

    made: Any = json.loads(pocketmq("acl", "import", "plain_acl.yml", "--yes", "--json"))
    assert [(row["user"], row["type"], row["entries"], row["result"]) for row in made] == [
        ("app-user", "Normal", 4, "made"),
        ("other-admin", "Super", 0, "made"),
    ]
    assert "line 2: global white address 10.10.103.*: not taken over" in pocketmq.printed
    for resource, action, code in (
        ("Topic:orders", "Pub", 0),
        ("Topic:secrets", "Sub", 1),
        ("Topic:another", "Pub", 1),
        ("Group:readers", "Sub", 0),
    ):
        pocketmq("acl", "test", "app-user", resource, action, code=code)
    pocketmq("topic", "create", "orders")
    pocketmq("produce", "orders", user=APP, stdin=b"one\n")
    again: Any = json.loads(pocketmq("acl", "import", "plain_acl.yml", "--yes", "--json"))
    assert {row["result"] for row in again} == {"is there: stays"}
    assert "app-secret-1" not in pocketmq.printed
    assert "other-secret-1" not in pocketmq.printed
