"""Queries and commands about replication, to brokers and name servers.

Lives here: ``HaAdmin``: the members of a broker name, their status, promises, claims; demotion.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from msgspec.structs import replace

from pocketmq.client.admin.admin import Admin, NotFound
from pocketmq.client.connection.instance import check_answer
from pocketmq.client.errors import BrokerAnswerError, ClientError
from pocketmq.common.epochs import PROMOTIONS_AHEAD_MAX, steps_to
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import decode_body
from pocketmq.remoting.protocol.ha import (
    HaDemoteRequestHeader,
    HaEpochRequestHeader,
    HaEpochResponseHeader,
    HaHoldRequestHeader,
    HaPromiseRequestHeader,
    HaPromiseResponseHeader,
    HaPromoteRequestHeader,
    HaStatusBody,
)
from pocketmq.remoting.protocol.spec import Header

POLL_S: Final = 0.05
CLAIM_MS: Final = 6_000
"""Least timeout of a claim: a name server first asks the present master, for 2 s, whether it lives."""
STEPS_MAX: Final = 1000
"""Intermediate epochs that one node is asked to promise, each ``PROMOTIONS_AHEAD_MAX`` promotions further."""
ROCKETMQ_WHY: Final = "a RocketMQ broker: it does not report its replication to PocketMQ's client"
ROCKETMQ_HINT: Final = "RocketMQ's own tools do that: mqadmin haStatus, getSyncStateSet"


class HaFailed(ClientError):
    """A promotion or demotion did not complete; the text describes the present state."""

    default_cause = Cause.NOT_MASTER


class NotPocketMQ(HaFailed):
    """The broker is RocketMQ's, and knows nothing of PocketMQ's replication."""


@dataclass(slots=True)
class Group:
    """The brokers of one name: those that answered, by address; the others with the reason; the name servers'
    epochs."""

    broker_name: str
    nodes: dict[str, HaStatusBody] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)
    name_servers: dict[str, HaEpochResponseHeader | None] = field(default_factory=dict)
    """None: it did not answer, or is RocketMQ's and keeps no epochs."""
    rocketmq: set[str] = field(default_factory=set)
    """Those of ``silent`` that are RocketMQ's brokers."""

    def check_ours(self, what: str) -> None:
        """Raise ``HaFailed`` if the only brokers of this name are RocketMQ's."""
        if self.rocketmq and not self.nodes:
            raise HaFailed(
                what,
                why=f"{', '.join(sorted(self.rocketmq))} {'is' if len(self.rocketmq) == 1 else 'are'} RocketMQ's: "
                "PocketMQ's commands for masters and slaves do not apply",
                hint=ROCKETMQ_HINT,
            )

    @property
    def record(self) -> HaEpochResponseHeader | None:
        """The newest epoch that a name server knows."""
        known = [each for each in self.name_servers.values() if each is not None and each.epoch]
        return max(known, key=lambda each: each.epoch, default=None)

    @property
    def leader(self) -> HaStatusBody | None:
        """The master that leads: of several, the one with the newest epoch."""
        masters = [node for node in self.nodes.values() if node.is_master]
        return max(masters, key=lambda node: node.epoch, default=None)

    @property
    def others(self) -> list[HaStatusBody]:
        """All that answered except the leader, the most advanced log first; equal ones in the order of their ids."""
        leader = self.leader
        nodes = [node for node in self.nodes.values() if node is not leader]
        return sorted(nodes, key=lambda node: (-node.last_epoch, -node.end_offset, node.is_fenced, node.broker_id))

    @property
    def highest_epoch(self) -> int:
        """The highest epoch known or promised anywhere."""
        record = self.record
        known = [0 if record is None else record.epoch]
        for node in self.nodes.values():
            known += [node.last_epoch, node.promised_epoch, node.fenced_by_epoch]
        return max(known)

    @property
    def role(self) -> str:
        """The role of a master of this name; SYNC_MASTER if unknown, the stricter one."""
        leader, record = self.leader, self.record
        if leader is not None:
            return leader.role
        if record is not None:
            return record.role
        reported = {node.group_role for node in self.nodes.values()} - {""}
        return "ASYNC_MASTER" if reported == {"ASYNC_MASTER"} else "SYNC_MASTER"

    def promises_needed(self, role: str) -> int:
        """Return how many nodes beside the leader must promise before another one may lead without loss."""
        if role != "SYNC_MASTER":
            return 1
        return max([node.total_replicas - node.in_sync_replicas + 1 for node in self.nodes.values()], default=1)


class HaAdmin:
    """Uses a started ``Admin``. Raises connection errors, ``BrokerAnswerError``, ``NotFound``."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._timeout_ms = admin.instance.options.api_timeout_ms

    @property
    def clock(self) -> Any:
        """The client's clock."""
        return self._admin.instance.clock

    # ---- members

    async def broker_names(self) -> list[str]:
        """Return the broker names that name servers know."""
        return sorted((await self._admin.cluster_info()).broker_addr_table)

    async def group(self, broker_name: str, more_addresses: Iterable[str] = ()) -> Group:
        """Query all brokers that may belong to a name. Raises ``NotFound`` if there are none."""
        group = Group(broker_name)
        info = await self._admin.cluster_info()
        known = info.broker_addr_table.get(broker_name)
        addresses = set(more_addresses) | set(known.broker_addrs.values() if known is not None else ())
        servers = self._admin.instance.name_servers.addresses
        answers = await asyncio.gather(*(self.epoch_at(server, broker_name) for server in servers))
        group.name_servers = dict(zip(servers, answers, strict=True))
        for answer in answers:
            if answer is not None:
                told = (each for each in (answer.address, *answer.fenced.split(",")) if each)
                addresses |= {self._admin.instance.name_servers.reachable(each) for each in told}
        results = await asyncio.gather(*map(self.status, sorted(addresses)), return_exceptions=True)
        for address, result in zip(sorted(addresses), results, strict=True):
            if isinstance(result, PocketMQError):
                group.silent[address] = str(result)
                if isinstance(result, NotPocketMQ):
                    group.rocketmq.add(address)
            elif isinstance(result, BaseException):
                raise result
            elif result.broker_name == broker_name:
                group.nodes[address] = result
            else:
                group.silent[address] = f"it is {result.broker_name}"
        if not addresses:
            names = ", ".join(sorted(info.broker_addr_table)) or "none"
            raise NotFound("no such broker", why=broker_name, hint=f"known: {names}; or name one with --to")
        return group

    async def status(self, address: str) -> HaStatusBody:
        """Return the status of one broker."""
        response = await self._request(address, RequestCode.HA_STATUS, None)
        return decode_body(check_answer(response, "status refused", address).body, HaStatusBody)

    async def epoch_at(self, server: str, broker_name: str) -> HaEpochResponseHeader | None:
        """Return the epoch that one name server knows; None if it does not answer or keeps no epochs."""
        return await self._epoch(server, HaEpochRequestHeader(broker_name))

    async def _epoch(
        self, server: str, header: HaEpochRequestHeader, *, raises: bool = False
    ) -> HaEpochResponseHeader | None:
        """Query or claim; ``raises``: raise ``BrokerAnswerError`` for a refusal."""
        servers = self._admin.instance.name_servers
        timeout_ms = max(self._timeout_ms, CLAIM_MS) if raises else self._timeout_ms
        try:
            if not await servers.is_pocketmq(server, timeout_ms=self._timeout_ms):
                return None  # RocketMQ's 4.9 would not even answer
            response = await servers.request_at(server, RequestCode.HA_EPOCH, header, timeout_ms=timeout_ms)
        except (PocketMQError, TimeoutError):
            return None
        if raises:
            check_answer(response, "claim refused", server)
        answer = response.header
        return answer if response.code == 0 and isinstance(answer, HaEpochResponseHeader) else None

    # ---- commands

    async def claim(
        self, header: HaEpochRequestHeader, known: Mapping[str, int] | None = None
    ) -> dict[str, bool | str | None]:
        """Claim an epoch at every name server; ``known`` is the newest epoch that each knew before.

        Return each answer: whether the claim holds, why it was refused, None without an answer.
        """
        known = known or {}
        servers = self._admin.instance.name_servers.addresses
        answers = await asyncio.gather(*(self._claim_at(server, header, known.get(server, 0)) for server in servers))
        return dict(zip(servers, answers, strict=True))

    async def _claim_at(self, server: str, header: HaEpochRequestHeader, known: int) -> bool | str | None:
        """Claim at one name server; a forced claim over several promotions goes in steps that it accepts."""
        answer: HaEpochResponseHeader | None = None
        steps = _bounded(steps_to(header.epoch, known), header.epoch) if header.force and known else [header.epoch]
        try:
            for number in steps:
                answer = await self._epoch(server, replace(header, epoch=number), raises=True)
        except BrokerAnswerError as error:
            return str(error)
        return None if answer is None else answer.granted

    async def forget(self, broker_name: str) -> dict[str, bool | str | None]:
        """Let every name server forget the epoch of a name. Return each answer: whether there was one, why it was
        refused, None without an answer."""
        answers: dict[str, bool | str | None] = {}
        for server in self._admin.instance.name_servers.addresses:
            try:
                answer = await self._epoch(server, HaEpochRequestHeader(broker_name, forget=True), raises=True)
            except BrokerAnswerError as error:
                answers[server] = str(error)
                continue
            answers[server] = None if answer is None else answer.granted
            if answer is not None and answer.epoch:  # an older version reads where this one forgets
                answers[server] = "it is of an older version, which cannot forget"
        return answers

    async def promise(
        self, node: HaStatusBody, epoch: int, owner: str, leader_address: str
    ) -> HaPromiseResponseHeader | None:
        """Ask one node for its promise; None when it does not answer.

        A node promises no epoch far above the one it knows. One that missed several promotions, completed or not, is
        asked for intermediate epochs first, of the same owner. Raises ``BrokerAnswerError``.
        """
        known = max([node.promised_epoch, node.fenced_by_epoch, *(each.number for each in node.epochs)])
        answer: Header | None = None
        for number in _bounded(steps_to(epoch, known), epoch):
            header = HaPromiseRequestHeader(node.broker_name, number, owner, leader_address)
            try:
                response = await self._request(node.address, RequestCode.HA_PROMISE, header)
            except PocketMQError:
                return None
            answer = check_answer(response, "promise refused", node.address).header
        return answer if isinstance(answer, HaPromiseResponseHeader) else None

    async def hold(self, node: HaStatusBody, hold_ms: int) -> None:
        """Make a master refuse sends for ``hold_ms``; 0 ends that."""
        await self._order(node.address, RequestCode.HA_HOLD, HaHoldRequestHeader(node.broker_name, hold_ms))

    async def promote(self, node: HaStatusBody, epoch: int, owner: str, role: str) -> None:
        """Order a node that has promised ``epoch`` to itself to lead."""
        header = HaPromoteRequestHeader(node.broker_name, epoch, owner, role)
        await self._order(node.address, RequestCode.HA_PROMOTE, header)

    async def demote(
        self, address: str, broker_name: str, broker_id: int, *, accept_loss: bool = False, force: bool = False
    ) -> None:
        """Order a broker to follow."""
        header = HaDemoteRequestHeader(broker_name, broker_id, accept_loss, force)
        await self._order(address, RequestCode.HA_DEMOTE, header)

    async def wait_for(self, address: str, timeout_ms: int, is_there: Any, what: str) -> HaStatusBody:
        """Poll one broker until ``is_there(status)``; raise ``HaFailed`` if that does not happen in time."""
        deadline_ns = self.clock.monotonic_ns() + timeout_ms * 1_000_000
        last = "it did not answer"
        while self.clock.monotonic_ns() < deadline_ns:
            try:
                status = await self.status(address)
                if is_there(status):
                    return status
                last = f"{status.role} at epoch {status.epoch}, end {status.end_offset}. {status.last_error}"
            except PocketMQError as error:
                last = str(error)
            await asyncio.sleep(POLL_S)
        raise HaFailed(f"{what} did not happen", why=f"{address} after {timeout_ms / 1000:.0f} s: {last}")

    async def _order(self, address: str, code: int, header: Header) -> None:
        response = await self._request(address, code, header)
        if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise HaFailed("order refused", why=f"{address} is no PocketMQ broker of this version")
        check_answer(response, "order refused", address)

    async def _request(self, address: str, code: int, header: Header | None) -> Any:
        connection = await self._admin.instance.connection_to(address, address, timeout_ms=self._timeout_ms)
        if connection.announcement is None:
            raise NotPocketMQ(ROCKETMQ_WHY, why=address, hint=ROCKETMQ_HINT)
        return await connection.channel.request(code, header, timeout_ms=self._timeout_ms)


def _bounded(steps: Iterable[int], epoch: int) -> list[int]:
    """Return the steps to ``epoch``; raise ``HaFailed`` if they would be too many."""
    numbers = list(islice(steps, STEPS_MAX + 1))
    if len(numbers) > STEPS_MAX:
        raise HaFailed(
            "not promoted",
            why=f"epoch {epoch} is more than {PROMOTIONS_AHEAD_MAX * STEPS_MAX} promotions ahead of what a broker or "
            "name server knows",
            hint='a false epoch is known somewhere: see "A false epoch" in docs/replication.md',
        )
    return numbers
