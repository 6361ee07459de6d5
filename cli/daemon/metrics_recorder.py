"""Asking a broker for ``/metrics`` at a steady pace and keeping the answers in files that rotate.

A file is snapshots one after the other, each after a line ``# scraped BROKER MS``. A new file begins with the last
snapshot of the one before, marked ``again``: counters need something to be compared with. Full files are packed.

Lives here: ``Recorder``.
"""

import datetime
import gzip
import http.client
import json
import os
import re
import shutil
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pocketmq.common.errors import DECODE_ERRORS, ConfigError

PAGE_BYTES_MAX: Final = 8 << 20
"""A broker's page has about 60 KiB."""
TIMEOUT_S: Final = 5.0
DAY_MS: Final = 86_400_000
_NAME: Final = re.compile(r"[%|A-Za-z0-9_.\-]{1,127}")


class Recorder:
    """Appends snapshots to ``path``.

    ``written`` and ``missed`` count snapshots. One file is complete snapshots only, unless the machine stopped within
    a write; ``OSError`` of the file is raised, trouble of the broker is told by ``say`` once and counted.
    """

    def __init__(
        self,
        url: str,
        broker: str,
        path: Path,
        *,
        rotate_bytes: int,
        keep: int,
        say: Callable[[str], None],
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        if broker and not _NAME.fullmatch(broker):
            raise ConfigError("bad --broker", why=repr(broker), hint="letters, digits and _ - . only")
        self._url = url
        self._broker = broker
        self._path = path
        self._rotate_bytes = rotate_bytes
        self._keep = keep
        self._say = say
        self._now_ms = now_ms
        self._last = (0, b"")
        self._trouble = ""
        self.written = 0
        self.missed = 0

    def run(self, interval_s: float, count: int, stop: threading.Event) -> None:
        """Record until ``stop`` is set or ``count`` (0: no end) snapshots were asked for."""
        next_s = time.monotonic()
        while not stop.is_set():
            self.snapshot()
            if count and self.written + self.missed >= count:
                return
            next_s = max(next_s + interval_s, time.monotonic())
            stop.wait(next_s - time.monotonic())

    def snapshot(self) -> bool:
        """Ask once and append the answer; False: there was none."""
        try:
            if not self._broker:
                self._broker = self._name()
            page = self._get(self._url)
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.missed += 1
            text = f"{self._url}: {error}"
            if text != self._trouble:
                self._say(f"no snapshot: {text}")
            self._trouble = text
            return False
        if self._trouble:
            self._say("snapshots again")
            self._trouble = ""
        at_ms = self._now_ms()
        self._rotate(at_ms, len(page))
        self._append(at_ms, page, "")
        self._last = (at_ms, page)
        self.written += 1
        return True

    def _get(self, url: str) -> bytes:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            body: bytes = answer.read(PAGE_BYTES_MAX + 1)
        if len(body) > PAGE_BYTES_MAX:
            raise ValueError(f"the page has more than {PAGE_BYTES_MAX:,} bytes")
        if b"# scraped " in body:
            raise ValueError("the page is a recorded file, not a broker's figures")
        return body

    def _name(self) -> str:
        """Return what ``/health`` beside the page says; it says so with status 503, too."""
        url = urllib.parse.urljoin(self._url, "health")
        try:
            body = self._get(url)
        except urllib.error.HTTPError as error:
            with error:
                body = error.read(PAGE_BYTES_MAX)
        try:
            name = json.loads(body)["broker"]
        except (*DECODE_ERRORS, ValueError, KeyError, TypeError):
            name = None
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError("the broker's name is not known", why=f"{url} does not say it", hint="give --broker NAME")
        return name

    def _append(self, at_ms: int, page: bytes, mark: str) -> None:
        head = f"# scraped {self._broker} {at_ms}{mark}\n".encode()
        with open(self._path, "ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # the machine stopped within a write
                    head = b"\n" + head
            file.write(head + page + (b"" if page.endswith(b"\n") else b"\n"))

    def _rotate(self, at_ms: int, more_bytes: int) -> None:
        """Put the file aside if it is full or of another day than ``at_ms``."""
        last_ms, page = self._last
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return
        newest_ms = last_ms or int(status.st_mtime * 1000)
        is_same_day = newest_ms // DAY_MS == at_ms // DAY_MS
        if not status.st_size or (is_same_day and status.st_size + more_bytes <= self._rotate_bytes):
            return
        when = datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC)
        put_aside = Path(f"{self._path}.{when:%Y%m%d-%H%M%S}.{at_ms % 1000:03d}")
        os.replace(self._path, put_aside)
        if page:
            self._append(last_ms, page, " again")
        _pack(put_aside)
        if self._keep:
            aside = re.compile(re.escape(self._path.name) + r"\.\d{8}-\d{6}\.\d{3}(\.gz)?")
            old = sorted(each for each in self._path.parent.iterdir() if aside.fullmatch(each.name))
            for each in old[: -self._keep]:
                each.unlink(missing_ok=True)


def _pack(path: Path) -> None:
    """Replace a file by its gzip; about 2 s for 64 MiB, and nothing is lost if it ends in the middle."""
    packed = path.with_name(f"{path.name}.gz")
    half = path.with_name(f"{path.name}.part")
    try:
        with open(path, "rb") as source, gzip.open(half, "wb", compresslevel=6) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        os.replace(half, packed)
    except OSError:
        half.unlink(missing_ok=True)
        raise
    path.unlink()
