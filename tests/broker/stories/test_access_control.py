"""A broker that knows its users: proofs, policies, stored messages, the short path."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pocketmq.auth.auth_file import AuthFile
from pocketmq.auth.auth_table import AuthContents
from pocketmq.auth.config import AuthConfig
from pocketmq.auth.errors import AuthFileUnreadable
from pocketmq.auth.policies import Policy, entry_of
from pocketmq.auth.users import User, UserStatus
from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.pull.pull_service import RECHECKED_AT_ONCE
from pocketmq.common.record import PGROUP
from pocketmq.common.record_codec import decode_record
from pocketmq.common.topics import SCHEDULE_TOPIC, TOPICS_OF_ALL
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.authenticate import AuthenticateRequestHeader
from pocketmq.remoting.protocol.body import KVTable, decode_body, encode_body
from pocketmq.remoting.protocol.client import HeartbeatData, ProducerData
from pocketmq.remoting.protocol.pull import ViewMessageRequestHeader
from pocketmq.remoting.protocol.send import ConsumerSendMsgBackRequestHeader, NativeAppendRequestHeader
from pocketmq.remoting.protocol.staged import StagedEndRequestHeader, StagedWriteRequestHeader
from pocketmq.remoting.protocol.transaction import EndTransactionRequestHeader
from pocketmq.remoting.security.proof import client_proof
from pocketmq.remoting.telemetry import TELEMETRY_KEY, decode_telemetry
from tests.broker.conftest import TIMEOUT_MS, Client, Harness, eventually, store_config

R = RequestCode
NO_PERMISSION = int(ResponseCode.NO_PERMISSION)
NONCE = "n" * 16
AUTH = AuthConfig(
    authentication_enabled=True, authorization_enabled=True, init_username="root", init_password="root-secret"
)
ALICE = User(username="alice", password="alice-secret")
POLICIES = (
    Policy(
        (
            entry_of("Topic:orders", ["Pub", "Sub", "Get"], "Allow"),
            entry_of("Group:group", ["Sub"], "Allow"),
        )
    ),
)


class Protected:
    """A broker with users; its clients."""

    def __init__(self, harness: Harness, path: Path) -> None:
        self.harness = harness
        self.path = path
        self.app: BrokerApp

    async def start(self, **settings: Any) -> "Protected":
        config = BrokerConfig(listen_port=0, wait_time_mills_in_send_queue=60_000, **settings)
        self.app = BrokerApp(config, store_config(self.path), log=self.harness.log, auth_config=AUTH)
        await self.app.start()
        self.harness._stack.push_async_callback(self.app.stop)
        table = self.app.auth.table
        table.replace(table.contents.with_user(ALICE).with_policies("alice", POLICIES))
        return self

    async def client(self, user: str = "", secret: str = "") -> Client:
        client = await self.harness.client(self.app)
        if user:
            assert (await self.prove(client, user, secret)).code == 0
        return client

    async def prove(self, client: Client, user: str, secret: str) -> Any:
        announcement = client.channel.announcement
        proof = client_proof(secret, user, announcement.nonce, NONCE)
        return await client.ask(R.AUTHENTICATE, AuthenticateRequestHeader(user=user, nonce=NONCE, proof=proof))


@pytest.fixture
async def protected(harness: Harness, tmp_path: Path) -> Protected:
    return await Protected(harness, tmp_path / "store").start()


async def test_the_first_start_makes_the_super_user_of_the_settings(protected: Protected) -> None:
    kept = AuthFile(str(protected.path / "config" / "auth.json")).load()
    assert kept is not None
    assert [(user.username, user.is_super) for user in kept.users.values()] == [("root", True)]
    root = await protected.client("root", "root-secret")
    await root.put(b"one", topic="anything")
    stranger = await protected.client()
    refused = await stranger.append(("anything", 0, [stranger.record("anything")]))
    assert (refused.code, refused.extra["stored"]) == (NO_PERMISSION, "no")
    assert "username cannot be null." in refused.remark
    assert "root-secret" not in str(protected.harness.log.events)


async def test_a_damaged_or_open_file_stops_the_start(protected: Protected) -> None:
    await protected.app.stop()
    path = protected.path / "config" / "auth.json"
    path.chmod(0o644)
    with pytest.raises(AuthFileUnreadable, match="chmod 600"):
        await protected.app.start()
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(AuthFileUnreadable):
        await protected.app.start()


async def test_small_sends_of_a_known_user_take_the_short_path(protected: Protected) -> None:
    """And those that the user may not make are refused in the guard's words, as are those after a change."""
    root = await protected.client("root", "root-secret")
    await root.put(b"0", topic="orders")
    await root.put(b"0", topic="payments")
    alice = await protected.client("alice", "alice-secret")
    short = protected.app._run.short_path
    assert short is not None
    for number in range(5):
        await alice.put(b"%d" % number, topic="orders")
    routes = [route for route in short.routes.known.values() if route.permitted]
    assert [[check[0].topic for check in route.checks] for route in routes] == [["orders"]]
    refused = await alice.append(("payments", 0, [alice.record("payments")]))
    assert refused.code == NO_PERMISSION
    assert refused.remark.startswith("User:alice has no permission to access Topic:payments from 127.0.0.1")
    both = await alice.append(("orders", 0, [alice.record("orders")]), ("payments", 0, [alice.record("payments")]))
    assert both.code == NO_PERMISSION
    table = protected.app.auth.table
    table.replace(table.contents.with_policies("alice", ()))
    assert (await alice.append(("orders", 0, [alice.record("orders")]))).code == NO_PERMISSION
    queue = await eventually(lambda: protected.app.store.consume_queues.get("payments", 0))
    assert queue.max_offset == 1


async def test_a_stored_message_is_shown_to_those_who_may_read_its_topic(protected: Protected) -> None:
    root = await protected.client("root", "root-secret")
    ours = (await root.put(b"ours", topic="orders")).header.results[0][2][0][0]
    theirs = (await root.put(b"theirs", topic="payments")).header.results[0][2][0][0]
    alice = await protected.client("alice", "alice-secret")
    seen = await alice.ask(R.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=ours))
    assert decode_record(bytes(seen.body)).body == b"ours"
    hidden = await alice.ask(R.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=theirs))
    assert (hidden.code, bytes(hidden.body)) == (NO_PERMISSION, b"")
    denial = protected.app.auth.denials.entries[-1]
    assert (denial.user, denial.code, denial.resource, denial.action) == ("alice", 33, "Topic:payments", "Get")
    assert protected.app.auth.denials.counts["policy"] == 1


async def test_no_message_of_another_topic_comes_through_the_retry_topic_of_a_group(protected: Protected) -> None:
    """CONSUMER_SEND_MSG_BACK names a place in the log: RocketMQ copies whatever is there for the group."""
    root = await protected.client("root", "root-secret")
    ours = (await root.put(b"ours", topic="orders")).header.results[0][2][0][0]
    theirs = (await root.put(b"theirs", topic="payments")).header.results[0][2][0][0]
    alice = await protected.client("alice", "alice-secret")
    header = ConsumerSendMsgBackRequestHeader(offset=theirs, group="group", delay_level=0)
    refused = await alice.ask(R.CONSUMER_SEND_MSG_BACK, header)
    assert (refused.code, refused.extra["stored"]) == (NO_PERMISSION, "no")
    assert "Topic:payments" in refused.remark
    header = ConsumerSendMsgBackRequestHeader(offset=ours, group="group", delay_level=0)
    assert (await alice.ask(R.CONSUMER_SEND_MSG_BACK, header)).code == 0


async def test_a_transaction_is_ended_by_those_who_may_send_to_its_topic(protected: Protected) -> None:
    root = await protected.client("root", "root-secret")
    record = root.record("payments", properties={PGROUP: "producers"})
    header = NativeAppendRequestHeader("producers", True, [("payments", 0, 1)], TIMEOUT_MS)
    half = await root.ask(R.NATIVE_HALF_APPEND, header, len(record).to_bytes(4, "big") + record)
    assert half.code == 0, half
    queue_offset, physical_offset = half.header.results[0][1], half.header.results[0][2][0][0]
    end = EndTransactionRequestHeader(
        producer_group="producers",
        tran_state_table_offset=queue_offset,
        commit_log_offset=physical_offset,
        commit_or_rollback=8,
        msg_id="",
    )
    alice = await protected.client("alice", "alice-secret")
    refused = await alice.ask(R.END_TRANSACTION, end)
    assert refused.code == NO_PERMISSION, refused
    assert "Topic:payments" in refused.remark
    ended = await root.ask(R.END_TRANSACTION, end)
    assert ended.code == 0, ended


async def test_a_wrong_secret_is_refused_and_the_connection_ends(protected: Protected) -> None:
    client = await protected.client()
    refused = await protected.prove(client, "alice", "wrong")
    assert refused.code == NO_PERMISSION
    assert refused.remark.startswith("check signature failed.")
    await client.channel.wait_closed()
    assert [(denial.user, denial.why) for denial in protected.app.auth.denials.entries] == [
        ("alice", "check signature failed.")
    ]
    sources = protected.app.observation.sources
    assert sources is not None
    assert sources.denials == {"user": 1, "policy": 0, "flood": 0}


async def test_a_disabled_user_is_out_at_once(protected: Protected) -> None:
    alice = await protected.client("alice", "alice-secret")
    root = await protected.client("root", "root-secret")
    await root.put(b"0", topic="orders")
    await alice.put(b"1", topic="orders")
    table = protected.app.auth.table
    table.replace(table.contents.with_user(msgspec.structs.replace(ALICE, password="another-secret")))
    assert (await alice.append(("orders", 0, [alice.record("orders")]))).code == NO_PERMISSION
    assert table.contents != AuthContents()


async def test_the_doctor_is_told_of_weak_secrets_and_of_an_open_file(protected: Protected) -> None:
    """By the broker's runtime information, which needs Get on the cluster."""
    (protected.path / "config" / "auth.json").chmod(0o644)
    protected.app.auth.look()
    root = await protected.client("root", "root-secret")
    answer = await root.ask(R.GET_BROKER_RUNTIME_INFO)
    told = decode_telemetry(decode_body(answer.body, KVTable).table[TELEMETRY_KEY]).security
    assert told is not None
    assert (told.authentication, told.users, told.auth_file_mode) == (True, 2, 0o044)
    assert told.weak_secrets == {"shorter than 12 characters": 1}
    assert b"root-secret" not in bytes(answer.body)
    alice = await protected.client("alice", "alice-secret")
    assert (await alice.ask(R.GET_BROKER_RUNTIME_INFO)).code == NO_PERMISSION


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("change", ["disabled", "deleted", "no policy", "another password"])
async def test_a_pull_that_waits_is_refused_when_its_user_may_no_longer_pull(
    protected: Protected, change: str, native: bool
) -> None:
    """And gets no message that is stored later; those of others go on waiting."""
    root = await protected.client("root", "root-secret")
    await root.put(b"0", topic="orders")
    alice = await protected.client("alice", "alice-secret")

    async def pull(client: Client) -> Any:
        if native:
            return await client.native_pull(("orders", 0, 1), suspend_ms=30_000)
        return await client.pull("orders", 0, 1, suspend_ms=30_000)

    waiting, other = asyncio.ensure_future(pull(alice)), asyncio.ensure_future(pull(root))
    pulls = protected.app._run.pulls
    await eventually(lambda: pulls.count == 2)
    table = protected.app.auth.table
    table.replace(
        {
            "disabled": table.contents.with_user(msgspec.structs.replace(ALICE, user_status=UserStatus.DISABLE)),
            "deleted": table.contents.without_user("alice"),
            "no policy": table.contents.with_policies("alice", ()),
            "another password": table.contents.with_user(msgspec.structs.replace(ALICE, password="another-secret")),
        }[change]
    )
    refused = await waiting
    assert (refused.code, bytes(refused.body)) == (NO_PERMISSION, b""), refused
    assert "alice" in refused.remark
    assert pulls.count == 1
    await root.put(b"later", topic="orders")
    assert b"later" in bytes((await other).body)


async def test_pulls_that_wait_are_looked_at_once_a_change_in_slices(protected: Protected) -> None:
    """More of them than one turn of the loop looks at; a change that takes nothing away ends none."""
    root = await protected.client("root", "root-secret")
    await root.put(b"0", topic="orders")
    alice = await protected.client("alice", "alice-secret")
    count = 2 * RECHECKED_AT_ONCE + 1
    waiting = [asyncio.ensure_future(alice.native_pull(("orders", 0, 1), suspend_ms=30_000)) for _ in range(count)]
    pulls = protected.app._run.pulls
    await eventually(lambda: pulls.count == count)
    table = protected.app.auth.table
    table.replace(table.contents.with_user(User(username="bob", password="bob-secret")))
    await alice.ask(R.WHOAMI)
    assert pulls.count == count
    table.replace(table.contents.without_user("alice"))
    assert {answer.code for answer in await asyncio.gather(*waiting)} == {NO_PERMISSION}


ALL_BUT_PAYMENTS = (
    Policy(
        (
            entry_of("Topic:*", ["All"], "Allow"),
            entry_of("Group:*", ["All"], "Allow"),
            entry_of("Topic:payments", ["All"], "Deny"),
        )
    ),
)


@pytest.mark.parametrize("native", [True, False])
async def test_a_denied_topic_is_not_read_where_its_messages_wait(protected: Protected, native: bool) -> None:
    """Delayed, half and staged messages of all topics lie in a few system topics, which ``Topic:*`` covers."""
    table = protected.app.auth.table
    table.replace(table.contents.with_policies("alice", ALL_BUT_PAYMENTS))
    root = await protected.client("root", "root-secret")
    await root.put(b"0", topic="payments")
    delayed = await root.send("payments", b"hidden", properties="DELAY\x0118\x02")
    assert delayed.code == 0, delayed
    alice = await protected.client("alice", "alice-secret")

    async def read(client: Client, topic: str, queue_id: int = 17) -> Any:
        if native:
            return await client.native_pull((topic, queue_id, 0))
        return await client.pull(topic, queue_id, 0)

    shown = await eventually(lambda: _found(read(root, SCHEDULE_TOPIC)))
    assert b"hidden" in bytes(shown.body)
    for topic in TOPICS_OF_ALL:
        refused = await read(alice, topic)
        assert (refused.code, bytes(refused.body)) == (NO_PERMISSION, b"")
        assert f"Topic:{topic} from 127.0.0.1, it holds messages of all topics" in refused.remark
    queue = protected.app.store.consume_queues.get(SCHEDULE_TOPIC, 17)
    assert queue is not None
    place = queue.read(0, 1)["offset"].tolist()[0]
    seen = await alice.ask(R.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=place))
    assert (seen.code, bytes(seen.body)) == (NO_PERMISSION, b"")
    sent_back = ConsumerSendMsgBackRequestHeader(offset=place, group="group", delay_level=0)
    assert (await alice.ask(R.CONSUMER_SEND_MSG_BACK, sent_back)).code != 0
    for topic in TOPICS_OF_ALL:
        forged = await alice.send(topic, b"forged", properties="REAL_TOPIC\x01payments\x02REAL_QID\x010\x02")
        assert forged.code != 0, forged


async def _found(answer: Any) -> Any:
    found = await answer
    return found if found.code == 0 and len(found.body) else None


async def test_replies_go_to_the_client_that_has_the_id_and_not_to_another_users(protected: Protected) -> None:
    """Whoever names the client id of somebody else in a heartbeat would get that client's replies."""
    alice = await protected.client("alice", "alice-secret")
    table = protected.app.auth.table
    table.replace(table.contents.with_user(User(username="eve", password="eve-secret")))
    eve = await protected.client("eve", "eve-secret")
    again = await protected.client("alice", "alice-secret")
    body = encode_body(HeartbeatData(client_id="10.0.0.1@1", producer_data_set=[ProducerData("requests")]))
    assert (await alice.ask(R.HEART_BEAT, None, body)).code == 0
    refused = await eve.ask(R.HEART_BEAT, None, body)
    assert refused.code != 0
    assert "a client of another user has the id" in refused.remark
    clients = protected.app._run.clients
    taken = clients.producer_connection("10.0.0.1@1")
    assert taken is not None
    assert taken.speaker.user.username == "alice"
    assert (await again.ask(R.HEART_BEAT, None, body)).code == 0, "the same user comes again after a lost connection"
    assert clients.producer_connection("10.0.0.1@1") is not taken

    sources = protected.app.observation.sources
    assert sources is not None
    assert sources.replies is not None
    find = sources.replies.find_producer
    assert find("10.0.0.1@1") is clients.producer_connection("10.0.0.1@1")
    table.replace(table.contents.without_user("alice"))
    assert find("10.0.0.1@1") is None, "a user that is gone gets no more replies on a connection that is still open"
    root = await protected.client("root", "root-secret")
    answer = await root.send(
        "DefaultCluster_REPLY_TOPIC",
        b"the reply",
        code=R.SEND_REPLY_MESSAGE_V2,
        properties="REPLY_TO_CLIENT\x0110.0.0.1@1\x02CORRELATION_ID\x01c\x02",
    )
    assert "channel of <10.0.0.1@1> not found" in answer.remark


FORGED = "REAL_TOPIC\x01payments\x02REAL_QID\x010\x02RETRY_TOPIC\x01payments\x02ORIGIN_TOPIC\x01payments\x02"


@pytest.mark.slow
async def test_no_message_comes_to_a_topic_but_by_its_own_name(protected: Protected) -> None:
    """A section that names another topic than its records, and properties in which the broker keeps topics of its own:
    none of them leads to a topic that the sender may not send to."""
    root = await protected.client("root", "root-secret")
    await root.put(b"0", topic="orders")
    await root.put(b"0", topic="payments")
    alice = await protected.client("alice", "alice-secret")

    refused = await alice.append(("orders", 0, [alice.record("payments", b"forged")]))
    assert refused.code != 0, refused
    both = [alice.record("orders", b"mine"), alice.record("payments", b"forged")]
    refused = await alice.append(("orders", 0, both))
    assert refused.code != 0, refused

    names = {"real_topic": "payments", "real_qid": "0", "retry_topic": "payments"}
    half = alice.record("orders", b"half", properties={PGROUP: "producers", **names})
    for name in names:  # our client refuses to write them
        half = half.replace(name.encode(), name.upper().encode())
    header = NativeAppendRequestHeader("producers", True, [("orders", 0, 1)], TIMEOUT_MS)
    answer = await alice.ask(R.NATIVE_HALF_APPEND, header, len(half).to_bytes(4, "big") + half)
    assert "REAL_TOPIC is not for plain records" in answer.remark
    for fields in (
        {"properties": FORGED},
        {"properties": f"DELAY\x011\x02{FORGED}"},
        {"properties": f"{FORGED}DELAY\x011\x02"},
        {"properties": f"{FORGED}TIMER_DELAY_MS\x0110\x02"},
        {"properties": f"TIMER_DELAY_MS\x0110\x02{FORGED}"},
        {"properties": f"TRAN_MSG\x01true\x02PGROUP\x01producers\x02{FORGED}", "sys_flag": 4},
    ):
        sent = await alice.send("orders", b"forged", **fields)
        assert sent.code == 0, sent
        if "sys_flag" in fields:
            end = EndTransactionRequestHeader(
                producer_group="producers",
                tran_state_table_offset=sent.header.queue_offset,
                commit_log_offset=int(sent.header.msg_id[16:], 16),
                commit_or_rollback=8,
                msg_id="",
            )
            assert (await alice.ask(R.END_TRANSACTION, end)).code == 0
    mine = await alice.put(b"mine", topic="orders")
    sent_back = ConsumerSendMsgBackRequestHeader(
        offset=mine.header.results[0][2][0][0], group="group", delay_level=-1, origin_topic="payments"
    )
    await alice.ask(R.CONSUMER_SEND_MSG_BACK, sent_back)
    # root's, the plain one, the four that were delayed, the half one, her last: all where they were sent to
    await eventually(lambda: delivered(protected, "orders") == 8)
    assert delivered(protected, "payments") == 1


def delivered(protected: Protected, topic: str) -> int:
    """Return how many messages the queues of a topic have, or had."""
    found = 0
    for queue_id in range(16):
        queue = protected.app.store.consume_queues.get(topic, queue_id)
        found += 0 if queue is None else queue.max_offset
    return found


@pytest.mark.parametrize("action", [0, 1, 2, 3, 4], ids=["ask", "prepare", "commit", "abort", "add brokers"])
async def test_a_staged_version_is_ended_by_those_who_may_send_to_its_topics(protected: Protected, action: int) -> None:
    """Others can neither end it nor add to it, and learn nothing of it."""
    root = await protected.client("root", "root-secret")
    await root.put(b"0", topic="orders")
    table = protected.app.auth.table
    eves = (Policy((entry_of("Topic:eves", ["Pub"], "Allow"),)),)
    contents = table.contents.with_user(User(username="eve", password="eve-secret"))
    table.replace(contents.with_policies("eve", eves))
    await root.put(b"0", topic="eves")
    eve = await protected.client("eve", "eve-secret")
    alice = await protected.client("alice", "alice-secret")

    async def stage(client: Client, topic: str, attempt: str) -> Any:
        record = client.record(topic, b"staged")
        write = StagedWriteRequestHeader("p", "job", 7, attempt, 0, [(topic, 0, 1)], TIMEOUT_MS)
        return await client.ask(R.STAGED_TRANSACTION_WRITE, write, len(record).to_bytes(4, "big") + record)

    assert (await stage(alice, "orders", "a")).code == 0
    end = StagedEndRequestHeader("p", "job", 7, action, [("a", 1)], "token", "broker-a", ["broker-a"])
    assert (await eve.ask(R.STAGED_TRANSACTION_END, end)).code == NO_PERMISSION
    assert (await stage(eve, "eves", "b")).code == NO_PERMISSION
    ended = await alice.ask(R.STAGED_TRANSACTION_END, StagedEndRequestHeader("p", "job", 7, 2, [("a", 1)]))
    assert ended.code == 0, ended
    await eventually(lambda: delivered(protected, "orders") == 2)
    assert delivered(protected, "eves") == 1


async def test_a_transactional_id_belongs_to_the_user_who_has_used_it(protected: Protected) -> None:
    """Nothing is staged, and still nobody else commits its next version: what the owner staged for it later would
    count as committed, and be dropped."""
    root = await protected.client("root", "root-secret")
    await root.put(b"0", topic="orders")
    table = protected.app.auth.table
    table.replace(table.contents.with_user(User(username="eve", password="eve-secret")))
    eve = await protected.client("eve", "eve-secret")
    alice = await protected.client("alice", "alice-secret")

    async def stage_and_commit(client: Client, version: int) -> Any:
        record = client.record("orders", b"staged %d" % version)
        write = StagedWriteRequestHeader("p", "job", version, "a", 0, [("orders", 0, 1)], TIMEOUT_MS)
        staged = await client.ask(R.STAGED_TRANSACTION_WRITE, write, len(record).to_bytes(4, "big") + record)
        if staged.code != 0:
            return staged
        return await client.ask(R.STAGED_TRANSACTION_END, StagedEndRequestHeader("p", "job", version, 2, [("a", 1)]))

    assert (await stage_and_commit(alice, 7)).code == 0
    await eventually(lambda: delivered(protected, "orders") == 2)
    for action in (0, 1, 2, 3, 4):
        end = StagedEndRequestHeader("p", "job", 8, action, [], "token", "broker-a", ["broker-a"])
        refused = await eve.ask(R.STAGED_TRANSACTION_END, end)
        assert refused.code == NO_PERMISSION, (action, refused)
        assert "another user has it" in refused.remark
    assert (await stage_and_commit(root, 8)).code == 0, "a super user, who comes to own nothing"
    assert (await stage_and_commit(alice, 9)).code == 0
    await eventually(lambda: delivered(protected, "orders") == 4)
    contents = table.contents.with_user(User(username="bob", password="bob-secret"))
    table.replace(contents.with_policies("bob", POLICIES).without_user("alice"))
    bob = await protected.client("bob", "bob-secret")
    assert (await stage_and_commit(bob, 10)).code == 0, "an id outlives its user"
    await eventually(lambda: delivered(protected, "orders") == 5)
