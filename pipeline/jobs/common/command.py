"""A job as a command, for ``pocketmq pipeline NAME`` and for the script.

Lives here: ``Job``, the options that jobs share, ``JobFailed``. Imports nothing of Spark, so that ``--help`` is fast.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from pocketmq.common.errors import Cause, ConfigError, PocketMQError

INTERRUPTED: Final = 130
DIFFERENT: Final = 1
"""Exit code of a job that succeeded and found differences, as of ``diff``."""

Namesrv = Annotated[
    str,
    typer.Option("--namesrv", envvar="POCKETMQ_NAMESRV", metavar="HOST:PORT[;…]", help="Name servers to ask."),
]
DEFAULT_NAMESRV: Final = "127.0.0.1:9876"
Master = Annotated[
    str,
    typer.Option(
        "--master",
        envvar="SPARK_MASTER",
        metavar="URL",
        help="Spark master, as spark://HOST:7077.  [default: local[*], or that of spark-submit]",
        rich_help_panel="Spark",
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; repeatable.", rich_help_panel="Spark"),
]
PyFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--py-files",
        metavar="FILE",
        help="Wheel or zip for a cluster's workers, that of PocketMQ if they lack it; repeatable.",
        rich_help_panel="Spark",
    ),
]
BrokerWaitMs = Annotated[
    int, typer.Option("--broker-wait-ms", min=0, help="How long to wait for brokers that do not answer.")
]
DEFAULT_BROKER_WAIT_MS: Final = 30_000
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class JobFailed(PocketMQError):
    """A job failed for a reason outside of PocketMQ."""

    default_cause = Cause.BAD_REQUEST


@dataclass(slots=True, frozen=True)
class Job:
    """One job. ``run``: the function whose parameters are the options (typer reads them) and whose docstring is the
    help. ``examples``: command lines without ``pocketmq pipeline NAME`` in front."""

    name: str
    run: Callable[..., None]
    examples: tuple[str, ...] = ()

    def register(self, app: typer.Typer, program: str = "pocketmq pipeline") -> None:
        """Add the job to a group of commands."""
        lines = [f"  {program} {self.name} {example}".replace("[", r"\[") for example in self.examples]
        epilog = "\n\n".join(["Examples:", *lines]) if lines else None
        app.command(self.name, epilog=epilog)(self.run)

    def script(self) -> None:
        """Run the job as a script, with the arguments of the process; does not return."""
        app = typer.Typer(
            add_completion=False,
            pretty_exceptions_enable=False,
            context_settings={"help_option_names": ["-h", "--help"]},
        )
        self.register(app)
        try:
            app()
        except PocketMQError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(2 if isinstance(error, ConfigError) or error.cause is Cause.CONFIG else 1)
        except OSError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(1)
