"""A program: stores into a segment whose pages are held back, and reports for which sizes a page was touched.

The map's pages are write-protected by userfaultfd (ioctl_userfaultfd(2)): a thread that touches one waits until another
releases it. Here the main thread does, in Python: if a store waited for its page with the GIL held, the program would
hang for ever. A watchdog ends it then, with code 1. Code 3: this system does not permit it; the reason is printed.
"""

import ctypes
import faulthandler
import fcntl
import json
import os
import platform
import select
import struct
import sys
import threading
from typing import Final

from pocketmq.store.commitlog.segment import Segment
from pocketmq.store.disk.os_file_system import OsFileSystem

PAGE: Final = 4096
WATCHDOG_S: Final = 60.0
NOT_HERE: Final = 3
SYSCALLS: Final = {"x86_64": 323, "aarch64": 282}
USER_MODE_ONLY: Final = 1
# linux/userfaultfd.h
API: Final = 0xAA
FEATURES: Final = 1 << 0 | 1 << 12  # PAGEFAULT_FLAG_WP, WP_HUGETLBFS_SHMEM (Linux 5.19)
UFFDIO_API: Final = 0xC018AA3F
UFFDIO_REGISTER: Final = 0xC020AA00
UFFDIO_WRITEPROTECT: Final = 0xC018AA06
REGISTER_MODE_WP: Final = 2
PROTECT, GIVE_FREE = 1, 0


def open_userfaultfd() -> int:
    """Return the descriptor, or end the program with the reason why there is none."""
    number = SYSCALLS.get(platform.machine()) if sys.platform == "linux" else None
    if number is None:
        leave("no userfaultfd on this system")
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(number, os.O_CLOEXEC | os.O_NONBLOCK | USER_MODE_ONLY)
    if descriptor < 0:
        leave(f"userfaultfd: {os.strerror(ctypes.get_errno())}")
    try:
        fcntl.ioctl(descriptor, UFFDIO_API, bytearray(struct.pack("QQQ", API, FEATURES, 0)))
    except OSError as error:
        leave(f"userfaultfd cannot protect pages of shared memory: {error.strerror}")
    return int(descriptor)


def leave(why: str) -> None:
    print(why)
    raise SystemExit(NOT_HERE)


def main(path: str, sizes: list[int]) -> None:
    """``path``: a file on tmpfs, which is made and removed."""
    descriptor = open_userfaultfd()
    files = OsFileSystem()
    files.open(path, create=True).reserve(len(sizes) * 2 * PAGE)
    segment = Segment(files, path, 0, len(sizes) * 2 * PAGE)
    segment.open(mapped=True)
    os.unlink(path)
    assert segment.map is not None
    view = segment.map.view()
    assert not view.any()  # every page is there
    address = view.ctypes.data
    fcntl.ioctl(descriptor, UFFDIO_REGISTER, bytearray(struct.pack("QQQQ", address, view.size, REGISTER_MODE_WP, 0)))
    fcntl.ioctl(descriptor, UFFDIO_WRITEPROTECT, bytearray(struct.pack("QQQ", address, view.size, PROTECT)))
    touched = {size: store(segment, descriptor, 2 * number * PAGE, size) for number, size in enumerate(sizes)}
    for number, size in enumerate(sizes):
        assert view[2 * number * PAGE :][: size + 1].tolist() == [7] * size + [0]
    print(json.dumps(touched))


def store(segment: Segment, userfault: int, position: int, size: int) -> int:
    """Store ``size`` bytes in another thread; return how often it waited for a page."""
    ends, ended = os.pipe()

    def run() -> None:
        segment.store(position, bytes([7]) * size)
        os.write(ended, b"x")

    thread = threading.Thread(target=run)
    thread.start()
    waits = 0
    while True:
        ready, _, _ = select.select([userfault, ends], [], [])
        if userfault in ready:
            (_, fault_address) = struct.unpack("8xQQ8x", os.read(userfault, 32))
            page = fault_address // PAGE * PAGE
            fcntl.ioctl(userfault, UFFDIO_WRITEPROTECT, bytearray(struct.pack("QQQ", page, PAGE, GIVE_FREE)))
            waits += 1
        elif ends in ready:
            thread.join()
            os.close(ends)
            os.close(ended)
            return waits


if __name__ == "__main__":
    faulthandler.dump_traceback_later(WATCHDOG_S, exit=True)
    main(sys.argv[1], [int(text) for text in sys.argv[2:]])
