"""Messages of a store that are not in its log, but in write buffers that outlived their process.

Lives here: ``buffers_left``, for every offline tool: what it says or refuses because of them. Only a start of the
broker writes them to the log (``recovery.surviving_buffers``).
"""

from dataclasses import dataclass
from typing import Final, Literal

from pocketmq.store.checkpoint import StorePaths
from pocketmq.store.disk.file_system import FileSystem
from pocketmq.store.errors import StoreError
from pocketmq.store.recovery.left_buffers import look

CURE: Final = "start the broker once, on this machine and before it is restarted: it writes them to the log"


@dataclass(slots=True, frozen=True)
class BuffersLeft:
    """``kind``: ``held``: a dead process has left bytes that the log may not have; ``running``: the process lives, and
    commits them soon; ``refused``: there were buffers, and the next start will not use them. ``text``: for people.
    """

    kind: Literal["held", "running", "refused"]
    text: str


def buffers_left(files: FileSystem, paths: StorePaths) -> BuffersLeft | None:
    """Return what the store's write buffers hold beyond its log, None if nothing. Changes nothing."""
    try:
        left = look(files, paths)
    except StoreError as error:
        return BuffersLeft("refused", f"write buffers: the store's record of them cannot be read: {error.why}")
    begin, end = left.uncommitted
    where = "" if left.record is None else left.record.directory
    what = f"up to {end - begin:,} bytes of the log, from offset {begin:,} on, are in write buffers in {where}"
    if left.is_alive:
        return BuffersLeft("running", f"{what}; their process runs") if end > begin else None
    if end > begin:
        return BuffersLeft("held", f"{what}, and perhaps not in its files; {CURE}")
    if left.refused:
        return BuffersLeft("refused", f"write buffers: {left.refused[0][1]}; the log ends where its files end")
    return None
