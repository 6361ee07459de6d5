"""Counts of the Python and C calls of all threads of this process.

Lives here: ``CallCounter``, ``Counts`` (what one window counted).
"""

import os
import sys
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pocketmq

OWN_FOLDER: Final = str(Path(__file__).parent) + os.sep
"""Code below it drives a load: neither its functions nor what C functions they call count."""
SOURCES: Final = sorted(
    {str(Path(path).resolve().parent) for folder in pocketmq.__path__ for path in Path(folder).iterdir()}
    | {str(Path(folder)) for folder in pocketmq.__path__}
    | {str(Path(os.__file__).parent / "site-packages"), str(Path(os.__file__).parent)},
    key=len,
    reverse=True,
)
"""Folders that a shown path leaves out."""

Counts = dict[str, dict[str, int]]
"""Thread → function → calls. A C function is shown with the function that calls it."""


class CallCounter:
    """A profile function for every thread that starts after ``install``. It counts while ``on``.

    CPython does not profile what a profile function calls, so nothing of the counter itself counts.
    """

    def __init__(self) -> None:
        self.on = False
        self._calls: dict[int, Counter[tuple[CodeType, str]]] = {}

    def install(self) -> None:
        """Profile the calling thread and all threads that ``threading`` starts from now on."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def start(self) -> None:
        """Begin a window."""
        self._calls = {}
        self.on = True

    def stop(self) -> Counts:
        """End the window; return its calls."""
        self.on = False
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        counts: Counts = {}
        for ident, calls in list(self._calls.items()):
            shown = counts.setdefault(names.get(ident, "ended"), {})
            for (code, called), number in list(calls.items()):
                name = _shown(code) + (f" → {called}" if called else "")
                shown[name] = shown.get(name, 0) + number
        return counts

    def _profile(self, frame: FrameType, event: str, called: Any) -> None:
        if not self.on:
            return
        if event == "call":
            name = ""
        elif event == "c_call":
            name = called.__qualname__
        else:
            return
        code = frame.f_code
        if code.co_filename.startswith(OWN_FOLDER):
            return
        thread = threading.get_ident()
        calls = self._calls.get(thread)
        if calls is None:
            calls = self._calls[thread] = Counter()
        calls[code, name] += 1


def _shown(code: CodeType) -> str:
    path = str(code.co_filename)
    for folder in SOURCES:
        if path.startswith(folder + os.sep):
            path = path[len(folder) + 1 :]
            break
    return f"{path}:{code.co_qualname}"
