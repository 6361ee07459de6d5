"""A PocketMQ with traffic on it, and RocketMQ's admin tools of one version pointed at it.

Lives here: ``Site``: a topic with messages, groups that are done, online or behind, and what our SDK says of them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pocketmq.client import MessageQueue, Receipt
from pocketmq.client.admin.admin import Admin, GroupDescription, TopicDescription
from pocketmq.client.blocking import Producer, PullConsumer
from pocketmq.common.message import Message, ReceivedMessage
from tests.interop.mqadmin import MqAdmin, mqadmin
from tests.interop.pocketmq_server import PocketMQServer, pocketmq_server
from tests.interop.python_side import create_topic, push_consumer
from tests.interop.toolchain import wait_until

_T = TypeVar("_T")

TOPIC = "Orders"
QUEUES = 4
MESSAGES = 20
PER_QUEUE = MESSAGES // QUEUES
PRODUCERS = "PID_orders"
ONLINE = "CID_online"
"""Has read all of ``TOPIC``, and has a member."""
BEHIND = "CID_behind"
"""Has no member, and has committed ``READ`` of each queue."""
READ = 2


@dataclass
class Site:
    """The site of the tools' tests; ``TOPIC`` does not change while they run, other topics come and go."""

    admin: MqAdmin
    server: PocketMQServer
    receipts: list[Receipt]
    client_id: str

    def ask(self, question: Callable[[Admin], Awaitable[_T]]) -> _T:
        """Run a coroutine with our own admin client."""

        async def asked() -> _T:
            async with Admin(namesrv=self.server.namesrv) as admin:
                return await question(admin)

        return asyncio.run(asked())

    def topic(self, topic: str) -> TopicDescription:
        """Return a topic as our SDK describes it."""
        return self.ask(lambda admin: admin.describe_topic(topic))

    def group(self, group: str) -> GroupDescription:
        """Return a group as our SDK describes it."""
        return self.ask(lambda admin: admin.describe_group(group))

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        return self.ask(lambda admin: admin.topics())

    def message(self, index: int) -> ReceivedMessage:
        """Return the message of a receipt, found by our SDK with its unique id."""
        [found] = self.ask(lambda admin: admin.query_messages(TOPIC, self.receipts[index].msg_id, unique=True))
        return found


def _message(index: int) -> Message:
    tags = "TagA" if index // QUEUES % 2 else "TagB"
    return Message(TOPIC, b"body-%d" % index, tags=tags, keys=f"key-{index}", properties={"color": "red"})


def _queue_of(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    return queues[int(message.body.split(b"-")[1]) % QUEUES]


@contextmanager
def site(kind: str, directory: Path) -> Iterator[Site]:
    """Run the site until the block ends."""
    with pocketmq_server(directory / "pocketmq", "broker.trace_topic_enable=true") as server:
        namesrv = server.namesrv
        create_topic(namesrv, TOPIC, QUEUES)
        with Producer(PRODUCERS, namesrv) as producer:
            receipts = [producer.send(_message(index), selector=_queue_of) for index in range(MESSAGES)]
            with PullConsumer(BEHIND, namesrv) as behind:
                queues = behind.queues(TOPIC)
                behind.seek(queues, "earliest")
                behind.commit(dict.fromkeys(queues, READ))
            with push_consumer(namesrv, ONLINE, TOPIC) as (_, collected):
                collected.wait_for(MESSAGES)
            with push_consumer(namesrv, ONLINE, TOPIC) as (consumer, _):
                wait_until(lambda: len(consumer.assigned) >= QUEUES, 20, "the queues of the consumer")
                with mqadmin(kind, directory / "tools", namesrv) as admin:
                    yield Site(admin, server, receipts, consumer.instance.client_id)


def queue_name(queue: MessageQueue) -> tuple[str, int]:
    """Return (broker name, queue id)."""
    return queue.broker_name, queue.queue_id
