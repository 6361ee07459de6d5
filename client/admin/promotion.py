"""Promotion of another broker to the master of a name.

Lives here: ``promote``: the planned switch while the master lives, the promotion after its loss, the refusals of both.

Nothing that was answered SEND_OK under SYNC_MASTER is lost without ``force``: so many nodes promise to take nothing
from the old master that every set of nodes that can have confirmed a message has one of them, and the one with the
most advanced log leads (docs/replication.md).
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pocketmq.client.admin.ha_admin import Group, HaAdmin, HaFailed
from pocketmq.client.admin.promotion_rules import Opened, counted, lacks, newest_opened
from pocketmq.common.epochs import next_promotion
from pocketmq.common.errors import PocketMQError
from pocketmq.common.former_names import renamed_arguments
from pocketmq.remoting.protocol.ha import HaEpochRequestHeader, HaPromiseResponseHeader, HaStatusBody

HOLD_MS: Final = 30_000
CATCH_UP_MS: Final = 20_000
START_MS: Final = 60_000
"""How long a broker may take to restart in its new role: recovery reads the end of its log."""
TABLES_MS: Final = 3_000

Report = Callable[[str], None]


@dataclass(slots=True, frozen=True)
class Promoted:
    """The result. ``planned``: the old master was alive and handed everything over."""

    master: HaStatusBody
    old_address: str
    planned: bool
    promises: int


@renamed_arguments(tell="report")
async def promote(
    ha: HaAdmin,
    broker_name: str,
    *,
    to: str = "",
    force: bool = False,
    role: str = "",
    report: Report = lambda text: None,
) -> Promoted:
    """Make the most advanced reachable slave, or the broker at ``to``, the master of a name.

    ``force`` goes on without the promises, without the majority of the name servers, and with a log that is not the
    most advanced, or lacks an epoch that was opened: confirmed messages may be lost. Raises ``HaFailed`` with the
    resulting state.
    """
    group = await ha.group(broker_name, [to] if to else [])
    group.check_ours("not promoted")
    leader = group.leader
    candidate = _choose(group, to, force)
    role = role or group.role
    _check_name_servers(group, force)
    needed = group.promises_needed(role)
    leads = candidate if leader is None else leader
    opened = newest_opened(group, leads)
    if lacks(leads.last_epoch, opened) and not force:
        raise _lacking(group, leads.address, leads.last_epoch, opened)
    useful = [node for node in group.others if not lacks(node.last_epoch, opened)]
    # before any node is asked to stop following the old master
    if leader is None and len(useful) < needed and not force:
        silent = ", ".join(f"{address}: {why}" for address, why in group.silent.items()) or "no other node is known"
        raise HaFailed(
            "not promoted",
            why=f"{needed} nodes beside the old master must promise, {len(useful)} answered"
            + (f" that have epoch {opened.number}" if opened.number else "")
            + f" ({silent})",
            hint="start them, or use --force: messages that only the missing ones have are lost",
        )
    epoch = next_promotion(group.highest_epoch)
    owner = f"{candidate.node_id}.{secrets.token_hex(4)}"
    if leader is not None:
        try:
            await _hand_over(ha, leader, candidate, epoch, owner, report)
        except PocketMQError as error:
            if not force:
                raise
            report(f"forced, although {error}")
            await ha.promise(leader, epoch, owner, candidate.address)
    try:
        promises = await _collect(ha, group, leader, candidate, epoch, owner, force, needed, opened, report)
        last_epoch = promises[candidate.address].last_epoch
        await _claim(ha, group, candidate, epoch, owner, role, last_epoch, force, report)
    except PocketMQError:
        if leader is not None:  # it lives, and has everything: better the old master than none
            await _lead_again(ha, leader, epoch, report)
        raise
    report(f"{candidate.address} becomes {role} in epoch {epoch}")
    await ha.promote(candidate, epoch, owner, role)
    master = await ha.wait_for(
        candidate.address, START_MS, lambda status: status.is_master and status.last_epoch >= epoch, "the promotion"
    )
    old_address = "" if leader is None else leader.address
    if leader is not None:
        try:
            report(f"{leader.address} becomes its slave")
            await ha.demote(leader.address, broker_name, max(1, candidate.broker_id))
            await ha.wait_for(leader.address, START_MS, lambda status: status.role == "SLAVE", "the demotion")
        except PocketMQError as error:
            raise HaFailed(
                "promoted, but the old master does not follow",
                why=str(error),
                hint=f"sends go to {candidate.address}; later: pocketmq ha demote {broker_name} --at {leader.address}",
            ) from error
    return Promoted(master, old_address, leader is not None, len(promises))


def _choose(group: Group, to: str, force: bool) -> HaStatusBody:
    others = group.others
    if to:
        candidate = group.nodes.get(to)
        if candidate is None:
            why = group.silent.get(to, "it is no broker of this name")
            raise HaFailed("not promoted", why=f"{to}: {why}", hint="give host:port of a broker that runs")
        if candidate is group.leader:
            raise HaFailed("not promoted", why=f"{to} is the master of {group.broker_name} already")
    elif others:
        candidate = others[0]
    else:
        silent = "; ".join(f"{address}: {why}" for address, why in group.silent.items())
        raise HaFailed("not promoted", why=f"no slave of {group.broker_name} answers. {silent}", hint="start one")
    best = others[0]
    behind = (candidate.last_epoch, candidate.end_offset) < (best.last_epoch, best.end_offset)
    if behind and group.leader is None and not force:
        raise HaFailed(
            "not promoted",
            why=f"{candidate.address} ends at {candidate.end_offset} in epoch {candidate.last_epoch}, "
            f"{best.address} at {best.end_offset} in epoch {best.last_epoch}",
            hint=f"promote {best.address}, or use --force: the missing messages are lost",
        )
    return candidate


def _lacking(group: Group, address: str, last_epoch: int, opened: Opened) -> HaFailed:
    silent = "; ".join(f"{each}: {why}" for each, why in group.silent.items()) or "no other node is known"
    return HaFailed(
        "not promoted",
        why=f"the log of {address} ends in epoch {last_epoch}, and epoch {opened.number} was opened "
        f"({opened.told_by}): it lacks messages confirmed since, by slaves that it does not know. Missing: {silent}",
        hint="start the last master, or a slave that has followed it in that epoch, and promote that one; or use "
        f"--force: messages confirmed from epoch {opened.number} on are lost",
    )


def _check_name_servers(group: Group, force: bool) -> None:
    reached = sum(answer is not None for answer in group.name_servers.values())
    if 2 * reached <= len(group.name_servers) and not force:
        raise HaFailed(
            "not promoted",
            why=f"{reached} of {len(group.name_servers)} name servers answer; a majority must know the new epoch",
            hint="start them, or use --force: an old master that asks another one may be taken for the master",
        )


async def _hand_over(
    ha: HaAdmin, leader: HaStatusBody, candidate: HaStatusBody, epoch: int, owner: str, report: Report
) -> None:
    """Stop sends, let the candidate reach the master's end, then fence the master."""
    report(f"{leader.address} takes no sends; {candidate.address} catches up ({candidate.end_offset:,} bytes so far)")
    await ha.hold(leader, HOLD_MS)
    try:
        await _catch_up(ha, leader, candidate)
        promise = await ha.promise(leader, epoch, owner, candidate.address)
        if promise is None or not promise.granted:
            raise HaFailed("not promoted", why=f"{leader.address} did not promise epoch {epoch}")
    except BaseException:
        await ha.hold(leader, 0)
        raise
    now = await ha.status(candidate.address)
    if now.end_offset < promise.end_offset:
        report(f"{candidate.address} lacks {promise.end_offset - now.end_offset} bytes")
        await _lead_again(ha, leader, epoch, report)
        raise HaFailed("not promoted", why="the slave did not get all of the master's log", hint="try again")


async def _lead_again(ha: HaAdmin, leader: HaStatusBody, epoch: int, report: Report) -> None:
    """Let the old master lead again after it was fenced for ``epoch``, in which no node was promoted."""
    report(f"{leader.address} leads again")
    again, owner = next_promotion(epoch), f"{leader.node_id}.{secrets.token_hex(4)}"
    try:
        await ha.promise(leader, again, owner, leader.address)
        await ha.promote(leader, again, owner, leader.role)
        await ha.wait_for(leader.address, START_MS, lambda status: status.is_master and status.epoch >= again, "that")
    except PocketMQError as error:
        raise HaFailed(
            "not promoted, and no master leads now",
            why=f"{leader.address} had stopped, and did not begin again: {error}",
            hint="run it again",
        ) from error


async def _catch_up(ha: HaAdmin, leader: HaStatusBody, candidate: HaStatusBody) -> None:
    end_offset = -1
    deadline_ns = ha.clock.monotonic_ns() + CATCH_UP_MS * 1_000_000
    while True:
        now = await ha.status(leader.address)
        left_ms = (deadline_ns - ha.clock.monotonic_ns()) // 1_000_000
        if now.end_offset == end_offset or left_ms <= 0:
            break
        end_offset = now.end_offset
        await ha.wait_for(
            candidate.address,
            max(1, int(left_ms)),
            lambda status, end=end_offset: status.end_offset >= end,
            "the catch-up of the slave",
        )
    try:
        version = now.topics_version
        await ha.wait_for(candidate.address, TABLES_MS, lambda status: status.topics_version == version, "the mirror")
    except HaFailed:
        pass  # a topic created last is restored from the log, or by the next send


async def _collect(
    ha: HaAdmin,
    group: Group,
    leader: HaStatusBody | None,
    candidate: HaStatusBody,
    epoch: int,
    owner: str,
    force: bool,
    needed: int,
    opened: Opened,
    report: Report,
) -> dict[str, HaPromiseResponseHeader]:
    """Collect the promises of all nodes except the leader; refuse if too few, or if one has a more advanced log."""
    granted: dict[str, HaPromiseResponseHeader] = {}
    for node in [candidate, *(other for other in group.others if other is not candidate)]:
        answer = await ha.promise(node, epoch, owner, candidate.address)
        if answer is not None and answer.granted:
            granted[node.address] = answer
        elif node is candidate:
            text = "it did not answer" if answer is None else f"it has promised epoch {answer.epoch} to {answer.owner}"
            raise HaFailed("not promoted", why=f"{node.address}: {text}", hint="run it again")
    report(f"{len(granted)} of {max(needed, len(group.others))} nodes have promised epoch {epoch}")
    if force or leader is not None:  # a living leader has handed over everything
        return granted
    count = counted(granted, opened)
    if len(count) < needed:
        stale = ", ".join(
            f"{address} ends in epoch {granted[address].last_epoch}" for address in granted.keys() - count
        )
        raise HaFailed(
            "not promoted",
            why=f"{len(count)} nodes promised epoch {epoch}, {needed} must"
            + (f"; not counted, because newer epochs than theirs were opened: {stale}" if stale else ""),
            hint="start the others and run it again, or use --force; until then the promised nodes follow no master",
        )
    own = granted[candidate.address]
    for address, answer in granted.items():
        if (answer.last_epoch, answer.end_offset) > (own.last_epoch, own.end_offset):
            raise HaFailed(
                "not promoted",
                why=f"{address} has grown to {answer.end_offset}, {candidate.address} ends at {own.end_offset}",
                hint="run it again: it chooses the most advanced one",
            )
    return granted


async def _claim(
    ha: HaAdmin,
    group: Group,
    candidate: HaStatusBody,
    epoch: int,
    owner: str,
    role: str,
    last_epoch: int,
    force: bool,
    report: Report,
) -> None:
    header = HaEpochRequestHeader(candidate.broker_name, epoch, owner, candidate.address, role, force, last_epoch)
    known = {server: 0 if answer is None else answer.epoch for server, answer in group.name_servers.items()}
    answers = await ha.claim(header, known)
    granted = sum(answer is True for answer in answers.values())
    report(f"{granted} of {len(answers)} name servers know epoch {epoch}")
    if 2 * granted > len(answers):
        return
    said = ", ".join(f"{server} {'silent' if answer is None else answer}" for server, answer in answers.items())
    if not force:
        raise HaFailed(
            "not promoted",
            why=f"{granted} of {len(answers)} name servers took epoch {epoch}: {said}",
            hint="run it again; if a master has counted other slaves meanwhile, it reports what is missing",
        )
    report(f"forced, although {said}")
