"""A broker on which every metric of topics, groups and clients has a sample."""

from pocketmq.broker.app import BrokerApp
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.client import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from pocketmq.remoting.protocol.offset import UpdateConsumerOffsetRequestHeader
from pocketmq.remoting.protocol.send import ConsumerSendMsgBackRequestHeader
from tests.broker.conftest import Client, Harness


async def commit(client: Client, group: str, topic: str, offset: int, queue_id: int = 0) -> None:
    """Commit an offset."""
    header = UpdateConsumerOffsetRequestHeader(group, topic, queue_id, offset)
    assert (await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == 0


async def heartbeat(client: Client, producers: list[str], consumer: str, topic: str) -> None:
    """Register producers and a consumer of one topic."""
    subscription = SubscriptionData(topic=topic, sub_string="*")
    data = HeartbeatData(
        client_id="c",
        producer_data_set=[ProducerData(group_name=name) for name in producers],
        consumer_data_set=[ConsumerData(group_name=consumer, subscription_data_set=[subscription])],
    )
    assert (await client.ask(RequestCode.HEART_BEAT, body=encode_body(data))).code == 0


async def send_back(app: BrokerApp, client: Client, group: str, topic: str) -> None:
    """Make the topic's first message a dead letter of a group."""
    app.store.dispatch()
    queue = app.store.consume_queues.get(topic, 0)
    assert queue is not None
    offset = int(queue.read(0, 1)["offset"][0])
    header = ConsumerSendMsgBackRequestHeader(offset, group, -1, "id", topic, False, None)
    assert (await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)).code == 0


async def make_busy(harness: Harness, app: BrokerApp) -> Client:
    """Send, pull, commit and send back in topic ``orders`` as group ``billing``, and compute the figures."""
    client = await harness.client(app)
    await client.put(b"one", b"two", topic="orders")
    await send_back(app, client, "billing", "orders")
    assert (await client.pull("orders", 0, 0, group="billing", count=1)).code == 0
    await commit(client, "billing", "orders", 0)
    await heartbeat(client, ["shop", "desk"], "billing", "orders")
    app.store.dispatch()
    assert app.observation.figures is not None
    app.observation.figures.step()
    return client
