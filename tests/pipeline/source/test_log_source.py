"""A store directory as a table without its broker: RocketMQ's layout, damage, parts. The reader is called without a
JVM."""

import asyncio
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.client import Message, Producer
from pocketmq.pipeline.errors import DataLost, OptionIllegal
from pocketmq.pipeline.source.log_source import LogReader, PocketMQLogSource
from pocketmq.store.offline.buffers import BuffersLeft
from pocketmq.store.offline.errors import NotAStore
from pocketmq.testing import PocketBroker

pytestmark = pytest.mark.slow
COUNT = 3000
MARK = b"m%05d"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a broker that has ended; a few files of the log."""
    directory = tmp_path_factory.mktemp("stopped") / "store"
    store = {"mapped_file_size_commit_log": 1 << 20, "sync_on_close": True}
    with PocketBroker(data_dir=directory, store=store) as broker:

        async def send() -> None:
            async with Producer(group="test", namesrv=broker.namesrv) as producer:
                for at in range(0, COUNT, 100):
                    batch = [
                        Message("log", MARK % n + b"x" * 800, tags="t", keys=[f"k{n}"]) for n in range(at, at + 100)
                    ]
                    await producer.send_batch(batch)

        asyncio.run(send())
    assert len(list((directory / "commitlog").iterdir())) > 2
    return directory


@pytest.fixture
def as_rocketmq(stopped: Path, tmp_path: Path) -> Iterator[Path]:
    """Make a copy in RocketMQ's layout, without PocketMQ's own files."""
    copy = tmp_path / "store"
    shutil.copytree(stopped, copy)
    shutil.rmtree(copy / "pocketmq")
    shutil.rmtree(copy / "checksums", ignore_errors=True)
    yield copy
    shutil.rmtree(copy)


def reader(directory: Path, **options: str) -> LogReader:
    """Return the reader of a directory."""
    source = PocketMQLogSource({"path": str(directory), "topics": "log", **options})
    found = source.reader(source.schema())
    assert isinstance(found, LogReader)
    return found


def numbers(source: LogReader) -> list[int]:
    """Return the numbers in the bodies of all parts, each read as by a separate task."""
    found: list[int] = []
    for part in source.partitions():
        for batch in source.read(pickle.loads(pickle.dumps(part))):
            found += [int(body.as_py()[1:6]) for body in batch.column("body")]
    return found


def test_both_layouts_hold_the_same(stopped: Path, as_rocketmq: Path) -> None:
    """Without checksum files each record is checked by itself, and a file of the log is one part."""
    ours, theirs = reader(stopped, partBytes=str(1 << 18)), reader(as_rocketmq, partBytes=str(1 << 18))
    assert sorted(numbers(ours)) == sorted(numbers(theirs)) == list(range(COUNT))
    assert len(theirs.partitions()) == len(list((as_rocketmq / "commitlog").iterdir())) < len(ours.partitions())


def test_the_log_alone_is_enough(as_rocketmq: Path) -> None:
    """A backup may hold only ``commitlog/``, and the option may name this directory."""
    for each in as_rocketmq.iterdir():
        if each.name != "commitlog":
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    assert sorted(numbers(reader(as_rocketmq / "commitlog"))) == list(range(COUNT))


def test_damage_is_skipped_and_counted(as_rocketmq: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The user sees the count of lost ranges and bytes and the first position; or an error, if the option says so."""
    log = sorted((as_rocketmq / "commitlog").iterdir())[0]
    data = bytearray(log.read_bytes())
    for number in (5, 6, 40):  # two adjacent records are one range
        at = data.index(MARK % number)
        data[at + 10 : at + 20] = b"damaged!!!"
    log.write_bytes(data)
    assert sorted(numbers(reader(as_rocketmq))) == sorted(set(range(COUNT)) - {5, 6, 40})
    printed = capfd.readouterr().err
    assert "pocketmq-log: skipped 2 damaged ranges, " in printed
    assert "body CRC differs" in printed
    with pytest.raises(DataLost, match="the log is damaged: 2 damaged ranges"):
        numbers(reader(as_rocketmq, failOnDamage="true"))


def test_messages_that_are_only_in_write_buffers_are_told(
    as_rocketmq: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead broker's buffers hold more than its log; or an error, if that is wanted."""
    left = BuffersLeft("held", "up to 98 bytes of the log are in write buffers")
    monkeypatch.setattr("pocketmq.pipeline.source.log_source.buffers_left", lambda files, paths: left)
    reader(as_rocketmq).partitions()
    assert "pocketmq-log: up to 98 bytes" in capfd.readouterr().err
    with pytest.raises(DataLost, match="the log is not complete"):
        reader(as_rocketmq, failOnDamage="true").partitions()


def test_a_file_that_is_missing_is_reported(as_rocketmq: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A missing file between two others is damage, too."""
    hole = sorted((as_rocketmq / "commitlog").iterdir())[1]
    hole.unlink()
    found = numbers(reader(as_rocketmq))
    assert 0 < len(found) < COUNT
    assert f"no file for {1 << 20} bytes of the log from {1 << 20} on" in capfd.readouterr().err
    with pytest.raises(DataLost, match="no file for"):
        reader(as_rocketmq, failOnDamage="true").partitions()


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    """A missing directory and an unknown option are refused."""
    with pytest.raises(NotAStore, match="does not exist"):
        reader(tmp_path / "none").partitions()
    with pytest.raises(OptionIllegal, match="did you mean failOnDamage"):
        reader(tmp_path, failOnDamge="true")
