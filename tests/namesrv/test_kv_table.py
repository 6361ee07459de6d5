"""Settings by namespace: stored, bounded, deleted."""

import pytest

from pocketmq.namesrv.kv_table import KVTable, KVTableFull


def test_values_are_kept_replaced_and_deleted() -> None:
    """An empty namespace does not stay."""
    table = KVTable(10, 1000)
    table.put("n", "k", "v1")
    table.put("n", "k", "v2")
    assert table.get("n", "k") == "v2"
    assert table.namespace("n") == {"k": "v2"}
    assert len(table) == 1
    table.delete("n", "k")
    table.delete("n", "k")
    assert table.namespace("n") is None
    assert len(table) == 0


def test_entries_and_bytes_are_bounded() -> None:
    """A change over a limit is refused; a replacement within it works."""
    table = KVTable(1, 10)
    table.put("n", "k", "1234")
    with pytest.raises(KVTableFull):
        table.put("n", "j", "1")
    with pytest.raises(KVTableFull):
        table.put("n", "k", "123456789")
    table.put("n", "k", "12345678")
    table.delete("n", "k")
    table.put("m", "j", "12345678")
