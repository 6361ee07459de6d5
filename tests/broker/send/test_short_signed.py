"""Signed sends of RocketMQ's clients on the short path, with the wide one, which has the guard, as their oracle."""

import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pocketmq.auth.config import AuthConfig
from pocketmq.auth.policies import Policy, entry_of
from pocketmq.auth.users import User, UserStatus
from pocketmq.broker.app import BrokerApp
from pocketmq.broker.config import BrokerConfig
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.frame import BINARY, JSON
from pocketmq.remoting.security.credentials import Credentials
from pocketmq.remoting.security.signature import sign
from tests.broker.conftest import store_config
from tests.broker.send.test_short_path import Both, frame_of, record_of, start
from tests.broker.send.test_short_rocketmq import (
    LONG,
    NUMBERS,
    ODD_PROPERTIES,
    SEND,
    SEND_V2,
    Fields,
    RocketMQPeer,
    fields_of,
    same_stores,
)
from tests.broker.send.test_short_rocketmq import frame_of as rocketmq_frame
from tests.profiles import tries
from tests.sim.seeds import base_seed

NO_PERMISSION = int(ResponseCode.NO_PERMISSION)
AUTH = AuthConfig(
    authentication_enabled=True, authorization_enabled=True, init_username="root", init_password="root-secret"
)
ALICE, BOB = User(username="alice", password="alice-secret"), User(username="bob", password="bob-secret")
POLICY = Policy((entry_of("Topic:A", ["Pub"], "Allow"),))


def signed_frame(
    opaque: int,
    fields: Fields,
    body: bytes = b"body",
    *,
    user: User = ALICE,
    kind: int = JSON,
    code: int = SEND_V2,
    token: str = "",
    change: Callable[[Fields], Fields] = dict,
) -> bytes:
    """Return a signed send; ``change`` is made after the signature."""
    if code == SEND:
        fields = {LONG.get(name, name): value for name, value in fields.items()}
    extra = sign(Credentials(user.username, user.password, token), fields, body)
    return rocketmq_frame(kind, code, opaque, change({**fields, **extra}), body)


class SignedBoth(Both):
    """Plain frames are alice's."""

    def plain(self, opaque: int, body: bytes) -> bytes:
        return signed_frame(opaque, fields(opaque), body)

    def replace(self, **change: Any) -> None:
        """Change the users of both brokers: ``user`` or ``policies`` of alice."""
        for peer in (self.short, self.wide):
            table = peer.app.auth.table
            contents = table.contents.with_user(change.get("user", table.contents.users["alice"]))
            table.replace(contents.with_policies("alice", change.get("policies", (POLICY,))))


def fields(seed: int, topic: str = "A") -> Fields:
    """Return the fields of a plain send."""
    return fields_of(random.Random(seed)) | {"b": topic}


@pytest.fixture
async def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SignedBoth]:
    """Two brokers with the same topics, which know alice and bob."""
    monkeypatch.setattr("pocketmq.auth.guard.FAILURES_MAX", 1 << 30)  # what a flood costs is tried elsewhere
    apps = []
    for name in ("short", "wide"):
        first = await start(tmp_path / name, short=name == "short")  # makes the topics
        await first.stop()
        config = BrokerConfig(listen_port=0, short_path_enable=name == "short", wait_time_mills_in_send_queue=60_000)
        app = BrokerApp(config, store_config(tmp_path / name), auth_config=AUTH)
        await app.start()
        contents = app.auth.table.contents.with_user(ALICE).with_user(BOB)
        app.auth.table.replace(contents.with_policies("alice", (POLICY,)).with_policies("bob", (POLICY,)))
        apps.append(app)
    peers = SignedBoth(RocketMQPeer(apps[0]), RocketMQPeer(apps[1]))
    await peers.alike(lambda opaque: signed_frame(opaque, fields(1)))  # each queue is learned
    yield peers
    for peer, app in zip((peers.short, peers.wide), apps, strict=True):
        peer.close()
        await app.stop()


async def codes(both: SignedBoth, *arguments: Any, **others: Any) -> list[Any]:
    return [row[1] for row in await both.alike(lambda opaque: signed_frame(opaque, *arguments, **others))]


async def warm(both: SignedBoth) -> int:
    """Send to each queue; return what the short path has served until then."""
    for seed in range(40):
        assert await codes(both, fields(seed)) == [0, 0]
    return both.served


async def test_signed_sends_go_the_short_way_and_are_stored_alike(both: SignedBoth) -> None:
    """But for the first of a connection, which the guard lets in."""
    served = await warm(both)
    for seed in range(40):
        assert await codes(both, fields(seed), random.Random(seed).randbytes(1 + 70 * seed)) == [0, 0]
    assert both.served - served >= 3 * 40
    await same_stores(both)


async def test_forged_sends_are_refused_in_the_words_of_the_guard(both: SignedBoth) -> None:
    """On a connection whose user has signed well, before and after."""

    def changed(name: str, value: str) -> Callable[[Fields], Fields]:
        return lambda fields: fields | {name: value}

    def without(name: str) -> Callable[[Fields], Fields]:
        return lambda fields: {each: value for each, value in fields.items() if each != name}

    await warm(both)
    for change in (
        changed("b", "B"),
        changed("e", "3"),
        changed("i", fields(7)["i"]),
        changed("Signature", ""),
        changed("Signature", "x" * 28),
        changed("Signature", "é"),
        changed("AccessKey", "bob"),
        changed("AccessKey", "nobody"),
        changed("AccessKey", ""),
        changed("more", "1"),
        without("AccessKey"),
        without("Signature"),
    ):
        assert await codes(both, fields(5) | {"e": "2"}, change=change) == [NO_PERMISSION, 0]
    rows = await both.alike(lambda opaque: signed_frame(opaque, fields(5), b"body")[:-4] + b"evil")
    assert [row[1] for row in rows] == [NO_PERMISSION, 0]
    await same_stores(both)


async def test_who_may_not_send_is_refused(both: SignedBoth) -> None:
    await warm(both)
    assert await codes(both, fields(3, "B")) == [NO_PERMISSION, 0]
    both.replace(policies=())
    assert await codes(both, fields(3)) == [NO_PERMISSION, NO_PERMISSION]
    both.replace()
    assert await codes(both, fields(3)) == [0, 0]
    both.replace(user=msgspec.structs.replace(ALICE, password="another-secret"))
    assert await codes(both, fields(3)) == [NO_PERMISSION, NO_PERMISSION]
    both.replace(user=msgspec.structs.replace(ALICE, user_status=UserStatus.DISABLE))
    assert await codes(both, fields(3)) == [NO_PERMISSION, NO_PERMISSION]
    await same_stores(both)


async def test_another_user_on_the_same_connection(both: SignedBoth) -> None:
    """Each of them goes the wide way once, and is then the one whose signatures are known here."""
    await warm(both)
    for _ in range(3):
        assert await codes(both, fields(3), user=BOB) == [0, 0]
    await same_stores(both)


async def test_a_native_send_needs_a_proof_where_others_sign(both: SignedBoth) -> None:
    await warm(both)
    rows = await both.alike(lambda opaque: frame_of(opaque, [("A", 0, [record_of("A", 0, b"native")])]))
    assert [row[1] for row in rows] == [NO_PERMISSION, 0]
    await same_stores(both)


@pytest.mark.parametrize(("kind", "code"), [(BINARY, SEND_V2), (JSON, SEND), (BINARY, SEND)])
async def test_other_forms_go_the_wide_way(both: SignedBoth, kind: int, code: int) -> None:
    await warm(both)
    assert await codes(both, fields(4), kind=kind, code=code) == [0, 0]
    assert await codes(both, fields(4), token="t") == [0, 0]
    await same_stores(both)


@pytest.mark.scaled
async def test_odd_signed_sends_get_the_words_of_the_wide_way(both: SignedBoth) -> None:
    """Signed as they are, or changed by some bits behind that."""
    first = base_seed()
    await warm(both)
    for seed in range(first, first + tries(150, 10_000)):
        rng = random.Random(seed)
        odd = fields(seed, rng.choice(("A", "A", "B", "NEW", "")))
        if rng.random() < 0.4:
            odd["i"] = rng.choice(ODD_PROPERTIES)()
        if rng.random() < 0.3:
            odd[rng.choice("defghj")] = rng.choice(NUMBERS)
        made: dict[int, bytes] = {}

        def make(opaque: int, rng: random.Random = rng, odd: Fields = odd, made: dict[int, bytes] = made) -> bytes:
            if opaque not in made:
                data = bytearray(signed_frame(opaque, odd, rng.randbytes(rng.choice((1, 100, 2000)))))
                if rng.random() < 0.5:
                    end = 8 + (int.from_bytes(data[4:8], "big") & 0xFFFFFF)
                    first, last = data.index(b",", 8), data.index(b'"opaque"')
                    data[rng.choice((*range(first, last), *range(last + 20, end), len(data) - 1))] ^= (
                        1 << rng.randrange(8)
                    )
                made[opaque] = bytes(data)
            return made[opaque]

        try:
            await both.alike(make)
        except AssertionError as error:
            raise AssertionError(f"frame of seed {seed}: {list(made.values())!r}") from error
    await same_stores(both)
