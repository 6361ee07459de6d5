"""A slave has its master's users and policies: at once effective, and in a file of its own."""

import stat
from typing import Any

import msgspec
import pytest

from pocketmq.auth.auth_file import AuthFile
from pocketmq.auth.config import AuthConfig
from pocketmq.auth.policies import Policy, entry_of
from pocketmq.auth.users import User
from pocketmq.broker.app import BrokerApp
from pocketmq.broker.ha.slave_sync import MasterRefused, SlaveSync
from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.acl import UserInfo, UserRequestHeader
from pocketmq.remoting.protocol.authenticate import AuthenticateRequestHeader
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.security.proof import client_proof
from tests.broker.conftest import Client, Harness, eventually
from tests.broker.ha_cluster import HaCluster

pytestmark = pytest.mark.slow

R = RequestCode
ALICE = User(username="alice", password="alice-secret")
NONCE = "n" * 16
POLICIES = (Policy((entry_of("Topic:orders", ["Pub"], "Allow"),)),)


@pytest.fixture
async def pair(ha: HaCluster) -> tuple[BrokerApp, BrokerApp]:
    """A master and a slave that serve known users; the name server, which is there already, serves everybody."""
    ha.auth_config = AuthConfig(
        authentication_enabled=True,
        authorization_enabled=True,
        init_username="root",
        init_password="root-secret",
        inner_access_key="inner-user",
        inner_secret_key="inner-secret",
    )
    return await ha.pair()


def names(app: BrokerApp) -> set[str]:
    return set(app.auth.table.contents.users)


async def proved(harness: Harness, app: BrokerApp, user: str, secret: str) -> tuple[Client, int]:
    """Return a client, and the code with which the broker answers its proof."""
    client = await harness.client(app)
    proof = client_proof(secret, user, client.channel.announcement.nonce, NONCE)
    answer = await client.ask(R.AUTHENTICATE, AuthenticateRequestHeader(user=user, nonce=NONCE, proof=proof))
    return client, answer.code


async def test_a_user_made_and_deleted_at_the_master_is_so_at_the_slave(
    pair: tuple[BrokerApp, BrokerApp], ha: HaCluster, harness: Harness
) -> None:
    master, slave = pair
    root, code = await proved(harness, master, "root", "root-secret")
    assert code == 0
    made = await root.ask(
        R.AUTH_CREATE_USER, UserRequestHeader("alice"), encode_body(UserInfo("alice", "alice-secret"))
    )
    assert made.code == 0, made
    master.auth.table.replace(master.auth.table.contents.with_policies("alice", POLICIES))
    await eventually(lambda: slave.auth.table.contents == master.auth.table.contents)
    assert slave.auth.table.contents.policies_of("alice") == POLICIES
    at_slave, code = await proved(harness, slave, "alice", "alice-secret")
    assert code == 0
    path = ha.directory("s") / "config" / "auth.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    kept = AuthFile(str(path)).load()
    assert kept is not None
    assert kept.users["alice"] == ALICE

    assert (await root.ask(R.AUTH_DELETE_USER, UserRequestHeader("alice"))).code == 0
    await eventually(lambda: "alice" not in names(slave))
    assert (await at_slave.ask(R.WHOAMI)).code == 16, "its open connection"
    assert (await proved(harness, slave, "alice", "alice-secret"))[1] == 16
    shown = str(ha.logs["s"].events) + str(ha.logs["m"].events)
    assert not [secret for secret in ("alice-secret", "inner-secret", "root-secret") if secret in shown]


async def test_users_are_changed_at_the_master_only(pair: tuple[BrokerApp, BrokerApp], harness: Harness) -> None:
    _, slave = pair
    root, code = await proved(harness, slave, "root", "root-secret")
    assert code == 0
    refused = await root.ask(
        R.AUTH_CREATE_USER, UserRequestHeader("alice"), encode_body(UserInfo("alice", "alice-secret"))
    )
    assert (refused.code, refused.extra["cause"]) == (1, "not_master")
    assert names(slave) == {"root"}


async def test_users_and_tables_do_not_hold_each_other_up(
    pair: tuple[BrokerApp, BrokerApp], harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, slave = pair
    ask = SlaveSync._ask
    refused = {int(R.GET_ALL_TOPIC_CONFIG)}

    async def asked(sync: SlaveSync, channel: Any, code: int, header: Any = None) -> Any:
        if int(code) in refused:
            raise MasterRefused("refused by the test")
        return await ask(sync, channel, code, header)

    monkeypatch.setattr(SlaveSync, "_ask", asked)
    root, _ = await proved(harness, master, "root", "root-secret")
    await root.put(b"one", topic="orders")
    master.auth.table.replace(master.auth.table.contents.with_user(ALICE))
    await eventually(lambda: "alice" in names(slave))
    assert slave.topics.get("orders") is None
    refused.clear()
    refused.add(int(R.AUTH_CONTENTS))
    master.auth.table.replace(master.auth.table.contents.without_user("alice"))
    await eventually(lambda: slave.topics.get("orders"))
    assert "alice" in names(slave)


async def test_what_a_master_sends_is_checked_before_it_holds(pair: tuple[BrokerApp, BrokerApp], ha: HaCluster) -> None:
    _, slave = pair
    before = slave.auth.table.contents
    kept = (ha.directory("s") / "config" / "auth.json").read_bytes()
    short = msgspec.json.encode(
        {"users": [{"username": "eve", "password": "x", "userType": "Super", "userStatus": "enable"}]}
    )
    for data in (b"", b"{}", b'{"users": 5}', short):
        with pytest.raises(DECODE_ERRORS):
            slave.auth.mirror(data)
    assert slave.auth.table.contents is before
    assert (ha.directory("s") / "config" / "auth.json").read_bytes() == kept
