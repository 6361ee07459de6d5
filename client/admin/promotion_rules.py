"""Which logs may lead, and which promises count, by the reports of nodes and name servers.

Lives here: ``newest_opened``, ``lacks``, ``counted``; no I/O.

A replaced slave may have promised and be the only one left; its log lacks the messages that its replacement confirmed.
The master opens an epoch before it counts another slave, so a node without that epoch must not lead, and its promise
says nothing about messages confirmed since.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pocketmq.client.admin.ha_admin import Group
from pocketmq.common.epochs import PROMOTION_STEP, members_of
from pocketmq.remoting.protocol.ha import HaPromiseResponseHeader, HaStatusBody


@dataclass(slots=True, frozen=True)
class Opened:
    """An epoch that was opened, or may have been; ``told_by`` names the source."""

    number: int
    told_by: str


def newest_opened(group: Group, leads: HaStatusBody) -> Opened:
    """Return the newest epoch known to have been opened, from the view of the node whose log is to lead.

    Its own claim at a name server, missing in its log, is an unfinished promotion. A promised number that is no
    promotion's belongs to a master that was followed.
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
    """Return whether a log whose newest epoch is ``last_epoch`` may lack messages confirmed in ``opened``: slaves it
    does not know may have been counted there.
    """
    return members_of(last_epoch) < members_of(opened.number)


def counted(granted: Mapping[str, HaPromiseResponseHeader], opened: Opened) -> dict[str, HaPromiseResponseHeader]:
    """Return the promises that count: of nodes in the newest set of counted slaves."""
    newest = max(
        [opened, *(Opened(answer.last_epoch, "") for answer in granted.values())], key=lambda each: each.number
    )
    return {address: answer for address, answer in granted.items() if not lacks(answer.last_epoch, newest)}
