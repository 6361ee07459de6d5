"""Where the threads of this process stand.

Lives here: ``Place`` and ``thread_places``. Python code must not walk the frames of another thread
(``sys._current_frames``, ``f_back``): that thread runs on meanwhile, and CPython 3.11 then returns objects that are no
frames, or crashes. ``faulthandler`` reads all stacks in one call, during which no other thread runs Python code.
"""

import faulthandler
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

_THREAD: Final = re.compile(r"(?:Current thread|Thread) 0x([0-9a-fA-F]+)")
_PLACE: Final = re.compile(r'  File "(.*)", line (\d+|\?\?\?) in (.*)')


class Place(NamedTuple):
    """A call: the file, the line in it (0: unknown) and the name of the function."""

    path: str
    line: int
    function: str


def thread_places() -> dict[int, list[Place]]:
    """Return the identifier of each thread → its calls, innermost first; at most 100 calls of at most 100 threads.

    Empty where the system gives no file for the text. Takes some ms, in which no other thread runs Python code.
    """
    try:
        with _memory_file() as descriptor:
            faulthandler.dump_traceback(descriptor)
            text = os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode("ascii", "replace")
    except OSError:
        return {}
    stacks: dict[int, list[Place]] = {}
    places: list[Place] = []
    for line in text.splitlines():
        if found := _PLACE.fullmatch(line):
            places.append(Place(found[1], int(found[2]) if found[2].isdigit() else 0, found[3]))
        elif found := _THREAD.match(line):
            places = stacks[int(found[1], 16)] = []
    return stacks


@contextmanager
def _memory_file() -> Iterator[int]:
    """Open a file that no disk delays: the writer holds the interpreter's lock. Outside of Linux a temporary one."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("pocketmq-stacks")
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    else:
        import tempfile

        with tempfile.TemporaryFile() as file:
            yield file.fileno()
