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


def test_accounts_by_the_tools_of_4_9(server: PocketMQServer, tmp_path: Path) -> None:
    """They change plain_acl.yml at a broker of 4.9, and users and policies here."""
    at = ("-b", server.broker)
    with (
        tools("client-4.9", tmp_path / "root", server.namesrv, "rootuser", "root-secret-1") as admin,
        tools("client-5.3", tmp_path / "root5", server.namesrv, "rootuser", "root-secret-1") as seen,
    ):
        update = ("updateAclConfig", *at, "-a", "app-user", "-s", "app-secret-1", "-i", "DENY", "-u", "SUB")
        made = admin.ok(*update, "-t", "Orders=PUB|SUB,Audit=PUB", "-g", "Billing=SUB", "-w", "10.0.0.*")
        assert "success" in made.out
        assert "Normal" in seen.ok("getUser", *at, "-u", "app-user").out
        shown = seen.ok("getAcl", *at, "-s", "User:app-user").out
        for resource in ("Topic:Orders", "Topic:Audit", "Group:Billing", "Topic:*", "Group:*", "10.0.0.0/24"):
            assert resource in shown, shown
        version = admin.ok("clusterAclConfigVersion", *at).lines[0].split()
        assert "success" in admin.ok(*update, "-t", "Orders=PUB", "-m", "false").out
        assert "Topic:Audit" not in seen.ok("getAcl", *at, "-s", "User:app-user").out
        [later] = admin.ok("clusterAclConfigVersion", "-c", "DefaultCluster").rows
        assert version[:3] == ["DefaultCluster", "broker-a", server.broker]
        assert version[3].endswith("auth.json")
        assert int(version[4]) < int(later["AclConfigVersionNum"])
        for refused, why in (
            ((*update, "-t", "Orders=READ"), "CODE: 209"),
            (("updateAclConfig", *at, "-a", "other-user", "-s", "short"), "CODE: 209"),
            (("updateGlobalWhiteAddr", *at, "-g", "10.0.0.1"), "no address is let in without a user here"),
            (("deleteAclConfig", *at, "-a", "nobody"), "CODE: 210"),
            (("deleteAclConfig", *at, "-a", "rootuser"), "is the last super user"),
        ):
            output = admin.run(*refused)
            assert why in output.err + output.out, output
        admin.ok("deleteAclConfig", *at, "-a", "app-user")
        assert "app-user" not in seen.ok("listUser", *at).out
    with tools("client-4.9", tmp_path / "wrong", server.namesrv, "rootuser", "wrong-secret") as admin:
        for command in (
            ("updateAclConfig", *at, "-a", "app-user", "-s", "app-secret-1"),
            ("deleteAclConfig", *at, "-a", "a"),
        ):
            output = admin.run(*command)
            assert "check signature failed." in output.err + output.out, output
