"""Replies of request-reply: pushed to the requester, and stored.

Lives here: ``ReplyProcessor`` (RocketMQ ReplyMessageProcessor): checks, the push to the requester, the append, the
answer to the replier.

The event loop pushes a reply while the worker stores it, so no thread ever waits for a requester: one that is dead, or
does not read, costs an entry in a bounded table until it times out. The answer says whether the requester accepted the
reply; it is sent when both the push and the append are decided.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delay.delay_plan import is_delayed
from pocketmq.broker.flow_control.refusal_stats import RefusalStats
from pocketmq.broker.request.request_task import (
    OVERLOAD,
    Drain,
    Refusal,
    Task,
    encode_answer,
    encode_refusal,
    refusal_of,
)
from pocketmq.broker.send.rocketmq_send import NotStored, RocketMQSend, RocketMQSends
from pocketmq.broker.stats.counters import BrokerCounters
from pocketmq.broker.transaction.transaction_plan import is_half
from pocketmq.common.clock import Clock
from pocketmq.common.errors import Cause, MessageIllegal, PocketMQError, Stored
from pocketmq.common.events import EventLog
from pocketmq.common.message_id import offset_msg_id
from pocketmq.common.record import (
    HOSTS_V6_MASK,
    PUSH_REPLY_TIME,
    REPLY_TO_CLIENT,
    decode_properties,
    encode_properties,
    host_text,
)
from pocketmq.common.record_group import RecordGroup
from pocketmq.common.runner import LoopMailbox
from pocketmq.remoting.codec import Response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RequestTimeout
from pocketmq.remoting.protocol.send import ReplyMessageRequestHeader, SendMessageResponseHeader
from pocketmq.remoting.server import Connection
from pocketmq.store.message_store import MessageStore

PUSH_TIMEOUT_MS: Final = 10_000
"""How long a requester may take to answer the push (RocketMQ Broker2Client.callClient)."""

FindProducer = Callable[[str], Connection | None]
"""Returns the connection of a producer by its client id, if it is connected here."""


@dataclass(slots=True, eq=False)
class _Reply:
    """One reply on its way. ``left``: number of undecided steps, of push and append; loop thread only."""

    send: RocketMQSend
    client_id: str
    properties: dict[str, str]
    left: int
    refusal: Refusal | None = None
    msg_id: str = "0"  # RocketMQ's answer for a reply without a place in the log
    queue_offset: int = 0
    stored: bool = False


@dataclass(slots=True, eq=False)
class ReplyProcessor:
    """Serves codes 324 and 325 with one thread; replies drained together are one append.

    At most ``reply_pushes_max`` pushes, of ``queue_size_bytes_max`` bytes in total, may wait for requesters; further
    replies are refused with SYSTEM_BUSY.
    """

    config: BrokerConfig
    store: MessageStore
    rocketmq: RocketMQSends
    confirm_topics: Callable[[], None]
    """Returns when every created topic is on disk; raises ``PocketMQError``."""
    find_producer: FindProducer
    mailbox: LoopMailbox
    counters: BrokerCounters
    refusals: RefusalStats
    clock: Clock
    log: EventLog
    _stores: bool = field(init=False)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    waiting: int = field(init=False, default=0)
    """Replies not answered yet."""
    waiting_bytes: int = field(init=False, default=0)
    pushed: int = field(init=False, default=0)
    """Replies that their requester accepted."""
    not_pushed: int = field(init=False, default=0)
    """Replies whose requester is not connected here, did not accept them, or did not answer."""
    not_stored: int = field(init=False, default=0)
    """Replies that the store refused."""

    def __post_init__(self) -> None:
        self._stores = self.config.store_reply_message_enable and self.store.config.broker_role != "SLAVE"

    def reject_request(self) -> Refusal | None:
        """Refuse nothing at admission: the push to the waiting requester needs no disk."""
        return None

    def process(self, drain: Drain) -> None:
        """Push and store the drained replies."""
        replies: list[_Reply] = []
        for task in drain.tasks:
            try:
                replies.append(self._plan(task))
            except NotStored as error:
                self._refuse(drain, task, error.refusal)
            except PocketMQError as error:
                self._refuse(drain, task, refusal_of(error, Stored.NO))
        if not replies:
            return
        try:
            self.confirm_topics()
        except PocketMQError as error:
            self.log.error("topics_not_persisted", error=str(error))
            for reply in replies:
                self._release(reply)
                self._refuse(drain, reply.send.task, refusal_of(error, Stored.NO))
            return
        for reply in replies:
            drain.release(reply.send.task)
            self.mailbox.post(self._push, reply)
        if self._stores:
            self._append(replies)

    def _refuse(self, drain: Drain, task: Task, refusal: Refusal) -> None:
        self.refusals.note(refusal.cause.value, refusal.code, refusal.remark)
        drain.refuse(task, refusal)

    # ---- worker thread

    def _plan(self, task: Task) -> _Reply:
        """Check one reply and count it as waiting; raises ``NotStored`` or ``MessageIllegal``."""
        header: Any = task.request.header
        properties = decode_properties(header.properties.encode("utf-8", "replace"))
        if header.batch or is_delayed(properties) or is_half(header.sys_flag, properties):
            raise MessageIllegal(
                "the reply is illegal",
                why="a reply is one message, without a delay and outside of transactions",
                hint="send it by itself",
            )
        send = self.rocketmq.plan(task)
        with self._lock:
            if (
                self.waiting >= self.config.reply_pushes_max
                or self.waiting_bytes + task.size_bytes > self.config.queue_size_bytes_max
            ):
                raise NotStored(OVERLOAD)
            self.waiting += 1
            self.waiting_bytes += task.size_bytes
        return _Reply(send, properties.get(REPLY_TO_CLIENT, ""), properties, 2 if self._stores else 1)

    def _release(self, reply: _Reply) -> None:
        with self._lock:
            self.waiting -= 1
            self.waiting_bytes -= reply.send.task.size_bytes

    def _append(self, replies: list[_Reply]) -> None:
        """Store the replies, in groups that the store takes; refused ones are pushed all the same (RocketMQ)."""
        at = 0
        while at < len(replies):
            first, size_bytes = at, 0
            while at < len(replies) and (at == first or size_bytes < self.store.group_bytes_max):
                size_bytes += replies[at].send.size_bytes
                if size_bytes > self.store.group_bytes_max and at > first:
                    break
                at += 1
            batch = replies[first:at]
            try:
                self._append_batch(batch)
            except Exception as error:  # the requesters get their replies; the repliers learn that none is stored
                self.log.error("replies_not_stored", count=len(batch), error=refusal_of(error).remark)
                self.mailbox.post(self._appended, batch, None)

    def _append_batch(self, batch: list[_Reply]) -> None:
        group: RecordGroup = self.rocketmq.check([reply.send for reply in batch]).group
        result = self.store.append(group, dispatch_later=True)
        if not result.status.is_stored:
            self.counters.put_failed(len(group))
            self.log.warning("replies_not_stored", count=len(batch), status=result.status.name, error=result.error)
            self.mailbox.post(self._appended, batch, None)
            return
        self.counters.put(len(group), group.size_bytes)
        positions = [
            (result.runs[reply.send.position][0][0], result.first_queue_offsets[reply.send.position]) for reply in batch
        ]
        self.mailbox.post(self._appended, batch, positions)

    # ---- loop thread

    def _appended(self, batch: list[_Reply], positions: list[tuple[int, int]] | None) -> None:
        for index, reply in enumerate(batch):
            if positions is None:
                self.not_stored += 1
            else:
                physical_offset, reply.queue_offset = positions[index]
                reply.msg_id = offset_msg_id(self.store.store_host, physical_offset)
                reply.stored = True
            self._decided(reply)

    def _push(self, reply: _Reply) -> None:
        """Push the reply to its requester."""
        client_id = reply.client_id
        if not client_id:
            self._not_pushed(reply, f"reply message properties[{REPLY_TO_CLIENT}] is null", Cause.BAD_REQUEST)
            return
        connection = self.find_producer(client_id)
        if connection is None or connection.closed:
            self._not_pushed(reply, f"push reply message fail, channel of <{client_id}> not found.", Cause.CONNECTION)
            return
        if connection.over_high_water:  # it does not read: the push would only fill our memory
            self._not_pushed(reply, f"push reply message to {client_id}fail.", Cause.CONNECTION)
            return
        connection.request_nowait(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            self._header(reply),
            reply.send.task.request.body,
            timeout_ms=PUSH_TIMEOUT_MS,
            done=partial(self._pushed, reply),
        )

    def _header(self, reply: _Reply) -> ReplyMessageRequestHeader:
        task = reply.send.task
        header: Any = task.request.header
        now_ms = self.clock.now_ms()
        return ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=reply.send.queue_id,
            sys_flag=header.sys_flag & ~HOSTS_V6_MASK,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            born_host=host_text(task.connection.remote_host),
            store_host=host_text(self.store.store_host),
            store_timestamp=now_ms,
            properties=encode_properties({**reply.properties, PUSH_REPLY_TIME: str(now_ms)}).decode(),
            reconsume_times=header.reconsume_times or 0,
            unit_mode=bool(header.unit_mode),
        )

    def _pushed(self, reply: _Reply, result: Response | PocketMQError) -> None:
        if isinstance(result, Response) and result.code == ResponseCode.SUCCESS:
            self.pushed += 1
            self._decided(reply)
            return
        # RocketMQ's text, without a space; the requester's remark, or the error, is our addition
        text = f"push reply message to {reply.client_id}fail."
        if isinstance(result, Response):
            self._not_pushed(reply, f"{text} {result.remark or ''}".rstrip(), Cause.NONE)
        else:
            cause = Cause.TIMEOUT if isinstance(result, RequestTimeout) else Cause.CONNECTION
            self._not_pushed(reply, f"{text} {result}", cause)

    def _not_pushed(self, reply: _Reply, remark: str, cause: Cause) -> None:
        self.not_pushed += 1
        reply.refusal = Refusal(int(ResponseCode.SYSTEM_ERROR), remark, cause)
        self.refusals.note(cause.value, reply.refusal.code, "push reply message fail")
        self._decided(reply)

    def _decided(self, reply: _Reply) -> None:
        """Answer the replier, once both the push and the append are decided."""
        reply.left -= 1
        if reply.left:
            return
        self._release(reply)
        task = reply.send.task
        if task.request.oneway or task.connection.closed:
            return
        refusal = reply.refusal
        if refusal is not None:
            stored = Stored.YES if reply.stored else Stored.NO
            task.connection.respond(encode_refusal(task.request, replace(refusal, stored=stored)))
            return
        header = SendMessageResponseHeader(
            msg_id=reply.msg_id,
            queue_id=reply.send.asked_queue_id,
            queue_offset=reply.queue_offset,
            transaction_id=",".join(meta.uniq_key.decode("utf-8", "replace") for meta in reply.send.metas),
            msg_region=self.config.region_id,
            trace_on=self.config.trace_on,
        )
        task.connection.respond(encode_answer(task.request, header=header))
