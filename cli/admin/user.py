"""``pocketmq user create | update | delete | list``: who may connect to brokers and name servers.

Lives here: options and output.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from pocketmq.cli import options
from pocketmq.cli.admin.access_output import print_password, print_results, read_password, run_access
from pocketmq.cli.admin.user_limits import LIMIT_HELP, limits_text, parse_limits
from pocketmq.cli.output import print_note, print_rows
from pocketmq.cli.run import build_group, confirm
from pocketmq.common.errors import ConfigError

if TYPE_CHECKING:
    from pocketmq.client.admin.access_admin import AccessAdmin

Name = Annotated[str, typer.Argument(metavar="USER", help="Name of the user: its access key.")]
PasswordFile = Annotated[
    str, typer.Option("--password-file", metavar="FILE", help="File with the password; -: standard input.")
]
Limits = Annotated[list[str] | None, typer.Option("--quota", metavar="NAME=VALUE", help=LIMIT_HELP)]
Generate = Annotated[bool, typer.Option("--generate", help="Make a password, and print it once.")]


def build_app() -> typer.Typer:
    """Return the group of subcommands."""
    return build_group(
        "Users of brokers and name servers.", create=create, update=update, delete=delete, list=list_users
    )


def create(
    name: Name,
    super_user: Annotated[bool, typer.Option("--super", help="The user may do everything.")] = False,
    password_file: PasswordFile = "",
    generate: Generate = False,
    limit: Limits = None,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Make a user on all masters and name servers. It may do nothing before a policy allows it: pocketmq acl create."""
    limits = parse_limits(limit or ())
    password = read_password(password_file, generate)

    async def body(access: "AccessAdmin") -> None:
        results = await access.create_user(name, password, user_type="Super" if super_user else "Normal", limits=limits)
        if generate:
            print_password(name, password, results, as_json)
        print_results(results, f"create user {name}", as_json)

    run_access(namesrv, body)


def update(
    name: Name,
    password: Annotated[bool, typer.Option("--password", help="Ask for another password.")] = False,
    password_file: PasswordFile = "",
    generate: Generate = False,
    user_type: Annotated[str, typer.Option("--type", metavar="TYPE", help="Super or Normal.")] = "",
    enable: Annotated[bool | None, typer.Option("--enable/--disable", help="Whether the user may do anything.")] = None,
    limit: Limits = None,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Change a user's password, type, status or limits; it takes effect at once, on open connections too."""
    limits = parse_limits(limit or ())
    secret = read_password(password_file, generate) if password or password_file or generate else ""
    if not (secret or user_type or limits or enable is not None):
        raise ConfigError("nothing to change", hint="--password, --type, --enable, --disable or --quota")
    status = "" if enable is None else "enable" if enable else "disable"

    async def body(access: "AccessAdmin") -> None:
        results = await access.update_user(
            name, password=secret, user_type=user_type, user_status=status, limits=limits
        )
        if generate:
            print_password(name, secret, results, as_json)
        print_results(results, f"update user {name}", as_json)

    run_access(namesrv, body)


def delete(
    name: Name,
    yes: options.Yes = False,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Delete a user and the user's policies. Open connections of the user are refused at once."""
    confirm(f"Delete user {name} and all of the user's policies?", yes, else_what="the user was not deleted")

    async def body(access: "AccessAdmin") -> None:
        print_results(await access.delete_user(name), f"delete user {name}", as_json)

    run_access(namesrv, body)


def list_users(
    part: Annotated[str, typer.Argument(metavar="PART", help="Only users whose names contain it.")] = "",
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """List the users, and servers on which they differ."""

    async def body(access: "AccessAdmin") -> None:
        found = await access.users(part)
        tables = {
            address: [(user.username, user.user_type, user.user_status, limits_text(user.limits)) for user in users]
            for address, users in found.items()
        }
        first = next(iter(tables.values()), [])
        print_rows(("user", "type", "status", "limits"), first, as_json)
        for address, rows in tables.items():
            if rows != first and not as_json:
                print_note(f"{address} has other users: {', '.join(str(row[0]) for row in rows) or 'none'}")

    run_access(namesrv, body)
