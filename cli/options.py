"""Options that several commands share.

Lives here: their names, help texts and defaults, once; ``FORMER``: names of options that were different before.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from pocketmq.cli import complete

DEFAULT_NAMESRV = "127.0.0.1:9876"

Namesrv = Annotated[
    str,
    typer.Option("--namesrv", envvar="POCKETMQ_NAMESRV", metavar="HOST:PORT[;…]", help="Name servers."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation; scripts need it.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Timeout = Annotated[str, typer.Option("--timeout", metavar="TIME", help="Give up after this time: 500ms, 30s, 15m.")]
FormerTimeoutMs = Annotated[int | None, typer.Option("--timeout-ms", min=1, hidden=True)]
TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Name of the topic.", autocompletion=complete.topics)
]
GroupArgument = Annotated[
    str, typer.Argument(metavar="GROUP", help="Name of the consumer group.", autocompletion=complete.groups)
]
OnlyTopic = Annotated[str, typer.Option("--topic", "-t", help="Only this topic.", autocompletion=complete.topics)]
OnlyGroup = Annotated[
    str, typer.Option("--group", "-g", help="Only this consumer group.", autocompletion=complete.groups)
]
Broker = Annotated[str, typer.Option("--broker", "-b", metavar="NAME", help="Only on this broker.")]
Queues = Annotated[
    list[int] | None,
    typer.Option("--queue", metavar="ID", min=0, help="Only the queue with this id; repeatable."),
]
From = Annotated[
    str, typer.Option("--from", metavar="TIME", help="Stored at or after 2026-11-21T07:00:00Z, ms, or 15m (ago).")
]
Until = Annotated[str, typer.Option("--until", metavar="TIME", help="Stored before that time.")]

Config = Annotated[
    str | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="TOML file (pocketmq config template prints one) or RocketMQ's broker.conf.",
    ),
]
Profile = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help='A set of settings: "small" for an edge box or CI.'),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting, such as log.level=debug; repeatable."),
]
DataDir = Annotated[
    str | None,
    typer.Option("--data-dir", "-d", metavar="DIR", help="Store directory.  [default: ./pocketmq-data]"),
]
Host = Annotated[
    str | None, typer.Option("--host", help="Address to listen on and to announce to clients.  [default: 127.0.0.1]")
]
Advertise = Annotated[
    str | None,
    typer.Option(
        "--advertise",
        metavar="HOST:PORT",
        help="Where clients find the broker; ;NAME=HOST:PORT for those at a listener of the name server."
        "  [default: --host and the port]",
    ),
]
Open = Annotated[
    bool,
    typer.Option("--open", help="Listen beyond loopback although nobody has to authenticate: the network is trusted."),
]
NamesrvPort = Annotated[
    int | None, typer.Option("--namesrv-port", min=0, max=65535, help="0: any free port.  [default: 9876]")
]
BrokerPort = Annotated[
    int | None, typer.Option("--broker-port", min=0, max=65535, help="0: any free port.  [default: 10911]")
]
MetricsPort = Annotated[
    int | None,
    typer.Option("--metrics-port", min=0, max=65535, help="/metrics and /health; 0: none.  [default: 5557]"),
]
NamesrvMetricsPort = Annotated[
    int | None,
    typer.Option("--metrics-port", min=0, max=65535, help="/metrics and /health; 0: none.  [default: 0]"),
]
DashboardPort = Annotated[
    int | None,
    typer.Option("--dashboard-port", min=0, max=65535, help="Serve the dashboard there, on 127.0.0.1; 0: none."),
]
LogFormat = Annotated[str | None, typer.Option("--log-format", help="console or json.  [default: console]")]
LogLevel = Annotated[str | None, typer.Option("--log-level", help="debug, info, warning or error.  [default: info]")]


FORMER: Final[Mapping[str, Mapping[str, str]]] = {
    "message query": {"--begin": "--from", "--max": "--limit"},
    "lock release": {"-q": "--queue"},
    "transaction list": {"--max": "--limit"},
    "transaction end": {"--max": "--limit"},
    "log dump": {"--from-time": "--from", "--to-time": "--until"},
    "log export": {"--from-time": "--from", "--to-time": "--until"},
}
"""Command → former name of an option → its name. The former names work for one more version; no help shows them.

Where the value is written differently as well, the command has a hidden option of the former name.
"""


def accept_former_names(command: Any, path: str = "") -> None:
    """Let every command below ``command`` take the former names of its options."""
    names = FORMER.get(path, {})
    for parameter in command.params:
        former = [old for old, new in names.items() if new in parameter.opts]
        if former:
            _also(parameter, former)
    for name, child in getattr(command, "commands", {}).items():
        accept_former_names(child, f"{path} {name}".strip())


def _also(parameter: Any, former: list[str]) -> None:
    """Let an option be parsed under further names, which its help does not have."""
    add_to_parser = parameter.add_to_parser

    def add_all(parser: Any, context: Any) -> None:
        shown = parameter.opts
        parameter.opts = [*shown, *former]
        try:
            add_to_parser(parser, context)
        finally:
            parameter.opts = shown

    parameter.add_to_parser = add_all


def timeout_ms_of(timeout: str, former_ms: int | None) -> int:
    """Return the ms of ``--timeout``, or of ``--timeout-ms`` where that was given."""
    from pocketmq.cli.start_position import parse_duration

    return parse_duration("--timeout", timeout) if former_ms is None else former_ms
