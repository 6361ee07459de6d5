"""RocksDB's own faults: another process owns it, it is damaged, its process is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client.durable.entry import Entry, KeptMessage, decode_kept, encode_kept
from pocketmq.client.durable.errors import RetryStoreCorrupt, RetryStoreLocked
from pocketmq.client.durable.opening import StoreOptions, open_url
from pocketmq.client.durable.store import DUE_MS_MAX, Changes
from pocketmq.common.clock import SystemClock

pytest.importorskip("rocksdict")

WRITER = """
import sys
from pocketmq.client.durable.entry import Entry, KeptMessage, encode_kept
from pocketmq.client.durable.opening import StoreOptions, open_url
from pocketmq.client.durable.store import Changes
from pocketmq.common.clock import SystemClock
store = open_url(sys.argv[1], StoreOptions(), SystemClock())
store.open()
number = 0
while True:
    entries = []
    for _ in range(20):
        number += 1
        kept = KeptMessage(topic="T", body=b"%d" % number, uniq_key=b"id")
        entries.append(Entry(number, number, 0, "", "", encode_kept(kept)))
    store.write(Changes(added=entries))
    print(number, flush=True)
"""


def store_at(path: Path) -> Any:
    return open_url(f"rocksdb://{path}", StoreOptions(), SystemClock())


def fill(path: Path, count: int, *, flush: bool = True) -> None:
    store = store_at(path)
    store.open()
    for start in range(0, count, 50):
        numbers = range(start + 1, start + 51)
        payloads = {n: encode_kept(KeptMessage(topic="T", body=os.urandom(500), uniq_key=b"id")) for n in numbers}
        store.write(Changes(added=[Entry(number, number, 0, "", "", payloads[number]) for number in numbers]))
    if flush:
        store._db.flush()
    store.close()


@pytest.mark.slow
def test_a_killed_process_loses_nothing_it_was_told(tmp_path: Path) -> None:
    """While it lives another process is refused; after kill -9 every confirmed entry is there, groups as a whole."""
    pythonpath = os.pathsep.join(sys.path)
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, f"rocksdb://{tmp_path / 'r'}"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": pythonpath},
    )
    assert process.stdout is not None
    confirmed = 0
    try:
        for _ in range(50):
            confirmed = int(process.stdout.readline())
        with pytest.raises(RetryStoreLocked):
            store_at(tmp_path / "r").open()
        reader = store_at(tmp_path / "r")
        assert reader.open(read_only=True).count >= confirmed
        reader.close()
    finally:
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split("\n")
        process.stdout.close()
        process.wait()
    confirmed = max([confirmed, *(int(line) for line in rest[:-1])])
    store = store_at(tmp_path / "r")
    summary = store.open()
    assert summary.count >= confirmed
    assert summary.count % 20 == 0
    bodies = [int(decode_kept(entry.payload).body) for entry in store.due((0, 0), DUE_MS_MAX, 1 << 30, 1 << 40)]
    assert bodies == list(range(1, summary.count + 1))
    store.close()


@pytest.mark.parametrize("file", ["CURRENT", "MANIFEST"])
def test_a_damaged_directory_is_repaired_with_its_messages(tmp_path: Path, file: str) -> None:
    """The list of files is lost: the opening reports corrupt, the repair finds the messages again."""
    fill(tmp_path / "r", 200)
    [path] = [each for each in (tmp_path / "r").iterdir() if each.name.startswith(file)]
    data = bytearray(path.read_bytes())
    data[5:30] = b"\xff" * 25
    path.write_bytes(data)
    store = store_at(tmp_path / "r")
    with pytest.raises(RetryStoreCorrupt):
        store.open()
    assert "repaired" in store.repair()
    assert store.open().count == 200
    store.close()


def test_a_flipped_byte_in_a_table_is_noticed_and_what_cannot_be_saved_is_kept_aside(tmp_path: Path) -> None:
    """No message is invented, the program goes on with a usable store, and no file is deleted."""
    fill(tmp_path / "r", 400)
    for table in (tmp_path / "r").glob("*.sst"):
        data = bytearray(table.read_bytes())
        data[100:3000] = bytes(2900)
        table.write_bytes(data)
    store = store_at(tmp_path / "r")

    def read() -> None:
        store.open()
        store.due((0, 0), DUE_MS_MAX, 1 << 30, 1 << 40)

    with pytest.raises(RetryStoreCorrupt):
        read()
    said = store.repair()
    summary = store.open()
    for entry in store.due((0, 0), DUE_MS_MAX, 1 << 30, 1 << 40):
        if entry.payload:
            decode_kept(entry.payload)
    store.write(Changes(added=[Entry(1 << 50, 1, 0, "", "", b"x")]))
    store.close()
    aside = list(tmp_path.glob("r.corrupt-*"))
    assert (aside and "NOT resent" in said) or "repaired" in said
    assert summary.count < 400 or aside or (tmp_path / "r" / "lost").exists()
