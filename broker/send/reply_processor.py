"""Replies of request-reply: pushed to the client that asked, and stored.

Lives here: ``ReplyProcessor`` (RocketMQ ReplyMessageProcessor): checks, the push to the requester, the append, the
answer to who replied.

A reply is pushed from the event loop and stored by the worker at the same time, so no thread ever waits for a
requester: one that is dead, or does not read, costs an entry in a bounded table until its time is over. The answer says
whether the requester has taken the reply; it goes back when the push and the append are both decided.
"""

import threading
from collections.abc import Callable
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
"""The connection of a producer by its client id, if it is connected here."""


class _Reply:
    """One reply on its way. ``left``: what is still undecided, the push and the append; loop thread only."""

    __slots__ = ("client_id", "left", "msg_id", "properties", "queue_offset", "refusal", "send", "stored")

    def __init__(self, send: RocketMQSend, client_id: str, properties: dict[str, str], left: int) -> None:
        self.send = send
        self.client_id = client_id
        self.properties = properties
        self.left = left
        self.refusal: Refusal | None = None
        self.msg_id = "0"  # what RocketMQ answers for a reply without a place in the log
        self.queue_offset = 0
        self.stored = False


class ReplyProcessor:
    """Serves codes 324 and 325 with one thread; everything drained together is one append.

    ``reply_pushes_max`` pushes of together ``queue_size_bytes_max`` bytes may wait for requesters; more replies are
    refused with SYSTEM_BUSY.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        rocketmq: RocketMQSends,
        confirm_topics: Callable[[], None],
        find_producer: FindProducer,
        mailbox: LoopMailbox,
        counters: BrokerCounters,
        refusals: RefusalStats,
        clock: Clock,
        log: EventLog,
    ) -> None:
        """``confirm_topics`` returns when every topic that was created is on disk; raises ``PocketMQError``."""
        self._config = config
        self._store = store
        self._rocketmq = rocketmq
        self._confirm_topics = confirm_topics
        self._find_producer = find_producer
        self._mailbox = mailbox
        self._counters = counters
        self._refusals = refusals
        self._clock = clock
        self._log = log
        self._stores = config.store_reply_message_enable and store.config.broker_role != "SLAVE"
        self._lock = threading.Lock()
        self.waiting = 0
        """Replies without an answer now."""
        self.waiting_bytes = 0
        self.pushed = 0
        """Replies that their requester has taken."""
        self.not_pushed = 0
        """Replies whose requester is not connected here, did not take them, or did not answer."""
        self.not_stored = 0
        """Replies that the store refused."""

    def reject_request(self) -> Refusal | None:
        """Refuse nothing at admission: a requester waits for the reply, which needs no disk to arrive."""
        return None

    def process(self, drain: Drain) -> None:
        """Push and store what was drained."""
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
            self._confirm_topics()
        except PocketMQError as error:
            self._log.error("topics_not_persisted", error=str(error))
            for reply in replies:
                self._release(reply)
                self._refuse(drain, reply.send.task, refusal_of(error, Stored.NO))
            return
        for reply in replies:
            drain.release(reply.send.task)
            self._mailbox.post(self._push, reply)
        if self._stores:
            self._append(replies)

    def _refuse(self, drain: Drain, task: Task, refusal: Refusal) -> None:
        self._refusals.note(refusal.cause.value, refusal.code, refusal.remark)
        drain.refuse(task, refusal)

    # ---- worker thread

    def _plan(self, task: Task) -> _Reply:
        """Check one reply and count it in; raises ``NotStored`` or ``MessageIllegal``."""
        header: Any = task.request.header
        properties = decode_properties(header.properties.encode("utf-8", "replace"))
        if header.batch or is_delayed(properties) or is_half(header.sys_flag, properties):
            raise MessageIllegal(
                "the reply is illegal",
                why="a reply is one message, without a delay and outside of transactions",
                hint="send it by itself",
            )
        send = self._rocketmq.plan(task)
        with self._lock:
            if (
                self.waiting >= self._config.reply_pushes_max
                or self.waiting_bytes + task.size_bytes > self._config.queue_size_bytes_max
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
        """Store the replies, in groups that the store takes; what it refuses is pushed all the same (RocketMQ)."""
        at = 0
        while at < len(replies):
            first, size_bytes = at, 0
            while at < len(replies) and (at == first or size_bytes < self._store.group_bytes_max):
                size_bytes += replies[at].send.size_bytes
                if size_bytes > self._store.group_bytes_max and at > first:
                    break
                at += 1
            batch = replies[first:at]
            try:
                self._append_batch(batch)
            except Exception as error:  # the requesters get their replies; who replied learns that it is not stored
                self._log.error("replies_not_stored", count=len(batch), error=refusal_of(error).remark)
                self._mailbox.post(self._appended, batch, None)

    def _append_batch(self, batch: list[_Reply]) -> None:
        group: RecordGroup = self._rocketmq.check([reply.send for reply in batch]).group
        result = self._store.append(group, dispatch_later=True)
        if not result.status.is_stored:
            self._counters.put_failed(len(group))
            self._log.warning("replies_not_stored", count=len(batch), status=result.status.name, error=result.error)
            self._mailbox.post(self._appended, batch, None)
            return
        self._counters.put(len(group), group.size_bytes)
        positions = [
            (result.runs[reply.send.position][0][0], result.first_queue_offsets[reply.send.position]) for reply in batch
        ]
        self._mailbox.post(self._appended, batch, positions)

    # ---- loop thread

    def _appended(self, batch: list[_Reply], positions: list[tuple[int, int]] | None) -> None:
        for index, reply in enumerate(batch):
            if positions is None:
                self.not_stored += 1
            else:
                physical_offset, reply.queue_offset = positions[index]
                reply.msg_id = offset_msg_id(self._store.store_host, physical_offset)
                reply.stored = True
            self._decided(reply)

    def _push(self, reply: _Reply) -> None:
        """Ask the requester to take the reply."""
        client_id = reply.client_id
        if not client_id:
            self._not_pushed(reply, f"reply message properties[{REPLY_TO_CLIENT}] is null", Cause.BAD_REQUEST)
            return
        connection = self._find_producer(client_id)
        if connection is None or connection.closed:
            self._not_pushed(reply, f"push reply message fail, channel of <{client_id}> not found.", Cause.CONNECTION)
            return
        if connection.over_high_water:  # it does not read: its reply would only fill our memory
            self._not_pushed(reply, f"push reply message to {client_id}fail.", Cause.CONNECTION)
            return

        def done(result: Response | PocketMQError) -> None:
            self._pushed(reply, result)

        task = reply.send.task
        connection.request_nowait(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            self._header(reply),
            task.request.body,
            timeout_ms=PUSH_TIMEOUT_MS,
            done=done,
        )

    def _header(self, reply: _Reply) -> ReplyMessageRequestHeader:
        task = reply.send.task
        header: Any = task.request.header
        now_ms = self._clock.now_ms()
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
            store_host=host_text(self._store.store_host),
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
        # RocketMQ's text, without a space; what the requester said, or why it could not, is ours
        text = f"push reply message to {reply.client_id}fail."
        if isinstance(result, Response):
            self._not_pushed(reply, f"{text} {result.remark or ''}".rstrip(), Cause.NONE)
        else:
            cause = Cause.TIMEOUT if isinstance(result, RequestTimeout) else Cause.CONNECTION
            self._not_pushed(reply, f"{text} {result}", cause)

    def _not_pushed(self, reply: _Reply, remark: str, cause: Cause) -> None:
        self.not_pushed += 1
        reply.refusal = Refusal(int(ResponseCode.SYSTEM_ERROR), remark, cause)
        self._refusals.note(cause.value, reply.refusal.code, "push reply message fail")
        self._decided(reply)

    def _decided(self, reply: _Reply) -> None:
        """Answer who replied, once both the push and the append are decided."""
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
            explained = Refusal(refusal.code, refusal.remark, refusal.cause, stored)
            task.connection.respond(encode_refusal(task.request, explained))
            return
        header = SendMessageResponseHeader(
            msg_id=reply.msg_id,
            queue_id=reply.send.asked_queue_id,
            queue_offset=reply.queue_offset,
            transaction_id=",".join(meta.uniq_key.decode("utf-8", "replace") for meta in reply.send.metas),
            msg_region=self._config.region_id,
            trace_on=self._config.trace_on,
        )
        task.connection.respond(encode_answer(task.request, header=header))
