"""A counted client process: producers and consumers of the SDK on uvloop, as a program has them.

Run by ``bench.calls.cases``: ``python -m bench.calls.client SOCKET NAMESRV HANDLED [users]``; ``HANDLED`` is a
named pipe on which the handler of one client process reports to the sends of another.
"""

import asyncio
import os
import sys
import time
from typing import Any, Final

from bench.calls.control import serve
from bench.calls.counter import CallCounter
from bench.calls.users import SENDER
from pocketmq.client import ClientInstance, Credentials, Message, Producer, PushConsumer, ReceivedMessage
from pocketmq.client.admin.admin import Admin
from pocketmq.remoting.loop import new_event_loop

BODY: Final = bytes(1024)
TIMEOUT_MS: Final = 60_000
PAUSE_S: Final = 0.002
"""Before the next of messages that are sent one by one: meanwhile every thread of the broker has come to rest, and a
consumer's next pull waits there. Without it, the calls would depend on which of them is faster.
"""


class Loads:
    """What the measuring process asks for."""

    def __init__(self, namesrv: str, handled_path: str, credentials: Credentials | None) -> None:
        self._namesrv = namesrv
        self._credentials = credentials
        self._topic = ""
        self._producers: list[Producer] = []
        self._consumer: PushConsumer | None = None
        self._handled = os.open(handled_path, os.O_RDWR)

    async def open(self, topic: str, connections: int, queues: int = 4) -> None:
        """Create the topic and open a producer for each connection."""
        self._topic = topic
        async with Admin(self._namesrv, credentials=self._credentials) as admin:
            await admin.create_topic(topic, queues=queues)
        for number in range(connections):
            instance = self._instance(f"calls-{topic}-{number}")
            producer = Producer("calls", instance=instance, send_msg_timeout_ms=TIMEOUT_MS)
            await producer.start()
            self._producers.append(producer)

    def _instance(self, name: str) -> ClientInstance:
        return ClientInstance(self._namesrv, instance_name=name, credentials=self._credentials)

    async def send(self, count: int, in_flight: int, pause_s: float) -> None:
        """Send ``count`` messages with ``in_flight`` on the way, spread over the connections; one in flight: with a
        pause before each.
        """
        if in_flight == 1:
            for _ in range(count):
                time.sleep(pause_s)  # noqa: ASYNC251  (not asyncio's, whose calls would count)
                await self._send_some(self._producers[0], 1)
            return
        producers = [self._producers[number % len(self._producers)] for number in range(in_flight)]
        shares = [count // in_flight + (number < count % in_flight) for number in range(in_flight)]
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        left = in_flight

        async def share(producer: Producer, count: int) -> None:
            nonlocal left
            try:
                await self._send_some(producer, count)
            finally:
                left -= 1
                if not left:
                    ended.set_result(None)

        tasks = [loop.create_task(each) for each in map(share, producers, shares)]
        await ended  # not asyncio's "gather", whose calls would count
        for task in tasks:
            task.result()

    async def _send_some(self, producer: Producer, count: int) -> None:
        for _ in range(count):
            await producer.send(Message(self._topic, BODY))

    async def subscribe(self, topic: str, queues: int) -> None:
        """Start a push consumer; return when it reads all queues of the topic."""
        consumer = PushConsumer("calls-push", instance=self._instance("calls-push"))

        @consumer.subscribe(topic)
        async def handle(message: ReceivedMessage) -> None:
            os.write(self._handled, b".")

        self._consumer = consumer
        await consumer.start()
        while len(consumer.assigned) < queues:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def deliver(self, count: int) -> None:
        """Send one message after the other, each when the other process has handled the one before."""
        for _ in range(count):
            await self._producers[0].send(Message(self._topic, BODY))
            await asyncio.to_thread(os.read, self._handled, 1)
            await asyncio.sleep(PAUSE_S)

    async def close(self) -> None:
        """Stop producers and consumer."""
        producers, self._producers = self._producers, []
        await asyncio.gather(*(producer.stop() for producer in producers))
        if self._consumer is not None:
            await self._consumer.stop()
            self._consumer = None


async def run(counter: CallCounter, address: str, namesrv: str, handled_path: str, *users: str) -> None:
    """Do what the other end of the socket asks for, until it closes."""
    loop = asyncio.get_running_loop()
    loads = Loads(namesrv, handled_path, SENDER if users else None)
    ended = asyncio.Event()

    def do(name: str, *arguments: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(getattr(loads, name)(*arguments), loop).result()

    serve(address, counter, do, lambda: loop.call_soon_threadsafe(ended.set))
    await ended.wait()


def main() -> None:
    """Run until the measuring process closes the socket."""
    counter = CallCounter()
    counter.install()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run(counter, *sys.argv[1:]))


if __name__ == "__main__":
    main()
