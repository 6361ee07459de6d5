"""The meaning of a broker's answer for the sections of a request: stored, refused, or failed without an answer.

Lives here: ``Answers``: receipts from answers; failed attempts with their known facts. Whether a section is tried again
is decided elsewhere.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pocketmq.client.connection.instance import BrokerConnection, ClientInstance
from pocketmq.client.connection.rebalance import MessageQueue
from pocketmq.client.connection.refusal_facts import CODES_NEVER_STORED, refusal_facts, remark_text
from pocketmq.client.errors import Attempt, ClientError
from pocketmq.client.message.receipts import STATUS_OF_CODE, SectionOutcome, SendStatus, StoredAt
from pocketmq.client.sender.attempt_plan import AttemptPlan
from pocketmq.client.sender.retry import NO_ANSWER
from pocketmq.client.sender.section import Section
from pocketmq.common.errors import PocketMQError, Stored
from pocketmq.common.record import encode_host
from pocketmq.remoting.codec import Response
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import ConnectFailed, ConnectionLost, RemotingTooMuchRequestError, RequestTimeout


class Owner(Protocol):
    """The sender of the sections."""

    def succeeded(self, section: Section, outcome: SectionOutcome) -> None:
        """Settle a section with its receipts."""
        ...

    def attempted(self, section: Section, attempt: Attempt, now_ns: int) -> None:
        """Handle a failed attempt: the section is tried again, or it fails."""
        ...

    def finish(self, section: Section, error: Exception) -> None:
        """End a section that is not tried again."""
        ...


class Answers:
    """The answers to one producer's sections. Times are monotonic ns."""

    def __init__(self, instance: ClientInstance, plan: AttemptPlan, owner: Owner) -> None:
        self._instance = instance
        self._clock = instance.clock
        self._plan = plan
        self._owner = owner
        self._hosts: dict[str, tuple[str, bytes]] = {}

    def native(
        self, connection: BrokerConnection, sections: list[Section], sent_ns: int, result: Response | PocketMQError
    ) -> None:
        """Take the answer to a native append: a result for each section, or a failure of them all."""
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
                self.failed(section, connection.broker_name, connection.address, result, sent_ns)
            return
        assert isinstance(result, Response)
        stored_ok = False
        for section, (code, first_offset, runs, remark) in zip(sections, header.results, strict=True):
            status = STATUS_OF_CODE.get(code)
            if status is None:
                # the extra fields describe the whole answer; they hold for this section if its code is the same
                extra = result.extra if result.code in (code, ResponseCode.SUCCESS) else {}
                self._refused(
                    section, connection.broker_name, connection.address, code, remark, extra, sent_ns, Stored.NO
                )
                continue
            stored_ok |= status is SendStatus.SEND_OK
            attempts = section.attempts
            outcome = SectionOutcome(
                section.queue.topic,
                connection.broker_name,
                section.queue_id,
                first_offset,
                status,
                attempts=len(attempts) + 1,
                waited=section.wait,
                runs=runs,
                sizes=section.record_sizes(),
                store_host=self._store_host(connection),
                duplicate_possible=bool(attempts) and _maybe_stored(attempts),
                flush=_flush_of(connection),
                in_sync_replicas=_copies_of(connection),
                region=_region_of(connection),
                trace_on=connection.announcement is None or connection.announcement.trace_on,
            )
            self._stored(section, connection, outcome, sent_ns)
        if stored_ok:
            self._plan.budget.stored(connection.broker_name)

    def stored_at(self, connection: BrokerConnection, queue: MessageQueue) -> StoredAt:
        """Return what the receipts of a queue have in common, as ``native`` fills it in."""
        return StoredAt(
            queue.topic,
            queue.queue_id,
            connection.broker_name,
            self._store_host(connection),
            _flush_of(connection),
            _copies_of(connection),
            _region_of(connection),
            connection.announcement is None or connection.announcement.trace_on,
        )

    def rocketmq(
        self, connection: BrokerConnection, section: Section, sent_ns: int, result: Response | PocketMQError
    ) -> None:
        """Take the answer to one of RocketMQ's send requests."""
        if not isinstance(result, Response):
            self.failed(section, connection.broker_name, connection.address, result, sent_ns)
            return
        status = STATUS_OF_CODE.get(result.code)
        header: Any = result.header
        if status is None or header is None:
            self.failed(section, connection.broker_name, connection.address, result, sent_ns)
            return
        outcome = SectionOutcome(
            section.queue.topic,
            connection.broker_name,
            header.queue_id,
            header.queue_offset,
            status,
            attempts=len(section.attempts) + 1,
            waited=section.wait,
            offset_ids=header.msg_id.split(","),
            duplicate_possible=_maybe_stored(section.attempts),
            flush=_flush_of(connection),
            in_sync_replicas=_copies_of(connection),
            region=header.msg_region,
            trace_on=header.trace_on,
        )
        if status is SendStatus.SEND_OK:
            self._plan.budget.stored(connection.broker_name)
        self._stored(section, connection, outcome, sent_ns)

    def _stored(self, section: Section, connection: BrokerConnection, outcome: SectionOutcome, sent_ns: int) -> None:
        """Settle with a receipt, or keep it and try for a better one (``retry_another_broker_when_not_store_ok``)."""
        plan = self._plan
        if plan.faults is not None:
            plan.answered(connection.broker_name, sent_ns, self._clock.monotonic_ns())
        status = outcome.status
        if status is not SendStatus.SEND_OK and plan.wants_better(section, status):
            if section.doubtful is None:
                section.doubtful = outcome
            code = next(code for code, meant in STATUS_OF_CODE.items() if meant is status)
            now_ns = self._clock.monotonic_ns()
            attempt = Attempt(
                connection.broker_name,
                connection.address,
                "stored",
                (now_ns - sent_ns) / 1e6,
                int(code),
                status.value,
                stored=Stored.YES,
            )
            self._owner.attempted(section, attempt, now_ns)
            return
        plan.delivered(section)
        self._owner.succeeded(section, outcome)

    def failed(
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
            self._owner.finish(section, result)
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
        self._owner.attempted(section, attempt, now_ns)

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
        """Take a refusal with its extra fields; ``stored`` holds where the broker did not say."""
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
        self._owner.attempted(section, attempt, now_ns)

    def _store_host(self, connection: BrokerConnection) -> bytes:
        """Return the broker's address as records hold it: the one it announces, or the one that this client connects
        to; nothing if that is a name."""
        announced = connection.announcement
        address = (announced.store_host if announced is not None else "") or connection.address
        known = self._hosts.get(connection.address)
        if known is None or known[0] != address:
            name, _, port = address.rpartition(":")
            try:
                host = encode_host(name.strip("[]"), int(port))
            except (PocketMQError, ValueError):
                host = b""
            known = self._hosts[connection.address] = address, host
        return known[1]


def _copies_of(connection: BrokerConnection) -> int:
    """Return the number of copies behind a synchronous master's SEND_OK; 1 for every other broker."""
    announced = connection.announcement
    return announced.in_sync_replicas if announced is not None and announced.replication == "SYNC_MASTER" else 1


def _region_of(connection: BrokerConnection) -> str:
    return "DefaultRegion" if connection.announcement is None else connection.announcement.region


def _flush_of(connection: BrokerConnection) -> str:
    return "" if connection.announcement is None else connection.announcement.flush


def _maybe_stored(attempts: Sequence[Attempt]) -> bool:
    return any(attempt.stored is not Stored.NO for attempt in attempts)
