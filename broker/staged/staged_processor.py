"""Requests about staged transactions.

Lives here: ``StagedProcessor``: STAGED_TRANSACTION_WRITE and STAGED_TRANSACTION_END, and their answers.

Each answer has the present state of the transaction:

- a chunk: SUCCESS once it is as safe as a send. A repeated chunk, or one of a committed transaction, is not stored: the
  answer says so, and a client that repeats a committed transaction drops the rest of it.
- a commit: SUCCESS once all its messages are in their queues. A client that times out repeats it and waits again;
  committing a delivered transaction returns SUCCESS and writes nothing.
- a prepare or an abort of a committed transaction: SUCCESS with that state; nothing changes. An abort drops prepared
  attempts only with the token of their prepare.
- an add-brokers request: SUCCESS with all brokers that may know the transactional id, once this one remembers them.
  From then on a prepare, and a commit that decides, is refused unless it names all of them.
- an impossible request: TRANSACTION_FAILED (chunks have expired, or were lost in a power failure; another run has
  prepared; a prepare older than the present one), or MESSAGE_ILLEGAL.
"""

from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import Any, Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.flow_control.busy_answers import RETRY_AFTER_ERROR_MS
from pocketmq.broker.flow_control.put_outcome import PutOutcome, confirm_topics
from pocketmq.broker.flow_control.refusal_stats import RefusalStats
from pocketmq.broker.request.request_task import (
    AnswerPort,
    Buffers,
    Drain,
    Refusal,
    Task,
    encode_answer,
    encode_refusal,
    refusal_of,
)
from pocketmq.broker.send.native_append import NativeAppend
from pocketmq.broker.send.rocketmq_send import NotStored
from pocketmq.broker.send.send_checks import SendChecks
from pocketmq.broker.staged.id_owners import IdOwners
from pocketmq.broker.staged.staged_checks import (
    ABORT,
    ADD_BROKERS,
    ASK,
    ATTEMPT_LENGTH_MAX,
    CHUNK_TOPICS_MAX,
    COMMIT,
    INDEX_MAX,
    PREPARE,
    StagedChecks,
    check_id,
    check_manifest,
    check_participants,
    check_user_of,
    failed,
    keep_hours,
    refused,
)
from pocketmq.broker.staged.staged_log import StagedLog
from pocketmq.broker.staged.staged_records import BrokersAdded, Committed, Prepared, Staged, chunk_payload
from pocketmq.broker.staged.staged_service import StagedService
from pocketmq.broker.staged.staged_state import HOUR_MS, Open, StagedState, dropped_parts
from pocketmq.common.errors import Cause, PocketMQError, Stored
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.staged import StagedEndRequestHeader, StagedResponseHeader
from pocketmq.store.append_result import AppendResult, PutStatus
from pocketmq.store.message_store import MessageStore

PREPARE_SPARE_HOURS: Final = 24
"""A commit over several brokers is remembered longer by this than it may stay prepared."""


@dataclass(slots=True)
class _Asked:
    """A request and its answer, which is sent once the log is safe."""

    task: Task
    answer: StagedResponseHeader


@dataclass(slots=True, eq=False)
class StagedProcessor:
    """Serves its codes with one thread."""

    config: BrokerConfig
    store: MessageStore
    staged_log: StagedLog
    service: StagedService | None
    """None: a slave, or a master that was replaced."""
    native: NativeAppend
    checks: SendChecks
    topic_home: InitVar[Callable[[str], tuple[str, int] | None]]
    """As of ``StagedChecks``."""
    persist_topics: Callable[[], object]
    answers: AnswerPort
    refusals: RefusalStats
    refused_by_role: Callable[[], Refusal | None]
    owners: IdOwners
    reject_request: Callable[[], Refusal | None] = field(init=False)
    """The same refusals as of sends."""
    _rules: StagedChecks = field(init=False)
    _outcome: PutOutcome = field(init=False)

    def __post_init__(self, topic_home: Callable[[str], tuple[str, int] | None]) -> None:
        self._rules = StagedChecks(self.config, self.staged_log, topic_home)
        self._outcome = PutOutcome(self.store, self.refused_by_role)
        self.reject_request = self._outcome.refusal_at_admission

    def process(self, drain: Drain) -> None:
        """Serve the drained requests one after the other."""
        for task in drain.tasks:
            try:
                if task.request.code == RequestCode.STAGED_TRANSACTION_WRITE:
                    self._stage(task, drain)
                else:
                    self._end(task, drain)
            except NotStored as error:
                self._refuse(drain, task, error.refusal)
            except PocketMQError as error:
                self._refuse(drain, task, refusal_of(error, Stored.NO))

    # ---- chunks

    def _stage(self, task: Task, drain: Drain) -> None:
        header: Any = task.request.header
        self._check_leading()
        check_id(header.transactional_id, header.version)
        if not 0 < len(header.attempt) <= ATTEMPT_LENGTH_MAX or not 0 <= header.index < INDEX_MAX:
            raise refused(f"attempt {header.attempt[:80]!r}, chunk {header.index}")
        send = self.native.plan(task)
        if send.verdicts:
            raise NotStored(next(iter(send.verdicts.values())))
        topics = sorted({topic for topic, _, _ in header.sections})
        if len(topics) > CHUNK_TOPICS_MAX:
            raise refused(f"a chunk with messages of {len(topics)} topics, at most {CHUNK_TOPICS_MAX}")
        confirm_topics(self.checks, self.persist_topics)
        group = self.native.check_alone(send)
        homes = self._rules.homes(header.sections, topics)
        staged_log = self.staged_log
        with staged_log.lock:
            table = staged_log.table
            state, opened, _ = table.get(header.transactional_id, header.version)
            check_user_of(task, opened)
            self.owners.check(task.request, header.transactional_id)
            self._rules.check_order(header.transactional_id, header.version, state)
            attempt = None if opened is None else opened.attempts.get(header.attempt)
            if state is StagedState.COMMITTED or (attempt is not None and header.index in attempt.chunks):
                end = self.store.appended_offset  # earlier records may not be on the disk yet
            else:
                self._rules.check_room(header, attempt is None)
                event = Staged(
                    header.transactional_id, header.version, header.attempt, header.index, len(group), topics, homes
                )
                end = self._stored(staged_log.write(event, chunk_payload(header.sections, send.sizes, group)))
                state, opened, _ = table.get(header.transactional_id, header.version)
            answer = self._state(header.transactional_id, header.version)
        self._acknowledge(task, drain, end, answer)

    # ---- ends

    def _end(self, task: Task, drain: Drain) -> None:
        header: Any = task.request.header
        self._check_leading()
        check_id(header.transactional_id, header.version)
        check_manifest(header)
        if header.action == COMMIT:
            self._commit(task, drain, header)
            return
        staged_log = self.staged_log
        with staged_log.lock:
            end = self.store.appended_offset
            state, opened, _ = staged_log.table.get(header.transactional_id, header.version)
            check_user_of(task, opened)
            self.owners.check(task.request, header.transactional_id)
            if header.action == PREPARE and state is not StagedState.COMMITTED:
                end = self._prepare(header, opened, state)
            elif header.action == ABORT and opened is not None:
                end = self._abort(header, opened)
            elif header.action == ADD_BROKERS:
                end = self._add_brokers(header)
            answer = self._state(header.transactional_id, header.version)
        if header.action == ASK:
            drain.answer(task, encode_answer(task.request, header=answer))
        else:
            self._acknowledge(task, drain, end, answer)

    def _prepare(self, header: StagedEndRequestHeader, opened: Open | None, state: StagedState) -> int:
        if not header.token or not header.coordinator:
            raise refused("a prepare without token or coordinator")
        prepared = None if opened is None else opened.prepared
        if prepared is not None and prepared.token == header.token:
            return self.store.appended_offset
        self._rules.check_order(header.transactional_id, header.version, state)
        self._rules.check_brokers(header)
        is_coordinator = header.coordinator == self.config.broker_name
        if (
            not is_coordinator
            and prepared is not None
            and prepared.coordinator == header.coordinator
            and header.epoch <= prepared.epoch
        ):
            raise failed(
                f"{header.transactional_id} {header.version} is not prepared: another run of the same transaction "
                "has taken it over"
            )
        self._rules.check_complete(header, opened)
        self._rules.check_topics(opened, header.attempts)
        self._rules.check_ids(header.transactional_id)
        event = Prepared(
            header.transactional_id,
            header.version,
            header.token,
            header.coordinator,
            header.participants,
            header.attempts,
            0 if is_coordinator else header.epoch,
        )
        return self._stored(self.staged_log.write(event))

    def _add_brokers(self, header: StagedEndRequestHeader) -> int:
        staged_log = self.staged_log
        known, until_ms = staged_log.table.brokers(header.transactional_id)
        brokers = sorted({*known, *header.brokers} - set(header.gone))
        check_participants(brokers)
        hours, left_ms = keep_hours(header), until_ms - staged_log.now_ms()
        if brokers == known and left_ms >= hours * HOUR_MS // 2:
            return self.store.appended_offset
        self._rules.check_ids(header.transactional_id)
        return self._stored(
            staged_log.write(
                BrokersAdded(header.transactional_id, header.version, brokers, max(hours, -(-left_ms // HOUR_MS)))
            )
        )

    def _commit(self, task: Task, drain: Drain, header: StagedEndRequestHeader) -> None:
        staged_log, service = self.staged_log, self.service
        assert service is not None
        with staged_log.lock:
            state, opened, _ = staged_log.table.get(header.transactional_id, header.version)
            check_user_of(task, opened)
            self.owners.check(task.request, header.transactional_id)
            if state is StagedState.COMMITTED:
                end = self.store.appended_offset
            else:
                self._rules.check_order(header.transactional_id, header.version, state)
                prepared = None if opened is None else opened.prepared
                if (prepared.token if prepared is not None else "") != header.token:
                    raise failed(
                        f"{header.transactional_id} {header.version} is not prepared with this token: another run of "
                        "the same transaction has taken it over, or it was too old"
                    )
                if prepared is None and not header.attempts:
                    raise failed(
                        f"{header.transactional_id} {header.version} cannot be committed: no part of it is here"
                    )
                if prepared is None or prepared.coordinator == self.config.broker_name:  # this commit decides
                    self._rules.check_brokers(header)
                if prepared is None and len(header.brokers) > 1:
                    raise refused("a commit over several brokers that was not prepared")
                manifest = header.attempts if prepared is None else prepared.manifest
                participants = header.participants if prepared is None else prepared.participants
                self._rules.check_complete(header, opened)
                self._rules.check_topics(opened, manifest)
                self._rules.check_ids(header.transactional_id)
                hours = keep_hours(header)
                if len(participants) > 1:  # while another broker may still be prepared: else it would drop its part
                    hours = max(hours, self.store.config.file_reserved_time + PREPARE_SPARE_HOURS)
                event = Committed(header.transactional_id, header.version, manifest, participants, hours, header.token)
                end = self._stored(staged_log.write(event))
            connection, request = task.connection, task.request

            def delivered(end_offset: int) -> None:
                with staged_log.lock:
                    asked = _Asked(task, self._state(header.transactional_id, header.version))

                def safe(status: PutStatus) -> None:
                    buffers = self._encode(asked, status)
                    if not request.oneway:
                        self.answers.post([(connection, buffers)])

                self.store.acknowledge(end_offset, True, safe)

            if service.when_delivered(header.transactional_id, header.version, delivered):
                drain.release(task)
                service.wake()
                return
            answer = self._state(header.transactional_id, header.version)
        self._acknowledge(task, drain, end, answer)

    def _abort(self, header: StagedEndRequestHeader, opened: Open) -> int:
        """Drop the listed attempts, or all if none is listed; with the token of a prepare, end that prepare as well."""
        prepared = opened.prepared
        unprepared = prepared is not None and header.token == prepared.token
        if header.token and not unprepared:
            return self.store.appended_offset
        held = set() if prepared is None or unprepared else {attempt for attempt, _ in prepared.manifest}
        chosen = [attempt for attempt, _ in header.attempts] or ([] if header.token else list(opened.attempts))
        dropped = [attempt for attempt in chosen if attempt in opened.attempts and attempt not in held]
        end = self.store.appended_offset
        if dropped or unprepared:
            for event in dropped_parts(header.transactional_id, header.version, dropped, unprepared):
                end = self._stored(self.staged_log.write(event))
        return end

    # ---- answers

    def _check_leading(self) -> None:
        refusal = self.refused_by_role()
        if refusal is not None:
            raise NotStored(refusal)
        if self.service is None:
            text = "a slave, and a master that was replaced, takes no staged transactions"
            raise NotStored(
                Refusal(int(ResponseCode.SLAVE_NOT_AVAILABLE), text, Cause.NOT_MASTER, Stored.NO, RETRY_AFTER_ERROR_MS)
            )

    def _state(self, transactional_id: str, version: int) -> StagedResponseHeader:
        """Return the state of a transaction. Under the lock."""
        table = self.staged_log.table
        state, opened, done = table.get(transactional_id, version)
        brokers, _ = table.brokers(transactional_id)
        if done is not None:
            delivered = table.delivery(transactional_id, version) is None
            return StagedResponseHeader(
                int(state), delivered, done.token, participants=done.participants, brokers=brokers, lost=done.lost
            )
        if opened is not None and opened.prepared is not None and opened.prepared_place is not None:
            prepared = opened.prepared
            epoch = (
                opened.prepared_place.queue_offset
                if prepared.coordinator == self.config.broker_name
                else prepared.epoch
            )
            return StagedResponseHeader(
                int(state), False, prepared.token, prepared.coordinator, prepared.participants, epoch, brokers
            )
        return StagedResponseHeader(int(state), brokers=brokers)

    def _stored(self, result: AppendResult) -> int:
        """Return the end of the stored record; raise ``NotStored`` if there is none."""
        if result.status.is_stored:
            return result.end_offset
        raise NotStored(self._outcome.refusal(result.status, result))

    def _acknowledge(self, task: Task, drain: Drain, end: int, answer: StagedResponseHeader) -> None:
        """Answer when the log is as safe up to ``end`` as after a send."""
        self._outcome.acknowledge(drain, self.answers, [_Asked(task, answer)], end, self._encode)

    def _encode(self, asked: "_Asked", status: PutStatus) -> Buffers:
        if status is PutStatus.PUT_OK:
            return encode_answer(asked.task.request, header=asked.answer)
        return encode_refusal(asked.task.request, self._outcome.refusal(status))

    def _refuse(self, drain: Drain, task: Task, refusal: Refusal) -> None:
        self.refusals.note(refusal.cause.value, refusal.code, refusal.remark)
        drain.refuse(task, refusal)
