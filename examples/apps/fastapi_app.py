"""A web application that takes orders, and charges them when the broker delivers them.

    pip install fastapi uvicorn && uvicorn fastapi_app:app
    curl -X POST localhost:8000/orders -H 'content-type: application/json' -d '{"number": 1, "cents": 250}'
    curl localhost:8000/orders/1

Producer and consumer belong to the module. ``lifespan`` starts and stops both, as often as the application is started:
once in production, once for each ``with TestClient(app)`` in tests.
"""

import asyncio
import os
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from pocketmq.client import Message, Producer, PushConsumer

NAMESRV = os.environ.get("POCKETMQ_NAMESRV", "127.0.0.1:9876")
WAIT_S = 30


class Order(BaseModel):
    """What customers send, and what the topic holds as JSON."""

    number: int
    cents: int


class Charges:
    """The charged orders, of this process only: a real application has a database."""

    def __init__(self) -> None:
        self.cents: dict[int, int] = {}
        self.news: dict[int, asyncio.Event] = defaultdict(asyncio.Event)


charges = Charges()
producer = Producer("shop-web", NAMESRV)
consumer = PushConsumer("shop-charges", NAMESRV, start="earliest", rebalance_interval_ms=1_000)


@consumer.subscribe("ShopOrders")
async def charge(order: Order) -> None:
    """Charge an order. At least once: a second delivery changes nothing."""
    charges.cents[order.number] = order.cents
    charges.news[order.number].set()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Start producer and consumer with the application, and stop them with it."""
    charges.news.clear()  # events of an earlier event loop
    async with producer, consumer:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
async def take(order: Order) -> dict[str, str]:
    """Send the order; the answer comes when the broker has stored it."""
    receipt = await producer.send(Message.of("ShopOrders", order, sharding_key=str(order.number)))
    return {"msg_id": receipt.msg_id}


@app.get("/orders/{number}")
async def show(number: int) -> dict[str, int]:
    """Return what was charged; wait for an order that is under way."""
    if number not in charges.cents:
        try:
            async with asyncio.timeout(WAIT_S):
                await charges.news[number].wait()
        except TimeoutError:
            raise HTTPException(404, f"order {number} was not charged") from None
    return {"number": number, "cents": charges.cents[number]}
