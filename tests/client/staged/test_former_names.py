"""The former names of staged transactions, once called named transactions, still work and warn."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from pocketmq.client import staged_transaction as public
from pocketmq.client.staged import staged_transaction
from pocketmq.client.staged_transaction import StagedTransactions, StagedWrite
from pocketmq.testing.broker import PocketBroker

FORMER = "pocketmq.client.named_transaction"


def former(name: str) -> object:
    """Return the module's attribute by a name that its type stub lacks."""
    return getattr(staged_transaction, name)


@pytest.fixture
def not_imported() -> Iterator[None]:
    """Remove the former module from the imported ones."""
    known = sys.modules.pop(FORMER, None)
    yield
    sys.modules.pop(FORMER, None)
    if known is not None:
        sys.modules[FORMER] = known


@pytest.mark.usefixtures("not_imported")
def test_the_former_module_has_the_same_classes() -> None:
    with pytest.warns(DeprecationWarning, match=r"named_transaction is now pocketmq\.client\.staged_transaction"):
        former = importlib.import_module(FORMER)
    names = {"StagedTransactions": "NamedTransactions", "StagedWrite": "Part", "StagedWriter": "PartWriter"}
    for name in public.__all__:
        assert getattr(former, names.get(name, name)) is getattr(public, name)


def test_the_former_class_is_found_where_the_code_is() -> None:
    with pytest.warns(DeprecationWarning, match="NamedTransactions is now StagedTransactions") as seen:
        assert former("NamedTransactions") is StagedTransactions
    assert seen[0].filename == __file__
    with pytest.raises(AttributeError, match="nonsense"):
        former("nonsense")


def test_a_part_has_its_former_fields() -> None:
    with pytest.warns(DeprecationWarning, match=r"(name|sequence) of StagedWrite\.__init__ is now") as seen:
        part = StagedWrite(name="job", sequence=3, attempt="a")  # type: ignore[call-arg]
    assert len(seen) == 2
    assert part == StagedWrite("job", 3, "a")
    with pytest.warns(DeprecationWarning, match=r"StagedWrite\.name is now transactional_id"):
        assert part.name == "job"  # type: ignore[attr-defined]
    with pytest.warns(DeprecationWarning, match=r"StagedWrite\.sequence is now version"):
        assert part.sequence == 3  # type: ignore[attr-defined]


async def test_methods_take_the_former_arguments(tmp_path: Path) -> None:
    with PocketBroker(data_dir=tmp_path) as broker:
        async with StagedTransactions("etl", broker.namesrv, wait_ms=5000) as transactions:
            with pytest.warns(DeprecationWarning, match="argument (name|sequence) of StagedTransactions.writer"):
                writer = transactions.writer(name="job", sequence=3, topic="T")  # type: ignore[call-arg]
            await writer.write(pa.RecordBatch.from_pydict({"body": [b"1"]}))
            part = await writer.close()
            with pytest.warns(DeprecationWarning, match="argument (name|sequence) of StagedTransactions.commit"):
                is_first = await transactions.commit(name="job", sequence=3, parts=[part])  # type: ignore[call-arg]
            assert is_first
            with pytest.warns(DeprecationWarning, match="argument (name|sequence) of StagedTransactions.is_committed"):
                assert await transactions.is_committed(name="job", sequence=3)  # type: ignore[call-arg]
