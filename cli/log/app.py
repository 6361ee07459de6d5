"""The group of subcommands ``pocketmq log``.

Lives here: the list of them.
"""

import typer

from pocketmq.cli.log import backup, dump, export, repair, verify
from pocketmq.cli.run import build_group


def build_app() -> typer.Typer:
    """Return the group of subcommands."""
    help_text = "Check, read, copy and repair a store directory, ours or RocketMQ's, without a broker."
    return build_group(
        help_text,
        verify=verify.verify,
        dump=dump.dump,
        export=export.export,
        repair=repair.repair,
        backup=backup.backup,
    )
