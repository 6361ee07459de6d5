"""``kill -9`` of a real process with surviving write buffers."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from pocketmq.store.message_store import MessageStore
from tests.store.kill_surviving_target import settings
from tests.store.log_fakes import HOST, read_queue, store_config

SOURCE = Path(__file__).resolve().parents[3]


def run_and_kill(root: Path, lines: int, commit_ms: int = 20) -> tuple[int, int, int]:
    """Return the number of messages, the committed and the appended offset that were told last."""
    environment = dict(os.environ, PYTHONPATH=f"{SOURCE / 'src'}{os.pathsep}{SOURCE}")
    command = [sys.executable, "-m", "tests.store.kill_surviving_target", str(root), str(commit_ms)]
    told = (0, 0, 0)
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd=SOURCE) as process:
        assert process.stdout is not None
        heard = 0
        for line in process.stdout:
            words = line.split()
            if words[:1] == [b"acknowledged"] and line.endswith(b"\n"):
                told = (int(words[1]), int(words[2]), int(words[3]))
                heard += 1
                if heard == lines:
                    process.kill()
    assert heard >= lines, process.returncode
    return told


def check(root: Path, acknowledged: int) -> int:
    """Open the store; assert that it has all messages without a gap; return how many bytes came from buffers."""
    store = MessageStore(store_config(root / "store", **settings(str(root))))
    store.store_host = HOST
    report = store.open()
    assert (report.damaged, report.suspect, report.buffers.kept) == ([], [], True)
    numbers = []
    for queue_id in range(3):
        for record in read_queue(store, "T", queue_id):
            number = int(record.body.split()[0])
            assert record.body == b"%d " % number + bytes(number * 7 % 900)
            assert number % 3 == queue_id
            numbers.append(number)
    assert sorted(numbers) == list(range(len(numbers)))
    assert len(numbers) >= acknowledged
    store.close()
    assert list((root / "shm").iterdir()) == []
    return report.buffers.written_bytes


@pytest.mark.slow
def test_kill_9_loses_no_acknowledged_message(tmp_path: Path) -> None:
    """Not even one that was in no file of the log yet."""
    (tmp_path / "shm").mkdir()
    acknowledged, committed, appended = run_and_kill(tmp_path, 100, 3_600_000)
    assert committed < appended, "nothing was left in the buffers"
    assert check(tmp_path, acknowledged) > 0


@pytest.mark.soak
@pytest.mark.slow
def test_many_kills_in_a_row_lose_nothing(tmp_path: Path) -> None:
    """Each start finds what the one before left; every third time it is killed without a look in between."""
    (tmp_path / "shm").mkdir()
    rng = random.Random(7)
    for round_number in range(40):
        acknowledged, _, _ = run_and_kill(tmp_path, rng.randint(1, 900))
        if round_number % 3:
            check(tmp_path, acknowledged)
