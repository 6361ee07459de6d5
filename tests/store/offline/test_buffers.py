"""What offline tools say of messages that are only in surviving write buffers."""

from pathlib import Path

import pytest

from pocketmq.cli.log.opening import open_store
from pocketmq.store.commitlog.surviving_pool import SurvivingPool
from pocketmq.store.offline.buffers import buffers_left
from pocketmq.store.offline.errors import RepairRefused
from pocketmq.store.offline.reader import StoreReader
from pocketmq.store.offline.repair import Repair
from pocketmq.store.offline.verify import verify
from tests.store.log_fakes import Stepped


def running(base: Path) -> Stepped:
    """Return a store with one message in its file and one in a buffer."""
    (base / "shm").mkdir()
    pool = {"transient_store_pool_enable": True, "transient_store_pool_path": str(base / "shm")}
    stepped = Stepped(base / "store", None, **pool)
    stepped.append(b"first")
    stepped.store.log.commit()
    stepped.dispatch()
    stepped.append(b"second")
    return stepped


def die(stepped: Stepped, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the locks go, and the process that is looked for be another one."""
    pool, lock = stepped.store.pool, stepped.store.components.lock
    assert isinstance(pool, SurvivingPool)
    assert pool._file_lock is not None
    assert lock is not None
    pool._file_lock.release()
    lock.release()
    monkeypatch.setattr("pocketmq.store.recovery.left_buffers.process_start", lambda files, pid: "another")


def test_a_live_broker_is_a_note(tmp_path: Path) -> None:
    """It commits them soon."""
    stepped = running(tmp_path)
    reader = StoreReader.open(str(tmp_path / "store"))
    report = verify(reader)
    assert report.ok
    assert any("their process runs" in note for note in report.notes)
    stepped.store.close()
    assert buffers_left(reader.file_system, reader.paths) is None


def test_a_dead_one_is_a_fault_with_its_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``verify`` fails, ``repair`` refuses, ``dump`` and ``export`` warn; after a start all is well."""
    stepped = running(tmp_path)
    die(stepped, monkeypatch)
    directory = str(tmp_path / "store")
    reader = StoreReader.open(directory)
    report = verify(reader)
    assert not report.ok
    assert [problem for problem in report.problems if "98 bytes" in problem and "start the broker once" in problem]
    before = {path: path.read_bytes() for path in (tmp_path / "store" / "commitlog").iterdir()}
    with pytest.raises(RepairRefused, match="in write buffers"):
        Repair(directory).run()
    assert {path: path.read_bytes() for path in (tmp_path / "store" / "commitlog").iterdir()} == before
    open_store(directory)
    assert "warning: up to 98 bytes" in capsys.readouterr().err
    Stepped(tmp_path / "store", None).store.close()
    assert verify(StoreReader.open(directory)).ok


def test_buffers_that_are_gone_are_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new container: nothing can bring them back."""
    stepped = running(tmp_path)
    die(stepped, monkeypatch)
    for path in sorted((tmp_path / "shm").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    report = verify(StoreReader.open(str(tmp_path / "store")))
    assert report.ok
    assert any("gone from shared memory" in note for note in report.notes)
