"""``pocketmq config show | template | convert``: every setting, its value, where it comes from, and its meaning.

Lives here: options and output.
"""

import difflib
import os
import sys
import textwrap
from typing import Annotated, Any

import typer

from pocketmq.cli import options
from pocketmq.cli.config.running import live, set_live
from pocketmq.cli.exit_codes import CommandFailed
from pocketmq.cli.output import print_json, printable
from pocketmq.cli.run import build_group
from pocketmq.common.settings import HIDDEN


def build_app() -> typer.Typer:
    """Return the group of subcommands."""
    help_text = "Settings: their values, origins and meanings; those of running brokers."
    return build_group(help_text, show=show, template=template, convert=convert, live=live, set=set_live)


def show(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="A section (store), a setting (store.flush_disk_type), or part of a name."),
    ] = None,
    config: options.Config = None,
    profile: options.Profile = None,
    settings: options.Set = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only settings that differ from their defaults.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of TOML.")] = False,
) -> None:
    """Show settings as a daemon with the same file, environment and --set would have them; starts nothing.

    Prints TOML: the value, and as comments its meaning and its origin if it is not the default.
    """
    from pocketmq.cli.config.template import docs_of_daemons
    from pocketmq.cli.daemon.access import DEFAULT_ORIGIN
    from pocketmq.cli.daemon.daemon import SECTIONS, load_settings

    in_force = load_settings({}, config, settings or [], os.environ, profile)
    for note in in_force.notes:
        print(f"warning: {printable(note)}", file=sys.stderr)
    rows = []
    for doc in docs_of_daemons():
        value = getattr(in_force.get(SECTIONS[doc.section]), doc.key)
        origin = in_force.origin(doc.section, doc.key)
        if _is_named(doc.name, names) and not (changed and value == doc.default):
            rows.append((doc, value, "default" if origin == DEFAULT_ORIGIN else origin))
    if not rows and not changed:
        raise _unknown(names or [], [doc.name for doc in docs_of_daemons()])
    if as_json:
        print_json([_as_object(doc, value, origin) for doc, value, origin in rows])
        return
    _print_toml(rows)


def template(
    command: Annotated[str, typer.Argument(metavar="COMMAND", help="standalone, broker or namesrv.")] = "standalone",
) -> None:
    """Print a settings file with every setting as a comment: pocketmq config template > standalone.toml."""
    from pocketmq.cli.config.template import COMMANDS
    from pocketmq.cli.config.template import template as text_of

    if command not in COMMANDS:
        raise CommandFailed(f"no command {command!r} has settings", hint=f"choose one of {', '.join(COMMANDS)}")
    sys.stdout.write(text_of(command))


def convert(
    file: Annotated[str, typer.Argument(metavar="FILE", help="RocketMQ's broker.conf or namesrv.conf.")],
    command: Annotated[
        str | None,
        typer.Option("--as", metavar="COMMAND", help="broker or namesrv.  [default: as the file's name says]"),
    ] = None,
) -> None:
    """Print RocketMQ's broker.conf as a settings file: pocketmq config convert broker.conf > broker.toml.

    A daemon reads broker.conf itself (-c broker.conf). Keys without effect become comments that say why.
    """
    from pocketmq.cli.config.template import converted
    from pocketmq.cli.daemon.daemon import SECTIONS, read_settings_file
    from pocketmq.cli.daemon.rocketmq_conf import SECTIONS_OF, kind_of, translate
    from pocketmq.common.java_properties import looks_like_properties
    from pocketmq.common.settings import SettingsReader

    if command is not None and command not in SECTIONS_OF:
        raise CommandFailed(f"no file is one of {command!r}", hint=f"choose one of {', '.join(SECTIONS_OF)}")
    text = read_settings_file(file)
    if not looks_like_properties(text):
        raise CommandFailed(f"{printable(file)} has none of RocketMQ's settings", hint="they look like brokerName=a")
    translation = translate(text, file, command or kind_of(file))
    in_force = SettingsReader(SECTIONS).merge(translation.layer)
    sys.stdout.write(printable(converted(in_force, translation.layer, translation.notes), keep="\n"))


def _is_named(name: str, wanted: list[str] | None) -> bool:
    section = name.partition(".")[0]
    return not wanted or any(
        each == section or (each in name and (each not in _SECTION_NAMES or each == name)) for each in wanted
    )


_SECTION_NAMES = frozenset(
    {"broker", "store", "remoting", "namesrv", "auth", "limits", "log", "metrics", "dashboard", "fault"}
)


def _unknown(names: list[str], known: list[str]) -> CommandFailed:
    wanted = " ".join(names)
    keys = {name.partition(".")[2]: name for name in known}
    near = difflib.get_close_matches(wanted.rpartition(".")[2], keys, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(keys[key] for key in near)}?" if near else "pocketmq config show lists them all"
    return CommandFailed(f"no setting has {wanted!r} in its name", hint=hint)


def _as_object(doc: Any, value: object, origin: str) -> dict[str, object]:
    return {
        "name": doc.name,
        "value": HIDDEN if doc.is_secret and value else value,
        "default": doc.default,
        "origin": origin,
        "takes": doc.takes,
        "meaning": doc.text,
    }


def _print_toml(rows: list[Any]) -> None:
    section = ""
    for doc, value, origin in rows:
        if doc.section != section:
            print(f"{chr(10) if section else ''}[{doc.section}]")
            section = doc.section
        print("\n".join(textwrap.wrap(doc.text, 100, initial_indent="# ", subsequent_indent="# ")))
        from_where = "" if origin == "default" else f"  # {printable(origin)}; default: {doc.toml(doc.default)}"
        print(f"{doc.key} = {doc.toml(value)}{from_where}")
