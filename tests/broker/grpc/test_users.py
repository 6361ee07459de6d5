"""gRPC clients of a broker with users: the same users, policies and limits as over remoting."""

import datetime
import hmac
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

pytest.importorskip("h2", reason="gRPC needs h2: pip install 'pocketmq[grpc]'")

from pocketmq.auth.auth_table import AuthContents
from pocketmq.auth.config import AuthConfig
from pocketmq.auth.policies import Policy, entry_of
from pocketmq.auth.users import User, UserStatus
from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.remoting.grpc import messages as m
from pocketmq.remoting.grpc.codes import Code
from pocketmq.remoting.limits.config import LimitsConfig
from tests.broker.conftest import Harness, store_config
from tests.broker.grpc.grpc_rig import Rig, message, topic

pytestmark = pytest.mark.usefixtures("brokers_in_memory")
AUTH = AuthConfig(
    authentication_enabled=True, authorization_enabled=True, init_username="root", init_password="root-secret"
)
ALICE = User(username="alice", password="alice-secret")
MAY = Policy((entry_of("Topic:orders", ["Pub", "Sub", "Get"], "Allow"), entry_of("Group:billing", ["Sub"], "Allow")))


def signed(user: str, secret: str, *, days: float = 0) -> dict[str, str]:
    """The metadata of a call, as RocketMQ's clients make it."""
    now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    date = now.strftime("%Y%m%dT%H%M%SZ")
    signature = hmac.digest(secret.encode(), date.encode(), "sha1").hex().upper()
    text = f"MQv2-HMAC-SHA1 Credential={user}, SignedHeaders=x-mq-date-time, Signature={signature}"
    return {"x_mq_date_time": date, "authorization": text}


@pytest.fixture
async def app(harness: Harness, tmp_path: Path) -> AsyncIterator[BrokerApp]:
    limits = LimitsConfig(user_messages_in_per_second=5)
    config = BrokerConfig(listen_port=0, grpc_port=-1, wait_time_mills_in_send_queue=60_000)
    app = BrokerApp(config, store_config(tmp_path / "store"), log=harness.log, auth_config=AUTH, limits_config=limits)
    await app.start()
    table = app.auth.table
    contents: AuthContents = table.contents.with_user(ALICE).with_policies("alice", (MAY,))
    table.replace(contents)
    for name in ("orders", "others"):
        app.topics.create(name, 1)
    yield app
    await app.stop()


async def code_of(rig: Rig, to: str = "orders") -> int:
    answer = await rig.send(message(to=to))
    assert answer.status is not None
    return answer.status.code


async def test_a_user_may_do_what_its_policies_say(app: BrokerApp) -> None:
    rig = await Rig.connect(app, **signed("alice", "alice-secret"))
    assert await code_of(rig) == Code.OK
    assert await code_of(rig, "others") == Code.UNAUTHORIZED
    route = await rig.client.call("QueryRoute", m.QueryRouteRequest(topic=topic("others")), m.QueryRouteResponse)
    assert route.status is not None
    assert route.status.code == Code.UNAUTHORIZED
    assert "User:alice has no permission to access Topic:others" in route.status.message
    assert (await rig.consumes("billing", "orders")).status == m.Status(code=20000, message="OK")
    _, [found] = await rig.receive("billing", "orders")
    assert (await rig.ack(found, group="billing", name="orders")).status == m.Status(code=20000, message="OK")
    denied, _ = await rig.receive("another", "orders")
    assert denied.code == Code.UNAUTHORIZED
    other = await rig.consumes("another", "orders")
    assert other.status is not None
    assert other.status.code == Code.UNAUTHORIZED
    await rig.client.close()


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({}, "username cannot be null."),
        (signed("", ""), "username cannot be null."),
        (signed("nobody", "x"), "User:nobody is not found."),
        (signed("alice", "wrong"), "check signature failed."),
        (signed("alice", "alice-secret", days=2), "check signature failed."),
        ({"authorization": "Basic YWxpY2U6eA=="}, "username cannot be null."),
        ({**signed("alice", "alice-secret"), "x_mq_date_time": "now"}, "check signature failed."),
    ],
)
async def test_whoever_cannot_show_who_it_is_is_refused(app: BrokerApp, metadata: dict[str, str], text: str) -> None:
    rig = await Rig.connect(app, **metadata)
    answer = await rig.send(message(to="orders"))
    assert answer.status is not None
    assert (answer.status.code, text in answer.status.message) == (Code.UNAUTHORIZED, True), answer.status
    await rig.client.close()


async def test_a_client_id_is_no_way_into_another_user_s_client(app: BrokerApp) -> None:
    alice = await Rig.connect(app, "same-id", **signed("alice", "alice-secret"))
    await alice.produces("orders")
    stranger = await Rig.connect(app, "same-id", **signed("root", "root-secret"))
    beat = await stranger.client.call("Heartbeat", m.HeartbeatRequest(), m.HeartbeatResponse)
    assert beat.status is not None
    assert beat.status.code == Code.UNRECOGNIZED_CLIENT_TYPE
    assert await code_of(alice) == Code.OK
    for each in (alice, stranger):
        await each.client.close()


async def test_a_user_that_is_disabled_or_has_another_password_is_refused_at_once(app: BrokerApp) -> None:
    rig = await Rig.connect(app, **signed("alice", "alice-secret"))
    assert await code_of(rig) == Code.OK
    contents = app.auth.table.contents
    disabled = User(username="alice", password="alice-secret", user_status=UserStatus.DISABLE)
    app.auth.table.replace(contents.with_user(disabled))
    assert await code_of(rig) == Code.UNAUTHORIZED
    app.auth.table.replace(contents.with_user(User(username="alice", password="new-secret")))
    assert await code_of(rig) == Code.UNAUTHORIZED
    app.auth.table.replace(contents)
    assert await code_of(rig) == Code.OK
    await rig.client.close()


async def test_a_user_s_limits_hold_and_the_refusal_says_so(app: BrokerApp) -> None:
    rig = await Rig.connect(app, **signed("alice", "alice-secret"))
    answer = await rig.send(*(message(to="orders") for _ in range(60)))
    codes = [entry.status.code for entry in answer.entries if entry.status is not None]
    assert set(codes) == {Code.OK, Code.TOO_MANY_REQUESTS}
    [refused, *_] = [entry.status for entry in answer.entries if entry.status and entry.status.code != Code.OK]
    assert "limits.user_messages_in_per_second" in refused.message
    assert "cause quota, stored no, retry after" in refused.message
    assert answer.status is not None
    assert answer.status.code == Code.MULTIPLE_RESULTS
    await rig.client.close()
