"""Our SDK and our commands with RocketMQ's access control of both generations, plain and over TLS."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from pocketmq.client import (
    TLS,
    Admin,
    AuthenticationFailed,
    Credentials,
    LocalTransactionState,
    Message,
    PocketMQError,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    TransactionProducer,
)
from tests.interop.protected_rocketmq import ADMIN, ALLOWED, APP, FORBIDDEN, OURS, protected_rocketmq
from tests.interop.rocketmq_servers import RocketMQServers
from tests.remoting.protected_servers import CERTIFICATES

KINDS = [("4.9", ""), ("4.9", "enforcing"), ("5.3", "permissive"), ("5.3", "enforcing")]


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: f"{kind[0]}-{kind[1] or 'plain'}")
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
def servers(kind: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQServers]:
    """RocketMQ with the two users and both topics."""
    version, mode = kind
    with protected_rocketmq(version, tmp_path_factory.mktemp("protected") / "servers", mode) as running:

        async def create() -> None:
            async with Admin(running.namesrv, credentials=ADMIN, tls=OURS if mode else None) as admin:
                await admin.create_topic(ALLOWED)
                await admin.create_topic(FORBIDDEN)

        asyncio.run(create())
        yield running


@pytest.fixture
def tls(kind: tuple[str, str]) -> TLS | None:
    return OURS if kind[1] else None


async def test_everything_that_an_application_does(servers: RocketMQServers, tls: TLS | None) -> None:
    """Single sends, batches, oneways, transactions that are committed and checked; push, ordered and pull."""
    app: Any = {"credentials": APP, "tls": tls}
    plain: set[bytes] = set()
    ordered: set[bytes] = set()
    wanted = {b"%d" % number for number in range(40)} | {b"oneway", b"committed", b"checked"}
    done = asyncio.Event()

    def note(into: set[bytes]) -> Any:
        async def handle(message: ReceivedMessage) -> None:
            into.add(bytes(message.body))
            if plain >= wanted and ordered >= wanted:
                done.set()

        return handle

    async def undecided(message: Message) -> LocalTransactionState:
        return LocalTransactionState.UNKNOWN

    pushed = PushConsumer("app-group", servers.namesrv, start="earliest", **app)
    pushed.subscribe(ALLOWED)(note(plain))
    in_order = PushConsumer("app-ordered", servers.namesrv, start="earliest", **app)
    in_order.subscribe(ALLOWED, ordered=True)(note(ordered))
    producer = TransactionProducer(  # 5.3 may check what has been rolled back
        "app-producer", servers.namesrv, check=lambda message: message.body != b"rolled back", **app
    )
    async with pushed, in_order, producer:
        await producer.send(Message(ALLOWED, b"0", keys=["key"]))
        await asyncio.gather(*(producer.send(Message(ALLOWED, b"%d" % number)) for number in range(1, 40)))
        producer.send_oneway(Message(ALLOWED, b"oneway"))
        await producer.send_in_transaction(Message(ALLOWED, b"committed"), lambda message: True)
        await producer.send_in_transaction(Message(ALLOWED, b"rolled back"), lambda message: False)
        await producer.send_in_transaction(Message(ALLOWED, b"checked"), undecided)
        await asyncio.wait_for(done.wait(), 90)
    async with PullConsumer("app-pull", servers.namesrv, **app) as pull:
        bodies = {bytes(each.body) async for each in pull.stream(ALLOWED, start="earliest", stop_at_end=True)}
        await pull.commit()
    assert bodies == plain == ordered == wanted


async def test_administration(servers: RocketMQServers, tls: TLS | None) -> None:
    async with Producer("app-producer", servers.namesrv, credentials=ADMIN, tls=tls) as producer:
        receipt = await producer.send(Message(FORBIDDEN, b"by id"))
    async with Admin(servers.namesrv, credentials=ADMIN, tls=tls) as admin:
        assert {ALLOWED, FORBIDDEN} <= set(await admin.topics())
        assert servers.broker_name in await admin.masters()
        found: list[ReceivedMessage] = []
        async with asyncio.timeout(60):
            while not found:  # the index follows the log
                found = await admin.query_messages(FORBIDDEN, receipt.msg_id, unique=True)
        assert [bytes(each.body) for each in found] == [b"by id"]


@pytest.mark.parametrize(
    ("credentials", "texts"),
    [
        (None, ("No accessKey is configured", "username cannot be null.")),
        (Credentials("nobody", "nobody-secret"), ("No acl config for nobody", "User:nobody is not found.")),
        (Credentials(APP.access_key, "hidden-secret"), ("Check signature failed", "check signature failed.")),
    ],
)
async def test_who_may_not_connect(
    servers: RocketMQServers, tls: TLS | None, credentials: Credentials | None, texts: tuple[str, str]
) -> None:
    """RocketMQ's words, and what to do."""
    wanted = texts[servers.version == "5.3"]
    given: Any = {"credentials": credentials, "tls": tls}
    errors: list[AuthenticationFailed] = []
    async with Producer("app-producer", servers.namesrv, **given) as producer:
        with pytest.raises(AuthenticationFailed, match=wanted) as caught:
            await producer.send(Message(ALLOWED, b"x"))
        errors.append(caught.value)
    async with PullConsumer("app-pull", servers.namesrv, **given) as pull:
        with pytest.raises(AuthenticationFailed, match=wanted) as caught:
            await pull.poll(ALLOWED, timeout_ms=500)
        errors.append(caught.value)
    hint = "give credentials=" if credentials is None else "check access key and secret key"
    assert all(hint in str(error) and "hidden" not in str(error) for error in errors)


async def test_who_may_not_use_a_topic(servers: RocketMQServers, tls: TLS | None) -> None:
    """The connection stands; each request is refused with RocketMQ's words."""
    app: Any = {"credentials": APP, "tls": tls}
    refusals = {"4.9": "No default permission for", "5.3": f"has no permission to access Topic:{FORBIDDEN}"}
    wanted = refusals[servers.version]
    async with Producer("app-producer", servers.namesrv, **app) as producer:
        with pytest.raises(PocketMQError, match=wanted):
            await producer.send(Message(FORBIDDEN, b"x"))
        await producer.send(Message(ALLOWED, b"still there"))
    async with PullConsumer("app-pull", servers.namesrv, **app) as pull:
        with pytest.raises(PocketMQError, match=wanted):
            await pull.poll(FORBIDDEN, timeout_ms=500)


async def test_plain_and_tls_do_not_mix(servers: RocketMQServers, kind: tuple[str, str]) -> None:
    """Enforcing closes plain connections, permissive takes both; a CA that did not sign the certificate is refused."""

    async def topics(tls: TLS | None) -> list[str]:
        async with Admin(servers.namesrv, credentials=ADMIN, tls=tls) as admin:
            return await admin.topics()

    if kind[1] == "enforcing":
        with pytest.raises(PocketMQError, match="give tls="):
            await topics(None)
    else:
        assert ALLOWED in await topics(None)
    if kind[1]:
        with pytest.raises(PocketMQError, match="certificate is refused"):
            await topics(TLS(ca=str(CERTIFICATES / "other_ca.pem")))
        assert ALLOWED in await topics(OURS)
        assert ALLOWED in await topics(TLS(verify=False))


def test_commands(servers: RocketMQServers, kind: tuple[str, str], tmp_path: Any) -> None:
    """With RocketMQ's own file of keys."""
    tools = tmp_path / "tools.yml"
    tools.write_text(f"accessKey: {APP.access_key}\nsecretKey: {APP.secret_key}\n")
    before = ["--secret-key-file", str(tools), *(["--tls-ca", OURS.ca] if kind[1] else [])]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pocketmq.cli.main", *before, *arguments, "--namesrv", servers.namesrv]
        return subprocess.run(command, input="a line\n", capture_output=True, text=True, timeout=100, check=False)

    sent = run("produce", ALLOWED)
    assert sent.returncode == 0, sent.stderr
    read = run("consume", ALLOWED, "--from", "earliest")
    assert "a line" in read.stdout
