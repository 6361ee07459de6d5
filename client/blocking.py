"""The SDK for plain threads: the same producers and consumers, on an event loop in a thread of their own.

    with Producer(group="orders", namesrv="127.0.0.1:9876") as producer:
        receipt = producer.send(Message("TopicTest", b"hello"))

Lives here: the loop's thread and the blocking faces. Every method may be called from any thread; each waits at most as
long as the method it wraps.
"""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import os
import signal
import threading
import warnings
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from pocketmq.client.blocking_arguments import (
    ProducerArguments,
    PullConsumerArguments,
    PushConsumerArguments,
    SimpleConsumerArguments,
)
from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.errors import ForkedClient, NotStarted
from pocketmq.client.handlers.handler_call import AnyHandler
from pocketmq.client.message.receipts import Receipt
from pocketmq.client.producer import producer as async_producer
from pocketmq.client.producer.selectors import QueueSelector
from pocketmq.client.pull import pull_consumer as async_pull_consumer
from pocketmq.client.pull.offsets import StartPosition
from pocketmq.client.pull.subscription import ALL
from pocketmq.client.push import push_consumer as async_push_consumer
from pocketmq.client.push.consumer_options import STOP_TIMEOUT_MS
from pocketmq.client.push.message_stream import MessageStream
from pocketmq.client.simple import simple_consumer as async_simple_consumer
from pocketmq.client.simple.popped_message import PoppedMessage
from pocketmq.common.message import Message, ReceivedMessage
from pocketmq.common.runner import LoopMailbox, Runner, ThreadRunner, Worker
from pocketmq.remoting.loop import new_event_loop

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LoopThread", "Producer", "PullConsumer", "PushConsumer", "SimpleConsumer"]

STOP_TIMEOUT_S = 60.0
"""How long a stop may take: it waits for running work, each part of which has its own limit."""

IN_A_LOOP = (
    "a blocking call of pocketmq.client.blocking inside a running event loop stops that loop until it returns: "
    "await the same call of pocketmq.client, or use asyncio.to_thread"
)

_T = TypeVar("_T")


class LoopThread:
    """An event loop in a worker of its own. ``call`` runs a coroutine there and waits for it."""

    def __init__(self, runner: Runner | None = None) -> None:
        self._runner = runner or ThreadRunner()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._mailbox: LoopMailbox | None = None
        self._worker: Worker | None = None
        self._pid = 0
        self._warned = False

    @property
    def running(self) -> bool:
        """Whether the loop runs."""
        return self._loop is not None

    def start(self) -> None:
        """Start the loop."""
        if self._loop is None:
            self._loop = new_event_loop()
            self._mailbox = LoopMailbox(self._loop)
            self._pid = os.getpid()
            self._worker = self._runner.start("pocketmq-client", self._step)

    def _step(self) -> None:
        assert self._loop is not None
        self._loop.run_forever()

    def call(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run ``work`` in the loop and return its result; an interrupt of this thread cancels it.

        Called inside another running event loop it warns once: that loop stands still until the result is there.
        """
        if not self._warned and asyncio._get_running_loop() is not None:
            self._warned = True
            try:
                warnings.warn(IN_A_LOOP, RuntimeWarning, stacklevel=3)
            except RuntimeWarning:  # warnings are errors here
                work.close()
                raise
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, _T]) -> "concurrent.futures.Future[_T]":
        """Start ``work`` in the loop."""
        try:
            loop = self._running_loop()
        except BaseException:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, loop)

    def post(self, callback: Callable[..., None], *args: Any) -> None:
        """Call ``callback`` in the loop soon; many posts share one wake-up."""
        self._running_loop()
        assert self._mailbox is not None
        self._mailbox.post(callback, *args)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise NotStarted("client is not running", hint='use "with", or call start() first')
        if os.getpid() != self._pid:
            raise ForkedClient(
                "client used after a fork",
                why=f"its thread runs in process {self._pid}, this is {os.getpid()}",
                hint="make a new one in the child",
            )
        return self._loop

    def stop(self) -> None:
        """Stop and close the loop, once it is no longer used."""
        loop, worker = self._loop, self._worker
        if loop is None or worker is None:
            return
        self.call(loop.shutdown_asyncgens())
        self.call(loop.shutdown_default_executor())
        self._loop = None
        loop.call_soon_threadsafe(loop.stop)
        worker.stop(STOP_TIMEOUT_S)
        loop.close()


class _Face:
    """The base of the faces: an object that belongs to a loop, and that loop's thread."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._thread = LoopThread()
        self._life = threading.Lock()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def instance(self) -> ClientInstance:
        """The client instance below."""
        instance: ClientInstance = self._inner.instance
        return instance

    def start(self) -> None:
        """Start thread and client."""
        with self._life:
            self._thread.start()
            try:
                self._thread.call(self._inner.start())
            except BaseException:
                self._thread.stop()
                raise

    def stop(self) -> None:
        """Stop the client, then its thread."""
        with self._life:
            if self._thread.running:
                try:
                    self._thread.call(self._inner.stop())
                finally:
                    self._thread.stop()


class Producer(_Face):
    """``pocketmq.client.Producer`` for threads; takes the same arguments."""

    _inner: async_producer.Producer

    def __init__(self, group: str, namesrv: str | Sequence[str] = "", **options: Unpack[ProducerArguments]) -> None:
        super().__init__(async_producer.Producer(group, namesrv, **options))

    def send(
        self, message: Message, *, selector: QueueSelector | None = None, timeout_ms: int | None = None
    ) -> Receipt:
        """Send and wait for the receipt."""
        return self._thread.call(self._inner.send(message, selector=selector, timeout_ms=timeout_ms))

    def send_nowait(
        self, message: Message, *, selector: QueueSelector | None = None, timeout_ms: int | None = None
    ) -> "concurrent.futures.Future[Receipt]":
        """Send and return a future; all errors come through it. Callbacks of the future run in the loop's thread."""
        future: concurrent.futures.Future[Receipt] = concurrent.futures.Future()
        if self.instance.telemetry is None:
            self._thread.post(self._send_soon, message, selector, timeout_ms, future)
        else:  # the span of this thread is the parent of the send's
            run = contextvars.copy_context().run
            self._thread.post(run, self._send_soon, message, selector, timeout_ms, future)
        return future

    def _send_soon(
        self,
        message: Message,
        selector: QueueSelector | None,
        timeout_ms: int | None,
        future: "concurrent.futures.Future[Receipt]",
    ) -> None:
        if not future.set_running_or_notify_cancel():
            return

        def done(sent: "asyncio.Future[Receipt]") -> None:
            if sent.cancelled():
                future.set_exception(NotStarted("producer stopped before the message was delivered"))
                return
            error = sent.exception()
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(sent.result())

        try:
            sent = self._inner.send_nowait(message, selector=selector, timeout_ms=timeout_ms)
        except Exception as error:
            future.set_exception(error)
        else:
            sent.add_done_callback(done)

    def send_oneway(self, message: Message, *, selector: QueueSelector | None = None) -> None:
        """Send without an answer; raises only errors of the message itself."""

        async def send() -> None:
            self._inner.send_oneway(message, selector=selector)

        self._thread.call(send())

    def request(
        self, message: Message, *, selector: QueueSelector | None = None, timeout_ms: int | None = None
    ) -> ReceivedMessage:
        """Send a request and wait for the reply."""
        return self._thread.call(self._inner.request(message, selector=selector, timeout_ms=timeout_ms))

    def send_batch(self, messages: Iterable[Message], *, timeout_ms: int | None = None) -> Sequence[Receipt]:
        """Send many and wait for their receipts."""
        return self._thread.call(self._inner.send_batch(messages, timeout_ms=timeout_ms))

    def send_arrow(
        self, data: "pa.RecordBatch | pa.Table", *, topic: str | None = None, timeout_ms: int | None = None
    ) -> Sequence[Receipt]:
        """Send the rows of a batch or table and wait for their receipts."""
        return self._thread.call(self._inner.send_arrow(data, topic=topic, timeout_ms=timeout_ms))

    def add_retry_response_code(self, code: int) -> None:
        """Count answers with this response code as worth another attempt."""
        self._inner.add_retry_response_code(code)


class PullConsumer(_Face):
    """``pocketmq.client.PullConsumer`` for threads; takes the same arguments."""

    _inner: async_pull_consumer.PullConsumer

    def __init__(self, group: str, namesrv: str | Sequence[str] = "", **options: Unpack[PullConsumerArguments]) -> None:
        super().__init__(async_pull_consumer.PullConsumer(group, namesrv, **options))

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic."""
        return self._thread.call(self._inner.queues(topic))

    def poll(
        self,
        target: "str | MessageQueue | Iterable[MessageQueue]",
        *,
        max_messages: int = 32,
        timeout_ms: int = 1000,
        tags: str = ALL,
    ) -> list[ReceivedMessage]:
        """Return up to ``max_messages``; wait up to ``timeout_ms`` for the first."""
        return self._thread.call(self._inner.poll(target, max_messages=max_messages, timeout_ms=timeout_ms, tags=tags))

    def poll_arrow(
        self,
        target: "str | MessageQueue | Iterable[MessageQueue]",
        *,
        max_messages: int = 100_000,
        timeout_ms: int = 1000,
        columns: Sequence[str] | None = None,
        tags: str = ALL,
    ) -> "pa.RecordBatch":
        """Return up to ``max_messages`` as an Arrow record batch."""
        return self._thread.call(
            self._inner.poll_arrow(target, max_messages=max_messages, timeout_ms=timeout_ms, columns=columns, tags=tags)
        )

    def stream(
        self, topic: str, *, start: StartPosition = "committed", stop_at_end: bool = False, tags: str = ALL
    ) -> Generator[ReceivedMessage, None, None]:
        """Iterate over a topic; close the iterator, or leave it to be collected, to end a stream without an end."""
        batches: AsyncGenerator[list[ReceivedMessage], None] = self._inner.stream_batches(
            topic, start=start, stop_at_end=stop_at_end, tags=tags
        )

        async def following() -> list[ReceivedMessage] | None:
            return await anext(batches, None)

        try:
            while (batch := self._thread.call(following())) is not None:
                yield from batch
        finally:
            if self._thread.running:
                self._thread.call(_closed(batches))

    def seek(self, target: "str | MessageQueue | Iterable[MessageQueue]", to: StartPosition) -> None:
        """Move to ``"earliest"``, ``"latest"``, ``"committed"``, a time, or (one queue) an offset."""
        self._thread.call(self._inner.seek(target, to))

    def position(self, queue: MessageQueue) -> int:
        """Return the offset of the next message that ``poll`` hands out."""
        return self._thread.call(self._inner.position(queue))

    def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's offset as its broker knows it, or None."""
        return self._thread.call(self._inner.committed(queue))

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store offsets at the brokers: those given, else the positions."""
        self._thread.call(self._inner.commit(offsets))


class SimpleConsumer(_Face):
    """``pocketmq.client.SimpleConsumer`` for threads; takes the same arguments. Several threads may share one."""

    _inner: async_simple_consumer.SimpleConsumer

    def __init__(
        self,
        group: str,
        topic: str,
        namesrv: str | Sequence[str] = "",
        **options: Unpack[SimpleConsumerArguments],
    ) -> None:
        super().__init__(async_simple_consumer.SimpleConsumer(group, topic, namesrv, **options))

    def receive(self, *, wait_ms: int = 20_000, invisible_ms: int | None = None) -> PoppedMessage | None:
        """Return one message, or None when none came in ``wait_ms``."""
        return self._thread.call(self._inner.receive(wait_ms=wait_ms, invisible_ms=invisible_ms))

    def receive_batch(
        self, max_messages: int = 32, *, wait_ms: int = 20_000, invisible_ms: int | None = None
    ) -> list[PoppedMessage]:
        """Return up to ``max_messages``; wait up to ``wait_ms`` for the first."""
        return self._thread.call(self._inner.receive_batch(max_messages, wait_ms=wait_ms, invisible_ms=invisible_ms))

    def ack(self, message: PoppedMessage) -> None:
        """Acknowledge a message; raises ``ReceiptExpired``."""
        self._thread.call(self._inner.ack(message))

    def ack_batch(self, messages: Iterable[PoppedMessage]) -> list[PoppedMessage]:
        """Acknowledge messages; return those whose time was over."""
        return self._thread.call(self._inner.ack_batch(messages))

    def nack(self, message: PoppedMessage, delay_ms: int | None = None) -> None:
        """Have a message redelivered; raises ``ReceiptExpired``."""
        self._thread.call(self._inner.nack(message, delay_ms))

    def extend(self, message: PoppedMessage, invisible_ms: int | None = None) -> None:
        """Keep a message for longer; raises ``ReceiptExpired``."""
        self._thread.call(self._inner.extend(message, invisible_ms))

    def __iter__(self) -> Generator[PoppedMessage, None, None]:
        """Iterate for ever, as ``async for`` does: renewed meanwhile, acknowledged when the next one is asked for."""
        messages = self._inner.__aiter__()

        async def following() -> PoppedMessage | None:
            return await anext(messages, None)

        try:
            while (message := self._thread.call(following())) is not None:
                yield message
        finally:
            if self._thread.running:
                self._thread.call(_closed(messages))


class PushConsumer(_Face):
    """``pocketmq.client.PushConsumer`` for threads; takes the same arguments. Plain handlers suit it best."""

    _inner: async_push_consumer.PushConsumer

    def __init__(self, group: str, namesrv: str | Sequence[str] = "", **options: Unpack[PushConsumerArguments]) -> None:
        super().__init__(async_push_consumer.PushConsumer(group, namesrv, **options))

    def subscribe(
        self, topic: str, tags: str = ALL, *, sql: str | None = None, ordered: bool = False, body: Any = None
    ) -> Callable[[AnyHandler], AnyHandler]:
        """Register the decorated function as the handler of a topic."""
        return self._inner.subscribe(topic, tags, sql=sql, ordered=ordered, body=body)

    def subscribe_batch(
        self,
        topic: str,
        tags: str = ALL,
        *,
        max_messages: int = 32,
        sql: str | None = None,
        ordered: bool = False,
        body: Any = None,
    ) -> Callable[[AnyHandler], AnyHandler]:
        """Register the decorated function as the handler of a topic, for lists of messages."""
        return self._inner.subscribe_batch(topic, tags, max_messages=max_messages, sql=sql, ordered=ordered, body=body)

    def messages(
        self, topic: str, tags: str = ALL, *, sql: str | None = None, prefetch: int = 32
    ) -> Generator[ReceivedMessage, None, None]:
        """Iterate over a topic; a message is acknowledged when the next one is asked for. Starts the consumer."""

        async def subscribe() -> MessageStream:
            return self._inner.messages(topic, tags, sql=sql, prefetch=prefetch)

        # a running consumer belongs to its loop's thread
        stream = (
            self._thread.call(subscribe())
            if self._thread.running
            else self._inner.messages(topic, tags, sql=sql, prefetch=prefetch)
        )

        async def following() -> ReceivedMessage | None:
            message: ReceivedMessage | None = await anext(stream, None)
            return message

        def iterate() -> Generator[ReceivedMessage, None, None]:
            self.start()
            while (message := self._thread.call(following())) is not None:
                begun = stream.begun
                if begun is None:
                    yield message
                    continue
                begun.enter()  # of this thread, which runs the body of the loop
                try:
                    yield message
                finally:
                    begun.leave()

        return iterate()

    def pause(self) -> None:
        """Pull nothing until ``resume``."""
        self._inner.pause()

    def resume(self) -> None:
        """Pull again."""
        self._thread.post(self._inner.resume)

    @property
    def assigned(self) -> list[MessageQueue]:
        """The queues that this consumer reads now."""
        return self._inner.assigned

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._inner.group

    @property
    def topics(self) -> list[str]:
        """The topics that are subscribed to."""
        return [each.topic for each in self._inner.subscriptions]

    def stop(self, timeout_ms: int = STOP_TIMEOUT_MS) -> None:
        """Stop pulling, let running handlers finish (at most ``timeout_ms``), commit; then stop the thread."""
        with self._life:
            if self._thread.running:
                try:
                    self._thread.call(self._inner.stop(timeout_ms))
                finally:
                    self._thread.stop()

    def run(self, *, stop_timeout_ms: int = STOP_TIMEOUT_MS) -> None:
        """Consume until another thread calls ``stop``, until SIGTERM or an interrupt; stops gracefully.

        SIGTERM counts in the main thread only, and where the application does not handle it itself.
        ``stop_timeout_ms``: as of ``stop``.
        """
        asked = threading.Event()

        def terminated(*_: object) -> None:
            asked.set()
            if self._inner.running:
                self._thread.submit(self._inner.stop(stop_timeout_ms))

        with _sigterm_calls(terminated):
            self.start()
            try:
                if not asked.is_set():
                    self._thread.call(self._inner.wait_stopped())
            finally:
                self.stop(stop_timeout_ms)


@contextlib.contextmanager
def _sigterm_calls(stop: Callable[..., None]) -> Iterator[None]:
    """Call ``stop`` at SIGTERM, in the main thread, unless the application handles that signal."""
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


async def _closed(batches: AsyncGenerator[Any, None]) -> None:
    await batches.aclose()
