"""The producer: messages in, receipts out.

Lives here: ``Producer``: the four ways to send, checks, choice of queue, back-pressure, start and stop.
Not here: frames (``accumulator``), delivery and retries (``sender``, ``retry``), columns (``arrow_records``).
Transactions (``TransactionProducer``), the durable retry store and compression come with their issue: they wrap or
extend this class.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pocketmq.client.accumulator import FRAME_BYTES_TARGET, Accumulator, Frame, Section
from pocketmq.client.errors import NotStarted, WrongLoop
from pocketmq.client.instance import ClientInstance, TaskSet
from pocketmq.client.lifecycle import Lifecycle
from pocketmq.client.rebalance import MessageQueue
from pocketmq.client.receipts import Receipt
from pocketmq.client.retry import RetryPolicy
from pocketmq.client.route import TopicRoute
from pocketmq.client.selectors import QueueSelector, RoundRobin, select_by_hash, select_by_user
from pocketmq.client.sender import SectionSender
from pocketmq.client.validation import MAX_MESSAGE_SIZE, check_message
from pocketmq.common.errors import ConfigError, MessageIllegal, PocketMQError
from pocketmq.common.message import Message
from pocketmq.common.topics import check_group_name, is_plain_topic
from pocketmq.remoting.errors import RemotingTooMuchRequestError

if TYPE_CHECKING:
    import pyarrow as pa

IN_FLIGHT_BYTES_MAX = 64 << 20
"""What a producer holds at most without a receipt, in bytes."""
SEND_TIMEOUT_MS_MAX = 24 * 3600 * 1000
STOP_SLACK_S = 0.25
"""How much longer than the send timeout a stop waits: timeouts are noticed a little late."""
_IDS_AT_ONCE = 256
_PARKED_EXTRA_BYTES = 256


class _Parked:
    """A send that waits for the route of its topic."""

    __slots__ = ("deadline_ns", "future", "message", "oneway", "plain", "selector", "started_ns")

    def __init__(
        self,
        message: Message,
        plain: bool,
        selector: QueueSelector | None,
        oneway: bool,
        future: "asyncio.Future[Receipt] | None",
        started_ns: int,
        deadline_ns: int,
    ) -> None:
        self.message = message
        self.plain = plain
        self.selector = selector
        self.oneway = oneway
        self.future = future
        self.started_ns = started_ns
        self.deadline_ns = deadline_ns

    @property
    def size_bytes(self) -> int:
        return len(self.message.body) + _PARKED_EXTRA_BYTES


class Producer(Lifecycle):
    """Sends messages. ``async with Producer(group=..., namesrv=...) as producer: await producer.send(Message(...))``

    Belongs to one event loop; threads use ``pocketmq.client.blocking``. What is sent in one turn of the loop to one
    broker travels in one frame; ``linger_ms`` widens that turn. Messages without a sharding key take turns over the
    queues frame by frame. A message object must not be changed before its receipt is there.

    Every send ends within its timeout (``send_msg_timeout_ms``, all attempts together) with a ``Receipt`` or a
    ``SendFailed`` that lists the attempts. At most ``in_flight_bytes_max`` are held: then ``send`` waits and
    ``send_nowait`` raises ``RemotingTooMuchRequestError``.
    """

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] = "",
        *,
        send_msg_timeout_ms: int = 3000,
        retry_times_when_send_failed: int = 2,
        linger_ms: float = 0,
        max_message_size: int = MAX_MESSAGE_SIZE,
        in_flight_bytes_max: int = IN_FLIGHT_BYTES_MAX,
        instance: ClientInstance | None = None,
    ) -> None:
        check_group_name(group)
        _check_range("send_msg_timeout_ms", send_msg_timeout_ms, 1, SEND_TIMEOUT_MS_MAX)
        _check_range("retry_times_when_send_failed", retry_times_when_send_failed, 0, 1000)
        _check_range("linger_ms", linger_ms, 0, 10_000)
        _check_range("max_message_size", max_message_size, 1, 1 << 30)
        _check_range("in_flight_bytes_max", in_flight_bytes_max, 1, 1 << 40)
        self.group = group
        self.send_msg_timeout_ms = send_msg_timeout_ms
        self.linger_ms = linger_ms
        self.max_message_size = max_message_size
        self.in_flight_bytes_max = in_flight_bytes_max
        self.instance = instance if instance is not None else ClientInstance(namesrv)
        self.retry = RetryPolicy(retry_times_when_send_failed)
        self._clock = self.instance.clock
        self._accumulator = Accumulator(FRAME_BYTES_TARGET)
        self._open = self._accumulator.open
        self._sender = SectionSender(self.instance, group, self.retry, self._choose_queue, self._settled)
        self._turns: dict[str, RoundRobin] = {}
        self._ids: list[bytes] = []
        self._parked: dict[str, list[_Parked]] = {}
        self._tasks = TaskSet()
        self._in_flight_bytes = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._flush_handle: asyncio.Handle | None = None
        self._loop: asyncio.AbstractEventLoop
        self._running = False

    # -- life --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the client; routes and connections are made with the first message to a topic."""
        if self._running:
            return
        await self.instance.start()
        self.instance.add_producer(self.group)
        self._loop = asyncio.get_running_loop()
        self._running = True

    async def stop(self) -> None:
        """Deliver what was sent, within ``send_msg_timeout_ms``; fail the rest with ``NotStarted``; close."""
        if not self._running:
            return
        self._flush()
        self._running = False
        timeout_s = self.send_msg_timeout_ms / 1000
        await self._tasks.wait(timeout_s)
        self._flush()
        await self._sender.drain(timeout_s + STOP_SLACK_S)
        await self._tasks.cancel()
        await self._sender.close()
        for future in self._waiting:
            if not future.done():
                future.set_exception(_stopped())
        await self.instance.remove_producer(self.group)
        await self.instance.stop()

    def add_retry_response_code(self, code: int) -> None:
        """Count answers with this response code as worth another attempt."""
        self.retry.retry_response_codes.add(int(code))

    @property
    def in_flight_bytes(self) -> int:
        """What is held without a receipt, the open frame not counted."""
        return self._in_flight_bytes

    # -- sending -----------------------------------------------------------------------------------------------

    async def send(
        self, message: Message, *, selector: QueueSelector | None = None, timeout_ms: int | None = None
    ) -> Receipt:
        """Send and wait for the receipt. Raises ``SendFailed``, ``MessageIllegal``, ``TopicIllegal``, ``NoRoute``.

        ``selector(queues, message)`` chooses the queue; a message with a sharding key otherwise goes to that key's
        queue. Both have one attempt, since another queue would break their order.
        """
        if self._in_flight_bytes >= self.in_flight_bytes_max:
            await self._wait_for_room(timeout_ms)
        return await self.send_nowait(message, selector=selector, timeout_ms=timeout_ms)

    def send_nowait(
        self, message: Message, *, selector: QueueSelector | None = None, timeout_ms: int | None = None
    ) -> "asyncio.Future[Receipt]":
        """Send and return the receipt's future; errors of the message itself are raised here.

        Raises ``RemotingTooMuchRequestError`` when ``in_flight_bytes_max`` is reached.
        """
        if selector is None and timeout_ms is None and type(message) is Message:
            try:
                section = self._open.get(message.topic)
            except TypeError:  # a topic that cannot be hashed; the check below names it
                section = None
            if section is not None and self._is_simple(message):
                # the hot path: a section for this topic is open, and nothing about the message is special
                ids = self._ids
                if not ids:
                    ids.extend(self.instance.ids.next_bytes(_IDS_AT_ONCE))
                future: asyncio.Future[Receipt] = self._loop.create_future()
                if self._accumulator.add(section, message, ids.pop(), future):
                    self._cut(section)
                return future
        future = self._loop_future()
        self._submit(message, selector, timeout_ms, False, future)
        return future

    def send_oneway(self, message: Message, *, selector: QueueSelector | None = None) -> None:
        """Send without an answer: one attempt, and nobody learns whether it arrived."""
        self._submit(message, selector, None, True, None)

    async def send_batch(self, messages: Iterable[Message], *, timeout_ms: int | None = None) -> list[Receipt]:
        """Send many and return their receipts in the same order.

        Messages of one topic and one sharding key (or none) go to one queue, in order, in parts of up to 1 MiB; each
        part is stored as a whole or not at all. Raises the first part's error; the other parts may have been stored.
        Parts of calls that overlap in time may come between each other: where order across calls matters, await one
        before the next.
        """
        batch = list(messages)
        groups: dict[tuple[str, bool, bool], list[int]] = {}
        judged: dict[tuple[str, str], list[int]] = {}
        # The group of a simple message with this topic and these tags: one like it was checked.
        for index, message in enumerate(batch):
            is_simple = type(message) is Message and type(message.topic) is str and self._is_simple(message)
            if is_simple:
                group = judged.get((message.topic, message.tags))
                if group is not None:
                    group.append(index)
                    continue
            plain = check_message(message, self.max_message_size)
            if message.delay_time_level:
                raise MessageIllegal(
                    "batch refused",
                    why=f"message {index} has a delay level",
                    hint="send delayed messages by themselves",
                )
            group = groups.setdefault((message.topic, message.wait_store_msg_ok, plain), [])
            group.append(index)
            if is_simple:
                judged[message.topic, message.tags] = group
        receipts: list[Receipt | None] = [None] * len(batch)
        waits: list[tuple[list[int], asyncio.Future[list[Receipt]]]] = []
        for (topic, wait, plain), indexes in groups.items():
            route = await self._route(topic, timeout_ms)
            keys = [batch[index].sharding_key or "" for index in indexes]
            for queue, chosen in self._by_queue(route, indexes, keys):
                for part in self._parts(batch, chosen):
                    await self._wait_for_room(timeout_ms)
                    may_move = queue is None
                    section = self._new_section(
                        None, queue or self._choose_queue(route, ()), timeout_ms, plain, wait, False, may_move
                    )
                    section.messages = [batch[index] for index in part]
                    section.uniq_keys = self.instance.ids.next_bytes(len(part))
                    waits.append((part, self._send_whole(section)))
                    await asyncio.sleep(0)  # this part leaves while the next is built
        return await self._collect(waits, receipts)

    async def send_arrow(
        self,
        data: "pa.RecordBatch | pa.Table",
        *,
        topic: str | None = None,
        timeout_ms: int | None = None,
    ) -> list[Receipt]:
        """Send a record batch or table: one message a row, built by columns. Returns the receipts in row order.

        Columns: ``body`` (binary or string, required), ``topic`` unless given as argument, and optionally ``tags``,
        ``keys`` (a string, keys separated by spaces), ``sharding_key``, ``flag``. Other columns are refused
        (``ColumnUnknown``).
        """
        from pocketmq.client.arrow_records import ArrowRows, read_rows

        rows = read_rows(data, topic, self.max_message_size)
        receipts: list[Receipt | None] = [None] * len(rows)
        waits: list[tuple[list[int], asyncio.Future[list[Receipt]]]] = []
        for name, indexes in rows.by_topic().items():
            route = await self._route(name, timeout_ms)
            keys = [rows.sharding_keys[index] for index in indexes] if rows.sharding_keys is not None else None
            for queue, chosen in self._by_queue(route, indexes, keys):
                for part in rows.parts(chosen, FRAME_BYTES_TARGET):
                    await self._wait_for_room(timeout_ms)
                    may_move = queue is None
                    section = self._new_section(
                        None,
                        queue or self._choose_queue(route, ()),
                        timeout_ms,
                        is_plain_topic(name),
                        True,
                        False,
                        may_move,
                    )
                    section.uniq_keys = self.instance.ids.next_bytes(len(part))
                    section.rows = ArrowRows(rows, name, part, section.uniq_keys)
                    waits.append((part, self._send_whole(section)))
                    await asyncio.sleep(0)  # this part leaves while the next is built
        return await self._collect(waits, receipts)

    # -- the way in --------------------------------------------------------------------------------------------

    def _is_simple(self, message: Message) -> bool:
        """Tell whether the hot path may take ``message``: nothing to check that the record builder does not check."""
        body = message.body
        return (
            type(body) is bytes
            and 0 < len(body) <= self.max_message_size
            and not (
                message.keys != ()
                or message.properties
                or message.sharding_key
                or message.delay_time_level
                or message.flag
            )
            and message.wait_store_msg_ok is True
            and type(message.tags) is str
        )

    def _check_running(self) -> None:
        if not self._running:
            raise _stopped()
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

    def _loop_future(self) -> "asyncio.Future[Receipt]":
        self._check_running()
        return self._loop.create_future()

    def _submit(
        self,
        message: Message,
        selector: QueueSelector | None,
        timeout_ms: int | None,
        oneway: bool,
        future: "asyncio.Future[Receipt] | None",
    ) -> None:
        """Check a message and put it where it belongs: an open section, a new one, or the waiting room of its topic."""
        self._check_running()
        self.instance.check_process()
        plain = check_message(message, self.max_message_size)
        if self._in_flight_bytes >= self.in_flight_bytes_max:
            raise RemotingTooMuchRequestError(
                "send refused",
                why=f"{self._in_flight_bytes} bytes wait for receipts, the limit is {self.in_flight_bytes_max}",
                hint="await some receipts first, or use send(), which waits",
            )
        timeout_ms = self._timeout_ms(timeout_ms)
        started_ns = self._clock.monotonic_ns()
        parked = _Parked(message, plain, selector, oneway, future, started_ns, started_ns + timeout_ms * 1_000_000)
        topic = message.topic
        waiting = self._parked.get(topic)
        if waiting is not None:  # keep the order of sends to a topic
            waiting.append(parked)
            self._in_flight_bytes += parked.size_bytes
            return
        route = self.instance.routes.get(topic)
        if route is not None and route.write_queues:
            self._put(parked, route)
            return
        self._parked[topic] = [parked]
        self._in_flight_bytes += parked.size_bytes
        self._tasks.spawn(self._unpark(topic), f"pocketmq-unpark-{topic}")

    async def _unpark(self, topic: str) -> None:
        """Wait for a topic's route, then let its messages in."""
        try:
            route = await self.instance.route(topic, timeout_ms=self.send_msg_timeout_ms, for_send=True)
        except (PocketMQError, asyncio.CancelledError) as error:
            refusal = error if isinstance(error, PocketMQError) else _stopped()
            for parked in self._parked.pop(topic, []):
                self._in_flight_bytes -= parked.size_bytes
                if parked.future is not None and not parked.future.done():
                    parked.future.set_exception(refusal)
            self._make_room()
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        for parked in self._parked.pop(topic, []):
            self._in_flight_bytes -= parked.size_bytes
            try:
                self._put(parked, route)
            except PocketMQError as error:
                if parked.future is not None and not parked.future.done():
                    parked.future.set_exception(error)

    def _put(self, parked: _Parked, route: TopicRoute) -> None:
        """Choose the queue of a checked message and add it to the section for that."""
        message = parked.message
        wait, oneway = bool(message.wait_store_msg_ok), parked.oneway
        own_time = parked.deadline_ns - parked.started_ns != self.send_msg_timeout_ms * 1_000_000
        plain = parked.plain
        key: Any
        queue: MessageQueue | None = None
        if parked.selector is not None:
            queue = select_by_user(parked.selector, route.write_queues, message)
        elif message.sharding_key:
            queue = select_by_hash(message.sharding_key, route.write_queues)
        if queue is not None:
            key = (queue, wait, oneway, plain)
        elif wait and not oneway and plain:
            key = message.topic
        else:
            key = (message.topic, wait, oneway, plain)
        section = None if own_time else self._open.get(key)
        if section is None:
            chosen = queue if queue is not None else self._choose_queue(route, ())
            section = self._new_section(None if own_time else key, chosen, None, plain, wait, oneway, queue is None)
            if own_time:
                section.started_ns, section.deadline_ns = parked.started_ns, parked.deadline_ns
            if self._accumulator.begin(section):
                self._schedule_flush()
        uniq_key = self.instance.ids.next_bytes(1)[0]
        if self._accumulator.add(section, message, uniq_key, parked.future):
            self._cut(section)

    def _new_section(
        self,
        key: Any,
        queue: MessageQueue,
        timeout_ms: int | None,
        plain: bool,
        wait: bool,
        oneway: bool,
        may_move: bool,
    ) -> Section:
        """Return an empty section; ``may_move``: a retry may choose another queue."""
        build = None
        if plain:
            link = self.instance.open_link(queue.broker_name)
            builder = self._sender.builder(link) if link is not None else None
            build = builder.build if builder is not None else None
        now_ns = self._clock.monotonic_ns()
        return Section(
            key,
            queue,
            build=build,
            started_ns=now_ns,
            deadline_ns=now_ns + self._timeout_ms(timeout_ms) * 1_000_000,
            born_ms=self._clock.now_ms(),
            attempts_max=1 + self.retry.retry_times if may_move and not oneway else 1,
            plain=plain,
            wait=wait,
            oneway=oneway,
        )

    def _send_whole(self, section: Section) -> "asyncio.Future[list[Receipt]]":
        """Send a section that is complete; its receipts come together."""
        self._check_running()
        section.batch_future = self._loop.create_future()
        self._in_flight_bytes += section.measure()
        self._sender.send_section(section)
        return section.batch_future

    @staticmethod
    def _by_queue(
        route: TopicRoute, indexes: list[int], keys: Sequence[str] | None
    ) -> list[tuple[MessageQueue | None, list[int]]]:
        """Sort messages by the queue of their sharding key; those without one come first, with None for any queue."""
        if keys is None or not any(keys):
            return [(None, indexes)]
        queues: dict[str, MessageQueue | None] = {"": None}
        groups: dict[MessageQueue | None, list[int]] = {}
        for index, key in zip(indexes, keys, strict=True):
            if key not in queues:
                queues[key] = select_by_hash(key, route.write_queues)
            groups.setdefault(queues[key], []).append(index)
        return list(groups.items())

    @staticmethod
    async def _collect(
        waits: "list[tuple[list[int], asyncio.Future[list[Receipt]]]]", receipts: list[Receipt | None]
    ) -> list[Receipt]:
        """Wait for all parts, then return the receipts in order, or raise the first part's error."""
        try:
            done = await asyncio.gather(*(future for _, future in waits), return_exceptions=True)
        except asyncio.CancelledError:
            for _, future in waits:
                future.cancel()
            raise
        for (part, _), result in zip(waits, done, strict=True):
            if isinstance(result, BaseException):
                raise result
            for index, receipt in zip(part, result, strict=True):
                receipts[index] = receipt
        complete = [receipt for receipt in receipts if receipt is not None]
        assert len(complete) == len(receipts)  # every message is in exactly one part
        return complete

    @staticmethod
    def _parts(batch: Sequence[Message], indexes: list[int]) -> list[list[int]]:
        """Cut a group into parts of about one frame."""
        parts: list[list[int]] = [[]]
        size = 0
        for index in indexes:
            cost = len(batch[index].body) + _PARKED_EXTRA_BYTES
            if parts[-1] and size + cost > FRAME_BYTES_TARGET:
                parts.append([])
                size = 0
            parts[-1].append(index)
            size += cost
        return parts

    async def _route(self, topic: str, timeout_ms: int | None) -> TopicRoute:
        self._check_running()
        return await self.instance.route(topic, timeout_ms=self._timeout_ms(timeout_ms), for_send=True)

    def _choose_queue(self, route: TopicRoute, avoid_brokers: Collection[str]) -> MessageQueue:
        turns = self._turns.get(route.topic)
        if turns is None:
            turns = self._turns[route.topic] = RoundRobin(self.instance.random.getrandbits(30))
        return turns.next(route.write_queues, avoid_brokers)

    def _timeout_ms(self, timeout_ms: int | None) -> int:
        if timeout_ms is None:
            return self.send_msg_timeout_ms
        _check_range("timeout_ms", timeout_ms, 1, SEND_TIMEOUT_MS_MAX)
        return int(timeout_ms)

    # -- the way out -------------------------------------------------------------------------------------------

    def _schedule_flush(self) -> None:
        if self.linger_ms:
            self._flush_handle = self._loop.call_later(self.linger_ms / 1000, self._flush)
        else:
            self._flush_handle = self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send every open frame: the end of the turn."""
        if self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None
        for frame in self._accumulator.flush():
            self._send(frame)

    def _cut(self, section: Section) -> None:
        """Send a frame that is full, before the end of the turn."""
        frame = section.frame
        assert frame is not None
        self._send(self._accumulator.take(frame))
        if not self._accumulator and self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None

    def _send(self, frame: Frame) -> None:
        for section in frame.sections:
            self._in_flight_bytes += section.size_bytes
        self._sender.send_frame(frame)

    def _settled(self, section: Section) -> None:
        self._in_flight_bytes -= section.size_bytes
        section.size_bytes = 0
        if self._waiting:
            self._make_room()

    def _make_room(self) -> None:
        while self._waiting and self._in_flight_bytes < self.in_flight_bytes_max:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return  # one at a time: each adds bytes before the next may

    async def _wait_for_room(self, timeout_ms: int | None) -> None:
        """Wait until less is in flight than allowed; raise ``RemotingTooMuchRequestError`` after the timeout."""
        if self._in_flight_bytes < self.in_flight_bytes_max:
            return
        deadline = self._loop.time() + self._timeout_ms(timeout_ms) / 1000
        while self._in_flight_bytes >= self.in_flight_bytes_max:
            future: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(future)
            try:
                async with asyncio.timeout_at(deadline):
                    await future
            except asyncio.CancelledError:
                self._leave(future)
                raise
            except TimeoutError as error:
                self._leave(future)
                raise RemotingTooMuchRequestError(
                    "sendDefaultImpl call timeout",
                    why=f"{self._in_flight_bytes} bytes wait for receipts, the limit is {self.in_flight_bytes_max}",
                    hint="the broker is slower than this producer",
                ) from error
        if self._waiting:
            self._loop.call_soon(self._make_room)  # perhaps there is room for the next one too

    def _leave(self, future: "asyncio.Future[None]") -> None:
        """Stop waiting for room; a turn that was given already goes to the next."""
        if future in self._waiting:
            self._waiting.remove(future)
        else:
            self._loop.call_soon(self._make_room)


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ConfigError("producer refused", why=f"{name}={value!r} is not from {low} to {high}")


def _stopped() -> NotStarted:
    return NotStarted("producer is not running", hint='use "async with Producer(...)", or await start() first')
