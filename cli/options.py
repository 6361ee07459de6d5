"""Options that several commands share.

Lives here: their names, help texts and defaults, once.
"""

from typing import Annotated

import typer

DEFAULT_NAMESRV = "127.0.0.1:9876"

Namesrv = Annotated[
    str,
    typer.Option("--namesrv", envvar="POCKETMQ_NAMESRV", metavar="HOST:PORT[;…]", help="Name servers."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation; scripts need it.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
TimeoutMs = Annotated[int, typer.Option("--timeout-ms", min=1, help="Timeout of a request in ms.")]

Config = Annotated[
    str | None,
    typer.Option("--config", "-c", metavar="FILE", help="TOML file; pocketmq config template prints one."),
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
NamesrvPort = Annotated[
    int | None, typer.Option("--namesrv-port", min=0, max=65535, help="0: any free port.  [default: 9876]")
]
BrokerPort = Annotated[
    int | None, typer.Option("--broker-port", min=0, max=65535, help="0: any free port.  [default: 10911]")
]
LogFormat = Annotated[str | None, typer.Option("--log-format", help="console or json.  [default: console]")]
LogLevel = Annotated[str | None, typer.Option("--log-level", help="debug, info, warning or error.  [default: info]")]
