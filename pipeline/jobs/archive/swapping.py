"""Directories of a dataset replaced by others with the same rows.

Lives here: ``Swapper``, which writes a note, exchanges directories and cleans up; recovery after a kill.

For readers: on a local Linux file system the two directories change places in one system call, so that a listing shows
the old files or the new ones. Elsewhere there are two renames, and between them (a few milliseconds) the directory is
missing: a listing at that moment lacks its rows. Everywhere, a reader that listed the old files and opens them later
fails, because they are gone; it can start again. No listing shows a row twice.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from pocketmq.pipeline.jobs.archive.files import Files
from pocketmq.pipeline.jobs.archive.publishing import OWN, STAGING, read_own
from pocketmq.pipeline.jobs.common.command import JobFailed

NOTE: Final = f"{OWN}/swap.json"


class Swap(msgspec.Struct, frozen=True):
    """One directory: its path, that of its successor, its path meanwhile, and the successor's files."""

    live: str
    new: str
    old: str
    names: list[str]


@dataclass(slots=True)
class Swapper:
    """Replaces directories; one swapper at a time works on a dataset (``Files.locked``)."""

    _files: Files

    def swap(self, staged: str, directories: list[str]) -> None:
        """Replace each of ``directories`` by the one of the same name below ``staged``, which is removed at the end."""
        files = self._files
        swaps = []
        for live in directories:
            new = f"{staged}/{live}"
            names = [path.rpartition("/")[2] for path in files.sizes(new)]
            if not names:
                raise JobFailed(
                    "nothing replaced",
                    why=f"{new} holds no files",
                    hint="this is a defect; rows are safe",
                )
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
        """Restore each directory of an interrupted swap to all of its old or its new files, and clean up."""
        files = self._files
        swaps = read_own(files, NOTE, list[Swap])
        if swaps is not None:
            for each in swaps:
                if not files.exists(each.live):  # between the two renames
                    files.rename(each.new, each.live)
            files.remove(NOTE)
        for name in files.names(STAGING):
            if name.startswith("merge-"):
                files.remove(f"{STAGING}/{name}")
