"""The classes of one send between the socket and the log, as docs/architecture.md lists them."""

import asyncio
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from pocketmq.broker.request.executor import DrainExecutor
from pocketmq.broker.send.short_path import ShortPath
from pocketmq.client import Message, Producer
from pocketmq.common.runner import _WakeUp
from pocketmq.remoting.connection import Connection
from pocketmq.store.commitlog.segment import Segment
from pocketmq.testing import PocketBroker

Entry = tuple[str, str]
"""A class, and the file it is in."""
ROOT = Path(__file__).parents[3]
ROWS_MAX = 25
"""More than these a newcomer should not have to know."""
NATIVE_APPEND = ("NativeAppendRequestHeader", "remoting/protocol/send.py")
_READ = Connection.buffer_updated.__code__
_TAKE = ShortPath.take.__code__
_STORE = Segment.store.__code__
_FOLLOW_UP = DrainExecutor._run_follow_up.__code__
_WAIT = _WakeUp.wait.__code__


class Recorder:
    """A profile function: the classes whose methods run, or whose objects are returned, from the read that brings a
    native append to the last byte that a segment stores.

    Other requests, and the dispatch of earlier messages in the send thread, do not count.
    """

    def __init__(self) -> None:
        self.is_on = False
        self._taken: list[Entry] = []
        self._stored: list[Entry] = []
        self.is_worker_idle = threading.Event()
        self._read: list[Entry] | None = None
        """The classes met by the present read; None between reads."""
        self._took = False
        """Whether the short path has taken a send from the read under way."""
        self._dispatching = False

    def __call__(self, frame: FrameType, event: str, value: Any) -> None:
        """Take one event of ``sys.setprofile``."""
        if event not in ("call", "return"):
            return
        code = frame.f_code
        if threading.current_thread().name.startswith("SendMessageThread"):
            if code is _WAIT:
                (self.is_worker_idle.set if event == "call" else self.is_worker_idle.clear)()
            elif code is _FOLLOW_UP:
                self._dispatching = event == "call"
            elif self.is_on and not self._dispatching:
                self._note(frame, event, value, self._stored)
                if code is _STORE and event == "return":
                    self.is_on = False
            return
        if code is _READ:
            if event == "call":
                self._read = []
                self._took = False
            elif self._read is not None:
                if self.is_on and (NATIVE_APPEND in self._read or self._took):
                    self._taken = self._read
                self._read = None
        if self._read is not None:
            self._took = self._took or (code is _TAKE and event == "return" and value > 0)
            self._note(frame, event, value, self._read)

    def seen(self) -> list[Entry]:
        """Return the classes met, on the loop and then in the send thread, in the order of the first call."""
        return list(dict.fromkeys([*self._taken, *self._stored]))

    @staticmethod
    def _note(frame: FrameType, event: str, value: Any, seen: list[Entry]) -> None:
        names = frame.f_code.co_varnames
        if event == "return":
            kind = type(value)
        elif frame.f_code.co_argcount and names[0] in ("self", "cls"):
            owner = frame.f_locals[names[0]]
            kind = owner if isinstance(owner, type) else type(owner)
        else:
            return
        if kind.__module__.startswith("pocketmq.testing."):  # the test broker's clock stands for the machine's
            kind = kind.__bases__[0]
        package, _, module = kind.__module__.partition(".")
        entry = (kind.__name__, module.replace(".", "/") + ".py")
        if package == "pocketmq" and entry not in seen:
            seen.append(entry)


@contextmanager
def profiled(recorder: Recorder) -> Iterator[None]:
    """Profile the threads that start in here."""
    threading.setprofile(recorder)
    try:
        yield
    finally:
        threading.setprofile(None)
        assert sys.getprofile() is None


def listed(heading: str) -> list[Entry]:
    """Return (class, file) of the rows below a heading of docs/architecture.md."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    _, found, rest = text.partition(f"\n### {heading}\n")
    assert found, f"docs/architecture.md has no heading {heading!r}"
    section = re.split(r"\n#+ ", rest)[0]
    rows = re.findall(r"^(?:\d+\.|-) `(\w+)` \(`([\w/.]+)`\)", section, re.MULTILINE)
    assert rows
    return rows


WAYS = {True: "The classes of a small send", False: "The classes of a wide send"}
"""Heading of the list of each way, by ``broker.short_path_enable``."""


async def met(*, short_path: bool) -> list[Entry]:
    """Send one message; return the classes that it meets."""
    recorder = Recorder()
    with profiled(recorder), PocketBroker(broker={"short_path_enable": short_path}) as broker:
        async with Producer(group="g", namesrv=broker.namesrv) as producer:
            for _ in range(16):  # the topic is made, each queue has its offset, the short path knows its route
                await producer.send(Message("T", b"earlier"))
            assert await asyncio.to_thread(recorder.is_worker_idle.wait, 60)
            recorder.is_on = True
            await producer.send(Message("T", b"this one"))
            assert not recorder.is_on, "the message did not reach a segment by the known way"
    return recorder.seen()


async def test_a_send_meets_only_the_classes_that_the_docs_list() -> None:
    """On both ways in the order of their lists, and no others; a class that neither uses any more must leave."""
    in_passing = set(listed("Met in passing"))
    passed: set[Entry] = set()
    for short_path, heading in WAYS.items():
        to_know, seen = listed(heading), await met(short_path=short_path)
        unknown = set(seen) - set(to_know) - in_passing
        assert not unknown, f"new on the path of a send; is it needed? Then docs/architecture.md lists it: {unknown}"
        assert [entry for entry in seen if entry in to_know] == to_know
        passed |= set(seen) - set(to_know)
    assert passed == in_passing


def test_a_newcomer_has_to_know_few_classes() -> None:
    """At most 25, each once, each in the file that the list names."""
    for heading in WAYS.values():
        to_know = listed(heading)
        assert len(to_know) <= ROWS_MAX
        for name, path in [*to_know, *listed("Met in passing")]:
            assert re.search(rf"^class {name}\b", (ROOT / path).read_text(), re.MULTILINE), (name, path)
