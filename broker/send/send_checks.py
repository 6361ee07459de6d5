"""May this message go to that queue?

Lives here: ``SendChecks``: topic, permission and queue of a send, with RocketMQ's codes and texts; automatic creation.
"""

from pocketmq.auth.session import Session
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.request.request_task import Refusal, refused
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common import refusals
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.topics import (
    AUTO_CREATE_TOPIC,
    Perm,
    TopicConfig,
    TopicIllegal,
    check_topic_name,
    is_send_forbidden,
)
from pocketmq.remoting.codes import ResponseCode
from pocketmq.store.disk.queue_paths import QUEUE_ID_MAX, topic_error

DEFAULT_CLIENT_QUEUE_NUMS = 4
"""Queues a producer asks for in a new topic (RocketMQ DefaultMQProducer)."""
ANY_QUEUE = -1
"""Stands for a queue that is not chosen yet."""
OPEN_MAX = 10_000
"""Topics remembered as open for sends."""


class SendChecks:
    """The checks of RocketMQ's AbstractSendMessageProcessor.msgCheck, for RocketMQ sends and sections of a native
    append.

    Belongs to one thread at a time; several may share the table. A topic that this object has not seen before may have
    been created by this send, by another thread or by an administrator a moment ago: ``is_unsure`` then says that the
    table must be on disk before anything is acknowledged; ``confirm`` or ``forget`` follows.
    """

    __slots__ = ("_config", "_open", "_topics", "_unsure", "is_unsure")

    def __init__(self, config: BrokerConfig, topics: TopicTable) -> None:
        self._config = config
        self._topics = topics
        self._open: dict[str, tuple[TopicConfig, int]] = {}  # topics that passed every check, with their queues
        self._unsure: list[str] = []
        self.is_unsure = False
        """Whether a topic passed that may not be on disk yet."""

    def confirm(self) -> None:
        """Learn that the table is on disk as it was after the last ``check``."""
        self._unsure.clear()
        self.is_unsure = False

    def forget(self) -> None:
        """Learn that the table could not be written: what passed since the last ``confirm`` is unsure again."""
        for topic in self._unsure:
            self._open.pop(topic, None)
        self._unsure.clear()
        self.is_unsure = False

    def check(
        self,
        topic: str,
        queue_id: int,
        default_topic: str = AUTO_CREATE_TOPIC,
        client_queue_nums: int = DEFAULT_CLIENT_QUEUE_NUMS,
        session: Session | None = None,
    ) -> TopicConfig | Refusal:
        """Return the topic, created if that is allowed, or why nothing may be sent to this queue.

        ``queue_id`` below 0 (``ANY_QUEUE``) stands for any queue: the caller chooses one. ``session``: of the sender.
        """
        config = self._topics.get(topic)
        known = self._open.get(topic)
        if known is not None and known[0] is config and queue_id < known[1]:  # configs in the table never change
            return known[0]
        if is_send_forbidden(topic):
            return refused(Cause.NO_PERMISSION, refusals.SYSTEM_TOPIC_FORBIDDEN, topic)
        if config is None:
            created = self._create(topic, default_topic, client_queue_nums, session)
            if isinstance(created, Refusal):
                return created
            config = created
        if not self._config.broker_permission & Perm.WRITE:
            return refused(Cause.NO_PERMISSION, refusals.BROKER_SENDS_FORBIDDEN, self._config.broker_name)
        if not config.perm & Perm.WRITE:
            return refused(Cause.NO_PERMISSION, refusals.TOPIC_SENDS_FORBIDDEN, topic)
        if config.is_batch_queue:  # its queues go on in files that only RocketMQ reads
            return refused(Cause.NO_PERMISSION, refusals.BATCH_QUEUES_NOT_SERVED, topic)
        illegal = topic_error(topic)  # another program's topics.json may hold such a topic: no queue takes it
        if illegal is not None:
            return Refusal(int(ResponseCode.INVALID_PARAMETER), illegal, Cause.BAD_REQUEST)
        queue_nums = min(max(config.read_queue_nums, config.write_queue_nums), QUEUE_ID_MAX + 1)
        if queue_id >= queue_nums:
            return refused(Cause.BAD_REQUEST, refusals.SEND_QUEUE_ILLEGAL, queue_id, topic, queue_nums)
        if len(self._open) >= OPEN_MAX:
            self._open.clear()
        self._unsure.append(topic)  # first: another thread that finds the topic open also finds it unsure
        self.is_unsure = True
        self._open[topic] = (config, queue_nums)
        return config

    def opened(self, topic: str) -> tuple[TopicConfig, int] | None:
        """Return a topic that passed every check and is on disk, and its number of queues; None for any other. Any
        thread."""
        known = self._open.get(topic)
        return None if known is None or topic in self._unsure else known

    def _create(
        self, topic: str, default_topic: str, client_queue_nums: int, session: Session | None
    ) -> TopicConfig | Refusal:
        try:
            check_topic_name(topic)
        except TopicIllegal as error:
            return Refusal(int(error.code), error.why, Cause.BAD_REQUEST)
        try:
            created = self._topics.create_on_send(topic, default_topic, client_queue_nums, session)
        except PocketMQError as error:  # the table is full, or the user has enough topics
            return Refusal(int(error.code), str(error), error.cause)
        if created is None:
            return refused(Cause.NO_ROUTE, refusals.TOPIC_NOT_EXIST, topic)
        return created
