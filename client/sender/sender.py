"""Delivery of a closed frame: natively or as RocketMQ's clients send, with further attempts, to a receipt or an error.

Lives here: ``SectionSender``: where sections go and when, the loop of attempts, the end of each section. A task exists
only for a section that needs a route, a connection or another attempt; never for a message.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from pocketmq.client.connection.instance import BrokerConnection, ClientInstance, TaskSet
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.connection.route import DEFAULT_TOPIC_QUEUE_NUMS
from pocketmq.client.errors import ROLE_CAUSES, Attempt, BrokerNotExist, NotStarted
from pocketmq.client.message.receipts import Receipt, SectionOutcome, SectionReceipts
from pocketmq.client.message.request_message import ReplyMessage
from pocketmq.client.sender.answers import Answers
from pocketmq.client.sender.attempt_log import AttemptLog
from pocketmq.client.sender.attempt_plan import OVERTAKEN, AttemptPlan
from pocketmq.client.sender.native_send import NativeSend
from pocketmq.client.sender.retry import ATTEMPT_MS_MIN, Decision, is_queue_unknown, send_failed
from pocketmq.client.sender.rocketmq_send import can_batch, rocketmq_request
from pocketmq.client.sender.section import Frame, Section
from pocketmq.client.sender.send_windows import SendWindows, WindowKey
from pocketmq.common.errors import PocketMQError, Stored
from pocketmq.remoting.codec import Body, Response
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import ConnectFailed, RemotingTooMuchRequestError
from pocketmq.remoting.protocol.spec import Header

Rescue = Callable[[Section, Exception, Callable[[Section, list[Receipt] | Exception], None]], bool]
"""Takes over a section that failed, with its error; returns whether it did. Then it calls back once."""

_BATCH_REFUSALS = (ResponseCode.MESSAGE_ILLEGAL, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
"""Refusals of a batch that we formed which may not hold for its messages: the batch is larger than they are."""

CONNECT_PAUSE_MS = 20
"""Between two tries to reach the only broker of a section; the connection pool asks for more after several."""
TOGETHER_NS = 10_000_000
"""Sections travel in one request only if their attempts end no further apart than this."""


class SectionSender:
    """Delivers sections and settles their futures. Belongs to one producer and its event loop.

    ``settled(section)`` is called once for each section when it is no longer in flight.
    """

    def __init__(
        self,
        instance: ClientInstance,
        producer_group: str,
        plan: AttemptPlan,
        settled: Callable[[Section], None],
        rescue: "Rescue | None" = None,
        cutting: Sequence[Callable[[Section], None]] = (),
        settling: Sequence[Callable[[Section, Sequence[Receipt] | Exception], None]] = (),
    ) -> None:
        """``cutting`` is called with each section before it is first sent, ``settling`` with its receipts or error.

        ``rescue`` is offered each section that failed, but for oneway sends and resends.
        """
        self._instance = instance
        self._group = producer_group
        self._plan = plan
        self._settled = settled
        self._rescue = rescue
        self._cutting = cutting
        self._settling = settling
        self.oneway_lost = 0
        """Oneway messages that found no connection, or a full one."""
        self._clock = instance.clock
        self.native = NativeSend(producer_group)
        self._answers = Answers(instance, plan, self)
        self.stored_at = self._answers.stored_at
        self._in_flight: set[Section] = set()
        self._rescuing: set[Section] = set()
        self._tails: dict[MessageQueue, asyncio.Event] = {}
        self._tasks = TaskSet(instance.supervisor)
        self._windows = SendWindows(self._send_request, self._late, self._clock)
        self._attempts = AttemptLog(producer_group, instance.log)

    def __len__(self) -> int:
        """How many sections are not settled."""
        return len(self._in_flight)

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
        connection = self._instance.open_connection(frame.broker_name)
        if connection is None:  # lost since the records were built
            for section in ready:
                self._place_again(section)
            return
        now_ns = self._clock.monotonic_ns()
        until_ns = self._plan.until_ns(ready[0], now_ns)
        together = ready[:1]
        for section in ready[1:]:
            its_until_ns = self._plan.until_ns(section, now_ns)
            if abs(its_until_ns - until_ns) > TOGETHER_NS:  # a request has one timeout, and each section keeps its own
                self._send_native(connection, together, frame.wait, frame.oneway, now_ns, until_ns)
                together, until_ns = [], its_until_ns
            together.append(section)
            until_ns = min(until_ns, its_until_ns)
        self._send_native(connection, together, frame.wait, frame.oneway, now_ns, until_ns)

    def send_section(self, section: Section) -> None:
        """Send one section by itself, with its own attempts."""
        self._enter(section)
        self._place_again(section)

    def take_over(
        self,
        connection: BrokerConnection,
        sections: list[Section],
        sent_ns: int,
        result: Response | PocketMQError | None,
    ) -> None:
        """Take the sections of a request that left by the short path, with its answer or error: their first attempt.

        None: there is no answer yet, and none will be looked at; ``close`` ends them.
        """
        self._in_flight.update(sections)
        if result is not None:
            self._answers.native(connection, sections, sent_ns, result)

    def _enter(self, section: Section) -> None:
        self._in_flight.add(section)
        if not section.may_move and not section.oneway:
            self._plan.entered(section)
        for cut in self._cutting:
            cut(section)

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

        Both may wait for the same connection; the event loop must not decide which wakes first.
        """
        try:
            if before is not None and not before.is_set():
                left_ms = section.left_ms(self._clock.monotonic_ns())
                async with asyncio.timeout(max(left_ms, 0) / 1000):
                    await before.wait()
            await self._place(section)
        except TimeoutError:
            error = ConnectFailed("not sent", why="an earlier message for its queue still waits for the connection")
            self._answers.failed(section, section.queue.broker_name, "", error, section.started_ns)
        except asyncio.CancelledError:
            self._give_up(section)
            raise
        finally:
            placed.set()
            if self._tails.get(section.queue) is placed:
                del self._tails[section.queue]

    async def _place(self, section: Section) -> None:
        """Find a queue and a connection for ``section``, build its request, send it."""
        phase, placed_ns = "route", self._clock.monotonic_ns()
        try:
            try:
                if section.attempts:
                    left_ms = section.left_ms(placed_ns)
                    if self._rescue is None:
                        route = await self._instance.route_for_send(section.queue.topic, timeout_ms=left_ms)
                    else:
                        route = await self._instance.route(section.queue.topic, timeout_ms=left_ms, for_send=True)
                    decision = await self._plan.prepare(section, route)
                    if not decision.again:
                        self._end(section, decision)
                        return
                phase, placed_ns = "connect", self._clock.monotonic_ns()
                connection, until_ns = await self._connect(section)
            except PocketMQError as error:
                if isinstance(error, BrokerNotExist):
                    phase = "route"
                self._answers.failed(section, section.queue.broker_name, "", error, placed_ns, phase=phase)
                return
            if section.attempts and not section.may_move and self._plan.overtaken(section):
                self._end(section, Decision(False, OVERTAKEN))
                return
            self._send_to(section, connection, until_ns)
        except asyncio.CancelledError:
            self._give_up(section)
            raise
        except Exception as error:  # a fault of ours must not leave a future waiting
            self.finish(section, error)

    async def _connect(self, section: Section) -> tuple[BrokerConnection, int]:
        """Return the connection for the next attempt, and the attempt's time limit.

        While no other broker could take the section, wait for its broker within the section's time: what reaches
        nobody is no attempt. A section that a stage may keep does not wait, and neither does a oneway one.
        """
        while True:
            now_ns = self._clock.monotonic_ns()
            until_ns = self._plan.until_ns(section, now_ns)
            left_ms = (until_ns - now_ns) / 1e6
            try:
                return await self._instance.connection(section.queue.broker_name, timeout_ms=left_ms), until_ns
            except (ConnectFailed, BrokerNotExist) as error:
                left_ms = section.left_ms(self._clock.monotonic_ns())
                impatient = self._rescue is not None or section.oneway or left_ms < 2 * ATTEMPT_MS_MIN
                if impatient or (section.may_move and self._plan.others(section)):
                    raise
                self._instance.invalidate_route(section.queue.topic)  # its master may be another by now
                pause_ms = max(error.retry_after_ms, CONNECT_PAUSE_MS)
                await asyncio.sleep(min(pause_ms, left_ms - ATTEMPT_MS_MIN) / 1000)

    def _send_to(self, section: Section, connection: BrokerConnection, until_ns: int) -> None:
        builder = self.native.builder(connection, section.half) if section.plain else None
        if builder is None:
            self._send_rocketmq(section, connection, until_ns)
            return
        self.native.build(builder, section, connection)
        self._send_native(connection, [section], section.wait, section.oneway, self._clock.monotonic_ns(), until_ns)

    def _send_native(
        self,
        connection: BrokerConnection,
        sections: list[Section],
        wait: bool,
        oneway: bool,
        now_ns: int,
        until_ns: int,
    ) -> None:
        left_ms = (until_ns - now_ns) / 1e6
        code, header, body = self.native.request(sections, wait, left_ms)
        if oneway:
            self._send_oneway(connection, code, header, body, sections)
            return

        def done(result: Response | PocketMQError) -> None:
            self._answers.native(connection, sections, now_ns, result)

        try:
            connection.channel.request_nowait(code, header, body, timeout_ms=header.timeout_ms, done=done)
        except PocketMQError as error:
            done(error)

    def _send_rocketmq(self, section: Section, connection: BrokerConnection, until_ns: int) -> None:
        """Send as RocketMQ's clients do: one request per message, or one for a batch."""
        section.unpack()
        if connection.announcement is None:
            self._instance.limits.sent(connection.broker_name, connection.address, connection.version, section.messages)
        if section.count > 1 and section.batch_future is None and not can_batch(section):
            for part in self._parts(section):
                self._send_rocketmq(part, connection, until_ns)
        elif not connection.is_native and not section.oneway:
            in_order = not section.may_move and not isinstance(section.messages[0], ReplyMessage)
            self._windows.enter(section, connection, until_ns, in_order=in_order)
        else:
            self._send_request(section, connection, until_ns, None)

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

    def _send_request(
        self, section: Section, connection: BrokerConnection, until_ns: int, window_key: "WindowKey | None"
    ) -> None:
        """Send the request of one message or batch. ``window_key``: the window whose place its answer frees."""
        now_ns = self._clock.monotonic_ns()
        code, header, body = rocketmq_request(section, self._group, DEFAULT_TOPIC_QUEUE_NUMS)
        if section.oneway:
            self._send_oneway(connection, code, header, body, [section])
            return

        def done(result: Response | PocketMQError) -> None:
            try:
                if (
                    isinstance(result, Response)
                    and result.code in _BATCH_REFUSALS
                    and section.count > 1
                    and section.batch_future is None
                ):
                    self._again_apart(section, connection, until_ns, window_key)
                else:
                    self._answers.rocketmq(connection, section, now_ns, result)
            finally:
                if window_key is not None:
                    self._windows.leave(window_key)

        timeout_ms = max(int((until_ns - now_ns) / 1e6), 1)
        try:
            connection.channel.request_nowait(code, header, body, timeout_ms=timeout_ms, done=done)
        except PocketMQError as error:
            done(error)

    def _again_apart(
        self, section: Section, connection: BrokerConnection, until_ns: int, window_key: "WindowKey | None"
    ) -> None:
        """Send a batch's messages one by one, in its place: the broker takes no batch, or none of its size."""
        parts = self._parts(section)
        if window_key is not None:
            self._windows.put_back(parts, connection, until_ns, window_key)
            return
        for part in parts:
            self._send_request(part, connection, until_ns, None)

    def _late(self, section: Section, connection: BrokerConnection, ahead: int) -> None:
        """End an attempt whose time was over before it could leave (``send_windows``)."""
        error = RemotingTooMuchRequestError(
            "not sent",
            why=f"its time was over while {ahead} earlier sends to {connection.address} had no answer yet",
            hint="a RocketMQ broker is sent 64 at once, and one a queue where order counts: send slower, or in batches",
        )
        self._answers.failed(section, connection.broker_name, connection.address, error, section.started_ns)

    def _send_oneway(
        self, connection: BrokerConnection, code: int, header: Header, body: Body, sections: Sequence[Section]
    ) -> None:
        """Send without an answer. Data that a peer does not read stays counted until it has left."""
        try:
            connection.channel.send_oneway(code, header, body)
        except PocketMQError as error:
            self.oneway_lost += sum(section.count for section in sections)
            self._instance.log.info("oneway_send_lost", address=connection.address, error=str(error))
        else:
            if not connection.channel.writable:
                self._tasks.spawn(self._release_when_written(connection, list(sections)), "pocketmq-oneway")
                return
        for section in sections:
            self._release(section)

    async def _release_when_written(self, connection: BrokerConnection, sections: list[Section]) -> None:
        try:
            await connection.channel.drain()
        except PocketMQError as error:
            self.oneway_lost += sum(section.count for section in sections)
            self._instance.log.info("oneway_send_lost", address=connection.address, error=str(error))
        finally:
            for section in sections:
                self._release(section)

    # -- ends --------------------------------------------------------------------------------------------------

    def succeeded(self, section: Section, outcome: SectionOutcome) -> None:
        """Settle a section with its receipts."""
        if section.batch_future is not None:
            if not section.batch_future.done():
                section.batch_future.set_result(SectionReceipts(outcome, section.all_ids))
        else:
            for index, (future, key) in enumerate(zip(section.futures, section.uniq_keys, strict=True)):
                if not future.done():  # cancelled by the caller meanwhile
                    future.set_result(Receipt(outcome, index, key))
        self._release(section)
        if self._settling:
            self._notify(section, SectionReceipts(outcome, section.all_ids))

    def attempted(self, section: Section, attempt: Attempt, now_ns: int) -> None:
        """Handle a failed attempt: try the section again, or let it fail."""
        if attempt.answer_code == ResponseCode.TOPIC_NOT_EXIST:
            self._instance.routes.forget(section.queue.topic)
        elif is_queue_unknown(attempt):
            self._instance.routes.forget_queue(section.queue)
        elif attempt.cause in ROLE_CAUSES or attempt.answer_code == ResponseCode.SERVICE_NOT_AVAILABLE:
            self._instance.invalidate_route(section.queue.topic)  # another broker may be the master of this name by now
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
        """Settle a section that is no longer retried: with the receipt it has, or with the error."""
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
        self.finish(section, error)

    def _accept(self, section: Section, outcome: SectionOutcome) -> None:
        """Settle with the first receipt: no later attempt was better, but one may have stored the message too."""
        outcome.attempts = len(section.attempts)
        outcome.duplicate_possible = sum(attempt.stored is not Stored.NO for attempt in section.attempts) > 1
        self.succeeded(section, outcome)

    def finish(self, section: Section, error: Exception) -> None:
        """End a section that is not tried again; a stage of the producer may take it over, once."""
        if self._rescue is not None and not (section.oneway or section.is_resend):
            if section in self._rescuing:
                return
            self._rescuing.add(section)
            if self._rescue(section, error, self._rescued):
                return
            self._rescuing.discard(section)
        self._fail(section, error)

    def _rescued(self, section: Section, result: list[Receipt] | Exception) -> None:
        """Settle a section that a stage took over, or could not keep."""
        self._rescuing.discard(section)
        if isinstance(result, Exception):
            self._fail(section, result)
            return
        if section.batch_future is not None and not section.batch_future.done():
            section.batch_future.set_result(result)
        for future, receipt in zip(section.futures, result, strict=False):  # a batch has no futures of its own
            if not future.done():
                future.set_result(receipt)
        self._release(section)
        if self._settling:
            self._notify(section, result)

    def _fail(self, section: Section, error: Exception) -> None:
        futures: list[asyncio.Future[Any]] = list(section.futures)
        if section.batch_future is not None:
            futures.append(section.batch_future)
        for future in futures:
            if not future.done():
                future.set_exception(error)
        self._release(section)
        if self._settling:
            self._notify(section, error)

    def _notify(self, section: Section, result: Sequence[Receipt] | Exception) -> None:
        """Tell the stages how a section ended; log their faults."""
        for settled in self._settling:
            try:
                settled(section, result)
            except Exception as fault:
                self._instance.log.error("send_stage_failed", error=repr(fault), exc_info=fault)

    def _release(self, section: Section) -> None:
        if section in self._in_flight:
            self._in_flight.discard(section)
            if section.charged:  # given up, or a fault of ours: the outcome of the retry is unknown
                broker, section.charged = section.charged, ""
                self._plan.gate.leave(broker, in_vain=True)
            if not section.may_move:
                self._plan.left(section)
            self._settled(section)

    def _give_up(self, section: Section) -> None:
        if section.doubtful is not None:
            self._accept(section, section.doubtful)
            section.doubtful.duplicate_possible = True  # the current attempt may still be carried out
            return
        why = f"no receipt after {len(section.attempts)} failed attempts; the current one may still be carried out"
        error = NotStarted("producer stopped before the message was delivered", why=why, stored=Stored.UNKNOWN)
        self.finish(section, error)

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
        self._attempts.report()
