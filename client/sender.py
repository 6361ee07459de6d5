"""What becomes of a closed frame: sent natively or typed, answered, tried again elsewhere, or failed.

Lives here: ``SectionSender``: one request per frame (native) or per message or batch (typed), receipts from the
answers, the loop of attempts. A task exists only for a section that needs a route, a connection or another attempt;
never for a message.
Not here: what is tried again (``retry``), filling frames (``accumulator``), the user's face (``producer``).
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any

from pocketmq.client.accumulator import Frame, Section, native_body
from pocketmq.client.errors import Attempt, ClientError, NotStarted
from pocketmq.client.instance import ClientInstance, Link, TaskSet
from pocketmq.client.rebalance import MessageQueue
from pocketmq.client.receipts import STATUS_OF_CODE, Receipt, SectionOutcome
from pocketmq.client.retry import NO_ANSWER, RetryPolicy, send_failed
from pocketmq.client.route import DEFAULT_TOPIC_QUEUE_NUMS, TopicRoute
from pocketmq.client.typed_send import typed_request
from pocketmq.common.errors import PocketMQError, Stored
from pocketmq.common.record import encode_host
from pocketmq.common.record_codec import PlainRecordBuilder
from pocketmq.remoting.codec import Response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import ConnectFailed, ConnectionLost, RemotingTooMuchRequestError
from pocketmq.remoting.headers import Header, NativeAppendRequestHeader

ChooseQueue = Callable[[TopicRoute, Collection[str]], MessageQueue]
"""(route, brokers to avoid) -> a queue for the next attempt."""


class SectionSender:
    """Delivers sections and settles their futures. Belongs to one producer and its event loop.

    ``settled(section)`` is called once for each section when nothing of it is in flight any more.
    """

    def __init__(
        self,
        instance: ClientInstance,
        producer_group: str,
        policy: RetryPolicy,
        choose_queue: ChooseQueue,
        settled: Callable[[Section], None],
    ) -> None:
        self._instance = instance
        self._group = producer_group
        self._policy = policy
        self._choose_queue = choose_queue
        self._settled = settled
        self._clock = instance.clock
        self._builders: dict[tuple[str, int], PlainRecordBuilder] = {}
        self._hosts: dict[str, bytes] = {}
        self._in_flight: set[Section] = set()
        self._tasks = TaskSet()

    def __len__(self) -> int:
        """How many sections are not settled."""
        return len(self._in_flight)

    def builder(self, link: Link) -> PlainRecordBuilder | None:
        """Return the record builder for a broker, or None if it takes typed requests only."""
        announcement = link.announcement
        if announcement is None or not announcement.native:
            return None
        key = (announcement.cluster, announcement.family)
        builder = self._builders.get(key)
        if builder is None:
            builder = self._builders[key] = PlainRecordBuilder(*key)
        return builder

    # -- sending -----------------------------------------------------------------------------------------------

    def send_frame(self, frame: Frame) -> None:
        """Send a closed frame. Sections without records (broker or route not ready, or not plain) go their own way."""
        ready: list[Section] = []
        for section in frame.sections:
            self._in_flight.add(section)
            if section.records:
                ready.append(section)
            else:
                self._place_again(section)
        if not ready:
            return
        link = self._instance.open_link(frame.broker_name)
        if link is None:  # lost since the records were built
            for section in ready:
                self._place_again(section)
            return
        self._send_native(link, ready, frame.wait, frame.oneway)

    def send_section(self, section: Section) -> None:
        """Send one section by itself, with its own attempts."""
        self._in_flight.add(section)
        self._place_again(section)

    def _place_again(self, section: Section, delay_ms: float = 0.0) -> None:
        name = f"pocketmq-send-{section.queue.topic}"
        self._tasks.spawn(self._place(section, delay_ms), name)

    async def _place(self, section: Section, delay_ms: float) -> None:
        """Find a queue and a connection for ``section``, make what its broker takes, send it."""
        try:
            if delay_ms:
                await asyncio.sleep(delay_ms / 1000)
            try:
                left_ms = section.left_ms(self._clock.monotonic_ns())
                if section.attempts:
                    topic = section.queue.topic
                    route = await self._instance.route(topic, timeout_ms=left_ms, for_send=True)
                    if section.attempts_max > 1:
                        section.queue = self._choose_queue(route, {attempt.broker for attempt in section.attempts})
                        section.queue_id = section.queue.queue_id
                link = await self._instance.link(
                    section.queue.broker_name, timeout_ms=section.left_ms(self._clock.monotonic_ns())
                )
            except PocketMQError as error:
                self._failed(section, section.queue.broker_name, "", error)
                return
            self._send_to(section, link)
        except asyncio.CancelledError:
            self._give_up(section)
            raise
        except Exception as error:  # a fault of ours must not leave a future waiting
            self._finish(section, error)

    def _send_to(self, section: Section, link: Link) -> None:
        builder = self.builder(link) if section.plain else None
        if builder is None:
            self._send_typed(section, link)
            return
        announcement = link.announcement
        assert announcement is not None
        if section.rows is not None:
            section.records = section.rows.records(
                announcement.cluster, announcement.family, section.queue_id, section.born_ms
            )
        else:
            section.records = [
                builder.build(message, section.queue_id, uniq_key, section.born_ms)
                for message, uniq_key in zip(section.messages, section.uniq_keys, strict=True)
            ]
        self._send_native(link, [section], section.wait, section.oneway)

    def _send_native(self, link: Link, sections: list[Section], wait: bool, oneway: bool) -> None:
        now_ns = self._clock.monotonic_ns()
        left_ms = min(section.left_ms(now_ns) for section in sections)
        header = NativeAppendRequestHeader(
            producer_group=self._group,
            wait=wait,
            sections=[(section.queue.topic, section.queue_id, len(section.records)) for section in sections],
            timeout_ms=max(int(left_ms), 1),
        )
        body = native_body(sections)
        if oneway:
            self._send_oneway(link, RequestCode.NATIVE_APPEND, header, body, sections)
            return

        def done(result: Response | PocketMQError) -> None:
            self._native_answer(link, sections, now_ns, result)

        self._request(link, RequestCode.NATIVE_APPEND, header, body, left_ms, done)

    def _send_typed(self, section: Section, link: Link) -> None:
        """Send as RocketMQ's clients do: one request per message, or one for a batch."""
        if section.rows is not None:
            section.messages = section.rows.messages()
            section.rows = None
        section.records = []
        if section.count > 1 and section.batch_future is None:
            self._in_flight.discard(section)
            for part in _split(section):
                self._in_flight.add(part)
                self._send_typed(part, link)
            return
        now_ns = self._clock.monotonic_ns()
        code, header, body = typed_request(section, self._group, DEFAULT_TOPIC_QUEUE_NUMS)
        if section.oneway:
            self._send_oneway(link, code, header, body, [section])
            return

        def done(result: Response | PocketMQError) -> None:
            self._typed_answer(link, section, now_ns, result)

        self._request(link, code, header, body, section.left_ms(now_ns), done)

    def _request(
        self,
        link: Link,
        code: int,
        header: Header,
        body: bytes,
        left_ms: float,
        done: Callable[[Response | PocketMQError], None],
    ) -> None:
        try:
            link.channel.request_nowait(code, header, body, timeout_ms=max(int(left_ms), 1), done=done)
        except PocketMQError as error:
            done(error)

    def _send_oneway(self, link: Link, code: int, header: Header, body: bytes, sections: Sequence[Section]) -> None:
        try:
            link.channel.send_oneway(code, header, body)
        except PocketMQError as error:
            self._instance.log.info("oneway_send_lost", address=link.address, error=str(error))
        for section in sections:
            self._release(section)

    # -- answers -----------------------------------------------------------------------------------------------

    def _native_answer(
        self, link: Link, sections: list[Section], sent_ns: int, result: Response | PocketMQError
    ) -> None:
        header: Any = None
        if isinstance(result, Response):
            header = result.header if result.code == ResponseCode.SUCCESS else None
            if header is not None and len(header.results) != len(sections):
                result = ClientError(
                    "answer refused",
                    why=f"{len(header.results)} results for {len(sections)} sections",
                    hint="check the broker",
                )
                header = None
        if header is None:
            for section in sections:
                self._failed(section, link.broker_name, link.address, result, sent_ns)
            return
        for section, (code, first_offset, runs, remark) in zip(sections, header.results, strict=True):
            status = STATUS_OF_CODE.get(code)
            if status is None:
                self._refused(section, link, code, remark, sent_ns, 0)
                continue
            outcome = SectionOutcome(
                section.queue.topic,
                link.broker_name,
                section.queue_id,
                first_offset,
                status,
                attempts=len(section.attempts) + 1,
                waited=section.wait,
                runs=runs,
                sizes=list(map(len, section.records)),
                store_host=self._store_host(link.address),
            )
            self._succeeded(section, outcome)

    def _typed_answer(self, link: Link, section: Section, sent_ns: int, result: Response | PocketMQError) -> None:
        if not isinstance(result, Response):
            self._failed(section, link.broker_name, link.address, result, sent_ns)
            return
        status = STATUS_OF_CODE.get(result.code)
        header: Any = result.header
        if status is None or header is None:
            self._failed(section, link.broker_name, link.address, result, sent_ns)
            return
        outcome = SectionOutcome(
            section.queue.topic,
            link.broker_name,
            header.queue_id,
            header.queue_offset,
            status,
            attempts=len(section.attempts) + 1,
            waited=section.wait,
            offset_ids=header.msg_id.split(","),
        )
        self._succeeded(section, outcome)

    def _succeeded(self, section: Section, outcome: SectionOutcome) -> None:
        if section.batch_future is not None:
            if not section.batch_future.done():
                keys = section.uniq_keys
                section.batch_future.set_result([Receipt(outcome, index, key) for index, key in enumerate(keys)])
        else:
            for index, (future, key) in enumerate(zip(section.futures, section.uniq_keys, strict=True)):
                if not future.done():  # cancelled by the caller meanwhile
                    future.set_result(Receipt(outcome, index, key))
        self._release(section)

    def _failed(
        self, section: Section, broker: str, address: str, result: Response | PocketMQError, sent_ns: int | None = None
    ) -> None:
        """Take a failure without a section's own answer: of the route, the connection, the request as a whole."""
        if isinstance(result, Response):
            retry_after_ms = _number(result.extra.get("retry_after_ms", ""))
            self._attempted(section, broker, address, "answer", result.code, result.remark, sent_ns, retry_after_ms)
            return
        if not result.retriable:
            self._finish(section, result)
            return
        if isinstance(result, ConnectFailed | ConnectionLost):
            self._instance.doubt_route(section.queue.topic)
        if isinstance(result, ConnectFailed):
            phase = "connect"
        elif isinstance(result, RemotingTooMuchRequestError):
            phase = "local"
        else:
            phase = "send" if address else "route"
        self._attempted(section, broker, address, phase, NO_ANSWER, str(result), sent_ns, result.retry_after_ms)

    def _refused(self, section: Section, link: Link, code: int, remark: str, sent_ns: int, retry_after_ms: int) -> None:
        self._attempted(section, link.broker_name, link.address, "answer", code, remark, sent_ns, retry_after_ms)

    def _attempted(
        self,
        section: Section,
        broker: str,
        address: str,
        phase: str,
        code: int,
        answer: str,
        sent_ns: int | None,
        retry_after_ms: int,
    ) -> None:
        now_ns = self._clock.monotonic_ns()
        elapsed_ms = (now_ns - (section.started_ns if sent_ns is None else sent_ns)) / 1e6
        section.attempts.append(Attempt(broker, address, phase, elapsed_ms, code, answer))
        if code == ResponseCode.TOPIC_NOT_EXIST:
            self._instance.routes.forget(section.queue.topic)
        if section.oneway:
            self._release(section)
            return
        decision = self._policy.decide(section.attempts, section.attempts_max, section.left_ms(now_ns), retry_after_ms)
        if decision.again:
            self._place_again(section, decision.delay_ms)
            return
        total_ms = (now_ns - section.started_ns) / 1e6
        self._finish(section, send_failed(section.queue.topic, section.attempts, decision.why, total_ms))

    def _finish(self, section: Section, error: Exception) -> None:
        futures: list[asyncio.Future[Any]] = list(section.futures)
        if section.batch_future is not None:
            futures.append(section.batch_future)
        for future in futures:
            if not future.done():
                future.set_exception(error)
        self._release(section)

    def _release(self, section: Section) -> None:
        if section in self._in_flight:
            self._in_flight.discard(section)
            self._settled(section)

    def _give_up(self, section: Section) -> None:
        why = f"no receipt after {len(section.attempts)} failed attempts; the present one may still be carried out"
        error = NotStarted("producer stopped before the message was delivered", why=why, stored=Stored.UNKNOWN)
        self._finish(section, error)

    def _store_host(self, address: str) -> bytes:
        """Return the broker's address as records hold it, or nothing if it is a name."""
        host = self._hosts.get(address)
        if host is None:
            name, _, port = address.rpartition(":")
            try:
                host = encode_host(name.strip("[]"), int(port))
            except (PocketMQError, ValueError):
                host = b""
            self._hosts[address] = host
        return host

    # -- end ---------------------------------------------------------------------------------------------------

    async def drain(self, timeout_s: float) -> None:
        """Wait until every section is settled, at most ``timeout_s``."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while self._in_flight and loop.time() < end:
            waits: list[asyncio.Future[Any]] = []
            for section in self._in_flight:
                waits += [future for future in section.futures[-1:] if not future.done()]
                if section.batch_future is not None and not section.batch_future.done():
                    waits.append(section.batch_future)
            if waits:
                await asyncio.wait(waits, timeout=max(end - loop.time(), 0))
            else:
                await asyncio.sleep(0.001)

    async def close(self) -> None:
        """End every task; what is still unsettled fails with ``NotStarted``."""
        await self._tasks.cancel()
        for section in list(self._in_flight):
            self._give_up(section)


def _split(section: Section) -> list[Section]:
    """Return one section per message; together they hold as many bytes."""
    parts: list[Section] = []
    for index, (message, uniq_key) in enumerate(zip(section.messages, section.uniq_keys, strict=True)):
        part = Section(
            None,
            section.queue,
            build=None,
            started_ns=section.started_ns,
            deadline_ns=section.deadline_ns,
            born_ms=section.born_ms,
            attempts_max=section.attempts_max,
            plain=section.plain,
            wait=section.wait,
            oneway=section.oneway,
        )
        part.messages.append(message)
        part.uniq_keys.append(uniq_key)
        part.futures += section.futures[index : index + 1]
        part.attempts += section.attempts
        part.size_bytes = section.size_bytes // section.count
        parts.append(part)
    parts[0].size_bytes += section.size_bytes % section.count
    return parts


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
