"""A program: stores into memory whose pages are held back, and reports for which sizes a page was touched.

``mapped``: the map of a segment's file. ``anonymous``, ``surviving``: the segment's write buffer, in memory that could
not be locked, so it may have been swapped out; of a surviving one the page with its words, too.

The pages are write-protected by userfaultfd (ioctl_userfaultfd(2)): a thread that touches one waits until another
releases it. Here the main thread does, in Python: if a store waited for its page with the GIL held, the program would
hang for ever. A watchdog ends it then, with code 1. Code 3: this system does not permit it; the reason is printed.
``--by-hand``: the copy that NumPy makes, to show that the program then hangs.
"""

import ctypes
import faulthandler
import fcntl
import json
import mmap
import os
import platform
import select
import struct
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from pocketmq.store.commitlog.buffer_header import HEAD, HEADER_BYTES, WORDS
from pocketmq.store.commitlog.segment import Segment
from pocketmq.store.commitlog.windows import Windows
from pocketmq.store.commitlog.write_buffer_pool import WriteBuffer
from pocketmq.store.disk.memory_lock import OsMemory
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


def segment_of(kind: str, path: str, size_bytes: int) -> tuple[Segment, NDArray[np.uint8]]:
    """Return an open segment and the memory that its bytes are stored in. ``path``: a file on tmpfs."""
    files = OsFileSystem()
    files.open(path, create=True).reserve(size_bytes + (HEADER_BYTES if kind == "surviving" else 0))
    segment = Segment(files, path, 0, size_bytes)
    if kind == "mapped":
        segment.open(mapped=True)
        assert segment.map is not None
        return segment, segment.map.view()
    buffer = WriteBuffer(np.frombuffer(mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8))
    memory = buffer.array
    if kind == "surviving":
        mapped = files.open(path).map()
        memory = mapped.memory()
        buffer = WriteBuffer(memory[HEADER_BYTES:], mapped.words(WORDS), memory[HEAD])
    memory[:] = 0
    buffer.swapped = OsMemory(files)
    buffer.end = size_bytes
    segment.open(mapped=False, windows=cast(Windows, SimpleNamespace(newest=buffer, position=0)))
    return segment, memory


def main(kind: str, path: str, sizes: list[int], by_hand: bool) -> None:
    """``path``: a file on tmpfs, which is made and removed."""
    descriptor = open_userfaultfd()
    segment, memory = segment_of(kind, path, len(sizes) * 2 * PAGE)
    os.unlink(path)
    assert not memory.any()  # every page is there
    address = memory.ctypes.data
    fcntl.ioctl(descriptor, UFFDIO_REGISTER, bytearray(struct.pack("QQQQ", address, memory.size, REGISTER_MODE_WP, 0)))
    touched = {}
    shift = memory.size - segment.size_bytes
    for number, size in enumerate(sizes):
        fcntl.ioctl(descriptor, UFFDIO_WRITEPROTECT, bytearray(struct.pack("QQQ", address, memory.size, PROTECT)))
        position = 2 * number * PAGE
        segment.buffered_end = position
        if by_hand:
            storing = partial(np.copyto, memory[shift + position :][:size], 7)
        else:
            storing = partial(segment.store, position, bytes([7]) * size)
        touched[size] = store(storing, descriptor)
        assert memory[shift + position :][: size + 1].tolist() == [7] * size + [0]
    print(json.dumps(touched))


def store(storing: Callable[[], object], userfault: int) -> int:
    """Store in another thread; return how often it waited for a page."""
    ends, ended = os.pipe()

    def run() -> None:
        storing()
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
    faulthandler.dump_traceback_later(float(os.environ.get("WATCHDOG_S", WATCHDOG_S)), exit=True)
    words = [text for text in sys.argv[1:] if text != "--by-hand"]
    main(words[0], words[1], [int(text) for text in words[2:]], "--by-hand" in sys.argv)
