"""The answers of a running consumer to an administrator, through a broker.

Lives here: ``ConsumerStatus``: GET_CONSUMER_RUNNING_INFO, GET_CONSUMER_STATUS_FROM_CLIENT, RESET_CONSUMER_CLIENT_OFFSET
and CONSUME_MESSAGE_DIRECTLY, as RocketMQ's ClientRemotingProcessor.
"""

from typing import TYPE_CHECKING, Any

from pocketmq import __version__
from pocketmq.client.connection.instance import TaskSet
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.handlers.consumer_statistics import ConsumerStatistics
from pocketmq.client.handlers.handler_watch import HandlerWatch
from pocketmq.client.pull.subscription import subscription_data
from pocketmq.client.push.queue_pull import QueuePull
from pocketmq.client.push.rebalance_service import RebalanceService
from pocketmq.common.errors import PocketMQError
from pocketmq.common.record_codec import received_message
from pocketmq.remoting.channel import ClientChannel
from pocketmq.remoting.codec import Request, encode_response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import MessageQueue as BodyQueue
from pocketmq.remoting.protocol.body import decode_body, encode_body
from pocketmq.remoting.protocol.offset import ResetOffsetBody
from pocketmq.remoting.protocol.relay import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumerStatusBody,
    ConsumeStatus,
    ProcessQueueInfo,
)

if TYPE_CHECKING:
    from pocketmq.client.push.push_consumer import PushConsumer

FRAMES_MAX = 16


class ConsumerStatus:
    """Answers for one consumer. Belongs to the event loop's thread."""

    def __init__(
        self,
        consumer: "PushConsumer",
        rebalance_service: RebalanceService,
        statistics: ConsumerStatistics,
        watch: HandlerWatch,
    ) -> None:
        self._consumer = consumer
        self._rebalance_service = rebalance_service
        self._statistics = statistics
        self._watch = watch
        self._started_ms = consumer.instance.clock.now_ms()
        self.tasks = TaskSet(consumer.instance.supervisor)

    def answer(self, channel: ClientChannel, request: Request) -> None:
        """Answer one request; slow work runs in a task."""
        if request.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            jstack = bool(getattr(request.header, "jstack_enable", False))
            _respond(channel, request, body=self.running_info(jstack=jstack).encode())
        elif request.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
            _respond(channel, request, body=self._offsets(getattr(request.header, "topic", "")).encode())
        elif request.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
            self.tasks.spawn(self._reset(channel, request), "pocketmq-reset")
        elif request.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            self.tasks.spawn(self._consume(channel, request), "pocketmq-consume-directly")

    def running_info(self, *, jstack: bool = False) -> ConsumerRunningInfo:
        """Return the consumer's state. ``jstack``: with the running handler calls, as text."""
        consumer = self._consumer
        properties = {
            "PROP_NAMESERVER_ADDR": ";".join(consumer.instance.addresses),
            "PROP_THREADPOOL_CORE_SIZE": str(consumer.options.concurrency),
            "PROP_CONSUME_ORDERLY": "true" if consumer.ordered else "false",
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CLIENT_VERSION": f"PocketMQ {__version__}",
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            "messageModel": consumer.message_model,
            "consumeFromWhere": consumer.consume_from_where.value,
            "paused": "true" if consumer.paused else "false",
        }
        return ConsumerRunningInfo(
            properties=properties,
            subscription_set=[subscription_data(each) for each in consumer.subscriptions],
            mq_table={
                _body_queue(queue): self._queue_info(pull) for queue, pull in self._rebalance_service.pulls.items()
            },
            status_table={each.topic: self._topic_status(each.topic) for each in consumer.subscriptions},
            user_consumer_info=self._slowest() | self._lock_waits(),
            jstack=self._calls() if jstack else None,
        )

    def _topic_status(self, topic: str) -> ConsumeStatus:
        rates = self._statistics.rates(topic)
        return ConsumeStatus(
            pull_rt=rates.pull_rt_ms,
            pull_tps=rates.pull_tps,
            consume_rt=rates.consume_rt_ms,
            consume_ok_tps=rates.consume_ok_tps,
            consume_failed_tps=rates.consume_failed_tps,
            consume_failed_msgs=rates.failed_count,
        )

    @staticmethod
    def _queue_info(pull: QueuePull) -> ProcessQueueInfo:
        process_queue = pull.process_queue
        oldest = process_queue.oldest_offset
        return ProcessQueueInfo(
            commit_offset=process_queue.commit_offset,
            cached_msg_min_offset=oldest if oldest is not None else 0,
            cached_msg_max_offset=process_queue.next_pull_offset - 1 if oldest is not None else 0,
            cached_msg_count=process_queue.unfinished,
            cached_msg_size_in_mi_b=process_queue.size_bytes >> 20,
            locked=pull.runner.fencing_token != 0,
            droped=process_queue.dropped,
            last_pull_timestamp=pull.last_pull_ms,
            last_consume_timestamp=pull.last_pull_ms,
        )

    def _slowest(self) -> dict[str, str]:
        """Return the calls that have run longest, for ``pocketmq group``."""
        now_ns = self._consumer.instance.clock.monotonic_ns()
        running = sorted(self._watch.running(), key=lambda call: call.since_ns)[:5]
        return {
            f"running_{number}": f"{call.handler_name} {(now_ns - call.since_ns) // 1_000_000} ms {call.message}"
            for number, call in enumerate(running, 1)
        }

    def _lock_waits(self) -> dict[str, str]:
        """Return the ordered queues that have waited longest for their lock."""
        return {
            f"waits_for_lock_{number}": " ".join(f"{name}={value}" for name, value in wait.items())
            for number, wait in enumerate(self._consumer.lock_waits[:5], 1)
        }

    def _calls(self) -> str:
        now_ns = self._consumer.instance.clock.monotonic_ns()
        lines = []
        for call in self._watch.running():
            lines.append(
                f"{call.handler_name}: {len(call.messages)} messages, {(now_ns - call.since_ns) // 1_000_000} ms"
            )
            waits: Any = call.task.get_coro() if call.task is not None else None
            for _ in range(FRAMES_MAX):
                frame = getattr(waits, "cr_frame", None)
                if frame is None:
                    break
                lines.append(f"    at {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
                waits = waits.cr_await
        return "\n".join(lines)

    def _offsets(self, topic: str) -> ConsumerStatusBody:
        table = {
            _body_queue(queue): pull.process_queue.commit_offset
            for queue, pull in self._rebalance_service.pulls.items()
            if queue.topic == topic or not topic
        }
        return ConsumerStatusBody(message_queue_table=table)

    async def _reset(self, channel: ClientChannel, request: Request) -> None:
        header: Any = request.header
        log = self._consumer.instance.log
        try:
            table = decode_body(request.body, ResetOffsetBody).offset_table
            offsets = {MessageQueue(queue.topic, queue.broker_name, queue.queue_id): at for queue, at in table.items()}
            if any(type(at) is not int or at < 0 for at in offsets.values()):
                raise PocketMQError("reset refused", why="an offset is negative")
            queues = await self._rebalance_service.reset(header.topic, offsets)
            log.info("offsets_reset", group=self._consumer.group, topic=header.topic, queues=queues)
        except PocketMQError as error:
            log.warning("offsets_not_reset", group=self._consumer.group, error=str(error))

    async def _consume(self, channel: ClientChannel, request: Request) -> None:
        clock = self._consumer.instance.clock
        started_ns = clock.monotonic_ns()
        result, remark = "CR_THROW_EXCEPTION", ""
        try:
            message = received_message(bytes(request.body), getattr(request.header, "broker_name", ""))
            result, remark = await self._consumer.consume_directly(message)
        except PocketMQError as error:
            remark = str(error)
        body = ConsumeMessageDirectlyResult(
            order=self._consumer.ordered,
            consume_result=result,
            remark=remark or None,
            spent_time_mills=(clock.monotonic_ns() - started_ns) // 1_000_000,
        )
        _respond(channel, request, body=encode_body(body))


def _body_queue(queue: MessageQueue) -> BodyQueue:
    return BodyQueue(queue.topic, queue.broker_name, queue.queue_id)


def _respond(channel: ClientChannel, request: Request, *, body: bytes) -> None:
    if not request.oneway:
        channel.respond(
            encode_response(
                ResponseCode.SUCCESS, request.opaque, request.code, body=body, serialize_type=request.serialize_type
            )
        )
