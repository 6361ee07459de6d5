"""A file system of two MiB that is really full: a mount, not a simulation."""

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.common.errors import Cause
from pocketmq.store.append_result import AppendResult
from pocketmq.store.disk.os_file_system import OsFileSystem
from pocketmq.store.message_store import MessageStore
from tests.store.log_fakes import Stepped, bodies, read_queue, store_config

SIZE_KIB = 2048
SETTINGS: dict[str, Any] = {"mapped_file_size_commit_log": 128 << 10, "mapped_file_size_consume_queue": 20 * 4096}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a tmpfs; skip where that is not permitted."""
    mount = tmp_path / "disk"
    mount.mkdir()
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SIZE_KIB}k", "tmpfs", str(mount)],
            check=False,
            capture_output=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"no small file system for a full disk: {error}")
    if done.returncode:
        pytest.skip(f"no small file system for a full disk: {done.stderr.decode().strip()}")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True, timeout=10)


class Filling:
    """A store on the small disk, with real threads, and the bodies of its messages."""

    def __init__(self, root: Path, **changes: object) -> None:
        self.store = MessageStore(store_config(root, **SETTINGS, **changes))
        self.store.store_host = bytes(8)
        self.taken: list[bytes] = []
        self.store.open()

    def put(self, size_bytes: int = 1000) -> AppendResult:
        body = (b"%06d" % len(self.taken)).ljust(size_bytes, b"x")
        result = self.store.append(bodies(body))
        if result.status.is_stored:
            self.taken.append(body)
        return result

    def fill(self) -> AppendResult:
        """Append until the store refuses; return its refusal."""
        for _ in range(SIZE_KIB * 2):
            result = self.put()
            if not result.status.is_stored:
                return result
        raise AssertionError("the disk does not get full")

    def read(self) -> list[bytes]:
        self.store.show_all()
        return [record.body for record in read_queue(self.store, "T")]


@pytest.mark.slow
@pytest.mark.parametrize("append_mode", ["mapped", "written"])
def test_a_full_disk_refuses_and_goes_on(small_disk: Path, append_mode: str) -> None:
    """Typed refusals, consumers that go on; when space returns sends work without a restart, no message lost or
    doubled.
    """
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(300 << 10))
    filling = Filling(small_disk / "store", append_mode=append_mode, clean_resource_interval=20)
    refused = filling.fill()
    assert (refused.status.code, refused.cause) == (14, Cause.DISK_FULL)
    with (small_disk / "more").open("wb", buffering=0) as more, contextlib.suppress(OSError):
        while True:
            more.write(bytes(4096))
    assert OsFileSystem().free_bytes(str(small_disk))[0] == 0
    while filling.put(100).status.is_stored:  # small ones fit into the last segment, whose space is reserved
        pass
    before = len(filling.taken)
    for _ in range(20):
        assert filling.put().cause is Cause.DISK_FULL
        assert filling.read() == filling.taken
    ballast.unlink()
    (small_disk / "more").unlink()
    while not filling.put().status.is_stored:  # the next look at the disk ends the refusals
        time.sleep(0.005)
    for _ in range(50):
        assert filling.put().status.is_stored
    assert len(filling.taken) == before + 51
    assert filling.read() == filling.taken
    filling.store.close()
    again = Filling(small_disk / "store", append_mode=append_mode)
    assert again.read() == filling.taken
    again.store.close()


def test_retention_makes_room_by_itself(small_disk: Path) -> None:
    """If it may force segments out, the next round removes the oldest, and the store accepts messages again."""
    filling = Filling(
        small_disk / "store", checkpoint_interval=50, clean_resource_interval=50, clean_file_forcibly_enable=True
    )
    assert filling.fill().cause is Cause.DISK_FULL
    filling.store.checkpoint()
    filling.store.retention.delete_soon()  # otherwise no segment is removed in the first minute
    while filling.store.log.min_offset == 0:  # the test's timeout ends it
        filling.store.checkpoint()
    filling.store.retention.stop()
    filling.store.retention.clean_up()  # the rest of the interrupted round
    assert filling.put().status.is_stored
    assert filling.read() == filling.taken[filling.store.min_offset("T", 0) :]
    filling.store.close()


def test_a_killed_store_on_a_full_disk_starts(small_disk: Path) -> None:
    """The recovery's writes fit into existing space, or the error says what is missing and the files stay."""
    stepped = Stepped(small_disk / "store", **SETTINGS)
    taken: list[bytes] = []
    while True:
        body = (b"%06d" % len(taken)).ljust(1000, b"x")
        if not stepped.store.append(bodies(body)).status.is_stored:
            break
        taken.append(body)
        stepped.dispatch()
        if len(taken) == 50:
            stepped.store.checkpoint()
    stepped.store.components.lock.release()  # type: ignore[union-attr]  # the process is gone
    again = Stepped(small_disk / "store", **SETTINGS)
    assert again.report.kind == "unclean"
    assert again.bodies() == taken
    again.store.close()


def test_a_segment_that_does_not_fit_is_not_begun(small_disk: Path) -> None:
    """Its reservation would take the last space from consume queues and other programs, if only for a moment."""
    filling = Filling(small_disk / "store")
    refused = filling.fill()
    assert "are free, a file of the log takes 128 KiB (store.mapped_file_size_commit_log)" in refused.error
    assert not [path for path in (small_disk / "store/commitlog").iterdir() if path.suffix]
    assert 131072 // 4 <= OsFileSystem().free_bytes(str(small_disk))[0] < 131072 * 5 // 4
    filling.store.close()
