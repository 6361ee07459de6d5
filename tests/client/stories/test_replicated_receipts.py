"""How a receipt describes a synchronous master's answer."""

import pytest

from pocketmq.client.message.receipts import Receipt, SectionOutcome, SendStatus


def receipt(
    status: SendStatus = SendStatus.SEND_OK, *, copies: int = 2, waited: bool = True, flush: str = "ASYNC_FLUSH"
) -> Receipt:
    """Return a receipt of one message."""
    outcome = SectionOutcome(
        "T", "broker-a", 0, 0, status, attempts=1, waited=waited, flush=flush, in_sync_replicas=copies
    )
    return Receipt(outcome, 0, b"0" * 32)


def test_copies_are_named_beside_the_disk() -> None:
    """SEND_OK of a synchronous master: the state of the disk, and the number of machines."""
    words = receipt(copies=3, flush="SYNC_FLUSH").durability
    assert words.startswith("stored and synced to the broker's disk")
    assert "; 3 copies have it" in words


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (receipt(copies=1), "page cache"),
        (receipt(waited=False), "page cache"),
        (receipt(SendStatus.FLUSH_SLAVE_TIMEOUT), "no slave confirmed in time"),
        (receipt(SendStatus.SLAVE_NOT_AVAILABLE), "no usable slave is connected"),
    ],
)
def test_what_was_not_waited_for_or_not_confirmed_names_no_copies(made: Receipt, words: str) -> None:
    """The receipt promises only what the answer meant."""
    assert words in made.durability
    assert "copies" not in made.durability
