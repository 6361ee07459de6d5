"""The file system under a directory: its type and the mount options that matter to a log.

Lives here: ``mount_of``, from the kernel's table of mounts.
"""

import os
import re
from typing import Final

import msgspec

MOUNT_TABLE: Final = "/proc/self/mountinfo"
TABLE_BYTES_MAX: Final = 1 << 20
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")
MATTERS: Final = re.compile(
    r"ro|sync|dirsync|(no)?barrier(=.*)?|data=.*|(no)?delalloc|commit=.*|discard|nobh|noatime|relatime|strictatime|dax.*|"
    r"compress.*|nodatacow|cache=.*"
)
"""Options that change the cost or the guarantee of a write or a sync; the others are left out."""


class Mount(msgspec.Struct, frozen=True):
    """One mounted file system. ``options`` are those of the mount and of the file system together."""

    point: str
    fs_type: str
    source: str
    options: tuple[str, ...]

    @property
    def notable(self) -> tuple[str, ...]:
        """The options that matter."""
        return tuple(option for option in self.options if MATTERS.fullmatch(option))


def mount_of(path: str, table: str) -> Mount | None:
    """Return the mount that holds ``path`` (absolute, links resolved); ``table`` is the text of ``mountinfo``."""
    best: Mount | None = None
    for line in table.splitlines():
        mount = _parse(line)
        if mount is None or not _holds(mount.point, path):
            continue
        if best is None or len(mount.point) >= len(best.point):  # of equal points the later one hides the earlier
            best = mount
    return best


def _holds(point: str, path: str) -> bool:
    return point == "/" or path == point or path.startswith(point + os.sep)


def _parse(line: str) -> Mount | None:
    """Read one line: ``id parent major:minor root point options [fields] - type source super_options`` (proc(5))."""
    left, separator, right = line.partition(" - ")
    before, after = left.split(" "), right.split(" ")
    if not separator or len(before) < 6 or len(after) < 3:
        return None
    options = dict.fromkeys((*before[5].split(","), *after[2].split(",")))
    return Mount(_text(before[4]), after[0], _text(after[1]), tuple(options))


def _text(escaped: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), escaped)
