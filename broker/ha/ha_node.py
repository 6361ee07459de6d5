"""One broker of a replicated name, in one run: who it is, what it promised, how far it is.

Lives here: ``HaNode``: promises, the fence, what is registered and told.
"""

from collections.abc import Callable
from typing import Final

from pocketmq.broker.flow_control.busy_answers import RETRY_AFTER_ERROR_MS
from pocketmq.broker.ha.ha_roles import RoleOfRun
from pocketmq.broker.request.request_task import Refusal, refused
from pocketmq.common import refusals
from pocketmq.common.clock import Clock
from pocketmq.common.epochs import EPOCH_PROMISED_MAX, highest_allowed
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.remoting.protocol.ha import (
    HaEpochBody,
    HaPromiseRequestHeader,
    HaPromiseResponseHeader,
    HaSlaveBody,
    HaStatusBody,
)
from pocketmq.store.ha.epochs import EpochTable
from pocketmq.store.ha.service import HaService
from pocketmq.store.ha.slave import HaSlave
from pocketmq.store.ha.state import FencedBy, HaState
from pocketmq.store.message_store import MessageStore

NO_EPOCH: Final = (0, "")
HOLD_MS_MAX: Final = 60_000
RETRY_AFTER_HOLD_MS: Final = 200


class HaNode:
    """Replication as the rest of the broker sees it. ``status`` and properties: any thread; the rest blocks on disk.

    Exactly one of ``service`` (a master that leads) and ``slave`` is set while it runs; a master that starts fenced has
    neither.
    """

    def __init__(
        self,
        role: RoleOfRun,
        state: HaState,
        store: MessageStore,
        clock: Clock,
        log: EventLog,
        on_role_changed: Callable[[], None],
    ) -> None:
        """``on_role_changed`` is called, in any thread, when this master was replaced, and when ``claim`` has changed
        and is read: name servers shall learn of it."""
        self.role = role
        self.state = state
        self.service: HaService | None = None
        self.slave: HaSlave | None = None
        self.address = ""
        """The broker's, as it is registered."""
        self.ha_address = ""
        """Where slaves connect; empty if none can."""
        self._on_role_changed = on_role_changed
        self._store = store
        self._clock = clock
        self._log = log
        self._held_until_ns = 0
        self._told_claim = NO_EPOCH
        self._fenced_by: FencedBy | None = None if role.is_slave else state.fenced_by

    # ---- the fence

    @property
    def fenced_by(self) -> FencedBy | None:
        """The claim that replaced this master, or None."""
        return self._fenced_by

    def refusal(self) -> Refusal | None:
        """Return what a send is told by a master that was replaced; None while it leads."""
        fenced_by = self._fenced_by
        name = self.role.config.broker_name
        if fenced_by is None:
            if not self._held_until_ns or not self.is_held:  # a call less for every send
                return None
            return refused(Cause.NOT_MASTER, refusals.HANDED_OVER, name, retry_after_ms=RETRY_AFTER_HOLD_MS)
        by, way_out = f" by {fenced_by.address}" if fenced_by.address else "", self._way_out(fenced_by)
        if self._is_own(fenced_by):
            by = " by the store that this address had before"
        else:
            way_out = f"send there; {way_out}"
        replaced = refusals.MASTER_REPLACED
        text = f"{replaced.template % name}{by} in epoch {fenced_by.epoch} ({way_out})"
        return Refusal(replaced.code, text, Cause.FENCED_BY_EPOCH, retry_after_ms=RETRY_AFTER_ERROR_MS)

    def _is_own(self, fenced_by: FencedBy) -> bool:
        """Return whether the epoch is one of the store that this address had before."""
        return bool(fenced_by.address) and fenced_by.address == self.address

    def _way_out(self, fenced_by: FencedBy) -> str:
        """Return what an operator may do. A new store under an old name was replaced by no other broker: as a slave it
        would have no master."""
        name = self.role.config.broker_name
        if self._is_own(fenced_by):
            return (
                f"this store is new, and another one may have confirmed messages: pocketmq ha promote {name} makes the "
                f"slave that has them the master; if all are gone: pocketmq ha forget {name}"
            )
        return f"to let this broker follow: pocketmq ha demote {name}"

    def fence(self, epoch: int, owner: str, address: str) -> bool:
        """Learn that another node leads; return whether this one had to go. Durable before it returns, where the
        promises of this node allow that. Raises ``StoreError``."""
        if self.role.is_slave or self._fenced_by is not None or self.state.is_reserved(epoch, owner):
            return False
        fence = self.state.fence if self.service is None else self.service.fence
        if fence(epoch, owner, address):
            self.was_fenced(FencedBy(epoch, owner, address))
        else:  # not newer than our own, yet the name server knows another one: two masters of one name
            self._fenced_by = FencedBy(epoch, owner, address)
            self._store.gate.changed()
            self._log_fence(self._fenced_by)
        return True

    def was_fenced(self, fenced_by: FencedBy) -> None:
        """Note that the HA service was fenced, by a slave or by ``fence``. Any thread."""
        if self._fenced_by is None:
            self._fenced_by = fenced_by
            self._store.gate.changed()
            self._log_fence(fenced_by)

    def _log_fence(self, fenced_by: FencedBy) -> None:
        self._log.error(
            "fenced",
            epoch=fenced_by.epoch,
            owner=fenced_by.owner,
            master=fenced_by.address,
            end_offset=self._store.committed_offset,
            what_to_do=f"sends are refused; {self._way_out(fenced_by)}",
        )
        self._on_role_changed()

    def must_not_write(self) -> bool:
        """Return whether services must store nothing now: another master leads or is about to. Any thread, quick."""
        return self.is_held or self._fenced_by is not None

    @property
    def is_held(self) -> bool:
        """Whether the master hands over and stores no message now. Any thread, quick."""
        return self._held_until_ns > 0 and self._clock.monotonic_ns() < self._held_until_ns

    def hold(self, hold_ms: int) -> int:
        """Accept no sends for ``hold_ms`` (0: accept them again); return the end of the log. The hold ends by itself,
        so that no crash of a client keeps a master silent."""
        hold_ms = min(max(0, hold_ms), HOLD_MS_MAX)
        self._held_until_ns = self._clock.monotonic_ns() + hold_ms * 1_000_000 if hold_ms else 0
        self._store.gate.changed()
        self._log.warning("sends_held", hold_ms=hold_ms)
        return self._store.committed_offset

    # ---- promises

    def learn_known_epoch(self, epoch: int) -> None:
        """Hear of the newest epoch that a name server knows: a promotion goes on from there."""
        self.state.known_elsewhere = max(self.state.known_elsewhere, epoch)

    @property
    def highest_known(self) -> int:
        """The highest epoch that this node has heard of: in its log, promised, by which it was fenced, or from a name
        server."""
        fenced_by = self._fenced_by
        fenced = 0 if fenced_by is None or fenced_by.epoch > EPOCH_PROMISED_MAX else fenced_by.epoch
        return max(self.state.highest_known, fenced)

    def _check_promise(self, epoch: int, owner: str) -> None:
        """Raises ``PromiseRefused``: nothing is promised that no promotion of this broker can have asked for."""
        name, state = self.role.config.broker_name, self.state
        if epoch > (allowed := highest_allowed(self.highest_known)):
            raise PromiseRefused(
                "promise refused",
                why=f"epoch {epoch} is beyond {allowed}; {self.highest_known} is the newest that this broker knows",
                hint="use pocketmq ha promote, which chooses the number",
            )
        leads = not self.role.is_slave and self._fenced_by is None
        if leads and self.has_followers and not state.is_own(owner) and owner.partition(".")[0] not in state.slaves:
            raise PromiseRefused(
                "promise refused",
                why=f"{owner[:64]!a} is no slave that this master has counted",
                hint=f"to make another broker the master all the same: pocketmq ha demote {name} --force, then promote",
            )
        if leads and not self.has_followers and epoch and not state.is_own(owner):
            raise PromiseRefused(
                "promise refused",
                why=f"{name} runs without replicas: no slave has followed this broker, so none can take its place",
                hint=f"if another broker shall have the name, stop this one first, then: pocketmq ha promote {name}",
            )

    def promise(self, asked: HaPromiseRequestHeader) -> HaPromiseResponseHeader:
        """Promise an epoch; a master that is asked for another node's fences itself. Raises ``StoreError`` and
        ``PromiseRefused``."""
        state, epoch, owner = self.state, asked.epoch, asked.owner
        self._check_promise(epoch, owner)
        if self.slave is not None:
            granted = self.slave.promise(epoch, owner)
        elif self.role.is_slave or state.is_own(owner) or self._fenced_by is not None:
            granted = state.promise(epoch, owner)
        elif state.may_follow(epoch, owner):
            granted = self.fence(epoch, owner, asked.address) and state.promised_owner == owner
        else:
            granted = False
        last = self._log_epochs().last if state.counted else None
        self._log.info("promise_asked", epoch=epoch, owner=owner, granted=granted, promised=state.promised_epoch)
        return HaPromiseResponseHeader(
            granted,
            state.promised_epoch,
            state.promised_owner,
            0 if last is None else last.number,
            self._store.committed_offset,
        )

    def may_lead(self, epoch: int, owner: str) -> bool:
        """Tell whether this node has promised ``epoch`` to itself."""
        state = self.state
        return state.promised_epoch == epoch and state.promised_owner == owner and state.is_own(owner)

    # ---- what is told

    @property
    def has_followers(self) -> bool:
        """Whether losing this master may be answered by a promotion: then its epoch is registered, and checked."""
        state = self.state
        promoted = any(not state.is_own(entry.owner) for entry in state.epochs.entries)
        return self.role.store_config.broker_role == "SYNC_MASTER" or bool(state.slaves) or promoted

    def claim(self) -> tuple[int, str]:
        """Return (epoch, owner) as a leading master registers them; ``NO_EPOCH`` for all others."""
        last = self.state.epochs.last
        if self.service is None or last is None or self._fenced_by is not None or not self.has_followers:
            return NO_EPOCH
        return last.number, last.owner

    def status(self) -> HaStatusBody:
        """Return what this node is and how far, without the versions of tables."""
        claim = self.claim()
        if claim != self._told_claim:
            self._told_claim = claim
            self._on_role_changed()
        config, store, state = self.role.config, self._store, self.state
        store_config = self.role.store_config
        epochs = self._log_epochs()
        last, fenced_by = epochs.last, self._fenced_by
        rule = (store_config.in_sync_replicas, store_config.total_replicas)
        if self.role.is_slave and state.group is not None:
            rule = state.group[1:]  # what its master asked for: promises are counted with it
        body = HaStatusBody(
            cluster=config.broker_cluster_name,
            broker_name=config.broker_name,
            broker_id=config.broker_id,
            address=self.address,
            ha_address=self.ha_address,
            role=store_config.broker_role,
            group_role=self._group_role(),
            node_id=state.node_id,
            epoch=0 if last is None else last.number,
            owner="" if last is None else last.owner,
            epochs=[HaEpochBody(each.number, each.owner, each.start_offset) for each in epochs.entries],
            promised_epoch=state.promised_epoch,
            promised_owner=state.promised_owner,
            min_offset=store.log.min_offset,
            end_offset=store.committed_offset,
            flushed_offset=store.flushed_offset,
            dispatched_offset=store.dispatched_offset,
            confirmed_offset=state.confirmed_offset,
            followers=sorted(state.slaves),
            in_sync_replicas=rule[0],
            total_replicas=rule[1],
        )
        if fenced_by is not None:
            body.fenced_by_epoch, body.fenced_by_owner = fenced_by.epoch, fenced_by.owner
            body.fenced_by_address = fenced_by.address
        if self.service is not None:
            self._add_slaves(body, self.service)
        if self.slave is not None:
            self._add_master(body, self.slave)
            body.is_counted = state.counted
        return body

    def _group_role(self) -> str:
        if not self.role.is_slave:
            return self.role.store_config.broker_role
        group = self.state.group
        return "SYNC_MASTER" if self.state.acks_confirm else "" if group is None else group.role

    def _log_epochs(self) -> EpochTable:
        """Return the epochs that the log has. A slave's table names those of bytes that its disk then refused."""
        return self.state.epochs.cut(self._store.committed_offset)

    @staticmethod
    def _add_slaves(body: HaStatusBody, service: HaService) -> None:
        told = service.status()
        body.confirmed_offset = told.confirmed_offset
        body.waiters = told.waiters
        body.slaves = [
            HaSlaveBody(
                node_id=each.node_id,
                broker_id=each.broker_id,
                address=each.address,
                ack_offset=each.ack_offset,
                behind_bytes=each.behind_bytes,
                behind_ms=each.behind_ms,
                is_in_sync=each.is_in_sync,
                connected_ms=each.connected_ms,
                sent_bytes=each.sent_bytes,
                protocol=each.protocol,
            )
            for each in told.slaves
        ]

    @staticmethod
    def _add_master(body: HaStatusBody, slave: HaSlave) -> None:
        told = slave.status()
        body.master_address = told.master_address
        body.is_connected = told.connected
        body.master_end_offset = told.master_end
        body.behind_bytes, body.behind_ms = told.behind_bytes, told.behind_ms
        body.last_error = told.last_error
        body.disk_error = told.disk_error


class PromiseRefused(PocketMQError):
    """An epoch that this broker refuses to promise; nothing has changed."""

    default_cause = Cause.BAD_REQUEST


class NotPromoted(PocketMQError):
    """This broker does not become what was asked; nothing has changed."""

    default_cause = Cause.BAD_REQUEST
