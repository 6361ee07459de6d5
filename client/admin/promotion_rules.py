"""Whose log may lead, and whose promise counts: judged from what nodes and name servers say.

Lives here: ``newest_opened``, ``lacks``, ``counted``; no I/O.

A slave that was replaced can have promised and be the only one there; its log lacks what its replacement has confirmed.
The master opens an epoch before it counts another slave, so whoever lacks that epoch must not lead, and its promise
says nothing of what was confirmed since.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pocketmq.client.admin.ha_admin import Group
from pocketmq.common.epochs import PROMOTION_STEP, members_of
from pocketmq.remoting.protocol.ha import HaPromiseResponseHeader, HaStatusBody


@dataclass(slots=True, frozen=True)
class Opened:
    """An epoch that was opened, or may have been; ``told_by`` says who knows it."""

    number: int
    told_by: str


def newest_opened(group: Group, leads: HaStatusBody) -> Opened:
    """Return the newest epoch that anybody knows to have been opened, seen from the node whose log shall lead.

    A claim of its own at a name server that is not in its log is a promotion that was not finished. A number that was
    promised and is no promotion's is a master's that was followed.
    """
    known = [Opened(0, "")]
    for node in group.nodes.values():
        known.append(Opened(node.last_epoch, f"the log of {node.address} has it"))
        if node.promised_epoch % PROMOTION_STEP:
            known.append(Opened(node.promised_epoch, f"{node.address} has followed it"))
    for server, answer in group.name_servers.items():
        if answer is not None and answer.owner.partition(".")[0] != leads.node_id:
            known.append(Opened(answer.epoch, f"name server {server} knows it from {answer.address}"))
    return max(known, key=lambda opened: opened.number)


def lacks(last_epoch: int, opened: Opened) -> bool:
    """Tell whether a log whose newest epoch is ``last_epoch`` may lack what was confirmed in ``opened``: other slaves
    than those that it knows of may have been counted there.
    """
    return members_of(last_epoch) < members_of(opened.number)


def counted(granted: Mapping[str, HaPromiseResponseHeader], opened: Opened) -> dict[str, HaPromiseResponseHeader]:
    """Return the promises that count: of nodes that are of the newest set of counted slaves."""
    newest = max(
        [opened, *(Opened(answer.last_epoch, "") for answer in granted.values())], key=lambda each: each.number
    )
    return {address: answer for address, answer in granted.items() if not lacks(answer.last_epoch, newest)}
