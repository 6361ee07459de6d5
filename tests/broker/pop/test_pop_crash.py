"""A crash repeats some messages and loses none: the store as a killed process leaves it, at any moment."""

import asyncio
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.app import BrokerApp
from pocketmq.broker.pop.pop_snapshot import PopState
from pocketmq.common.receipt_handle import ReceiptHandle
from pocketmq.common.record_codec import decode_record
from tests.broker.conftest import Client, Harness, eventually
from tests.broker.stories.test_pop import ack, change, handles_of, pop

MESSAGES = 60
STEPS = 60


def state_of(app: BrokerApp) -> PopState:
    return next(each for each in app._run.services if isinstance(each, PopState))


def in_flight(app: BrokerApp) -> set[bytes]:
    """Return the bodies of the messages in flight."""
    found: set[bytes] = set()
    for (_, topic, queue_id), queue in app.pop.ledger.queues.items():
        for offset in queue.unacked:
            result = app.store.get(topic, queue_id, offset, max_messages=1, max_bytes=1 << 20)
            found.add(decode_record(result.body.tobytes()).body)
    return found


async def lived(client: Client, app: BrokerApp, rng: random.Random) -> set[bytes]:
    """Pop, acknowledge, give back and write the state in any order; return the bodies that were acknowledged."""
    held: list[tuple[bytes, ReceiptHandle]] = []
    acked: set[bytes] = set()
    for _ in range(STEPS):
        step = rng.random()
        if step < 0.4 or not held:
            response = await pop(client, count=rng.randint(1, 8))
            held += handles_of(response) if response.code == 0 else []
        elif step < 0.75:
            body, handle = held.pop(rng.randrange(len(held)))
            if (await ack(client, handle)).code == 0:
                acked.add(body)
        elif step < 0.9:
            _, handle = held.pop(rng.randrange(len(held)))
            await change(client, handle, 0)
        else:
            await asyncio.to_thread(state_of(app).persist)
    return acked


@pytest.mark.parametrize("seed", range(6))
async def test_what_was_not_acknowledged_is_in_flight_or_comes(harness: Harness, tmp_path: Path, seed: int) -> None:
    """After the crash each message is in flight, is popped again, or was acknowledged before; a second crash too."""
    rng = random.Random(seed)
    app = await harness.broker(name="0")
    client = await harness.client(app)
    bodies = {b"%d" % number for number in range(MESSAGES)}
    for queue_id in range(3):
        await client.put(*[body for body in sorted(bodies) if int(body) % 3 == queue_id], queue_id=queue_id)
    await eventually(lambda: sum(app.store.max_offset("T", queue_id) for queue_id in range(3)) == MESSAGES)
    acked: set[bytes] = set()
    for life in (1, 2):
        acked |= await lived(client, app, rng)
        shutil.copytree(tmp_path / str(life - 1), tmp_path / str(life))
        app = await harness.broker(name=str(life))
        client = await harness.client(app)
    seen: set[bytes] = set()
    missing: Any = None
    for _ in range(1000):
        response = await pop(client)
        seen |= {body for body, _ in handles_of(response)} if response.code == 0 else set()
        missing = bodies - acked - seen - in_flight(app)
        if not missing and response.code:
            break
        await asyncio.sleep(0.001)
    assert missing == set()
