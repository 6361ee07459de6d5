"""``pocketmq ha status | promote | demote | accept-loss | forget``.

Lives here: options and output.
"""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from pocketmq.cli import options
from pocketmq.cli.connection import given
from pocketmq.cli.output import print_json, print_note, print_table
from pocketmq.cli.run import build_group, confirm, run_admin, run_async

if TYPE_CHECKING:
    from pocketmq.client.admin.admin import Admin
    from pocketmq.client.admin.ha_admin import Group, HaAdmin
    from pocketmq.remoting.protocol.ha import HaStatusBody

BrokerName = Annotated[str, typer.Argument(metavar="BROKER_NAME", help="The common name of master and slaves.")]
At = Annotated[
    str, typer.Option("--at", metavar="HOST:PORT", help="Address of the broker.  [default: the only one that fits]")
]
COLUMNS: Final = (
    "broker", "id", "address", "state", "epoch", "end_offset", "behind_bytes", "behind_s", "in_sync", "remark"
)  # fmt: skip
RESTART_MS: Final = 60_000


def build_app() -> typer.Typer:
    """Return the group of subcommands."""
    help_text = "Show and change which broker is master and which are slaves (docs/replication.md)."
    return build_group(help_text, status=status, promote=promote, demote=demote, accept_loss=accept_loss, forget=forget)


def status(
    broker_name: Annotated[
        str, typer.Argument(metavar="[BROKER_NAME]", help="Only this name.  [default: all names of the name servers]")
    ] = "",
    at: At = "",
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Show masters and slaves: epoch, offset, lag, which slaves count for SEND_OK, which masters were replaced."""

    async def body(admin: "Admin") -> None:
        from pocketmq.client.admin.ha_admin import HaAdmin

        ha = HaAdmin(admin)
        names = [broker_name] if broker_name else await ha.broker_names()
        groups = [await ha.group(name, [at] if at else []) for name in names]
        if as_json:
            print_json([group_json(group) for group in groups])
            return
        rows = [row for group in groups for row in group_rows(group)]
        print_table(COLUMNS, rows)
        for group in groups:
            for line in remarks(group):
                print_note(line)

    run_admin(namesrv, body)


def promote(
    broker_name: BrokerName,
    to: Annotated[
        str, typer.Option("--to", metavar="HOST:PORT", help="Promote this broker, not the most advanced.")
    ] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Even if that may lose confirmed messages; see docs/replication.md.")
    ] = False,
    role: Annotated[
        str, typer.Option("--role", help="SYNC_MASTER or ASYNC_MASTER.  [default: the old master's role]")
    ] = "",
    yes: options.Yes = False,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Make a slave the master. While the old master runs no message is lost; sends are refused meanwhile, and the old
    master becomes a slave.

    After the loss of the master: enough nodes must promise to guarantee that no confirmed message is missing, and the
    most advanced of them becomes the master. Asks only with --force.
    """
    if force:
        question = f"Promote a broker of {broker_name}, even if that loses messages that were confirmed?"
        confirm(question, yes, else_what=f"{broker_name} not promoted")

    async def body(admin: "Admin") -> None:
        from pocketmq.client.admin.ha_admin import HaAdmin
        from pocketmq.client.admin.promotion import promote as run

        done = await run(HaAdmin(admin), broker_name, to=to, force=force, role=role.upper(), report=print_note)
        result = {
            "broker": broker_name,
            "master": done.master.address,
            "epoch": done.master.epoch,
            "role": done.master.role,
            "end_offset": done.master.end_offset,
            "old_master": done.old_address,
            "planned": done.planned,
            "promises": done.promises,
        }
        if as_json:
            print_json(result)
        else:
            print_table(tuple(result), [tuple(result.values())])

    run_admin(namesrv, body)


def demote(
    broker_name: BrokerName,
    at: At = "",
    broker_id: Annotated[
        int | None, typer.Option("--broker-id", min=1, help="Id as a slave.  [default: a free one]")
    ] = None,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Cut messages that the new master does not have, even confirmed ones.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Even the current master: then no broker takes sends.")
    ] = False,
    yes: options.Yes = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Make a replaced master a slave of the new one. Messages that it alone has, and never confirmed, are cut.

    Asks only with --accept-loss or --force.
    """
    if accept_loss or force:
        loss = "cut messages that were confirmed" if accept_loss else "leave its name without a master"
        confirm(f"Demote a broker of {broker_name}, and perhaps {loss}?", yes, else_what=f"{broker_name} not demoted")
    run_async(_demote(broker_name, at, broker_id or 0, accept_loss, force, namesrv, "master that was replaced"))


def accept_loss(
    broker_name: BrokerName,
    at: At = "",
    yes: options.Yes = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Let a slave that refuses to follow cut its log once, although the cut messages were confirmed."""
    question = f"Cut messages that were confirmed from the log of a slave of {broker_name}?"
    confirm(question, yes, else_what=f"no log of {broker_name} was cut")
    run_async(_demote(broker_name, at, 0, True, False, namesrv, "slave that does not follow"))


def forget(
    broker_name: Annotated[str, typer.Argument(metavar="BROKER_NAME", help="A name that no broker uses any more.")],
    yes: options.Yes = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Let the name servers forget the epoch of a name: of a pair that is gone, or of a false claim. Refused while a
    broker of this name is registered.
    """
    confirm(f"Forget the epoch of {broker_name} at all name servers?", yes, else_what=f"{broker_name} not forgotten")

    async def body(admin: "Admin") -> None:
        from pocketmq.client.admin.ha_admin import HaAdmin, HaFailed

        answers = await HaAdmin(admin).forget(broker_name)
        said = {
            server: "forgotten" if answer is True else "knows no epoch of it" if answer is False else answer
            for server, answer in answers.items()
        }
        print_table(("name_server", "answer"), [(server, each or "no answer") for server, each in said.items()])
        if not all(isinstance(answer, bool) for answer in answers.values()):
            why = "; ".join(f"{server}: {said[server] or 'no answer'}" for server in said)
            raise HaFailed("not forgotten everywhere", why=why, hint="stop the brokers of this name, and run it again")

    run_admin(namesrv, body)


async def _demote(
    broker_name: str, at: str, broker_id: int, accepts_loss: bool, force: bool, namesrv: str, wanted: str
) -> None:
    from pocketmq.client.admin.admin import Admin
    from pocketmq.client.admin.ha_admin import HaAdmin

    async with Admin(namesrv, **given()) as admin:
        ha = HaAdmin(admin)
        group = await ha.group(broker_name, [at] if at else [])
        group.check_ours("nothing was changed")
        chosen = _chosen(group, at, wanted)
        new_id = broker_id or chosen.broker_id or _free_id(group)
        await ha.demote(chosen.address, broker_name, new_id, accept_loss=accepts_loss, force=force)
        print_note(f"{chosen.address} starts again as slave {new_id} of {broker_name}")
        now = await _wait_slave(ha, chosen.address)
    follows = now.master_address if now.is_connected else "no master yet"
    print_table(
        ("broker", "address", "role", "id", "end_offset", "follows"),
        [(broker_name, now.address, now.role, now.broker_id, now.end_offset, follows)],
    )


async def _wait_slave(ha: "HaAdmin", address: str) -> "HaStatusBody":
    from pocketmq.client.admin.ha_admin import HaFailed

    now = await ha.wait_for(address, RESTART_MS, lambda status: status.role == "SLAVE", "the restart as a slave")
    try:
        return await ha.wait_for(address, 5_000, lambda status: status.is_connected, "following")
    except HaFailed:
        return now


def _chosen(group: "Group", at: str, wanted: str) -> "HaStatusBody":
    """Return the chosen broker; raise ``HaFailed`` if none or several fit."""
    from pocketmq.client.admin.ha_admin import HaFailed

    if at:
        node = group.nodes.get(at)
        if node is None:
            raise HaFailed("no such broker", why=f"{at}: {group.silent.get(at, 'it does not answer')}")
        return node
    fits = [
        node
        for node in group.nodes.values()
        if (node.is_fenced if wanted.startswith("master") else node.role == "SLAVE" and not node.is_connected)
    ]
    if len(fits) == 1:
        return fits[0]
    found = ", ".join(node.address for node in fits) or "none answers"
    raise HaFailed(f"which {wanted} is meant?", why=found, hint="name it with --at HOST:PORT")


def _free_id(group: "Group") -> int:
    used = {node.broker_id for node in group.nodes.values()}
    return next(number for number in range(1, len(used) + 2) if number not in used)


# ---- output


def state_of(node: "HaStatusBody", leader: "HaStatusBody | None") -> str:
    """Return the state of a broker in a word or two."""
    if node.is_fenced:
        return "FENCED"
    if node.role != "SLAVE":
        return node.role if node is leader or leader is None else f"{node.role} (stale)"
    return "SLAVE" if node.is_connected else "SLAVE (alone)"


def _remark(node: "HaStatusBody") -> str:
    if node.is_fenced and node.fenced_by_address == node.address:
        return f"a new store; in epoch {node.fenced_by_epoch} this address had another one"
    if node.is_fenced:
        return f"replaced in epoch {node.fenced_by_epoch} by {node.fenced_by_address or node.fenced_by_owner}"
    return "" if node.is_connected else node.last_error


def group_rows(group: "Group") -> list[tuple[Any, ...]]:
    """Return the rows of one broker name: leader, others, slaves that only the leader sees, silent brokers."""
    leader = group.leader
    seen = {} if leader is None else {slave.node_id: slave for slave in leader.slaves}
    rows: list[tuple[Any, ...]] = []
    for node in [*([leader] if leader is not None else []), *group.others]:
        slave = seen.pop(node.node_id, None)
        is_leader = node is leader
        behind_bytes = None if is_leader else node.behind_bytes if slave is None else slave.behind_bytes
        behind_ms = -1 if is_leader else node.behind_ms if slave is None else slave.behind_ms
        in_sync = None
        if is_leader:
            copies = 1 + sum(each.is_in_sync for each in node.slaves)
            in_sync = f"{copies} of {node.in_sync_replicas}" if node.role == "SYNC_MASTER" else str(copies)
        elif slave is not None:
            in_sync = "yes" if slave.is_in_sync else "no"
        rows.append(
            (
                group.broker_name,
                node.broker_id,
                node.address,
                state_of(node, leader),
                node.last_epoch,
                node.end_offset,
                behind_bytes,
                behind_ms / 1000 if behind_ms >= 0 else None,
                in_sync,
                _remark(node),
            )
        )
    rows += [
        (
            group.broker_name,
            slave.broker_id,
            slave.address,
            "SLAVE",
            None,
            slave.ack_offset,
            slave.behind_bytes,
            slave.behind_ms / 1000 if slave.behind_ms >= 0 else None,
            "yes" if slave.is_in_sync else "no",
            f"only its master sees it ({slave.protocol})",
        )
        for slave in seen.values()
    ]
    rows += [
        (group.broker_name, None, address, "ROCKETMQ" if address in group.rocketmq else "SILENT", *[None] * 5, why)
        for address, why in group.silent.items()
    ]
    return rows


def remarks(group: "Group") -> list[str]:
    """Return the steps that an operator should take, a sentence each."""
    leader = group.leader
    lines: list[str] = []
    if leader is None and group.nodes:
        lines.append(f"{group.broker_name} has no master: pocketmq ha promote {group.broker_name}")
    if leader is not None and leader.role == "SYNC_MASTER":
        in_sync = 1 + sum(each.is_in_sync for each in leader.slaves)
        if in_sync < leader.in_sync_replicas:
            lines.append(
                f"{group.broker_name}: {in_sync} of {leader.in_sync_replicas} copies are in sync, "
                "so sends get SLAVE_NOT_AVAILABLE: start a slave"
            )
    return lines + [
        f"{node.address} was replaced: pocketmq ha demote {group.broker_name} --at {node.address}"
        for node in group.nodes.values()
        if node.is_fenced and node.fenced_by_address != node.address
    ]


def group_json(group: "Group") -> dict[str, Any]:
    """Return one broker name as JSON data."""
    import msgspec

    leader, record = group.leader, group.record
    return {
        "broker": group.broker_name,
        "leader": None if leader is None else leader.address,
        "epoch": 0 if record is None else record.epoch,
        "nodes": [{"state": state_of(node, leader), **msgspec.to_builtins(node)} for node in group.nodes.values()],
        "silent": group.silent,
        "name_servers": {
            server: None if answer is None else {"epoch": answer.epoch, "master": answer.address}
            for server, answer in group.name_servers.items()
        },
        "remarks": remarks(group),
    }
