"""Master and slave with threads, real sockets and the real clock."""

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.common.clock import SystemClock
from pocketmq.common.logs import CapturedLog
from pocketmq.common.runner import ThreadRunner
from pocketmq.store.append_result import PutStatus
from pocketmq.store.checkpoint import StorePaths
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.ha.environment import HaEnvironment
from pocketmq.store.ha.opening import open_store
from pocketmq.store.ha.service import HaService
from pocketmq.store.ha.slave import HaSlave
from pocketmq.store.ha.state import HaState
from pocketmq.store.message_store import MessageStore
from tests.store.log_fakes import bodies, crashed_copy, store_config

SEGMENT_BYTES = 1 << 20
GROUPS = 300


class Running:
    """A master on a port of the system's choice and a slave that follows it."""

    def __init__(self, root: Path) -> None:
        self.clock, self.runner, self.log = SystemClock(), ThreadRunner(), CapturedLog()
        self.reopened = threading.Event()
        self.master_state, self.master = self._open(root / "master", "SYNC_MASTER")
        self.service = HaService(self._environment(self.master, self.master_state))
        self.port = self.service.open_port("127.0.0.1", -1)
        self.service.start()
        self.slave_state, self.slave_store = self._open(root / "slave", "SLAVE")
        self.slave = HaSlave(
            self._environment(self.slave_store, self.slave_state),
            lambda: f"127.0.0.1:{self.port}",
            broker_id=1,
            on_reopen=self.reopened.set,
        )

    def _environment(self, store: MessageStore, state: HaState) -> HaEnvironment:
        return HaEnvironment(store, state, "C", "b", self.clock, self.runner, self.log)

    def _open(self, root: Path, role: str) -> tuple[HaState, MessageStore]:
        files = OsFileSystem()
        state = HaState(files, StorePaths(str(root)), self.clock, os.urandom)
        state.load()
        config = store_config(
            root, broker_role=role, mapped_file_size_commit_log=SEGMENT_BYTES, slave_timeout=30_000, sync_on_close=False
        )
        store = MessageStore(config, clock=self.clock, runner=self.runner, log=self.log)
        open_store(store, state, self.log)
        return state, store

    def stop(self) -> None:
        self.slave.stop()
        self.service.stop()
        self.master.close()
        self.slave_store.close()

    def send(self, count: int, first: int = 0) -> list[PutStatus]:
        """Send ``count`` messages, and wait until each is answered."""
        told: list[PutStatus] = []
        done = threading.Semaphore(0)

        def answered(status: PutStatus) -> None:
            told.append(status)
            done.release()

        for number in range(first, first + count):
            result = self.master.append(bodies(str(number).encode() * 500))
            self.master.acknowledge(result.end_offset, True, answered)
        for _ in range(count):
            assert done.acquire(timeout=30)
        return told

    def wait_in_sync(self, wanted: bool = True) -> None:
        """Wait until the master counts the slave, or no longer counts it."""
        pause = threading.Event()
        for _ in range(3000):
            if self.service.is_slave_ok(self.master.log.committed_offset) is wanted:
                return
            pause.wait(0.01)
        raise AssertionError(self.slave.status())


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path)
    yield running
    running.stop()


@pytest.mark.slow
def test_send_ok_means_that_the_slave_has_it(running: Running) -> None:
    """A slave that joins late catches up while sends continue; every SEND_OK is in its log when it is answered."""
    assert set(running.send(GROUPS)) == {PutStatus.SLAVE_NOT_AVAILABLE}
    running.slave.start()
    running.wait_in_sync()
    assert set(running.send(GROUPS, GROUPS)) == {PutStatus.PUT_OK}
    end = running.master.log.committed_offset
    assert running.slave_store.log.committed_offset == end
    for at in range(0, end, SEGMENT_BYTES):
        length = min(SEGMENT_BYTES, end - at)
        assert running.slave_store.log.read(at, length).tobytes() == running.master.log.read(at, length).tobytes()
    assert running.slave.status().behind_bytes == 0
    assert not running.reopened.is_set()


@pytest.mark.slow
def test_a_stop_ends_the_wait_in_the_socket(running: Running) -> None:
    """An idle slave stops at once, and the master sees it go."""
    running.slave.start()
    running.wait_in_sync()
    running.slave.stop()
    assert running.slave.status().connected is False
    running.wait_in_sync(False)
    assert running.send(1) == [PutStatus.SLAVE_NOT_AVAILABLE]


@pytest.mark.slow
def test_a_promise_holds_while_data_pours_in(running: Running) -> None:
    """The log ends where it ended when the promise was answered: no byte of the old epoch is accepted any more."""
    running.slave.start()
    running.wait_in_sync()
    stop = threading.Event()

    def pour() -> None:
        number = 0
        while not stop.is_set():
            running.master.append(bodies(b"x" * 700))
            number += 1

    sender = threading.Thread(target=pour)
    sender.start()
    try:
        while running.slave_store.log.committed_offset < SEGMENT_BYTES:
            stop.wait(0.001)
        assert running.slave.promise(5_000_000, "other.1")
        end = running.slave_store.log.appended_offset
        while running.master.log.appended_offset <= end:
            stop.wait(0.001)
        stop.wait(0.3)
    finally:
        stop.set()
        sender.join()
    assert running.slave_store.log.appended_offset == end
    assert running.master.log.appended_offset > end
    assert running.service.is_fenced or not running.service.is_slave_ok(end)


@pytest.mark.slow
def test_a_slave_process_killed_anywhere_has_a_prefix(running: Running, tmp_path: Path) -> None:
    """``kill -9`` in the middle of a copy leaves a prefix, and the next process continues from it."""
    seed = time.time_ns() % 1_000_000
    print("seed", seed)
    rng = random.Random(seed)
    root = tmp_path / "killed"
    pause = threading.Event()
    received = 0
    for life in range(3):
        for number in range(800):
            running.master.append(bodies(rng.randbytes(900), str(number).encode() * 100, queue_id=number % 3))
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.store.ha.kill_slave_target", str(root), str(running.port)],
            cwd=Path(__file__).parents[3],
        )
        try:
            wanted = received + rng.randrange(1, 1_000_000)
            for _ in range(6000):
                acks = [slave.ack_offset for slave in running.service.status().slaves]
                if acks and acks[0] >= min(wanted, running.master.log.committed_offset):
                    break
                assert process.poll() is None, f"the slave ended by itself with {process.returncode}"
                pause.wait(0.005)
        finally:
            process.kill()
            process.wait()
        found = MessageStore(
            store_config(
                crashed_copy(root, tmp_path / f"copy{life}"),
                broker_role="SLAVE",
                mapped_file_size_commit_log=SEGMENT_BYTES,
                sync_on_close=False,
            )
        )
        found.open()
        end = found.log.committed_offset
        assert received <= acks[0] <= end <= running.master.log.committed_offset
        for at in range(0, end, SEGMENT_BYTES):
            length = min(SEGMENT_BYTES, end - at)
            assert found.log.read(at, length).tobytes() == running.master.log.read(at, length).tobytes()
        for queue_id in range(3):
            assert found.max_offset("T", queue_id) <= running.master.max_offset("T", queue_id)
        found.close()
        received = acks[0]
    assert received > 0
