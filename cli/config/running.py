"""``pocketmq config live | set``: the settings that running brokers have, and changes that take effect at once.

Lives here: options and output.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from pocketmq.cli import options
from pocketmq.cli.exit_codes import CommandFailed
from pocketmq.cli.output import print_note, print_rows
from pocketmq.cli.run import confirm, run_admin

if TYPE_CHECKING:
    from pocketmq.client.admin.admin import Admin

COLUMNS = ("broker", "setting", "value")
DANGEROUS = {
    "file_reserved_time": "messages older than that are deleted, read or not",
    "clean_file_forcibly_enable": "on a full disk the oldest messages are deleted, read or not",
    "disk_space_clean_forcibly_ratio": "on a disk fuller than that the oldest messages may be deleted",
    "broker_permission": "clients without the permission are refused",
}
"""What a change can do that nobody can take back, or that stops clients."""


def live(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Part of a name; all settings if none is given.")
    ] = None,
    broker: options.Broker = "",
    as_json: options.Json = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Show the settings that running brokers have now, by RocketMQ's names: PocketMQ's and RocketMQ's brokers."""

    async def body(admin: "Admin") -> None:
        rows = []
        for name, address in (await admin.masters(broker=broker)).items():
            settings = await admin.broker_settings(address)
            wanted = [_folded(each) for each in names or [""]]
            rows += [
                (name, setting, value)
                for setting, value in sorted(settings.items())
                if any(each in _folded(setting) for each in wanted)
            ]
        if not rows:
            raise CommandFailed("no setting has that in its name", hint="pocketmq config live shows all")
        print_rows(COLUMNS, rows, as_json)

    run_admin(namesrv, body)


def set_live(
    settings: Annotated[list[str], typer.Argument(metavar="NAME=VALUE", help="As in file_reserved_time=48.")],
    broker: options.Broker = "",
    yes: options.Yes = False,
    namesrv: options.Namesrv = options.DEFAULT_NAMESRV,
) -> None:
    """Change settings of running brokers, of all masters or of one: at once, and over restarts.

    Names are ours or RocketMQ's. A setting that is read at the start only is refused, and then nothing has changed on
    that broker. Who changed what is in the broker's log (setting_changed). A restart forgets a change when the setting
    is configured otherwise by then.
    """
    pairs = [each.partition("=") for each in settings]
    wrong = [name for name, equals, _ in pairs if not equals or not name.strip()]
    if wrong:
        raise CommandFailed(f"{wrong[0][:100]!r} has no value", hint="write NAME=VALUE")
    values = {name.strip(): value.strip() for name, _, value in pairs}

    async def body(admin: "Admin") -> None:
        masters = await admin.masters(broker=broker)
        dangers = [text for key, text in DANGEROUS.items() if any(_folded(key) in _folded(name) for name in values)]
        if dangers:
            where = ", ".join(masters)
            confirm(
                f"Change {', '.join(settings)} on {where}? ({'; '.join(dangers)})", yes, else_what="nothing changed"
            )
        for name, address in masters.items():
            await admin.change_broker_settings(address, values)
            print_note(f"{name}: {', '.join(f'{key}={value}' for key, value in values.items())}")

    run_admin(namesrv, body)


def _folded(name: str) -> str:
    """Return a setting's name as it is the same in both spellings."""
    return name.replace("_", "").lower()
