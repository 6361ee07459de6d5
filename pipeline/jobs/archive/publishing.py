"""Batches of rows that become visible exactly once, whatever is killed when.

Lives here: ``Publisher``: write aside, note down, move into place; the recovery of what was cut short.

A batch is written below ``staging``. Its note, the list of its files, is the commit: before it exists the batch is
written again when Spark repeats it, afterwards only the moves that are missing are made. A file moves by one rename,
so that a reader sees each of its rows once or not yet, and a batch file by file.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.pipeline.jobs.archive.files import Files
from pocketmq.pipeline.jobs.common.command import JobFailed

OWN: Final = "_pocketmq"
"""Everything of ours lies below it; readers of Parquet datasets pass over names with an underscore in front."""
STAGING: Final = f"{OWN}/staging"
NOTES: Final = f"{OWN}/batches"
NOTES_KEPT: Final = 16
"""Spark repeats the last batch only; more are kept for people who look."""


class Note(msgspec.Struct, frozen=True):
    """What one batch consists of: its id, its rows, its files relative to the batch's staging directory."""

    batch: int
    rows: int
    files: list[str]


class Publisher:
    """Publishes the batches of one query; only one at a time works on a dataset (``Files.locked``)."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def publish(self, batch: int, write: Callable[[str], int]) -> Note:
        """Make a batch visible and return its note; ``write(directory)`` writes its files and returns the rows.

        ``directory`` is how Spark names it. ``write`` is not called for a batch that was noted down before.
        """
        files = self._files
        staged = f"{STAGING}/batch-{batch:010d}"
        note = self._note(batch)
        if note is None:
            files.remove(staged)
            rows = write(f"{files.root}/{staged}")
            names = [path.removeprefix(f"{staged}/") for path in files.sizes(staged)]
            files.sync(staged)
            note = Note(batch, rows, names)
            files.write(_name(batch), msgspec.json.encode(note))
        self._finish(note)
        for name in files.names(NOTES)[:-NOTES_KEPT]:
            files.remove(f"{NOTES}/{name}")
        return note

    def recover(self) -> None:
        """Finish what was noted down, and remove what was not: Spark will repeat it."""
        files = self._files
        for name in files.names(STAGING):
            kind, _, number = name.partition("-")
            if kind != "batch" or not number.isdecimal():
                continue
            note = self._note(int(number))
            if note is not None:
                self._finish(note)
            else:
                files.remove(f"{STAGING}/{name}")

    def _note(self, batch: int) -> Note | None:
        data = self._files.read(_name(batch))
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=Note)
        except DECODE_ERRORS as error:
            raise JobFailed(
                "the archive is damaged", why=f"{_name(batch)}: {error}", hint="restore this file; it is one of ours"
            ) from error

    def _finish(self, note: Note) -> None:
        files = self._files
        staged = f"{STAGING}/batch-{note.batch:010d}"
        if not files.exists(staged):
            return
        for name in note.files:
            if files.exists(f"{staged}/{name}"):
                files.rename(f"{staged}/{name}", name)
        files.remove(staged)


def _name(batch: int) -> str:
    return f"{NOTES}/{batch:010d}.json"
