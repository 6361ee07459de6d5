"""``pocketmq acl import FILE``: the accounts of RocketMQ 4.9's ``plain_acl.yml`` as users and policies.

Lives here: options, the plan that is shown before anything changes, output.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pocketmq.cli import options
from pocketmq.cli.admin.access_output import run_access
from pocketmq.cli.exit_codes import CommandFailed
from pocketmq.cli.output import print_rows
from pocketmq.cli.run import confirm
from pocketmq.common.errors import ConfigError
from pocketmq.common.printable import printable

if TYPE_CHECKING:
    from pocketmq.auth.plain_acl import PlainAccount, PlainAcl
    from pocketmq.client.admin.access_admin import AccessAdmin

COLUMNS = ("user", "type", "entries", "result")


def import_plain_acl(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="plain_acl.yml of RocketMQ 4.9.")],
    yes: options.Yes = False,
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Make the accounts of RocketMQ 4.9's plain_acl.yml users with policies. Users that are there stay as they are."""
    plain = _read(file)
    known: set[str] = set()

    async def look(access: "AccessAdmin") -> None:
        known.update(user.username or "" for users in (await access.users()).values() for user in users)

    run_access(namesrv, look)
    for note in plain.notes:
        print(printable(note), file=sys.stderr)
    fresh = [account for account in plain.accounts if account.user.username not in known]
    if not yes:
        print_rows(
            COLUMNS, [_row(each, "new" if each in fresh else "is there: stays") for each in plain.accounts], False
        )
    confirm(f"Make {len(fresh)} users?", yes or not fresh, else_what="nothing was imported")

    async def make(access: "AccessAdmin") -> None:
        results = [(each, await _make(access, each) if each in fresh else "is there: stays") for each in plain.accounts]
        print_rows(COLUMNS, [_row(*result) for result in results], as_json)
        failed = [account.user.username for account, result in results if account in fresh and result != "made"]
        if failed:
            raise CommandFailed(
                f"not imported: {', '.join(failed)}", hint="pocketmq user delete USER, and import the file again"
            )

    run_access(namesrv, make)


def _read(file: Path) -> "PlainAcl":
    from pocketmq.auth.plain_acl import FILE_BYTES_MAX, read_plain_acl

    try:
        with file.open("rb") as opened:
            return read_plain_acl(opened.read(FILE_BYTES_MAX + 1))
    except OSError as error:
        raise ConfigError("the file cannot be read", why=f"{file}: {error.strerror}") from error


def _row(account: "PlainAccount", result: str) -> tuple[str, str, int, str]:
    entries = sum(len(policy.entries) for policy in account.policies)
    return account.user.username, account.user.user_type.value, entries, result


async def _make(access: "AccessAdmin", account: "PlainAccount") -> str:
    """Return ``made``, or the first error. A user without policies may do nothing, so the user comes first; entries
    that deny come before those that allow."""
    from pocketmq.auth.policies import Decision
    from pocketmq.client.admin.access_admin import DONE

    name = account.user.username
    results = await access.create_user(name, account.user.password, user_type=account.user.user_type.value)
    entries = [(entry, policy.policy_type) for policy in account.policies for entry in policy.entries]
    for entry, policy_type in sorted(entries, key=lambda pair: pair[0].decision is not Decision.DENY):
        if any(result != DONE for result in results.values()):
            break
        results = await access.create_acl(
            name,
            entry.resource,
            entry.action_names,
            decision=entry.decision.value,
            sources=[str(source) for source in entry.sources],
            policy_type=policy_type.value,
        )
    return next((f"{address}: {result}" for address, result in results.items() if result != DONE), "made")
