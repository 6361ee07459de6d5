# %% [markdown]
# The cells of a notebook. Its event loop runs already, so `await` stands alone, and objects live from cell to cell.

# %%
import asyncio
import os

from pocketmq.client import Message, Producer, PullConsumer, PushConsumer

namesrv = os.environ.get("POCKETMQ_NAMESRV", "127.0.0.1:9876")
producer = Producer("notebook", namesrv)
await producer.start()

# %%
receipts = [await producer.send(Message.of("Notebook", {"row": row})) for row in range(3)]
print(len(receipts), "sent")

# %%
async with PullConsumer("notebook-look", namesrv) as reader:
    rows = [m.decode(dict)["row"] async for m in reader.stream("Notebook", start="earliest", stop_at_end=True)]
print(sorted(rows))

# %%
consumer = PushConsumer("notebook-work", namesrv, start="earliest", rebalance_interval_ms=1_000)
seen = asyncio.Queue()


@consumer.subscribe("Notebook")
async def work(row: dict):
    await seen.put(row["row"])


await consumer.start()  # goes on between the cells

# %%
print(sorted([await seen.get() for _ in range(3)]))

# %%
# the blocking face works in a notebook, too, and says once what is better there
from pocketmq.client import blocking

with blocking.Producer("notebook-blocking", namesrv) as plain:
    plain.send(Message.of("Notebook", {"row": 3}))
print(await seen.get())

# %%
await consumer.stop()
await producer.stop()
