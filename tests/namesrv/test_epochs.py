"""Epochs at the name server: which claim holds, which data survives a restart, and which brokers learn of it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from pocketmq.common.clock import SystemClock
from pocketmq.common.epochs import MEMBERS_STEP, PROMOTION_STEP, next_members, next_promotion
from pocketmq.common.errors import PocketMQError
from pocketmq.common.events import NullLog
from pocketmq.common.logs import CapturedLog
from pocketmq.common.sealed_json import unseal
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.epoch_store import EpochStore, EpochsUnreadable
from pocketmq.namesrv.epochs import EpochClaimIllegal, EpochRecord, EpochTable, EpochTableFull
from pocketmq.namesrv.server import NamesrvApp
from pocketmq.remoting.channel import ClientChannel
from pocketmq.remoting.channel_pool import ChannelPool
from pocketmq.remoting.codec import Request, encode_response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.ha import HaEpochRequestHeader, HaStatusBody
from pocketmq.remoting.protocol.namesrv import (
    BrokerIdentityRequestHeader,
    RegisterBrokerBody,
    RegisterBrokerRequestHeader,
)
from tests.remoting.harness import until

ONE = EpochRecord(1, "aa.1", "10.0.0.1:10911", "SYNC_MASTER")


def claim(table: EpochTable, epoch: int, owner: str, *, force: bool = False, last_epoch: int = 1) -> bool:
    """Make the claim, and commit it if it holds."""
    record = EpochRecord(epoch, owner, f"{owner}:1", "SYNC_MASTER")
    granted = table.judge("broker-a", record, force=force, last_epoch=last_epoch)
    if granted:
        table.records = table.with_claim("broker-a", record)
    return granted


def test_a_node_counts_on_and_another_one_needs_a_promotion() -> None:
    """Old numbers, other nodes and empty disks under a known name are refused."""
    table = EpochTable(10)
    assert claim(table, 1, "aa.1")
    assert claim(table, 1, "aa.1")  # twice the same
    assert not claim(table, 1, "aa.2")
    assert claim(table, 2, "aa.2")
    assert not claim(table, 3, "bb.1")
    assert claim(table, PROMOTION_STEP, "bb.1")
    assert not claim(table, 3, "aa.3")
    assert not claim(table, PROMOTION_STEP, "aa.4")
    assert not claim(table, PROMOTION_STEP + 1, "aa.5")
    assert claim(table, PROMOTION_STEP + 1, "bb.2")
    assert claim(table, PROMOTION_STEP + 2, "aa.6", force=True)


def test_a_slave_that_was_replaced_cannot_claim() -> None:
    """Its log lacks the epoch in which the master counted another one; with it, or by force, the claim holds."""
    table = EpochTable(10)
    assert claim(table, 1, "aa.1")
    assert claim(table, next_members(1), "aa.2")
    assert claim(table, next_members(1) + 1, "aa.3"), "a restart"
    for last_epoch in (0, 1, MEMBERS_STEP - 1):
        assert not claim(table, PROMOTION_STEP, "bb.1", last_epoch=last_epoch)
    assert table.records["broker-a"].owner == "aa.3"
    assert claim(table, PROMOTION_STEP, "bb.1", last_epoch=next_members(1)), "it need not have heard of the restart"
    assert not claim(table, 2 * PROMOTION_STEP, "cc.1", last_epoch=next_members(1))
    assert claim(table, 2 * PROMOTION_STEP, "cc.1", last_epoch=0, force=True)


@given(st.lists(st.tuples(st.integers(1, 3 * PROMOTION_STEP), st.sampled_from(["a.1", "a.2", "b.1"])), max_size=20))
def test_the_known_epoch_never_falls(claims: list[tuple[int, str]]) -> None:
    """The known epoch never falls, whatever the claims and their order."""
    table = EpochTable(10)
    highest = 0
    for epoch, owner in claims:
        claim(table, epoch, owner)
        known = table.get("broker-a")
        assert known is not None
        assert known.epoch >= highest
        highest = known.epoch


@pytest.mark.parametrize(
    "record",
    [
        EpochRecord(0, "a.1", "x:1", "SYNC_MASTER"),
        EpochRecord(1 << 60, "a.1", "x:1", "SYNC_MASTER"),
        EpochRecord(1, "", "x:1", "SYNC_MASTER"),
        EpochRecord(1, "a" * 300, "x:1", "SYNC_MASTER"),
        EpochRecord(1, "a.1", "", "SYNC_MASTER"),
        EpochRecord(1, "a.1", "x:1", "SLAVE"),
    ],
)
def test_nonsense_is_refused(record: EpochRecord) -> None:
    """Numbers, lengths and roles are validated."""
    with pytest.raises(EpochClaimIllegal):
        EpochTable(10).judge("broker-a", record)


def test_the_table_is_bounded() -> None:
    """One name more than allowed is refused; the known names still work."""
    table = EpochTable(1)
    table.records = table.with_claim("broker-a", ONE)
    with pytest.raises(EpochTableFull):
        table.judge("broker-b", ONE)
    assert table.judge("broker-a", EpochRecord(2, "aa.2", "x:1", "SYNC_MASTER"))


@given(
    st.lists(
        st.tuples(
            st.integers(1, (1 << 53) - 1), st.sampled_from(["a.1", "b.1"]), st.booleans(), st.integers(0, 1 << 53)
        ),
        max_size=20,
    )
)
def test_there_is_always_room_for_the_next_promotion(claims: list[tuple[int, str, bool, int]]) -> None:
    """An operator can force the next promotion, whatever was claimed before and by which node."""
    table = EpochTable(10)
    for epoch, owner, force, last_epoch in claims:
        try:
            claim(table, epoch, owner, force=force, last_epoch=last_epoch)
        except EpochClaimIllegal:
            pass
    known = table.get("broker-a")
    assert claim(table, next_promotion(0 if known is None else known.epoch), "c.1", force=True)


def test_a_forced_claim_is_at_most_two_promotions_ahead() -> None:
    """The limit counts from the known epoch; if none is known, as in a new directory, any sensible number holds."""
    table = EpochTable(10)
    assert claim(table, 7 * PROMOTION_STEP + 3, "aa.1", force=True)
    with pytest.raises(EpochClaimIllegal, match="7000003 is known here"):
        claim(table, 10 * PROMOTION_STEP, "bb.1", force=True)
    assert claim(table, 9 * PROMOTION_STEP, "bb.1", force=True)
    assert claim(table, 50 * PROMOTION_STEP, "cc.1", last_epoch=9 * PROMOTION_STEP), "this name server was away"
    for name in ("broker-a", "broker-b"):
        for force in (True, False):
            record = EpochRecord((1 << 53) - 1, "dd.1", "x:1", "SYNC_MASTER")
            with pytest.raises(EpochClaimIllegal):
                table.judge(name, record, force=force, last_epoch=(1 << 53) - 1)


def test_invented_names_keep_no_pair_out() -> None:
    """Names without a registration may fill a tenth of the table, then the oldest goes; registered pairs stay."""
    table = EpochTable(50)
    table.records = table.with_claim("broker-a", ONE)
    stranger = msgspec.structs.replace(ONE, registered=False)
    for number in range(10_000):
        assert table.judge(f"invented-{number}", stranger)
        table.records = table.with_claim(f"invented-{number}", stranger)
    assert len(table.records) == 1 + 5
    assert table.records["broker-a"] == ONE
    for number in range(49):
        assert table.judge(f"pair-{number}", ONE)
        table.records = table.with_claim(f"pair-{number}", ONE)
    assert {"broker-a", "pair-0", "pair-48"} <= table.records.keys()
    assert len(table.records) == 50
    with pytest.raises(EpochTableFull):
        table.judge("one-more", ONE)


def test_a_claim_that_cannot_be_written_does_not_hold(tmp_path: Path) -> None:
    """The server grants nothing that a restart would forget, and the table stays as it was."""
    (tmp_path / "dir").write_text("a file is in the way")
    store = EpochStore(10, str(tmp_path / "dir"), NullLog())
    answers: list[tuple[bool, PocketMQError | None]] = []
    store.claim("broker-a", ONE, lambda granted, error: answers.append((granted, error)))
    [(granted, error)] = answers
    assert not granted
    assert "claim refused" in str(error)
    assert store.table.get("broker-a") is None


def test_a_damaged_file_stops_the_start(tmp_path: Path) -> None:
    """If it silently forgot epochs, an old master could lead again."""
    (tmp_path / "epochs.json").write_bytes(b'{"broker-a": {"epoch": "x"')
    with pytest.raises(EpochsUnreadable, match=r"epochs\.json"):
        EpochStore(10, str(tmp_path), NullLog()).load()


class World:
    """A name server, and one channel to it, over which brokers are registered that live."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.app = NamesrvApp(NamesrvConfig(listen_port=0, epoch_store_dir=str(directory), **settings))
        self.status: HaStatusBody | None = HaStatusBody(broker_name="broker-a")
        """What the brokers answer to a question whether they live; None: nothing."""
        self.asked = 0
        self.pool = ChannelPool(clock=SystemClock(), log=NullLog(), on_request=self.answer)

    def answer(self, channel: ClientChannel, request: Request) -> None:
        self.asked += 1
        if self.status is not None:
            kind, body = request.serialize_type, encode_body(self.status)
            channel.respond(encode_response(0, request.opaque, request.code, body=body, serialize_type=kind))

    async def __aenter__(self) -> "World":
        await self.app.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.pool.close()
        await self.app.stop()

    async def ask(self, code: int, header: Any, body: bytes = b"") -> Any:
        channel = await self.pool.get(self.app.address)
        return await channel.request(code, header, body, timeout_ms=5000)

    async def epoch(self, epoch: int = 0, owner: str = "", address: str = "") -> Any:
        header = HaEpochRequestHeader("broker-a", epoch, owner, address, "SYNC_MASTER")
        return (await self.ask(RequestCode.HA_EPOCH, header)).header

    async def register(self, address: str, broker_id: int, epoch: int = 0, owner: str = "") -> Any:
        header = RegisterBrokerRequestHeader(
            "broker-a", address, "c", f"{address}1", broker_id, epoch=epoch, epoch_owner=owner
        )
        return await self.ask(RequestCode.REGISTER_BROKER, header, encode_body(RegisterBrokerBody()))


async def test_an_old_master_leaves_the_route_and_does_not_come_back(tmp_path: Path) -> None:
    """The new master's claim removes it and its registration is refused; a slave of the name may register."""
    async with World(tmp_path) as world:
        assert (await world.epoch()).epoch == 0
        assert (await world.epoch(1, "aa.1", "10.0.0.1:1")).granted
        assert (await world.register("10.0.0.1:1", 0, 1, "aa.1")).code == ResponseCode.SUCCESS
        world.status = HaStatusBody(promised_epoch=PROMOTION_STEP, promised_owner="bb.1")
        async with World(tmp_path / "other") as other:  # another connection, because the old master's is closed
            pool = other.pool
            channel = await pool.get(world.app.address)
            header = HaEpochRequestHeader("broker-a", PROMOTION_STEP, "bb.1", "10.0.0.2:1", "SYNC_MASTER", last_epoch=1)
            answer: Any = (await channel.request(RequestCode.HA_EPOCH, header, b"", timeout_ms=5000)).header
            assert answer.granted
        assert world.app.routes.cluster_info().broker_addr_table == {}
        refused = await world.register("10.0.0.1:1", 0, 2, "aa.2")
        assert refused.code == ResponseCode.NO_PERMISSION
        assert "pocketmq ha demote broker-a" in refused.remark
        assert (await world.epoch()).fenced == "10.0.0.1:1"
        assert not (await world.epoch(2, "aa.2", "10.0.0.1:1")).granted
        slave = await world.register("10.0.0.1:1", 1)
        assert slave.code == ResponseCode.SUCCESS
        assert (await world.register("10.0.0.2:1", 0, PROMOTION_STEP, "bb.1")).code == ResponseCode.SUCCESS
        told = (await world.register("10.0.0.1:1", 1)).header
        assert (told.master_addr, told.ha_server_addr) == ("10.0.0.2:1", "10.0.0.2:11")
        assert (await world.epoch()).fenced == ""


async def test_epochs_survive_a_restart(tmp_path: Path) -> None:
    """A new name server on the same directory refuses the old master as well."""
    async with World(tmp_path) as world:
        assert (await world.epoch(PROMOTION_STEP, "bb.1", "10.0.0.2:1")).granted
    content = msgspec.json.decode((tmp_path / "epochs.json").read_bytes())
    assert content["broker-a"]["epoch"] == PROMOTION_STEP
    async with World(tmp_path) as world:
        known = await world.epoch()
        assert (known.epoch, known.owner, known.address, known.is_kept) == (
            PROMOTION_STEP,
            "bb.1",
            "10.0.0.2:1",
            True,
        )
        assert not (await world.epoch(5, "aa.5", "10.0.0.1:1")).granted


async def test_a_new_store_under_an_old_name_is_refused_with_the_way_out(tmp_path: Path) -> None:
    """It cannot be made a slave of a master that no longer exists: the text names the ways out."""
    async with World(tmp_path) as world:
        assert (await world.epoch(1, "aa.1", "10.0.0.1:1")).granted
        assert (await world.register("10.0.0.1:1", 0, 1, "aa.1")).code == ResponseCode.SUCCESS
        await until(lambda: world.app.epochs.table.records["broker-a"].registered)  # it does not wait for the disk
        refused = await world.register("10.0.0.1:1", 0)
        assert refused.code == ResponseCode.NO_PERMISSION
        assert "it has no epoch: start it with the store of broker-a" in refused.remark
        assert "only if that store is gone for good: pocketmq ha forget broker-a" in refused.remark
        old = await world.register("10.0.0.1:1", 0, 1, "zz.1")
        assert old.remark.endswith("(make it a slave: pocketmq ha demote broker-a)")


def test_the_first_epoch_says_where_it_is_kept(tmp_path: Path) -> None:
    """Once: an operator learns that this file has to stay."""
    log = CapturedLog()
    store = EpochStore(10, str(tmp_path / "kept"), log)
    for epoch in (1, 2):
        store.claim("broker-a", EpochRecord(epoch, f"aa.{epoch}", "10.0.0.1:1", "SYNC_MASTER"), lambda *_: None)
    kept = [each["path"] for each in log.events if each["event"] == "epochs_kept"]
    assert kept == [str(tmp_path / "kept" / "epochs.json")]


async def test_a_plain_broker_needs_no_epoch(tmp_path: Path) -> None:
    """A name without a record registers as before."""
    async with World(tmp_path) as world:
        assert (await world.register("10.0.0.1:1", 0)).code == ResponseCode.SUCCESS
        assert (await world.epoch()).epoch == 0


async def of_stranger(
    world: World, epoch: int, *, force: bool = True, address: str = "10.9.9.9:1", owner: str = "ee.1"
) -> Any:
    """Claim broker-a over a foreign connection."""
    pool = ChannelPool(clock=SystemClock(), log=NullLog())
    try:
        header = HaEpochRequestHeader("broker-a", epoch, owner, address, "SYNC_MASTER", force, last_epoch=epoch)
        return await (await pool.get(world.app.address)).request(RequestCode.HA_EPOCH, header, b"", timeout_ms=5000)
    finally:
        await pool.close()


def masters(world: World) -> list[str]:
    """Return the addresses of broker-a's masters."""
    brokers = world.app.routes.cluster_info().broker_addr_table
    return [brokers["broker-a"].broker_addrs["0"]] if "broker-a" in brokers else []


@pytest.mark.parametrize("force", [True, False])
async def test_an_absurd_claim_takes_no_pair_out(tmp_path: Path, force: bool) -> None:
    """It is refused with a reason; the master registers as before, and nothing was written."""
    async with World(tmp_path) as world:
        assert (await world.epoch(1, "aa.1", "10.0.0.1:1")).granted
        assert (await world.register("10.0.0.1:1", 0, 1, "aa.1")).code == ResponseCode.SUCCESS
        world.status = HaStatusBody(promised_epoch=(1 << 53) - 1, promised_owner="ee.1")
        refused = await of_stranger(world, (1 << 53) - 1, force=force)
        assert refused.code != ResponseCode.SUCCESS
        assert "epoch 9007199254740991 is beyond" in refused.remark
        assert (await world.epoch(1, "aa.1", "10.0.0.1:1")).granted
        assert (await world.register("10.0.0.1:1", 0, 1, "aa.1")).code == ResponseCode.SUCCESS
        assert masters(world) == ["10.0.0.1:1"]
    async with World(tmp_path) as world:
        assert (await world.epoch()).epoch == 1


async def test_a_strangers_claim_does_not_bind_a_broker_without_replicas(tmp_path: Path) -> None:
    """Under the master's own address it is refused as well. The broker's own claim holds once a slave follows it."""
    async with World(tmp_path) as world:
        assert (await world.register("10.0.0.1:1", 0)).code == ResponseCode.SUCCESS
        for address in ("10.9.9.9:1", "10.0.0.1:1"):
            refused = await of_stranger(world, 1, address=address)
            assert refused.code == ResponseCode.NO_PERMISSION
            assert "broker-a id 0 is 10.0.0.1:1, which lives" in refused.remark
        assert (await world.epoch()).epoch == 0
        assert (await world.register("10.0.0.1:1", 0)).code == ResponseCode.SUCCESS
        assert masters(world) == ["10.0.0.1:1"]
        await world.register("10.0.0.2:1", 1)
        assert (await of_stranger(world, PROMOTION_STEP, address="10.0.0.2:1")).code == ResponseCode.NO_PERMISSION
        world.status = HaStatusBody(promised_epoch=PROMOTION_STEP, promised_owner="ee.1")
        assert (await of_stranger(world, PROMOTION_STEP, address="10.0.0.2:1")).header.granted
    async with World(tmp_path / "other") as world:
        assert (await world.register("10.0.0.1:1", 0)).code == ResponseCode.SUCCESS
        assert (await world.epoch(1, "aa.1", "10.0.0.1:1")).granted


@pytest.mark.parametrize("force", [True, False])
async def test_no_claim_takes_the_place_of_a_master_that_lives(tmp_path: Path, force: bool) -> None:
    """Not even one with its own owner and number under another address, or of its own node with the next number."""
    async with World(tmp_path) as world:
        assert (await world.epoch(1, "aa.1", "10.0.0.1:1")).granted
        assert (await world.register("10.0.0.1:1", 0, 1, "aa.1")).code == ResponseCode.SUCCESS
        world.status = HaStatusBody(node_id="aa", promised_epoch=1, promised_owner="aa.1", role="SYNC_MASTER")
        for epoch, owner in ((1, "aa.1"), (2, "aa.2"), (PROMOTION_STEP, "ee.1")):
            refused = await of_stranger(world, epoch, owner=owner, force=force)
            assert refused.code == ResponseCode.NO_PERMISSION
        assert masters(world) == ["10.0.0.1:1"]
        assert (await world.register("10.0.0.1:1", 0, 1, "aa.1")).code == ResponseCode.SUCCESS
        world.status = structs.replace(world.status, fenced_by_epoch=7, promised_epoch=8, promised_owner="aa.8")
        granted = await of_stranger(world, 8, owner="aa.8", force=force)
        assert granted.header.granted, "it was fenced, and is promoted again"


async def test_a_master_on_a_half_open_connection_gives_way(tmp_path: Path) -> None:
    """It does not answer, so the claim of its next run holds, here of a plain broker that returns as a pair."""
    async with World(tmp_path, broker_answer_timeout=50) as world:
        world.status = None
        assert (await world.register("10.0.0.1:1", 0)).code == ResponseCode.SUCCESS
        assert (await of_stranger(world, 1, owner="aa.1", force=False)).header.granted
        assert world.asked == 1
        assert masters(world) == []


async def test_a_replaced_master_that_did_not_answer_can_be_found(tmp_path: Path) -> None:
    """``ha status`` and ``ha demote`` ask the name servers where replaced masters are: this one may come back."""
    async with World(tmp_path, broker_answer_timeout=50) as world:
        assert (await world.epoch(1, "aa.1", "10.0.0.1:1")).granted
        assert (await world.register("10.0.0.1:1", 0, 1, "aa.1")).code == ResponseCode.SUCCESS
        world.status = None
        promotion = await of_stranger(world, PROMOTION_STEP, owner="bb.1", force=False)
        assert promotion.header.granted
        assert promotion.header.fenced == "10.0.0.1:1"
        assert masters(world) == []


async def test_a_record_is_forgotten_once_no_broker_of_the_name_is_registered(tmp_path: Path) -> None:
    """Also one that a broker had registered with; the file does not have it either."""
    async with World(tmp_path) as world:
        forget = HaEpochRequestHeader("broker-a", forget=True)
        assert (await world.epoch(1, "aa.1", "10.0.0.1:1")).granted
        assert (await world.register("10.0.0.1:1", 0, 1, "aa.1")).code == ResponseCode.SUCCESS
        refused = await world.ask(RequestCode.HA_EPOCH, forget)
        assert refused.code == ResponseCode.NO_PERMISSION
        assert "broker-a is registered: its epoch is in use" in refused.remark
        identity = BrokerIdentityRequestHeader("broker-a", "10.0.0.1:1", "c", 0)
        assert (await world.ask(RequestCode.UNREGISTER_BROKER, identity)).code == ResponseCode.SUCCESS
        assert (await world.ask(RequestCode.HA_EPOCH, forget)).header.granted
        assert not (await world.ask(RequestCode.HA_EPOCH, forget)).header.granted, "there was none"
        assert (await world.epoch()).epoch == 0
    async with World(tmp_path) as world:
        assert (await world.epoch()).epoch == 0
        assert (await world.epoch(1, "bb.1", "10.0.0.2:1")).granted


async def test_a_claim_of_a_megabyte_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    """It is refused before it is queued, and nothing of it is kept."""
    async with World(tmp_path) as world:
        text = "x" * (1 << 20)
        for header in (
            HaEpochRequestHeader("n", 1, text, "10.0.0.1:1", "SYNC_MASTER"),
            HaEpochRequestHeader(text, 1, "aa.1", "10.0.0.1:1", "SYNC_MASTER"),
            HaEpochRequestHeader("n", 1, "aa.1", "a\x1b[2J", "SYNC_MASTER"),
        ):
            refused = await world.ask(RequestCode.HA_EPOCH, header)
            assert refused.code != ResponseCode.SUCCESS
            assert len(refused.remark) < 300
            assert refused.remark.isprintable()
        assert not world.app.epochs._waiting


async def test_a_claim_made_while_a_plain_broker_was_away_does_not_keep_it_out(tmp_path: Path) -> None:
    """No broker has registered with the claim, so it is removed, from the file as well."""
    async with World(tmp_path) as world:
        assert (await of_stranger(world, PROMOTION_STEP)).header.granted
        assert (await world.register("10.0.0.1:1", 0)).code == ResponseCode.SUCCESS
        assert masters(world) == ["10.0.0.1:1"]
        refused = await of_stranger(world, PROMOTION_STEP)
        assert refused.code == ResponseCode.NO_PERMISSION
        behind = HaEpochRequestHeader("broker-b", 1, "bb.1", "10.0.0.2:1", "SYNC_MASTER")
        assert (await world.ask(RequestCode.HA_EPOCH, behind)).header.granted, "claims are judged in order"
        assert (await world.epoch()).epoch == 0
    assert msgspec.json.decode(unseal((tmp_path / "epochs.json").read_bytes())).keys() == {"broker-b"}


async def test_what_a_pair_has_registered_binds_everybody(tmp_path: Path) -> None:
    """So it is after a restart of the name server while the pair is down: an empty disk under the name is refused."""
    async with World(tmp_path) as world:
        assert (await world.epoch(1, "aa.1", "10.0.0.1:1")).granted
        assert world.app.epochs.table.records["broker-a"].registered is False
        assert (await world.register("10.0.0.1:1", 0, 1, "aa.1")).header.epoch == 1
        assert (await world.epoch(1, "aa.1", "10.0.0.1:1")).granted  # behind the record in the queue
        assert world.app.epochs.table.records["broker-a"].registered is True
    async with World(tmp_path) as world:
        refused = await world.register("10.0.0.3:1", 0)
        assert refused.code == ResponseCode.NO_PERMISSION


def test_a_file_of_an_older_version_has_only_records_that_stay(tmp_path: Path) -> None:
    """The old file does not say which records were registered, so all of them stay."""
    old = b'{"broker-a":{"epoch":7,"owner":"aa.1","address":"10.0.0.1:1","role":"SYNC_MASTER"}}'
    (tmp_path / "epochs.json").write_bytes(old)
    store = EpochStore(10, str(tmp_path), NullLog())
    store.load()
    assert store.table.records["broker-a"].registered is True
