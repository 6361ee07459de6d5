"""Texts made from the settings: a settings file with every setting, and the tables of docs/settings.md.

Lives here: ``template``, whose texts are the files in ``conf/``; ``settings_table``; ``make docs-tables`` writes both.
``converted`` writes a RocketMQ file as one of ours.
"""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pocketmq.cli.config.setting_docs import SettingDoc, setting_docs
from pocketmq.cli.daemon.daemon import DAEMON_DEFAULTS, SECTIONS
from pocketmq.common.settings import Layer, Settings

_BROKER_SECTIONS: Final = ("broker", "store", "remoting", "tls", "auth", "limits", "log", "metrics")
COMMANDS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "standalone": ("Name server and broker in one process", ("namesrv", *_BROKER_SECTIONS, "dashboard")),
    "broker": ("A broker", _BROKER_SECTIONS),
    "namesrv": ("A name server", ("namesrv", "remoting", "tls", "auth", "limits", "log")),
}
"""Command → its title, the sections that it reads, but for ``fault``, which is for tests."""
LINE_CHARS: Final = 120


def docs_of_daemons() -> list[SettingDoc]:
    """Return every setting with the default that the daemons have."""
    return [
        doc if doc.name not in DAEMON_DEFAULTS else doc.with_default(DAEMON_DEFAULTS[doc.name])
        for doc in setting_docs(SECTIONS)
    ]


def template(command: str) -> str:
    """Return a settings file of a daemon in which every setting stands, with its meaning, as a comment."""
    title, sections = COMMANDS[command]
    head = f"""\
# {title}:  pocketmq {command} --config {command}.toml
#
# Every setting is here with its default, as a comment: remove the # of those that you change. Where a value is given
# more than once, the later of these wins: default, this file, environment (POCKETMQ_LOG__LEVEL=debug), options,
# --set log.level=debug. An unknown key stops the start. `pocketmq config show` prints the
# values in force and their origins. Names are RocketMQ's, in snake_case; times are ms and sizes bytes unless a line
# says otherwise.
"""
    return head + "".join(f"{line}\n" for section in sections for line in _section(section))


def converted(settings: Settings, layer: Layer, notes: Sequence[str]) -> str:
    """Return what a RocketMQ file gives as a settings file: each value with its line there, each key without effect as
    a comment."""
    lines = [f"# {note}" for note in notes]
    for section in SECTIONS:
        docs = [doc for doc in docs_of_daemons() if doc.section == section and (section, doc.key) in layer]
        lines += ["", f"[{section}]"] if docs else []
        for doc in docs:
            value = getattr(settings.get(SECTIONS[section]), doc.key)
            lines.append(f"{doc.key} = {doc.toml(value)}  # {layer[section, doc.key].origin}")
    return "\n".join(lines).lstrip("\n") + "\n"


def _section(section: str) -> Iterator[str]:
    yield ""
    yield f"[{section}]"
    group = ""
    for doc in docs_of_daemons():
        if doc.section != section:
            continue
        if doc.group != group:
            group = doc.group
            yield f"\n## {group}"
        text = doc.text + (f" Values: {doc.takes}." if " or " in doc.takes and doc.takes != "true or false" else "")
        yield ""
        yield from textwrap.wrap(text, LINE_CHARS, initial_indent="# ", subsequent_indent="# ")
        yield f"#{doc.line}"


def settings_table(section: str) -> str:
    """Return the settings of one section as a table of Markdown."""
    from pocketmq.broker.settings.live_settings import is_live

    rows = ["| setting | default | meaning |", "|---|---|---|"]
    rows += [
        f"| `{doc.key}` | `{doc.toml(doc.default)}` | {doc.text.replace('|', chr(92) + '|')}"
        f"{' *Live.*' if is_live(doc.name) else ''} |"
        for doc in docs_of_daemons()
        if doc.section == section
    ]
    return "\n".join(rows) + "\n"
