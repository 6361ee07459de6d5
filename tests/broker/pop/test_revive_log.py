"""Messages that RocketMQ's broker has left in flight."""

import json
from pathlib import Path
from typing import Any

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.pop.revive_log import REVIVE_GROUP, REVIVE_PREFIX
from pocketmq.common.receipt_handle import ReceiptHandle
from tests.broker.conftest import Client, Harness, eventually
from tests.broker.stories.test_pop import HOUR_MS, ack, committed, handles_of, pop

LOG = REVIVE_PREFIX + "DefaultCluster"
POP_TIME = 1_700_000_000_000


def check_point(start: int, *distances: int, pop_time: int = POP_TIME, invisible_ms: int = 1, bits: int = 0) -> bytes:
    """Return a check point as RocketMQ 5.3.3 writes it (PopCheckPoint)."""
    body = {"bm": bits, "bn": "broker-a", "c": "g", "d": list(distances), "it": invisible_ms, "n": len(distances)}
    return json.dumps({**body, "pt": pop_time, "q": 0, "ro": 0, "so": start, "t": "T"}).encode()


def acknowledged(start: int, *offsets: int) -> bytes:
    """Return an acknowledgement: AckMsg, or BatchAckMsg for several."""
    body: dict[str, Any] = {"bn": "broker-a", "c": "g", "pt": POP_TIME, "q": 0, "so": start, "t": "T"}
    more = {"ao": offsets[0]} if len(offsets) == 1 else {"ao": -1, "aol": offsets}
    return json.dumps({**body, **more}).encode()


async def left_by_rocketmq(harness: Harness, tmp_path: Path) -> BrokerApp:
    """Return a broker on a store in which offsets are committed, and check points say what is in flight."""
    app = await harness.broker()
    client: Client = await harness.client(app)
    await client.put(*[b"%d" % number for number in range(20)])

    async def put(tag: str, *bodies: bytes) -> None:
        for body in bodies:
            assert (await client.send(LOG, body, properties=f"TAGS\x01{tag}\x02")).code == 0

    await put("ck", check_point(0, 0, 1, 2))  # read already
    later = check_point(8, 0, 1, 2, invisible_ms=12 * HOUR_MS, pop_time=2 * POP_TIME)
    await put("ck", check_point(3, 0, 1, 2, 4, bits=0b10), later, b"{")
    await put("ack", acknowledged(3, 3))
    await put("bAck", acknowledged(3, 7, 99))
    timer = {"TAGS": "ck", "TIMER_DELIVER_MS": str(app._clock.now_ms() + HOUR_MS)}
    properties = "".join(f"{name}\x01{value}\x02" for name, value in timer.items())
    sent = await client.send(LOG, check_point(12, 0, 1, pop_time=3 * POP_TIME), properties=properties)
    assert sent.code == 0, sent
    await eventually(lambda: app.store.max_offset(LOG, 0) == 6)
    app.offsets.commit("g", "T", 0, 15)
    app.offsets.commit(REVIVE_GROUP, LOG, 0, 1)
    await app.stop()
    (tmp_path / "store" / "pocketmq" / "popState.json").unlink()  # RocketMQ has no such file
    (tmp_path / "store" / "pocketmq" / "popState.json.bak").unlink(missing_ok=True)
    return await harness.broker()


async def test_what_rocketmq_left_in_flight_is_in_flight_here(harness: Harness, tmp_path: Path) -> None:
    """Its handles are good, what was acknowledged does not come, all else does, once."""
    app = await left_by_rocketmq(harness, tmp_path)
    client = await harness.client(app)
    queue = app.pop.ledger.queues["g", "T", 0]
    assert set(queue.unacked) <= {5, 8, 9, 10, 12, 13}
    handle = ReceiptHandle(8, 2 * POP_TIME, 12 * HOUR_MS, 3, "0", "broker-a", 0, 9)
    assert (await ack(client, handle)).code == 0
    seen: dict[bytes, int] = {}
    while set(seen) < {b"5", *[b"%d" % number for number in range(15, 20)]}:
        response = await pop(client, poll_time=5_000)
        for body, _ in handles_of(response) if response.code == 0 else ():
            seen[body] = seen.get(body, 0) + 1
    assert set(seen.values()) == {1}
    await eventually(lambda: set(queue.unacked) & set(range(15)) == {8, 10, 12, 13})
    assert await committed(client) == 8
    await app.stop()
    app = await harness.broker()
    assert set(app.pop.ledger.queues["g", "T", 0].unacked) & set(range(15)) == {8, 10, 12, 13}


async def test_a_store_without_pops_is_left_alone(harness: Harness) -> None:
    """The usual case: no such topic."""
    app = await harness.broker()
    assert app.pop.ledger.count == 0
