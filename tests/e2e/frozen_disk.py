"""A real disk that stalls: an ext4 file system of its own, frozen and thawed (ioctl_fs FIFREEZE).

While it is frozen every write to its files waits, and so does every thread that touches a clean page of a mapped file.

Lives here: ``FrozenDisk``, ``why_not``. The file system lies in a file, mounted by a process for itself alone: it is
gone with that process. A process of its own thaws it when the test ends, however that ends.
"""

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, Self

SIZE_BYTES: Final = 192 << 20
MOUNT: Final = 'mount -o loop,noatime "$0" "$1" && shift && exec "$@"'
FREEZER: Final = """
import fcntl, sys
FREEZE, THAW = 0xC0045877, 0xC0045878
directory = open(sys.argv[1] + "/name")
is_frozen = False
try:
    for line in sys.stdin:
        is_frozen = line.strip() == "freeze"
        fcntl.ioctl(directory, FREEZE if is_frozen else THAW, 0)
        print(line.strip(), flush=True)
finally:
    if is_frozen:
        fcntl.ioctl(directory, THAW, 0)
"""


@functools.cache
def why_not() -> str:
    """Return why no file system can be mounted and frozen here, or an empty string if it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "mounting and freezing a file system needs root on Linux"
    for program in ("mkfs.ext4", "mount", "unshare"):
        if shutil.which(program) is None:
            return f"the command {program} is missing (Debian: e2fsprogs, mount, util-linux)"
    if not os.path.exists("/dev/loop-control"):
        return "no loop devices here: /dev/loop-control is missing"
    probe = ["unshare", "--mount", "--propagation", "private", "losetup", "--find"]
    found = subprocess.run(probe, capture_output=True, text=True, check=False)
    return f"no loop device can be had: {found.stderr.strip()}" if found.returncode else ""


class FrozenDisk:
    """A file system for the files of one process. ``prefix``: words before the process's command; ``path``: where it
    then finds the file system. A context manager."""

    def __init__(self, directory: Path) -> None:
        self.image = directory / "disk"
        self.path = directory / "mounted"
        self.path.mkdir()
        with self.image.open("wb") as file:
            file.truncate(SIZE_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(self.image)], check=True)
        private = ["unshare", "--mount", "--propagation", "private", "sh", "-c", MOUNT]
        self.prefix = [*private, str(self.image), str(self.path)]
        self._freezer: subprocess.Popen[str] | None = None

    def watch(self, process_id: int) -> None:
        """Note which process has mounted it."""
        inside = f"/proc/{process_id}/root{self.path}"
        (Path(inside) / "name").touch()
        command = [sys.executable, "-c", FREEZER, inside]
        self._freezer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def freeze(self) -> None:
        """Let every write wait from now on; writes under way are finished first."""
        self._do("freeze")

    def thaw(self) -> None:
        """Let them go on."""
        self._do("thaw")

    def _do(self, word: str) -> None:
        freezer = self._freezer
        assert freezer is not None
        assert freezer.stdin is not None
        assert freezer.stdout is not None
        freezer.stdin.write(word + "\n")
        freezer.stdin.flush()
        assert freezer.stdout.readline().strip() == word

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._freezer is not None:
            self._freezer.communicate()  # its input ends, and it thaws
