"""What becomes of a closed frame: sent natively or typed, answered, tried again elsewhere, or failed.

Lives here: ``SectionSender``: one request per frame (native) or per message or batch (typed), receipts from the
answers, the loop of attempts. A task exists only for a section that needs a route, a connection or another attempt;
never for a message.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pocketmq.client.arrow.packed import PackedRecords, packed_ids
from pocketmq.client.connection.instance import BrokerConnection, ClientInstance, TaskSet
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.connection.refusal_facts import CODES_NEVER_STORED, refusal_facts, remark_text
from pocketmq.client.connection.route import DEFAULT_TOPIC_QUEUE_NUMS
from pocketmq.client.errors import ROLE_CAUSES, Attempt, BrokerNotExist, ClientError, NotStarted
from pocketmq.client.message.receipts import STATUS_OF_CODE, Receipt, SectionOutcome, SectionReceipts, SendStatus
from pocketmq.client.message.request_message import ReplyMessage
from pocketmq.client.sender.attempt_log import AttemptLog
from pocketmq.client.sender.attempt_plan import OVERTAKEN, AttemptPlan
from pocketmq.client.sender.retry import NO_ANSWER, Decision, send_failed
from pocketmq.client.sender.rocketmq_send import can_batch, rocketmq_request
from pocketmq.client.sender.section import Frame, Section, native_body
from pocketmq.client.sender.send_windows import Lane, SendWindows
from pocketmq.common.errors import PocketMQError, Stored
from pocketmq.common.plain_batch import build_alike
from pocketmq.common.record import encode_host
from pocketmq.common.record_codec import PlainRecordBuilder
from pocketmq.remoting.codec import Response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import ConnectFailed, ConnectionLost, RemotingTooMuchRequestError, RequestTimeout
from pocketmq.remoting.protocol.send import NativeAppendRequestHeader
from pocketmq.remoting.protocol.spec import Header

Rescue = Callable[[Section, Exception, Callable[[Section, list[Receipt] | Exception], None]], bool]
"""Takes a section that failed, with its error (``durable.retry``); returns whether it did. Then it calls back once."""

_BATCH_REFUSALS = (ResponseCode.MESSAGE_ILLEGAL, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
"""Answers to a batch of our making that may not be meant for its messages: it is larger than they are."""

TOGETHER_NS = 10_000_000
"""Sections travel in one request only if their attempts end no further apart than this."""


class SectionSender:
    """Delivers sections and settles their futures. Belongs to one producer and its event loop.

    ``settled(section)`` is called once for each section when nothing of it is in flight any more.
    """

    def __init__(
        self,
        instance: ClientInstance,
        producer_group: str,
        plan: AttemptPlan,
        settled: Callable[[Section], None],
        rescue: "Rescue | None" = None,
    ) -> None:
        self._instance = instance
        self._group = producer_group
        self._plan = plan
        self._settled = settled
        self._rescue = rescue
        self.oneway_lost = 0
        """Oneway messages that found no connection, or a full one."""
        self._clock = instance.clock
        self._builders: dict[tuple[str, int], PlainRecordBuilder] = {}
        self._hosts: dict[str, bytes] = {}
        self._in_flight: set[Section] = set()
        self._tails: dict[MessageQueue, asyncio.Event] = {}
        self._tasks = TaskSet(instance.supervisor)
        self._windows = SendWindows(self._send_request, self._late, self._clock)
        self._attempts = AttemptLog(producer_group, instance.log)

    def __len__(self) -> int:
        """How many sections are not settled."""
        return len(self._in_flight)

    def builder(self, link: BrokerConnection, half: bool = False) -> PlainRecordBuilder | None:
        """Return the record builder for a broker, or None if it takes typed requests only (for ``half`` messages)."""
        announcement = link.announcement
        if announcement is None or not announcement.native or (half and not announcement.transactions):
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
            self._enter(section)
            if section.records and (section.may_move or section.queue not in self._tails):
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
        now_ns = self._clock.monotonic_ns()
        until_ns = self._plan.until_ns(ready[0], now_ns)
        together = ready[:1]
        for section in ready[1:]:
            its_until_ns = self._plan.until_ns(section, now_ns)
            if abs(its_until_ns - until_ns) > TOGETHER_NS:  # a request has one timeout: nobody ends with another's
                self._send_native(link, together, frame.wait, frame.oneway, now_ns, until_ns)
                together, until_ns = [], its_until_ns
            together.append(section)
            until_ns = min(until_ns, its_until_ns)
        self._send_native(link, together, frame.wait, frame.oneway, now_ns, until_ns)

    def send_section(self, section: Section) -> None:
        """Send one section by itself, with its own attempts."""
        self._enter(section)
        self._place_again(section)

    def _enter(self, section: Section) -> None:
        self._in_flight.add(section)
        if not section.may_move and not section.oneway:
            self._plan.entered(section)

    def _place_again(self, section: Section) -> None:
        name = f"pocketmq-send-{section.queue.topic}"
        if section.may_move or section.oneway or section.attempts:
            self._tasks.spawn(self._place(section), name)
        else:
            before, placed = self._tails.get(section.queue), asyncio.Event()
            self._tails[section.queue] = placed
            self._tasks.spawn(self._place_behind(section, before, placed), name)

    async def _place_behind(self, section: Section, before: asyncio.Event | None, placed: asyncio.Event) -> None:
        """Place the first attempt of a section whose queue was chosen, behind the one handed over before it.

        Both may wait for the same connection, and who wakes first is not for the event loop to decide.
        """
        try:
            if before is not None and not before.is_set():
                left_ms = section.left_ms(self._clock.monotonic_ns())
                async with asyncio.timeout(max(left_ms, 0) / 1000):
                    await before.wait()
            await self._place(section)
        except TimeoutError:
            error = ConnectFailed("not sent", why="an earlier message for its queue still waits for the connection")
            self._failed(section, section.queue.broker_name, "", error, section.started_ns)
        except asyncio.CancelledError:
            self._give_up(section)
            raise
        finally:
            placed.set()
            if self._tails.get(section.queue) is placed:
                del self._tails[section.queue]

    async def _place(self, section: Section) -> None:
        """Find a queue and a connection for ``section``, make what its broker takes, send it."""
        phase, placed_ns = "route", self._clock.monotonic_ns()
        try:
            try:
                if section.attempts:
                    left_ms = section.left_ms(placed_ns)
                    route = await self._instance.route(section.queue.topic, timeout_ms=left_ms, for_send=True)
                    decision = await self._plan.prepare(section, route)
                    if not decision.again:
                        self._end(section, decision)
                        return
                phase, placed_ns = "connect", self._clock.monotonic_ns()
                until_ns = self._plan.until_ns(section, placed_ns)
                left_ms = (until_ns - placed_ns) / 1e6
                link = await self._instance.link(section.queue.broker_name, timeout_ms=left_ms)
            except PocketMQError as error:
                if isinstance(error, BrokerNotExist):
                    phase = "route"
                self._failed(section, section.queue.broker_name, "", error, placed_ns, phase=phase)
                return
            if section.attempts and not section.may_move and self._plan.overtaken(section):
                self._end(section, Decision(False, OVERTAKEN))
                return
            self._send_to(section, link, until_ns)
        except asyncio.CancelledError:
            self._give_up(section)
            raise
        except Exception as error:  # a fault of ours must not leave a future waiting
            self._finish(section, error)

    def _send_to(self, section: Section, link: BrokerConnection, until_ns: int) -> None:
        builder = self.builder(link, section.half) if section.plain else None
        if builder is None:
            self._send_typed(section, link, until_ns)
            return
        announcement = link.announcement
        assert announcement is not None
        if section.rows is not None:
            made = section.rows.records(announcement.cluster, announcement.family, section.queue_id, section.born_ms)
            if isinstance(made, PackedRecords):
                section.packed = made
            else:
                section.records = made
        elif section.alike is not None:
            topic, bodies = section.queue.topic, [message.body for message in section.messages]
            ids = packed_ids(section.all_ids).rows()
            sizes, data = build_alike(builder, topic, section.alike, bodies, section.queue_id, ids, section.born_ms)
            section.packed = PackedRecords(memoryview(data), sizes)
        else:
            section.records = [
                builder.build(message, section.queue_id, uniq_key, section.born_ms)
                for message, uniq_key in zip(section.messages, section.uniq_keys, strict=True)
            ]
        self._send_native(link, [section], section.wait, section.oneway, self._clock.monotonic_ns(), until_ns)

    def _send_native(
        self, link: BrokerConnection, sections: list[Section], wait: bool, oneway: bool, now_ns: int, until_ns: int
    ) -> None:
        left_ms = (until_ns - now_ns) / 1e6
        header = NativeAppendRequestHeader(
            producer_group=self._group,
            wait=wait,
            sections=[(section.queue.topic, section.queue_id, section.count) for section in sections],
            timeout_ms=max(int(left_ms), 1),
        )
        code = RequestCode.NATIVE_HALF_APPEND if sections[0].half else RequestCode.NATIVE_APPEND
        body = native_body(sections)
        if oneway:
            self._send_oneway(link, code, header, body, sections)
            return

        def done(result: Response | PocketMQError) -> None:
            self._native_answer(link, sections, now_ns, result)

        self._request(link, code, header, body, left_ms, done)

    def _send_typed(self, section: Section, link: BrokerConnection, until_ns: int) -> None:
        """Send as RocketMQ's clients do: one request per message, or one for a batch."""
        section.unpack()
        if link.announcement is None:
            self._instance.limits.sent(link.broker_name, link.address, link.version, section.messages)
        if section.count > 1 and section.batch_future is None and not can_batch(section):
            for part in self._parts(section):
                self._send_typed(part, link, until_ns)
        elif not link.is_native and not section.oneway:
            in_order = not section.may_move and not isinstance(section.messages[0], ReplyMessage)
            self._windows.enter(section, link, until_ns, in_order=in_order)
        else:
            self._send_request(section, link, until_ns, None)

    def _parts(self, section: Section) -> list[Section]:
        """Take a section apart: its messages are sent one by one."""
        self._in_flight.discard(section)
        parts = section.split()
        for part in parts:
            self._in_flight.add(part)
            if not part.may_move and not part.oneway:
                self._plan.entered(part)
            if section.charged and not part.charged:  # each part is a request, so each costs a token
                self._plan.budget.take(section.charged)
                part.charged = section.charged
        return parts

    def _send_request(self, section: Section, link: BrokerConnection, until_ns: int, lane: "Lane | None") -> None:
        """Send the request of one message or batch. ``lane``: whose place it gives back with its answer."""
        now_ns = self._clock.monotonic_ns()
        code, header, body = rocketmq_request(section, self._group, DEFAULT_TOPIC_QUEUE_NUMS)
        if section.oneway:
            self._send_oneway(link, code, header, body, [section])
            return

        def done(result: Response | PocketMQError) -> None:
            try:
                if (
                    isinstance(result, Response)
                    and result.code in _BATCH_REFUSALS
                    and section.count > 1
                    and section.batch_future is None
                ):
                    self._again_apart(section, link, until_ns, lane)
                else:
                    self._typed_answer(link, section, now_ns, result)
            finally:
                if lane is not None:
                    self._windows.leave(lane)

        self._request(link, code, header, body, (until_ns - now_ns) / 1e6, done)

    def _again_apart(self, section: Section, link: BrokerConnection, until_ns: int, lane: "Lane | None") -> None:
        """Send a batch's messages one by one, in its place: the broker takes no batch, or none of its size."""
        parts = self._parts(section)
        if lane is not None:
            self._windows.put_back(parts, link, until_ns, lane)
            return
        for part in parts:
            self._send_request(part, link, until_ns, None)

    def _late(self, section: Section, link: BrokerConnection, ahead: int) -> None:
        """End an attempt whose time was over before it could leave (``send_windows``)."""
        error = RemotingTooMuchRequestError(
            "not sent",
            why=f"its time was over while {ahead} earlier sends to {link.address} had no answer yet",
            hint="a RocketMQ broker is sent 64 at once, and one a queue where order counts: send slower, or in batches",
        )
        self._failed(section, link.broker_name, link.address, error, section.started_ns)

    def _request(
        self,
        link: BrokerConnection,
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

    def _send_oneway(
        self, link: BrokerConnection, code: int, header: Header, body: bytes, sections: Sequence[Section]
    ) -> None:
        """Send without an answer. What a peer does not read stays counted until it has left."""
        try:
            link.channel.send_oneway(code, header, body)
        except PocketMQError as error:
            self.oneway_lost += sum(section.count for section in sections)
            self._instance.log.info("oneway_send_lost", address=link.address, error=str(error))
        else:
            if not link.channel.writable:
                self._tasks.spawn(self._release_when_written(link, list(sections)), "pocketmq-oneway")
                return
        for section in sections:
            self._release(section)

    async def _release_when_written(self, link: BrokerConnection, sections: list[Section]) -> None:
        try:
            await link.channel.drain()
        except PocketMQError as error:
            self.oneway_lost += sum(section.count for section in sections)
            self._instance.log.info("oneway_send_lost", address=link.address, error=str(error))
        finally:
            for section in sections:
                self._release(section)

    # -- answers -----------------------------------------------------------------------------------------------

    def _native_answer(
        self, link: BrokerConnection, sections: list[Section], sent_ns: int, result: Response | PocketMQError
    ) -> None:
        header: Any = result.header if isinstance(result, Response) else None
        if isinstance(result, Response) and header is not None:
            if result.code != ResponseCode.SUCCESS:  # then no section may claim to be stored
                if len(header.results) != len(sections) or any(each[0] in STATUS_OF_CODE for each in header.results):
                    header = None
            elif len(header.results) != len(sections):
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
        assert isinstance(result, Response)
        stored_ok = False
        for section, (code, first_offset, runs, remark) in zip(sections, header.results, strict=True):
            status = STATUS_OF_CODE.get(code)
            if status is None:
                # the fields beside the text speak of the answer as a whole: of this section if its code is the same
                extra = result.extra if result.code in (code, ResponseCode.SUCCESS) else {}
                self._refused(section, link.broker_name, link.address, code, remark, extra, sent_ns, Stored.NO)
                continue
            stored_ok |= status is SendStatus.SEND_OK
            attempts = section.attempts
            outcome = SectionOutcome(
                section.queue.topic,
                link.broker_name,
                section.queue_id,
                first_offset,
                status,
                attempts=len(attempts) + 1,
                waited=section.wait,
                runs=runs,
                sizes=section.record_sizes(),
                store_host=self._store_host(link.address),
                duplicate_possible=bool(attempts) and _maybe_stored(attempts),
                flush=_flush_of(link),
                in_sync_replicas=_copies_of(link),
                region=_region_of(link),
                trace_on=link.announcement is None or link.announcement.trace_on,
            )
            self._stored(section, link, outcome, sent_ns)
        if stored_ok:
            self._plan.budget.stored(link.broker_name)

    def _typed_answer(
        self, link: BrokerConnection, section: Section, sent_ns: int, result: Response | PocketMQError
    ) -> None:
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
            duplicate_possible=_maybe_stored(section.attempts),
            flush=_flush_of(link),
            in_sync_replicas=_copies_of(link),
            region=header.msg_region,
            trace_on=header.trace_on,
        )
        if status is SendStatus.SEND_OK:
            self._plan.budget.stored(link.broker_name)
        self._stored(section, link, outcome, sent_ns)

    def _stored(self, section: Section, link: BrokerConnection, outcome: SectionOutcome, sent_ns: int) -> None:
        """Take a receipt; or keep it and look for a better one (``retry_another_broker_when_not_store_ok``)."""
        plan = self._plan
        if plan.faults is not None:
            plan.answered(link.broker_name, sent_ns, self._clock.monotonic_ns())
        status = outcome.status
        if status is not SendStatus.SEND_OK and plan.wants_better(section, status):
            if section.doubtful is None:
                section.doubtful = outcome
            code = next(code for code, meant in STATUS_OF_CODE.items() if meant is status)
            now_ns = self._clock.monotonic_ns()
            attempt = Attempt(
                link.broker_name,
                link.address,
                "stored",
                (now_ns - sent_ns) / 1e6,
                int(code),
                status.value,
                stored=Stored.YES,
            )
            self._attempted(section, attempt, now_ns)
            return
        plan.delivered(section)
        self._succeeded(section, outcome)

    def _succeeded(self, section: Section, outcome: SectionOutcome) -> None:
        if section.batch_future is not None:
            if not section.batch_future.done():
                section.batch_future.set_result(SectionReceipts(outcome, section.all_ids))
        else:
            for index, (future, key) in enumerate(zip(section.futures, section.uniq_keys, strict=True)):
                if not future.done():  # cancelled by the caller meanwhile
                    future.set_result(Receipt(outcome, index, key))
        self._release(section)

    def _failed(
        self,
        section: Section,
        broker: str,
        address: str,
        result: Response | PocketMQError,
        sent_ns: int,
        *,
        phase: str = "send",
    ) -> None:
        """Take a failure without a section's own answer: of the route, the connection, the request as a whole."""
        if isinstance(result, Response):
            stored = Stored.NO if result.code in CODES_NEVER_STORED else Stored.UNKNOWN
            self._refused(section, broker, address, result.code, result.remark, result.extra, sent_ns, stored)
            return
        if not result.retriable and section.doubtful is None:
            self._finish(section, result)
            return
        if isinstance(result, ConnectFailed | ConnectionLost | RequestTimeout):
            self._instance.invalidate_route(section.queue.topic)
        if isinstance(result, ConnectFailed):
            phase = "connect"
        elif isinstance(result, RemotingTooMuchRequestError):
            phase = "local"
        elif phase == "send" and result.stored is Stored.NO:
            phase = "connect"  # the connection was gone before the request left
        now_ns = self._clock.monotonic_ns()
        elapsed_ms = (now_ns - sent_ns) / 1e6
        stored = Stored.UNKNOWN if phase == "send" else Stored.NO
        attempt = Attempt(
            broker, address, phase, elapsed_ms, NO_ANSWER, str(result), None, stored, result.retry_after_ms
        )
        self._attempted(section, attempt, now_ns)

    def _refused(
        self,
        section: Section,
        broker: str,
        address: str,
        code: int,
        remark: str,
        extra: Mapping[str, str],
        sent_ns: int,
        stored: Stored,
    ) -> None:
        """Take a refusal: what the broker said beside its text, and ``stored`` where it did not say."""
        facts = refusal_facts(extra)
        now_ns = self._clock.monotonic_ns()
        elapsed_ms = (now_ns - sent_ns) / 1e6
        said = facts.stored if facts.stored is not None else stored
        attempt = Attempt(
            broker,
            address,
            "answer",
            elapsed_ms,
            code,
            remark_text(remark),
            facts.cause,
            said,
            facts.retry_after_ms,
            facts.stages,
        )
        self._attempted(section, attempt, now_ns)

    def _attempted(self, section: Section, attempt: Attempt, now_ns: int) -> None:
        if attempt.answer_code == ResponseCode.TOPIC_NOT_EXIST:
            self._instance.routes.forget(section.queue.topic)
        elif attempt.cause in ROLE_CAUSES or attempt.answer_code == ResponseCode.SERVICE_NOT_AVAILABLE:
            self._instance.invalidate_route(section.queue.topic)  # another broker may lead this name by now
        decision = self._plan.failed(section, attempt, now_ns)
        self._attempts.note(attempt, section.count, again=decision.again and not section.oneway)
        if section.oneway:
            self.oneway_lost += section.count
            self._release(section)
        elif decision.again:
            self._place_again(section)
        else:
            self._end(section, decision)

    def _end(self, section: Section, decision: Decision) -> None:
        """Settle a section that is not tried any more: with the receipt it has, or with the error."""
        if section.doubtful is not None:
            self._accept(section, section.doubtful)
            return
        total_ms = (self._clock.monotonic_ns() - section.started_ns) / 1e6
        error = send_failed(
            section.queue.topic,
            section.attempts,
            decision.why,
            total_ms,
            late=decision.late,
            chosen=not section.may_move,
        )
        self._finish(section, error)

    def _accept(self, section: Section, outcome: SectionOutcome) -> None:
        """Settle with the first receipt: no later attempt was better, but one may have stored the message too."""
        outcome.attempts = len(section.attempts)
        outcome.duplicate_possible = sum(attempt.stored is not Stored.NO for attempt in section.attempts) > 1
        self._succeeded(section, outcome)

    def _finish(self, section: Section, error: Exception) -> None:
        if self._rescue is None or not self._rescue(section, error, self._rescued):
            self._fail(section, error)

    def _rescued(self, section: Section, result: list[Receipt] | Exception) -> None:
        """Settle a section that the durable retry took, or could not keep."""
        if isinstance(result, Exception):
            self._fail(section, result)
            return
        if section.batch_future is not None and not section.batch_future.done():
            section.batch_future.set_result(result)
        for future, receipt in zip(section.futures, result, strict=False):  # a batch has no futures of its own
            if not future.done():
                future.set_result(receipt)
        self._release(section)

    def _fail(self, section: Section, error: Exception) -> None:
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
            if section.charged:  # given up, or a fault of ours: nobody knows what became of the retry
                broker, section.charged = section.charged, ""
                self._plan.gate.leave(broker, in_vain=True)
            if not section.may_move:
                self._plan.left(section)
            self._settled(section)

    def _give_up(self, section: Section) -> None:
        if section.doubtful is not None:
            self._accept(section, section.doubtful)
            section.doubtful.duplicate_possible = True  # the present attempt may still be carried out
            return
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
        self._windows.take_all()
        await self._tasks.cancel()
        for section in list(self._in_flight):
            self._give_up(section)
        self._attempts.tell()


def _copies_of(link: BrokerConnection) -> int:
    """Return how many copies a synchronous master's SEND_OK stands for; 1 for every other broker."""
    told = link.announcement
    return told.in_sync_replicas if told is not None and told.replication == "SYNC_MASTER" else 1


def _region_of(link: BrokerConnection) -> str:
    return "DefaultRegion" if link.announcement is None else link.announcement.region


def _flush_of(link: BrokerConnection) -> str:
    return "" if link.announcement is None else link.announcement.flush


def _maybe_stored(attempts: Sequence[Attempt]) -> bool:
    return any(attempt.stored is not Stored.NO for attempt in attempts)
