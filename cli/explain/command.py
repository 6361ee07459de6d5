"""``pocketmq explain``: options, input, exit code.

Lives here: the command.
"""

import shutil
import sys
from typing import Annotated

import typer

from pocketmq.cli import options
from pocketmq.cli.exit_codes import ExitCode
from pocketmq.cli.explain.reading import READ_BYTES_MAX, lines_of, read_paste
from pocketmq.cli.output import print_json, print_progress, quiet_broken_pipe
from pocketmq.common.errors import ConfigError

WIDTH_MAX = 120


def explain(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT|CODE", help="A text, or a response code as number or name; else standard input."),
    ] = None,
    logs: Annotated[
        list[str] | None,
        typer.Option(
            "--log",
            metavar="FILE|PATTERN|DIR|-",
            help="Whole logs of RocketMQ or PocketMQ, also rotated and gzip ones; -: standard input; repeatable.",
        ),
    ] = None,
    quiet_minutes: Annotated[
        int,
        typer.Option(
            "--quiet-minutes", min=0, max=1440, help="With --log: minutes without trouble that do not end an incident."
        ),
    ] = 1,
    zone: Annotated[
        str,
        typer.Option("--zone", metavar="ZONE", help="With --log: time zone of RocketMQ's logs, as its logback has it."),
    ] = "+08:00",
    client_zone: Annotated[
        str,
        typer.Option(
            "--client-zone",
            metavar="ZONE",
            help="With --log: time zone of logs of RocketMQ 4 clients and of applications.",
        ),
    ] = "local",
    as_json: options.Json = False,
) -> None:
    """Explain an error text, a log line, a stack trace or a response code of RocketMQ or PocketMQ.

    What it means, who wrote it, whether the message was stored, who sends it again in which version, what cures it and
    what does not. With --log: which incidents whole logs show, the chain of causes, and the cures. Needs no broker and
    no Spark. Exit code 0: a text in it is known; 1: none is.
    """
    if logs:
        if words:
            raise ConfigError("a text and --log", hint="give a text or a code, or whole logs with --log")
        from pocketmq.cli.explain.log_file import explain_log
        from pocketmq.pipeline.jobs.flow_control.rocketmq.lines import Zones

        explain_log(logs, Zones.checked(zone, client_zone), quiet_minutes=quiet_minutes, as_json=as_json)
        return
    from pocketmq.cli.explain import report
    from pocketmq.cli.explain.numbers import explain_alone
    from pocketmq.common.known_texts.codes import nearest_codes
    from pocketmq.common.known_texts.explanation import explain as explain_lines
    from pocketmq.common.known_texts.search import nearest

    lines = lines_of(" ".join(words)) if words else _lines_of_input()
    said = [line for line in lines if not line.isspace() and line]
    if not said:
        raise ConfigError("nothing to explain", hint="give a text or a code, or pipe one: pocketmq explain < FILE")
    found = explain_lines(said)
    if len(said) == 1 and len(said[0]) < WIDTH_MAX and not any(each.rows for each in found):
        found = list(explain_alone(said[0])) or found
    codes = nearest_codes(said[0]) if not found and len(said) == 1 else []
    near = [] if found or codes else nearest(said)
    with quiet_broken_pipe():
        if as_json:
            print_json(report.json_of(found, near, codes))
        else:
            width = min(shutil.get_terminal_size().columns, WIDTH_MAX) if sys.stdout.isatty() else None
            for line in report.text_lines(found, width) if found else report.unknown_lines(near, codes):
                print(line)
    if not found:
        raise typer.Exit(ExitCode.FAILED)


def _lines_of_input() -> list[str]:
    if sys.stdin.isatty():
        raise ConfigError("nothing to explain", hint="give a text or a code, or pipe one: pocketmq explain < FILE")
    data, more = read_paste(sys.stdin.buffer)
    if more:
        print_progress(f"only the first {READ_BYTES_MAX >> 20} MiB was read")
    return lines_of(data)
