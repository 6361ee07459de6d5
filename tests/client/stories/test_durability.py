"""The texts of receipts against brokers with each setting."""

from typing import Any

import pytest

from pocketmq.client import Message, Producer
from pocketmq.testing import PocketBroker

ANONYMOUS = {
    "transient_store_pool_enable": True,
    "transient_store_pool_size": 2,
    "transient_store_pool_path": "anonymous",
}
SURVIVES_BOTH = "survives the end of its process and a power loss"
SURVIVES_KILL = "survives the end of the broker's process, a power loss may lose it"
SURVIVES_NEITHER = "the end of its process within the next moment may lose it, and a power loss may"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "waited", "not_waited"),
    [
        ({"flush_disk_type": "SYNC_FLUSH"}, SURVIVES_BOTH, SURVIVES_KILL),
        ({}, SURVIVES_KILL, SURVIVES_KILL),
        (ANONYMOUS, SURVIVES_NEITHER, SURVIVES_NEITHER),
        ({**ANONYMOUS, "transient_store_pool_path": "/dev/shm"}, SURVIVES_KILL, SURVIVES_KILL),
    ],
    ids=["sync", "async", "anonymous pool", "surviving pool"],
)
async def test_a_receipt_says_what_its_broker_promises(settings: dict[str, Any], waited: str, not_waited: str) -> None:
    """It depends on the broker's setting and on the message's wait, for native and RocketMQ sends alike."""
    with PocketBroker(store={**settings, "mapped_file_size_commit_log": 1 << 20}) as broker:
        async with Producer(group="g", namesrv=broker.namesrv) as producer:
            for wait, words in ((True, waited), (False, not_waited)):
                receipt = await producer.send(Message("T", b"x", wait_store_msg_ok=wait))
                assert words in receipt.durability
