"""Batches of rows that become visible exactly once, also when the job is killed.

Lives here: ``Publisher``, which stages a batch, writes its note and moves its files into place; recovery after a kill;
``read_own`` for PocketMQ's own files.

A batch is written below ``staging``. Its note, the list of its files, is the commit: without the note, a batch that
Spark repeats is written again; with it, only the missing moves are made. A file moves by one rename: a reader sees all
of its rows or none, and a batch file by file.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.pipeline.jobs.archive.files import Files
from pocketmq.pipeline.jobs.common.command import JobFailed

OWN: Final = "_pocketmq"
"""The directory of PocketMQ's own files; readers of Parquet datasets ignore names that begin with an underscore."""
STAGING: Final = f"{OWN}/staging"
NOTES: Final = f"{OWN}/batches"
NOTES_KEPT: Final = 16
"""Spark repeats only the last batch; the others are kept for diagnosis."""

OwnT = TypeVar("OwnT")


class Note(msgspec.Struct, frozen=True):
    """The content of one batch: its id, its rows, its files relative to the batch's staging directory."""

    batch: int
    rows: int
    files: list[str]


def read_own(files: Files, path: str, kind: type[OwnT]) -> OwnT | None:
    """Return one of PocketMQ's own files, None without it. Raises ``JobFailed`` if it is damaged."""
    data = files.read(path)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=kind)
    except DECODE_ERRORS as error:
        raise JobFailed(
            "the archive is damaged", why=f"{path}: {error}", hint="restore this file, which PocketMQ wrote"
        ) from error


@dataclass(slots=True)
class Publisher:
    """Publishes the batches of one query; one publisher at a time works on a dataset (``Files.locked``)."""

    _files: Files

    def publish(self, batch: int, write: Callable[[str], int]) -> Note:
        """Make a batch visible and return its note; ``write(directory)`` writes its files and returns the rows.

        ``directory`` is Spark's name of it. ``write`` is not called for a batch that has its note.
        """
        files = self._files
        staged = f"{STAGING}/batch-{batch:010d}"
        note = read_own(files, _name(batch), Note)
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
        """Finish batches with a note, and remove the others: Spark will repeat them."""
        files = self._files
        for name in files.names(STAGING):
            kind, _, number = name.partition("-")
            if kind != "batch" or not number.isdecimal():
                continue
            note = read_own(files, _name(int(number)), Note)
            if note is not None:
                self._finish(note)
            else:
                files.remove(f"{STAGING}/{name}")

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
