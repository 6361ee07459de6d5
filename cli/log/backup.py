"""``pocketmq log backup``: a consistent copy of a live or stopped store.

Lives here: options, the running broker behind an address, and the result as text.
"""

import asyncio
import os.path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pocketmq.cli import options
from pocketmq.cli.exit_codes import CommandFailed, ExitCode
from pocketmq.cli.log.opening import RECHECK_S, BytesBar, locked_by_broker, open_store
from pocketmq.cli.log.verify import print_report
from pocketmq.cli.output import print_json, print_note, time_text
from pocketmq.common.errors import ConfigError

if TYPE_CHECKING:
    from pocketmq.store.offline.backup import BackupResult
    from pocketmq.store.offline.report import VerifyReport

SHARES: Final = ("none", "reflink", "link")
_RUNTIME_KEPT_S: Final = 0.1
"""Longer than a broker repeats an answer with its runtime information (50 ms, ``broker.admin.broker_admin``)."""


def backup(
    source: Annotated[
        str,
        typer.Argument(metavar="DIR_OR_BROKER", help="The store, or HOST:PORT of a broker that has it open here."),
    ],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A directory that is empty, does not exist, or holds a backup.")
    ],
    verify: Annotated[bool, typer.Option("--verify", help="Check the copy afterwards, as log verify does.")] = False,
    share: Annotated[
        str,
        typer.Option(
            "--share",
            help="Closed files of the log on the same file system: none (copy), reflink (share blocks) or link (hard "
            "links).",
        ),
    ] = "none",
    as_json: options.Json = False,
) -> None:
    """Copy a store so that a broker can start from the copy. A broker may have it open and be under load.

    Everything that was acknowledged before the command began is in the copy. A second run into the same TARGET copies
    what is new.
    """
    from pocketmq.cli.log import sharing
    from pocketmq.store.disk.os_file_system import OsFileSystem
    from pocketmq.store.offline.backup import Backup

    if share not in SHARES:
        raise ConfigError("bad --share", why=repr(share), hint="one of " + ", ".join(SHARES))
    destination = os.path.realpath(os.path.expanduser(target))
    if os.path.exists(destination) and not os.path.isdir(destination):
        raise ConfigError("bad TARGET", why=f"{destination} is no directory", hint="name one that does not exist")
    directory, wanted_end = _source(source)
    directory = os.path.realpath(directory)  # else a link hides that one lies within the other
    _check_links(directory, destination)
    bar: BytesBar | None = None

    def show(count: int, total: int) -> None:
        nonlocal bar
        bar = bar or BytesBar("backup", total)
        bar.advance(count)

    work = Backup(
        directory,
        destination,
        OsFileSystem(),
        OsFileSystem(),
        wanted_end=wanted_end,
        share={"none": None, "reflink": sharing.reflink, "link": sharing.hard_link}[share],
        pause=_pause,
        progress=show,
    )
    try:
        result = work.run()
        report = _verify(result) if verify else None
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    finally:
        if bar is not None:
            bar.close()
    if as_json:
        print_json({"backup": result, "verify": report})
    else:
        _print_result(result, share)
        if report is not None:
            print_report(report)
    if report is not None and not report.ok:
        raise typer.Exit(ExitCode.FAILED)


def _check_links(directory: str, destination: str) -> None:
    """Refuse a target in a part of the store that lies elsewhere, as a commitlog/ on another disk does."""
    if not os.path.isdir(directory):
        return
    with os.scandir(directory) as entries:
        links = [entry.path for entry in entries if entry.is_symlink()]
    for link in links:
        if f"{destination}/".startswith(f"{os.path.realpath(link)}/"):
            raise CommandFailed(
                "no backup made",
                why=f"{destination} lies within {link}",
                hint="name a target outside of the store, best on another disk",
            )


def _pause() -> None:
    import time

    time.sleep(RECHECK_S)


def _source(text: str) -> tuple[str, int]:
    """Return the directory, and the end of the log that a broker has acknowledged; 0 if only a directory is given."""
    path = os.path.abspath(os.path.expanduser(text))
    host, colon, port = text.rpartition(":")
    if os.path.exists(path) or not (host and colon and port.isdecimal()):
        return path, 0
    settings, end = _ask(text)
    directory = os.path.abspath(os.path.expanduser(settings.get("storePathRootDir", "")))
    if not settings.get("storePathRootDir") or locked_by_broker(f"{directory}/lock") is False:
        raise CommandFailed(
            "no backup made",
            why=f"the store of {text} is {settings.get('storePathRootDir') or 'not named in its settings'}, and no "
            "broker has such a directory open on this machine",
            hint="run the command on the broker's machine, or in its container",
        )
    return directory, end


def _ask(address: str) -> tuple[dict[str, str], int]:
    """Return a broker's settings by RocketMQ's names, and the end of its log."""
    from pocketmq.cli.run import run_admin
    from pocketmq.client.admin.admin import Admin
    from pocketmq.client.errors import BrokerAnswerError
    from pocketmq.remoting.codes import ResponseCode

    found: list[tuple[dict[str, str], int]] = []

    async def ask(admin: Admin) -> None:
        try:
            settings = await admin.broker_settings(address)
        except BrokerAnswerError as error:
            if error.answer_code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            raise CommandFailed(
                "no backup made", why=f"{address} is no broker", hint="a broker listens on 10911 by default"
            ) from error
        await asyncio.sleep(_RUNTIME_KEPT_S)  # the next answer is younger than this command
        runtime = await admin.broker_runtime(address)
        end = runtime.get("commitLogMaxOffset", "0")
        found.append((settings, int(end) if end.isdecimal() else 0))

    run_admin(address, ask)  # no name server is asked: the address of the broker is enough
    return found[0]


def _verify(result: "BackupResult") -> "VerifyReport | None":
    from pocketmq.store.offline.verify import verify

    if result.end_offset == result.begin_offset == 0:
        print_note("the store has no messages: there is no log to verify")
        return None
    reader = open_store(result.target, warns=False)
    bar = BytesBar("verify", reader.layout.log_bytes)
    try:
        return verify(reader, progress=bar.advance)
    finally:
        bar.close()
        reader.close()


def _print_result(result: "BackupResult", share: str) -> None:
    kind = "new bytes copied into the backup" if result.is_incremental else "copied"
    print(f"{result.source} {kind} {result.target}" if result.is_incremental else f"{result.source} to {result.target}")
    shared = f", {result.shared_bytes:,} shared ({share})" if result.shared_bytes else ""
    print(
        f"log       offsets {result.begin_offset:,} to {result.end_offset:,}; {result.copied_bytes:,} bytes copied"
        f"{shared}"
    )
    print(f"queues    {result.queue_entries:,} entries; {result.small_files:,} small files")
    state = "a broker had the store open, or died: a start recovers the copy" if result.is_live else "closed cleanly"
    print(f"state     {state}; everything acknowledged before {time_text(result.begun_ms)} is in it")
    if result.expired_to:
        print(
            f"note      retention removed the log below offset {result.expired_to:,} meanwhile: it is not in the copy"
        )
    if result.left_out:
        print("note      not copied: " + ", ".join(result.left_out))
    if share != "none" and not result.shared_bytes:
        print(f"note      nothing could be shared by {share}: the log was copied")
