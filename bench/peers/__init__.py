"""The servers that PocketMQ is measured beside, and which client speaks to each.

Lives here: ``PEERS``, what an acknowledgement of each means, what each cannot do.
"""

from dataclasses import dataclass

from bench.peers.base import Server
from bench.peers.kafka import KafkaServer
from bench.peers.nats import NatsServer
from bench.peers.pocketmq import PocketmqServer
from bench.peers.rabbitmq import RabbitmqServer
from bench.peers.redis import RedisServer
from bench.peers.rocketmq import RocketmqServer

ALL_WAYS = frozenset({"message", "batch", "arrow"})
LISTS = frozenset({"message", "batch"})
SINGLE = frozenset({"message"})


@dataclass(frozen=True, slots=True)
class Peer:
    """A server with one of its clients, which ``name`` names. ``acknowledged``: what an answered send means, by
    durability; it lacks those that the peer does not offer. ``reads``: by message, by batch, by Arrow.
    ``reads_destroy``: reading removes the messages.
    """

    name: str
    label: str
    server: type[Server]
    acknowledged: dict[str, str]
    reads: frozenset[str]
    python_client: bool = True
    reads_destroy: bool = False
    topics_max: int = 10_000
    connections_max: int = 500
    one_topic_is: str = "a topic of 4 queues"


_KAFKA_ACKS = {
    "async": "acks=all, one replica: in the log (page cache); flushed every 500 ms",
    "sync": "acks=all, log.flush.interval.messages=1: flushed before the answer",
    "replicated": "acks=all, min.insync.replicas=2: in the logs of both brokers (page cache)",
}
_ROCKET_ACKS = {
    "async": "ASYNC_FLUSH: in the log's mapping (page cache); flushed every 500 ms",
    "sync": "SYNC_FLUSH: flushed before the answer",
    "replicated": "SYNC_MASTER, ASYNC_FLUSH: in the logs of master and slave (page cache)",
}
_REDIS_ACKS = {
    "async": "in memory and in the append-only file; fsync every second (everysec), the nearest to 500 ms",
    "sync": "appendfsync always: flushed before the answer",
    "replicated": "WAIT 1 in the pipeline of each send: in memory of both",
}
_NATS_ACKS = {
    "async": "file storage: written (page cache); sync_interval 500 ms",
    "sync": "file storage, sync_interval always: flushed before the answer",
}
_RABBIT_ACKS = {
    "async": "confirm of a persistent message: RabbitMQ has no weaker one; it syncs in groups",
    "sync": "confirm of a persistent message: synced in groups",
}
_STREAM_ACKS = {"async": "confirm of a stream: written to its segment (page cache); RabbitMQ never syncs it by itself"}

PEERS = (
    Peer("pocketmq", "PocketMQ", PocketmqServer, _ROCKET_ACKS, ALL_WAYS),
    Peer(
        "rocketmq",
        "RocketMQ 5.3, Java client",
        RocketmqServer,
        _ROCKET_ACKS,
        LISTS,
        python_client=False,
        connections_max=10,
    ),
    Peer("redis", "Redis Streams, redis-py", RedisServer, _REDIS_ACKS, LISTS, one_topic_is="one stream"),
    Peer(
        "aiokafka",
        "Kafka, aiokafka",
        KafkaServer,
        _KAFKA_ACKS,
        LISTS,
        topics_max=1_000,
        one_topic_is="a topic of 4 partitions",
    ),
    Peer(
        "confluent",
        "Kafka, confluent-kafka",
        KafkaServer,
        _KAFKA_ACKS,
        LISTS,
        topics_max=1_000,
        connections_max=10,
        one_topic_is="a topic of 4 partitions",
    ),
    Peer("nats", "NATS JetStream, nats-py", NatsServer, _NATS_ACKS, LISTS, one_topic_is="one stream with one subject"),
    Peer(
        "rabbitmq",
        "RabbitMQ classic queue, aio-pika",
        RabbitmqServer,
        _RABBIT_ACKS,
        SINGLE,
        reads_destroy=True,
        one_topic_is="one durable classic queue",
    ),
    Peer(
        "rabbitmq-stream",
        "RabbitMQ stream, rstream",
        RabbitmqServer,
        _STREAM_ACKS,
        SINGLE,
        topics_max=100,
        connections_max=10,
        one_topic_is="one stream",
    ),
)
BY_NAME = {peer.name: peer for peer in PEERS}
SAME_SERVER = {"confluent": "aiokafka", "rabbitmq-stream": "rabbitmq"}
"""Peers whose server another one has measured where the client does not matter."""
