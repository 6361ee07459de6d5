"""Directories of a dataset replaced by others with the same rows.

Lives here: ``Swapper``: note down, exchange, clean up; the recovery of what was cut short.

What a reader sees. On a local Linux file system the two directories change places in one system call: a listing shows
the old files or the new ones, never both, never none. Elsewhere there are two renames, and between them (a few
milliseconds) the directory is missing: a listing just then lacks its rows. Everywhere: a reader that listed the old
files and opens them afterwards fails, as the files are gone; it may simply start again. Rows are never twice in what a
listing shows.
"""

from typing import Final

import msgspec

from pocketmq.common.errors import DECODE_ERRORS
from pocketmq.pipeline.jobs.archive.files import Files
from pocketmq.pipeline.jobs.archive.publishing import OWN, STAGING
from pocketmq.pipeline.jobs.common.command import JobFailed

NOTE: Final = f"{OWN}/swap.json"


class Swap(msgspec.Struct, frozen=True):
    """One directory: where it is, where its successor is, where it goes meanwhile, and the successor's files."""

    live: str
    new: str
    old: str
    names: list[str]


class Swapper:
    """Replaces directories; only one at a time works on a dataset (``Files.locked``)."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def swap(self, staged: str, directories: list[str]) -> None:
        """Replace each of ``directories`` by the one of the same name below ``staged``, which is removed at the end."""
        files = self._files
        swaps = []
        for live in directories:
            new = f"{staged}/{live}"
            names = [path.rpartition("/")[2] for path in files.sizes(new)]
            if not names:
                raise JobFailed("nothing replaced", why=f"{new} holds no files", hint="this is a defect; rows are safe")
            swaps.append(Swap(live, new, f"{staged}/old/{live}", names))
        files.sync(staged)
        files.write(NOTE, msgspec.json.encode(swaps))
        for each in swaps:
            if not files.exchange(each.new, each.live):
                files.rename(each.live, each.old)
                files.rename(each.new, each.live)
        files.remove(NOTE)
        files.remove(staged)

    def recover(self) -> None:
        """Bring each directory of a swap that was cut short to its old or its new files, whole, and clean up."""
        files = self._files
        data = files.read(NOTE)
        if data is not None:
            try:
                swaps = msgspec.json.decode(data, type=list[Swap])
            except DECODE_ERRORS as error:
                raise JobFailed(
                    "the archive is damaged", why=f"{NOTE}: {error}", hint="restore this file; it is one of ours"
                ) from error
            for each in swaps:
                if not files.exists(each.live):  # between the two renames
                    files.rename(each.new, each.live)
            files.remove(NOTE)
        for name in files.names(STAGING):
            if name.startswith("merge-"):
                files.remove(f"{STAGING}/{name}")
