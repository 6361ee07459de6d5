"""What the commands about users and policies share: the answers of several servers, and passwords.

Lives here: ``run_access``, ``print_results``, ``print_password``, ``read_password``.
"""

import secrets
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from pocketmq.cli.exit_codes import CommandFailed
from pocketmq.cli.output import print_json, print_table
from pocketmq.cli.run import run_admin
from pocketmq.common.errors import ConfigError

if TYPE_CHECKING:
    from pocketmq.client.admin.access_admin import AccessAdmin
    from pocketmq.client.admin.admin import Admin

PASSWORD_BYTES: Final = 18
"""Random bytes of a generated password, 24 characters."""
FILE_BYTES_MAX: Final = 4_096


def run_access(namesrv: str, body: Callable[["AccessAdmin"], Coroutine[Any, Any, None]]) -> None:
    """Run ``body`` with the administration of access control of a cluster."""

    async def connected(admin: "Admin") -> None:
        from pocketmq.client.admin.access_admin import AccessAdmin

        await body(AccessAdmin(admin))

    run_admin(namesrv, connected)


def print_results(results: Mapping[str, str], what: str, as_json: bool) -> None:
    """Print what each server answered to a change. Raise ``CommandFailed`` if one has not made it."""
    from pocketmq.client.admin.access_admin import DONE

    failed = {address: text for address, text in results.items() if text != DONE}
    if as_json:
        print_json({"what": what, "servers": dict(results)})
    else:
        print_table(("server", "result"), list(results.items()), title=what)
    if failed:
        names = ", ".join(failed)
        hint = "the same command can be given again" if DONE in results.values() else ""
        raise CommandFailed(f"{what}: not on {names}", why=next(iter(failed.values())), hint=hint)


def print_password(name: str, password: str, results: Mapping[str, str], as_json: bool) -> None:
    """Print a password that was made here, unless no server has taken it: it would be nobody's."""
    from pocketmq.client.admin.access_admin import DONE

    if DONE in results.values():
        print_json({"user": name, "password": password}) if as_json else print(f"password of {name}: {password}")


def read_password(file: str, generate: bool) -> str:
    """Return a password: from a file, from standard input (``-``), a new one, or asked for. Never from an option,
    which every user of the machine could read."""
    if file and generate:
        raise ConfigError("--password-file and --generate", hint="give one of them")
    if generate:
        return secrets.token_urlsafe(PASSWORD_BYTES)
    if file == "-":
        return sys.stdin.readline().rstrip("\r\n")
    if file:
        try:
            with Path(file).open("rb") as opened:
                content = opened.read(FILE_BYTES_MAX)
            return content.decode().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise ConfigError("the password cannot be read", why=f"{file}: {why}") from error
    if not sys.stdin.isatty():
        raise ConfigError("no password", hint="--password-file FILE, --password-file - for standard input, --generate")
    return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
