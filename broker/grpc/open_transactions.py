"""Which half message is which? gRPC clients name a transaction by the id of its message, the log by its place.

A producer that ends a transaction has sent its half message a moment ago through this process, or has just been asked
about it: both write a line here. After a restart the first check of each open half message brings it back.

Lives here: ``OpenTransactions``.
"""

from collections import OrderedDict
from typing import Final

from pocketmq.common.bounds import bounded

TRANSACTIONS_MAX: Final = 100_000
"""As many as a broker keeps open (``broker.transaction_pending_max``)."""
ENTRY_BYTES: Final = 600


@bounded("gRPC transactions", limit=TRANSACTIONS_MAX, size="places", entry_bytes=ENTRY_BYTES, when_full="evicts")
class OpenTransactions:
    """Topic and message id → (offset in the half topic, physical offset). Loop thread only."""

    def __init__(self) -> None:
        self.places: OrderedDict[tuple[str, str], tuple[int, int]] = OrderedDict()

    def begun(self, topic: str, message_id: str, queue_offset: int, physical_offset: int) -> None:
        """Note a half message."""
        self.places[topic, message_id] = queue_offset, physical_offset
        if len(self.places) > TRANSACTIONS_MAX:
            self.places.popitem(last=False)

    def find(self, topic: str, message_id: str) -> tuple[int, int] | None:
        """Return the place of a half message."""
        return self.places.get((topic, message_id))
