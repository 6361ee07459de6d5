"""RocketMQ's Java clients with ``AclClientRPCHook``, over TLS; name server and broker know their users."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from pocketmq.client import TLS, Credentials
from pocketmq.remoting.security.signature import sign
from tests.interop.java_clients import JavaClients, java_clients
from tests.interop.pocketmq_server import PocketMQServer, pocketmq_server
from tests.interop.rocketmq_servers import ask_json
from tests.interop.toolchain import wait_until
from tests.remoting.protected_servers import CERTIFICATES

ROOT, APP = Credentials("rootuser", "root-secret-1"), Credentials("app-user", "app-secret-1")
CA, SERVER = CERTIFICATES / "ca.pem", CERTIFICATES / "server.pem"
SETTINGS = (
    "auth.authentication_enabled=true",
    "auth.authorization_enabled=true",
    f"auth.init_username={ROOT.access_key}",
    "tls.server_mode=enforcing",
    f"tls.server_cert_path={SERVER}",
    "tls.enable=true",
    f"tls.client_trust_cert_path={CA}",
    "metrics.listen_port=0",
)
OPTIONS = (
    "-Dtls.enable=true",
    "-Dtls.test.mode.enable=false",
    "-Dtls.client.authServer=true",
    f"-Dtls.client.trustCertPath={CA}",
)
CREATE_ACCOUNT, CREATE_TOPIC = 50, 17
OURS, THEIRS, GROUP = "app-topic", "root-topic", "app-group"


def ask_as_root(server: PocketMQServer, code: int, fields: dict[str, str]) -> None:
    signed = {**fields, **sign(ROOT, fields)}
    answer = ask_json(server.broker, code, signed, tls=TLS(ca=str(CA)).context())
    assert answer[0] == 0, answer


@contextmanager
def protected_server(directory: Path, *settings: str) -> Iterator[PocketMQServer]:
    """Run one with a user who has 4.9's permissions for one topic and one group, and no others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POCKETMQ_AUTH__INIT_PASSWORD", ROOT.secret_key)
        with pocketmq_server(directory, *SETTINGS, *settings) as running:
            topic = {"readQueueNums": "2", "writeQueueNums": "2", "perm": "6", "topicFilterType": "SINGLE_TAG"}
            topic |= {"topicSysFlag": "0", "order": "false", "defaultTopic": "TBW102"}
            for name in (OURS, THEIRS):
                ask_as_root(running, CREATE_TOPIC, {"topic": name, **topic})
            account = {"accessKey": APP.access_key, "secretKey": APP.secret_key, "admin": "false"}
            account |= {"topicPerms": f"{OURS}=PUB|SUB", "groupPerms": f"{GROUP}=SUB"}
            ask_as_root(running, CREATE_ACCOUNT, account)
            yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketMQServer]:
    with protected_server(tmp_path_factory.mktemp("protected")) as running:
        yield running


@pytest.fixture(scope="module")
def open_routes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PocketMQServer]:
    with protected_server(tmp_path_factory.mktemp("open"), "auth.authentication_whitelist=105") as running:
        yield running


def clients(
    version: str, server: PocketMQServer, directory: Path, user: Credentials | None, serialize: str = "JSON"
) -> AbstractContextManager[JavaClients]:
    keys = () if user is None else (f"-Daccess.key={user.access_key}", f"-Dsecret.key={user.secret_key}")
    return java_clients(version, serialize, server.namesrv, directory, *OPTIONS, *keys)


@pytest.mark.parametrize(
    ("version", "serialize"), [("4.9", "JSON"), ("4.9", "ROCKETMQ"), ("5.3", "JSON"), ("5.3", "ROCKETMQ")]
)
def test_signed_clients_send_consume_and_retry_within_their_permissions(
    version: str, serialize: str, server: PocketMQServer, tmp_path: Path
) -> None:
    body = f"{version}-{serialize}"
    with clients(version, server, tmp_path, APP, serialize) as java:
        with java.started("push", group=GROUP, topic=OURS, laterTimes=1, delayLevel=1) as consumer:
            assert len(java.send(java.producer, topic=OURS, body=body, count=6)) == 6
            java.call("batch", name=java.producer, topic=OURS, body=f"{body}-batch", count=3)

            def seen() -> list[str]:
                return [row["body"] for row in java.received(consumer, 0) if row["body"].startswith(body)]

            wait_until(lambda: len(seen()) >= 18, 60, "each message twice: the first try is sent back")
            assert len(set(seen())) == 9
        java.fails("send", name=java.producer, topic=THEIRS, body="x", timeoutMs=3000)
        refused = java.process.output.read_text()
        assert "User:app-user has no permission to access Topic:root-topic from 127.0.0.1" in refused, refused
        with java.started("producer", group="tx-group", transaction=True) as transactional:
            java.call("transaction", name=transactional, topic=OURS, body="kept", decision="COMMIT_MESSAGE")
            java.fails("transaction", name=transactional, topic=THEIRS, body="lost", decision="COMMIT_MESSAGE")


REFUSED = [
    (Credentials(APP.access_key, "wrong-secret"), "check signature failed."),
    (Credentials("nobody-here", APP.secret_key), "User:nobody-here is not found."),
    (None, "username cannot be null."),
]


@pytest.mark.parametrize("version", ["4.9", "5.3"])
@pytest.mark.parametrize(("user", "why"), REFUSED)
def test_the_name_servers_refusal_is_in_the_clients_log(
    version: str, user: Credentials | None, why: str, server: PocketMQServer, tmp_path: Path
) -> None:
    """The Java client throws "No route info", and writes what the name server said into its log alone."""
    with clients(version, server, tmp_path, user) as java:
        refused = java.fails("send", name=java.producer, topic=OURS, body="x", timeoutMs=3000)
        assert "No route info of this topic" in refused

        def told() -> bool:
            return any(why in path.read_text(errors="replace") for path in tmp_path.rglob("*.log"))

        wait_until(told, 20, why)


@pytest.mark.parametrize("version", ["4.9", "5.3"])
def test_the_brokers_refusal_is_the_clients_exception(
    version: str, open_routes: PocketMQServer, tmp_path: Path
) -> None:
    """Where routes are for everybody, as at RocketMQ's name server."""
    for number, (user, why) in enumerate(REFUSED):
        with clients(version, open_routes, tmp_path / str(number), user) as java:
            java.fails("send", name=java.producer, topic=OURS, body="x", timeoutMs=3000)
            said = java.process.output.read_text()
            assert f"MQBrokerException: CODE: 16  DESC: {why}" in said, said


@pytest.mark.parametrize("version", ["4.9", "5.3"])
def test_a_consumer_of_another_group_gets_nothing(version: str, server: PocketMQServer, tmp_path: Path) -> None:
    with clients(version, server, tmp_path / "app", APP) as java:
        java.send(java.producer, topic=OURS, body="hidden", count=2)
        with java.started("push", group="other-group", topic=OURS) as consumer:
            assert java.received(consumer, 1, timeout_s=4) == []
