"""The way of single sends into sections: checks, keys, queues, the frames of a turn.

Lives here: ``Submission``. Its callers are ``Producer``, and those parts of the SDK that send in ways of their own
(``send_port``).
"""

import asyncio
from collections.abc import Callable
from typing import Any

from pocketmq.client.connection.instance import ClientInstance, retrieve_exception
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.connection.route import TopicRoute
from pocketmq.client.errors import WrongLoop
from pocketmq.client.message.identified_message import uniq_keys_of
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.message.request_message import ReplyMessage
from pocketmq.client.message.transaction_message import HalfMessage
from pocketmq.client.message.validation import check_message
from pocketmq.client.producer.accumulator import Accumulator
from pocketmq.client.producer.parking import Parking, not_running
from pocketmq.client.producer.pending_send import PendingSend, SendHooks
from pocketmq.client.producer.producer_options import SEND_TIMEOUT_MS_MAX, ProducerOptions, check_range
from pocketmq.client.producer.sections import Sections
from pocketmq.client.producer.selectors import QueueSelector, select_by_hash, select_by_user, select_for_reply
from pocketmq.client.sender.in_flight import InFlight
from pocketmq.client.sender.queue_choice import QueueChooser
from pocketmq.client.sender.section import FRAME_BYTES_TARGET, Frame, Section
from pocketmq.client.sender.sender import SectionSender
from pocketmq.common.message import Message

IDS_AT_ONCE = 256
_DEADLINE_STEP_NS = 10_000_000
"""Sends whose own deadlines are no further apart than this may share a frame, which ends at the earliest."""


class Submission:
    """The single sends of one producer, until their sections leave. Belongs to the producer's event loop.

    ``open`` and ``ids`` are the open sections of the accumulator and a supply of unique ids: the short path of
    ``Producer.send_nowait`` uses them directly. ``hooks``: the calls of stages for single sends.
    """

    def __init__(
        self,
        instance: ClientInstance,
        options: ProducerOptions,
        in_flight: InFlight,
        chooser: QueueChooser,
        sender: SectionSender,
        hooks: SendHooks,
    ) -> None:
        self.instance = instance
        self.options = options
        self.in_flight = in_flight
        self.sections = Sections(instance, sender, in_flight, self.check_running)
        self.parking = Parking(instance, in_flight, options.send_msg_timeout_ms, self._put, hooks.unrouted)
        self.accumulator = Accumulator(FRAME_BYTES_TARGET)
        self.open = self.accumulator.open
        self.ids: list[bytes] = []
        self.running = False
        self.before_cut: Callable[[], None] | None = None
        """Called before a frame leaves in the middle of a turn: messages of the short path may have come first."""
        self.before_open: Callable[[str], None] | None = None
        """Called before a section for a topic's plain messages is opened: the short path may hold some of them."""
        self._hooks = hooks
        self._simple_bytes_max = hooks.body_bytes_max
        self._parked = self.parking.waiting
        self._chooser = chooser
        self._sender = sender
        self._clock = instance.clock
        self._sync_attempts = 1 + options.retry_times_when_send_failed
        self._async_attempts = 1 + options.retry_times_when_send_async_failed
        self._linger_s = options.linger_ms / 1000
        self._flush_handle: asyncio.Handle | None = None
        self._loop: asyncio.AbstractEventLoop

    # -- life --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Take sends from now on, in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self.running = True

    def check_running(self) -> None:
        """Raise ``NotStarted`` or ``WrongLoop`` unless sends are taken here."""
        if not self.running:
            raise not_running()
        self.check_loop()

    def check_loop(self) -> None:
        """Raise ``WrongLoop`` in another loop than the one of the start."""
        loop: asyncio.AbstractEventLoop | None
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None  # a plain thread
        if loop is not self._loop:
            self.instance.check_process()
            raise WrongLoop(
                "producer used outside its event loop",
                why="it was started in another one, or this is a plain thread",
                hint="threads use pocketmq.client.blocking; another loop needs a producer of its own",
            )

    # -- sends -------------------------------------------------------------------------------------------------

    def is_simple(self, message: Message) -> bool:
        """Return whether the hot path may take ``message``: the record builder makes all checks that it needs."""
        body = message.body
        return (
            type(body) is bytes
            and 0 < len(body) <= self._simple_bytes_max
            and not (
                message.keys != ()
                or message.properties
                or message.sharding_key
                or message.delay_time_level
                or message.is_timed
                or message.flag
            )
            and message.wait_store_msg_ok is True
            and type(message.tags) is str
        )

    def send_nowait(
        self, message: Message, *, selector: QueueSelector | None = None, timeout_ms: int | None = None
    ) -> "asyncio.Future[Receipt]":
        """Send as ``Producer.send_nowait``, without its short path."""
        future = self.new_future()
        self.submit(message, selector, timeout_ms, False, future, self._async_attempts)
        return future

    def send_half(
        self, half: HalfMessage, selector: QueueSelector | None, timeout_ms: int | None
    ) -> "asyncio.Future[Receipt]":
        """Send the half message of a transaction; retried as a message of ``Producer.send``."""
        self.check_running()
        future: asyncio.Future[Receipt] = self._loop.create_future()
        if selector is None and timeout_ms is None and half.check_immunity_sec is None and self.is_simple(half):
            section = self.open.get((half.topic, True, False, True, self._sync_attempts, True))
            if section is not None:  # as the hot path of plain sends: nothing about the message is special
                ids = self.ids
                if not ids:
                    ids.extend(self.instance.ids.next_bytes(IDS_AT_ONCE))
                if self.accumulator.add(section, half, ids.pop(), future):
                    self.cut(section)
                return future
        self.submit(half, selector, timeout_ms, False, future, self._sync_attempts)
        return future

    def new_future(self) -> "asyncio.Future[Receipt]":
        """Return the future of a receipt. Raises ``NotStarted``, ``WrongLoop``."""
        self.check_running()
        return self._loop.create_future()

    def submit(
        self,
        message: Message,
        selector: QueueSelector | None,
        timeout_ms: int | None,
        oneway: bool,
        future: "asyncio.Future[Receipt] | None",
        attempts_max: int,
        started_ns: int = 0,
    ) -> None:
        """Check a message and put it where it belongs: an open section, a new one, or the waiting room of its topic.

        ``started_ns``: the start of its timeout, if not now.
        """
        self.check_running()
        self.instance.check_process()
        plain = check_message(message, self.options.max_message_size)
        if isinstance(message, HalfMessage):
            plain = plain and message.check_immunity_sec is None
        own_time = timeout_ms is not None
        if started_ns:  # it has waited for room and got it
            own_time = True
        else:
            if self.in_flight.full or oneway:
                self.in_flight.check(oneway)
            started_ns = self._clock.monotonic_ns()
        deadline_ns = started_ns + self.limit_ms(timeout_ms) * 1_000_000
        send = PendingSend(message, plain, selector, oneway, future, started_ns, deadline_ns, own_time, attempts_max)
        hooks = self._hooks
        if hooks.enter is not None:
            hooks.enter(send)
        topic = message.topic
        try:
            if send.ready is None and topic not in self._parked:
                if hooks.take is not None and not oneway and hooks.take(send):
                    return
                route = self.instance.routes.get(topic)
                if route is not None and route.write_queues and not (route.borrowed and send.is_queue_chosen):
                    self._put(send, route)
                    return
            self.parking.park(send)
        except Exception as error:
            if hooks.enter is not None and future is not None and not future.done():
                future.set_exception(error)  # for the stages, which wait for its end; its caller gets the exception
                retrieve_exception(future)
            raise

    def _put(self, send: PendingSend, route: TopicRoute) -> None:
        """Choose the queue of a checked message and add it to the section for that."""
        message = send.message
        wait, oneway, plain = bool(message.wait_store_msg_ok), send.oneway, send.plain
        attempts_max, half = send.attempts_max, type(message) is HalfMessage
        key: Any
        queue: MessageQueue | None = None
        if send.selector is not None:
            queue = select_by_user(send.selector, route.write_queues, message)
        elif isinstance(message, ReplyMessage):
            queue = select_for_reply(message.broker_name, route.write_queues)
        elif message.sharding_key:
            queue = select_by_hash(message.sharding_key, route.write_queues)
        if queue is not None:
            place = self._hooks.place
            if place is not None and not oneway and place(send, queue):
                return
            key = (queue, wait, oneway, plain, attempts_max, half)
        elif wait and not oneway and plain and not half and attempts_max == self._async_attempts:
            key = message.topic  # the key of the hot path
        else:
            key = (message.topic, wait, oneway, plain, attempts_max, half)
        if send.own_time:
            key = (key, send.deadline_ns // _DEADLINE_STEP_NS)
        section = self.open.get(key)
        if section is None and self.before_open is not None and key is message.topic:
            self.before_open(key)
            section = self.open.get(key)
        if section is None:
            chosen = queue if queue is not None else self._chooser.first(route)
            section = self.sections.new(
                key,
                chosen,
                started_ns=send.started_ns,
                deadline_ns=send.deadline_ns,
                attempts_max=attempts_max,
                plain=plain,
                wait=wait,
                may_move=queue is None,
                oneway=oneway,
                half=half,
            )
            if self.accumulator.begin(section):
                self._schedule_flush()
        elif send.own_time and send.deadline_ns < section.deadline_ns:
            section.deadline_ns = send.deadline_ns
        uniq_key = uniq_keys_of((message,), self.instance.ids)[0]
        if self.accumulator.add(section, message, uniq_key, send.future):
            self.cut(section)

    def limit_ms(self, timeout_ms: int | None) -> int:
        """Return the timeout of a send, the producer's where none is given. Raises ``ConfigError``."""
        if timeout_ms is None:
            return self.options.send_msg_timeout_ms
        check_range("timeout_ms", timeout_ms, 1, SEND_TIMEOUT_MS_MAX)
        return int(timeout_ms)

    async def wait_for_room(self, timeout_ms: int | None) -> None:
        """Wait until less is in flight than allowed; raise ``RemotingTooMuchRequestError`` after the timeout."""
        if self.in_flight.full:
            await self.in_flight.wait(self._loop.time() + self.limit_ms(timeout_ms) / 1000)

    # -- frames ------------------------------------------------------------------------------------------------

    def _schedule_flush(self) -> None:
        if self._linger_s:
            self._flush_handle = self._loop.call_later(self._linger_s, self.flush)
        else:
            self._flush_handle = self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send every open frame: the end of the turn."""
        if self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None
        for frame in self.accumulator.flush():
            self._send(frame)

    def cut(self, section: Section) -> None:
        """Send the frame of a section, which is full, before the end of the turn."""
        if self.before_cut is not None:
            self.before_cut()
        frame = section.frame
        assert frame is not None
        self._send(self.accumulator.take(frame))
        if not self.accumulator and self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None

    def _send(self, frame: Frame) -> None:
        add = self.in_flight.add
        for section in frame.sections:
            section.permits = section.count
            add(section.size_bytes, section.permits, section.oneway)
        self._sender.send_frame(frame)
