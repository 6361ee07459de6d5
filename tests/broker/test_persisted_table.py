"""Tables on disk: written when changed, read back, restored from the backup."""

from typing import Any

import msgspec
import pytest

from pocketmq.broker.persisted_table import BACKUP, PersistedTable
from pocketmq.common.errors import CorruptRecord
from pocketmq.common.events import NullLog
from pocketmq.common.sealed_json import unseal


class FakeFiles:
    """A file system of whole files that counts its writes."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.writes: list[str] = []

    def read_all(self, path: str) -> Any:
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    def exists(self, path: str) -> bool:
        return path in self.files

    def list(self, path: str) -> Any:
        return sorted(each.removeprefix(path + "/") for each in self.files if each.startswith(path + "/"))

    def rename(self, source: str, target: str) -> None:
        self.files[target] = self.files.pop(source)

    def remove(self, path: str) -> None:
        self.files.pop(path, None)

    def replace(self, path: str, data: bytes, *, durable: Any = True) -> None:
        self.writes.append(path)
        self.files[path] = data


class Numbers:
    """The simplest table."""

    def __init__(self, numbers: Any = None) -> None:
        self.numbers = numbers or {}
        self.generation = 0

    def encode(self) -> Any:
        return msgspec.json.encode(self.numbers)

    def load(self, content: bytes) -> None:
        self.numbers = msgspec.json.decode(content, type=dict[str, int])


def persisted(table: Any, files: Any) -> Any:
    return PersistedTable(table, "/config/t.json", files, NullLog())


def test_a_table_is_written_once_per_change_and_comes_back() -> None:
    """Without a change there is no write; the old content is the backup."""
    files, table = FakeFiles(), Numbers({"a": 1})
    file = persisted(table, files)
    assert file.persist()
    assert not file.persist()
    table.numbers["b"] = 2
    table.generation += 1
    assert file.persist()
    assert files.writes == ["/config/t.json", "/config/t.json" + BACKUP, "/config/t.json"]
    again = Numbers()
    assert persisted(again, files).load()
    assert again.numbers == {"a": 1, "b": 2}
    assert msgspec.json.decode(unseal(files.files["/config/t.json" + BACKUP])) == {"a": 1}


def test_a_damaged_file_falls_back_to_its_backup() -> None:
    """A torn file does not cost the table."""
    files = FakeFiles()
    files.files = {"/config/t.json": b'{"a":', "/config/t.json" + BACKUP: b'{"a":7}'}
    table = Numbers()
    assert persisted(table, files).load()
    assert table.numbers == {"a": 7}


def test_a_damaged_file_never_replaces_its_backup() -> None:
    """The backup is the only good copy until the file is written again: a crash in between must not cost it."""
    files = FakeFiles()
    files.files = {"/config/t.json": b'{"a":', "/config/t.json" + BACKUP: b'{"a":7}'}
    table = Numbers()
    file = persisted(table, files)
    assert file.load()
    assert file.persist()
    assert files.writes == ["/config/t.json"]
    table.generation += 1
    assert file.persist()
    assert msgspec.json.decode(unseal(files.files["/config/t.json" + BACKUP])) == {"a": 7}


def test_without_any_readable_file_the_start_is_refused() -> None:
    """An empty table never replaces a damaged one; a missing file is not damage."""
    files = FakeFiles()
    assert not persisted(Numbers(), files).load()
    files.files = {"/config/t.json": b"nonsense"}
    with pytest.raises(CorruptRecord, match=r"t\.json"):
        persisted(Numbers(), files).load()


def test_fastjsons_bare_keys_are_read() -> None:
    """RocketMQ writes integer keys without quotes."""
    files = FakeFiles()
    files.files = {"/config/t.json": b"{0:5, 1:7}"}
    table = Numbers()
    assert persisted(table, files).load()
    assert table.numbers == {"0": 5, "1": 7}
