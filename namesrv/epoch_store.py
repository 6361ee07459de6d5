"""Epochs that outlive the name server: a claim holds once it is on disk.

Lives here: ``EpochFile`` (``epochs.json``), ``EpochStore``: claims in order, beside the event loop.
"""

import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from pocketmq.common.errors import DECODE_ERRORS, Cause, PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.common.runner import LoopMailbox, Runner, Worker
from pocketmq.common.sealed_json import seal, unseal
from pocketmq.namesrv.epochs import EpochRecord, EpochTable

FILE_NAME: Final = "epochs.json"
CLAIMS_MAX: Final = 1024
"""Claims that wait for the disk; more are refused."""

Done = Callable[[bool, PocketMQError | None], None]
"""Called in the loop with the verdict, or with the error."""


class EpochsUnreadable(PocketMQError):
    """The file of the epochs is there and cannot be read: the name server does not start."""

    default_cause = Cause.CORRUPT


class EpochsNotWritten(PocketMQError):
    """A claim could not be made durable, so it does not hold."""

    retriable = True
    default_cause = Cause.DISK_ERROR


class EpochFile:
    """``<directory>/epochs.json`` with its checksum, replaced as a whole and synced. Blocks; not for the event loop."""

    def __init__(self, directory: str) -> None:
        self.path = Path(directory).expanduser() / FILE_NAME

    def load(self) -> bytes | None:
        """Return the content, None when there is none. Raises ``EpochsUnreadable``, ``DECODE_ERRORS``."""
        try:
            return unseal(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise EpochsUnreadable("epochs cannot be read", why=f"{self.path}: {error.strerror}") from error

    def save(self, content: bytes) -> None:
        """Return when ``content`` is durable. Raises ``OSError``."""
        self._make_directory(self.path.parent)
        fresh = self.path.with_suffix(".json.tmp")
        with fresh.open("wb") as file:
            file.write(seal(content))
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, self.path)
        _sync_directory(self.path.parent)

    def _make_directory(self, directory: Path) -> None:
        """Create the missing directories, each with its name synced: a file in a directory whose name is lost is
        lost."""
        if directory.is_dir():
            return
        self._make_directory(directory.parent)
        directory.mkdir(exist_ok=True)
        _sync_directory(directory.parent)


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@dataclass(slots=True, frozen=True)
class _Waiting:
    """An entry that waits for the disk: a claim, or, without one, the removal of a record; ``force`` removes one that
    a broker has registered with, too."""

    broker_name: str
    claim: EpochRecord | None
    done: Done
    force: bool = False
    last_epoch: int = 0


class EpochStore:
    """The table of a name server, and its file if it has one. Loop thread, except ``load`` and ``step``.

    Claims are judged one after the other, each against the table that the one before made durable.
    """

    def __init__(self, names_max: int, directory: str, log: EventLog) -> None:
        self.table = EpochTable(names_max)
        self._file = EpochFile(directory) if directory else None
        self._log = log
        self._waiting: deque[_Waiting] = deque()
        self._worker: Worker | None = None
        self._mailbox: LoopMailbox | None = None

    @property
    def is_kept(self) -> bool:
        """Whether epochs survive the end of this process."""
        return self._file is not None

    @property
    def path(self) -> str:
        """The file; empty: there is none."""
        return "" if self._file is None else os.path.abspath(self._file.path)

    def load(self) -> None:
        """Read the file. Blocks. Raises ``EpochsUnreadable``."""
        if self._file is None:
            return
        try:
            content = self._file.load()
            if content is not None:
                self.table.load(content)
        except DECODE_ERRORS as error:  # no backup is taken: an older epoch would let a replaced master come back
            raise EpochsUnreadable(
                "epochs cannot be read",
                why=f"{self._file.path}: {error}",
                hint="move the file away: masters claim their epochs again; make sure that no old master is first",
            ) from error

    def start(self, runner: Runner, mailbox: LoopMailbox) -> None:
        """Begin to take claims."""
        self._mailbox = mailbox
        if self._file is not None:
            self._worker = runner.start("NamesrvEpochs", self.step, first_after_ms=None)

    def stop(self) -> None:
        """End; claims that wait are not answered."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop()
        self._waiting.clear()

    def claim(
        self, broker_name: str, claim: EpochRecord, done: Done, *, force: bool = False, last_epoch: int = 0
    ) -> None:
        """Judge ``claim`` and call ``done`` once it is durable. A record that was registered once stays registered.

        Raises ``EpochClaimIllegal`` for a claim that is too long to wait.
        """
        self.table.check(broker_name, claim)
        self._put(_Waiting(broker_name, claim, done, force, last_epoch))

    def forget(self, broker_name: str, done: Done, *, registered: bool = False) -> None:
        """Forget a claim that no broker has registered with, or, with ``registered``, any; call ``done`` once that is
        durable."""
        self._put(_Waiting(broker_name, None, done, registered))

    def _put(self, waiting: _Waiting) -> None:
        if self._worker is None:
            self._judge(waiting, self._now)
        elif len(self._waiting) >= CLAIMS_MAX:
            waiting.done(False, EpochsNotWritten("claim refused", why=f"{CLAIMS_MAX} claims wait for the disk"))
        else:
            self._waiting.append(waiting)
            self._worker.wake()

    @staticmethod
    def _now(done: Done, granted: bool, error: PocketMQError | None) -> None:
        done(granted, error)

    def _soon(self, done: Done, granted: bool, error: PocketMQError | None) -> None:
        assert self._mailbox is not None
        self._mailbox.post(done, granted, error)

    def step(self) -> None:
        """Judge the waiting claims, each made durable before the next. Worker thread."""
        while self._waiting:
            self._judge(self._waiting.popleft(), self._soon)

    def _judge(self, waiting: _Waiting, answer: Callable[[Done, bool, PocketMQError | None], None]) -> None:
        table, name, claim = self.table, waiting.broker_name, waiting.claim
        if claim is None:
            records, granted = table.without(name, registered=waiting.force), True
        else:
            known = table.get(name)
            if known is not None and known.registered:
                claim = msgspec.structs.replace(claim, registered=True)
            try:
                granted = table.judge(name, claim, force=waiting.force, last_epoch=waiting.last_epoch)
            except PocketMQError as error:
                answer(waiting.done, False, error)
                return
            records = table.with_claim(name, claim) if granted and known != claim else table.records
        if records is not table.records:
            if self._file is not None:
                is_first = not table.records
                try:
                    self._file.save(msgspec.json.encode(records))
                except OSError as error:
                    self._log.error("epochs_not_written", path=str(self._file.path), error=str(error))
                    why = f"{self._file.path}: {error.strerror or error}"
                    failed = EpochsNotWritten("claim refused", why=why, hint="see namesrv.epoch_store_dir")
                    answer(waiting.done, False, failed)
                    return
                if is_first:
                    self._log.info(
                        "epochs_kept", path=self.path, hint="a name server without this file knows no epochs"
                    )
            table.records = records
            if claim is None:
                self._log.warning("epoch_forgotten", broker=name)
            else:
                self._log.info("epoch_claimed", broker=name, epoch=claim.epoch, address=claim.address)
        answer(waiting.done, granted, None)
