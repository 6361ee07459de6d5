"""RocketMQ's admin tools at a server that knows its users: their ACL hook signs with the keys of tools.yml."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.mqadmin import MqAdmin, mqadmin
from tests.interop.pocketmq_server import PocketMQServer, pocketmq_server

SETTINGS = {
    "POCKETMQ_AUTH__AUTHENTICATION_ENABLED": "true",
    "POCKETMQ_AUTH__AUTHORIZATION_ENABLED": "true",
    "POCKETMQ_AUTH__INIT_USERNAME": "rootuser",
    "POCKETMQ_AUTH__INIT_PASSWORD": "root-secret-1",
}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PocketMQServer]:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    with pocketmq_server(tmp_path / "server", "metrics.listen_port=0") as running:
        yield running


@contextmanager
def tools(kind: str, directory: Path, namesrv: str, user: str, secret: str) -> Iterator[MqAdmin]:
    conf = directory / "conf"
    conf.mkdir(parents=True)
    (conf / "tools.yml").write_text(f"accessKey: {user}\nsecretKey: {secret}\n")
    with mqadmin(kind, directory, namesrv) as admin:
        yield admin


@pytest.mark.parametrize("kind", ["client-4.9", "client-5.3"])
def test_signed_commands_of_a_super_user_work_and_others_do_not(
    kind: str, server: PocketMQServer, tmp_path: Path
) -> None:
    with tools(kind, tmp_path / "root", server.namesrv, "rootuser", "root-secret-1") as admin:
        admin.ok("updateTopic", "-b", server.broker, "-t", "Signed", "-r", "2", "-w", "2")
        assert "Signed" in admin.ok("topicList").out
        assert admin.ok("brokerStatus", "-b", server.broker).settings["brokerVersionDesc"]
    with tools(kind, tmp_path / "wrong", server.namesrv, "rootuser", "wrong-secret") as admin:
        refused = admin.run("updateTopic", "-b", server.broker, "-t", "Refused")
        assert not refused.is_ok
        assert "check signature failed." in refused.out + refused.err
    with tools(kind, tmp_path / "root2", server.namesrv, "rootuser", "root-secret-1") as admin:
        assert "Refused" not in admin.ok("topicList").out


def test_users_and_policies_by_the_tools_of_5_3(server: PocketMQServer, tmp_path: Path) -> None:
    with tools("client-5.3", tmp_path / "root", server.namesrv, "rootuser", "root-secret-1") as admin:
        at = ("-b", server.broker)
        admin.ok("updateTopic", *at, "-t", "Orders")
        admin.ok("createUser", *at, "-u", "app", "-p", "app-secret-1", "-t", "Normal")
        listed = admin.ok("listUser", *at)
        assert {"app", "rootuser"} <= {word for line in listed.lines for word in line.split()}
        assert "app-secret-1" not in listed.out
        admin.ok("createAcl", *at, "-s", "User:app", "-r", "Topic:Orders", "-a", "Get", "-d", "Allow")
        shown = admin.ok("getAcl", *at, "-s", "User:app")
        assert "Topic:Orders" in shown.out, shown
        admin.ok("updateUser", *at, "-u", "app", "-s", "disable")
        assert "disable" in admin.ok("getUser", *at, "-u", "app").out
        admin.ok("deleteAcl", *at, "-s", "User:app", "-r", "Topic:Orders")
        admin.ok("deleteUser", *at, "-u", "app")
        assert "app" not in {word for line in admin.ok("listUser", *at).lines for word in line.split()}
