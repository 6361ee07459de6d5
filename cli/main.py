"""The command ``pocketmq``: turns errors into exit codes, and starts a server without the other commands.

Lives here: ``main``, the entry point. What it imports at the top is imported by each start of a broker.
"""

import os
import re
import sys
from collections.abc import Callable
from typing import Any

from pocketmq.cli.daemon.plain_arguments import plain_start
from pocketmq.cli.exit_codes import CommandFailed, ExitCode, exit_code_of
from pocketmq.cli.output import open_standard_files, print_error
from pocketmq.common.errors import ConfigError, PocketMQError


def main() -> None:
    """Run the command with the process's arguments and exit with a code that ``exit_codes`` lists."""
    open_standard_files()
    start = plain_start(sys.argv[1:], os.environ)
    if start is not None:
        _with_exit_code(start.run, lambda: False)
        return
    if not sys.argv[1:] and not os.environ.get("_POCKETMQ_COMPLETE"):
        from pocketmq.cli.first_steps import FIRST_STEPS

        print(FIRST_STEPS)
        sys.exit(ExitCode.USAGE)
    from pocketmq.cli.app import RootOptions, build_command

    root = RootOptions()
    _with_exit_code(lambda: _run(build_command(root, sys.argv[1:])), lambda: root.debug)


def _run(command: Any) -> None:
    """Run a command of typer, which words mistakes of usage; print them as all other errors, in one line."""
    try:
        code = command(prog_name="pocketmq", standalone_mode=False)
    except Exception as error:
        if type(error).__name__ == "Abort":  # the answer to a question was no; typer has the class of click or its own
            print("Aborted.", file=sys.stderr)
            sys.exit(ExitCode.FAILED)
        if not hasattr(error, "format_message"):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help
            error.show()  # type: ignore[attr-defined]
            sys.exit(ExitCode.USAGE)
        context = getattr(error, "ctx", None)
        hint = f"{context.command_path} --help" if context is not None else "pocketmq --help"
        option = getattr(error, "option_name", "")
        if context is not None and option in {each for parameter in command.params for each in parameter.opts}:
            hint = f"it stands before the command: pocketmq {option} … {context.command_path.removeprefix('pocketmq ')}"
        print_error(ConfigError(_usage_text(error), hint=hint))
        sys.exit(ExitCode.USAGE)
    sys.exit(code if isinstance(code, int) else ExitCode.OK)


def _usage_text(error: Any) -> str:
    """Return typer's text of a mistake of usage; a command of another tool gets the name of ours."""
    text: str = error.format_message().rstrip(".")
    unknown = re.match("No such command '([^']+)'", text)
    if not unknown:
        return text
    from pocketmq.cli.other_words import ours_for

    group = error.ctx.command_path.split()[1:] if error.ctx is not None else []
    meant = ours_for((*group, unknown[1]))
    return f"{unknown[0]}. {meant}" if meant else text


def _with_exit_code(run: Callable[[], object], debug: Callable[[], bool]) -> None:
    """Run a command; an error ends the process, with a traceback if ``debug`` says so."""
    try:
        run()
    except PocketMQError as error:
        if debug():
            raise
        print_error(error)
        sys.exit(exit_code_of(error))
    except OSError as error:  # the output cannot be written: a full disk, a closed terminal
        if debug():
            raise
        print_error(CommandFailed("the command failed", why=error.strerror or str(error)))
        sys.exit(ExitCode.FAILED)


if __name__ == "__main__":
    main()
