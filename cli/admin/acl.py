"""``pocketmq acl create | delete | list | test | log | import``: who may do what.

Lives here: options and output.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from pocketmq.cli import options
from pocketmq.cli.admin.access_output import print_results, run_access
from pocketmq.cli.admin.acl_import import import_plain_acl
from pocketmq.cli.drawn_table import TimeText
from pocketmq.cli.exit_codes import CommandFailed
from pocketmq.cli.output import print_json, print_note, print_rows, time_text
from pocketmq.cli.run import build_group, confirm

if TYPE_CHECKING:
    from pocketmq.client.admin.access_admin import AccessAdmin

User = Annotated[str, typer.Argument(metavar="USER", help="Name of the user.")]
ResourceText = Annotated[
    str, typer.Argument(metavar="RESOURCE", help="Topic:orders, Topic:pre*, Group:*, Cluster:*, or * for all.")
]
COLUMNS = ("user", "resource", "actions", "decision", "sources", "type")
LOG_COLUMNS = ("time", "user", "address", "code", "resource", "action", "times", "why")


def build_app() -> typer.Typer:
    """Return the group of subcommands."""
    commands = {"import": import_plain_acl}  # a name that Python keeps for itself
    return build_group(
        "Policies: who may do what, from where.",
        create=create,
        delete=delete,
        list=list_acls,
        test=try_out,
        log=log,
        **commands,
    )


def create(
    user: User,
    resource: ResourceText,
    actions: Annotated[
        list[str],
        typer.Argument(metavar="ACTION...", help="Pub, Sub, Create, Update, Delete, Get, List, or All."),
    ],
    deny: Annotated[bool, typer.Option("--deny", help="Refuse it instead of allowing it.")] = False,
    sources: Annotated[
        list[str] | None,
        typer.Option("--source", metavar="ADDRESS", help="Only from there, like 10.0.0.0/8; repeatable."),
    ] = None,
    default: Annotated[bool, typer.Option("--default", help="Counts only where no other entry fits.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="In the place of the entry for this resource.")] = False,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Let a user do something: pocketmq acl create app Topic:orders Pub. It takes effect at once."""

    async def body(access: "AccessAdmin") -> None:
        results = await access.create_acl(
            user,
            resource,
            actions,
            decision="Deny" if deny else "Allow",
            sources=sources or (),
            policy_type="Default" if default else "Custom",
            replace=replace,
        )
        print_results(results, f"{'deny' if deny else 'allow'} {user} {' '.join(actions)} on {resource}", as_json)

    run_access(namesrv, body)


def delete(
    user: User,
    resource: Annotated[str, typer.Argument(metavar="RESOURCE", help="As it was given; none: all of the user's.")] = "",
    yes: options.Yes = False,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Delete a user's entries for a resource, or all of the user's policies."""
    what = f"the entries of {user} for {resource}" if resource else f"all policies of {user}"
    confirm(f"Delete {what}?", yes, else_what="the policy was not deleted")

    async def body(access: "AccessAdmin") -> None:
        print_results(await access.delete_acl(user, resource=resource), f"delete {what}", as_json)

    run_access(namesrv, body)


def list_acls(
    user: Annotated[str, typer.Option("--user", metavar="USER", help="Part of the user's name.")] = "",
    resource: Annotated[str, typer.Option("--resource", metavar="TEXT", help="Part of the resource.")] = "",
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """List the policies, and servers on which they differ."""

    async def body(access: "AccessAdmin") -> None:
        tables = {
            address: [
                (
                    (acl.subject or "").removeprefix("User:"),
                    entry.resource,
                    ",".join(entry.actions or ()),
                    entry.decision,
                    ",".join(entry.source_ips or ()) or "anywhere",
                    policy.policy_type,
                )
                for acl in acls
                for policy in acl.policies or ()
                for entry in policy.entries or ()
            ]
            for address, acls in (await access.acls(username=user, resource=resource)).items()
        }
        first = next(iter(tables.values()), [])
        print_rows(COLUMNS, first, as_json)
        for address, rows in tables.items():
            if rows != first and not as_json:
                print_note(f"{address} has other policies: {len(rows)} entries")

    run_access(namesrv, body)


def try_out(
    user: User,
    what: Annotated[
        str,
        typer.Argument(
            metavar="ACTION|CODE",
            help="Pub, Sub, Create, Update, Delete, Get, List; or a request code, like SEND_MESSAGE_V2 or 310.",
        ),
    ],
    resource: Annotated[
        str, typer.Argument(metavar="RESOURCE", help="Topic:orders, Group:billing, Cluster:c; Topic:* for all topics.")
    ],
    source: Annotated[str, typer.Option("--source", metavar="ADDRESS", help="Address from which the user asks.")] = "",
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Say what would happen if a user did something, and which entry decides: pocketmq acl test app PULL_MESSAGE
    Topic:orders. Exit code 1: it would be refused. The resource may come first, as in pocketmq acl create."""
    if ":" in what:
        what, resource = resource, what

    async def body(access: "AccessAdmin") -> None:
        verdicts = await access.test(user, resource, what, source=source)
        if as_json:
            print_json({"servers": verdicts})
        for address, verdict in verdicts.items():
            if not as_json:
                by = f" ({verdict.policy_type} {verdict.entry.resource})" if verdict.entry is not None else ""
                print(f"{address}: {'allowed' if verdict.allowed else 'refused'}: {verdict.why}{by}")
        needs = next((verdict.needs for verdict in verdicts.values() if verdict.needs), "")
        if needs and not as_json:
            print(f"{what} needs each of: {needs}")
        refusing = [address for address, verdict in verdicts.items() if not verdict.allowed]
        if refusing:
            raise CommandFailed(f"{user} may not {what} {resource}", why=f"refused by {', '.join(refusing)}")

    run_access(namesrv, body)


def log(
    count: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, max=1_000, help="At most so many a server.")
    ] = 50,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """List the last refusals of access control, the newest first: who wanted what, from where, why not."""

    async def body(access: "AccessAdmin") -> None:
        denials = sorted(
            (denial for each in (await access.denials(count)).values() for denial in each),
            key=lambda denial: denial.last_ms,
            reverse=True,
        )
        rows = [
            (
                TimeText(time_text(denial.last_ms), denial.last_ms),
                denial.user or "-",
                denial.address,
                denial.code,
                denial.resource or "-",
                denial.action or "-",
                denial.count,
                denial.why,
            )
            for denial in denials
        ]
        print_rows(LOG_COLUMNS, rows, as_json)

    run_access(namesrv, body)
