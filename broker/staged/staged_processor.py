"""Requests about named transactions.

Lives here: ``NamedProcessor``: NAMED_TRANSACTION_STAGE and NAMED_TRANSACTION_END: who may do what, the answers.

What is answered, always with what the transaction is now:

- a chunk: SUCCESS once it is as safe as a send. One that is there already, or whose transaction is committed, is not
  stored: the answer says so, and who repeats a committed transaction drops what is left of it.
- a commit: SUCCESS once every message of it is in its queue; who has no answer in time asks again, and waits again. One
  that came before: SUCCESS, and nothing is written.
- a seal, or an abort, of what is committed: SUCCESS with that state; nothing changes. What a seal holds no abort drops
  but one with the seal's token.
- an enlist: SUCCESS with all brokers that may know something of the name, once this one remembers them. From then on no
  seal, and no commit that decides, is taken from who does not know all of them.
- what cannot be: TRANSACTION_FAILED (chunks are missing: expired, or lost with a power failure; another seal; a seal
  that is older than the present one), or MESSAGE_ILLEGAL.
"""

from collections.abc import Callable
from dataclasses import dataclass
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
from pocketmq.broker.staged.staged_checks import (
    ABORT,
    ASK,
    ATTEMPT_LENGTH_MAX,
    CHUNK_TOPICS_MAX,
    COMMIT,
    ENLIST,
    INDEX_MAX,
    SEAL,
    NamedChecks,
    check_manifest,
    check_name,
    check_participants,
    failed,
    keep_hours,
    refused,
)
from pocketmq.broker.staged.staged_log import NamedLog
from pocketmq.broker.staged.staged_records import Committed, Enlisted, Sealed, Staged, chunk_payload
from pocketmq.broker.staged.staged_service import NamedService
from pocketmq.broker.staged.staged_state import HOUR_MS, NamedState, Open, dropped_parts
from pocketmq.common.errors import Cause, PocketMQError, Stored
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.staged import NamedEndRequestHeader, NamedResponseHeader
from pocketmq.store.append_result import AppendResult, PutStatus
from pocketmq.store.message_store import MessageStore

SEAL_SPARE_HOURS: Final = 24
"""So much longer than a seal a commit over several brokers is remembered."""


@dataclass(slots=True)
class _Asked:
    """A request and its answer, which goes out once the log is safe."""

    task: Task
    answer: NamedResponseHeader


class NamedProcessor:
    """Serves its codes with one thread. ``service`` None: a slave, or a master that was replaced. ``topic_home``: as of
    ``NamedChecks``.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        named: NamedLog,
        service: NamedService | None,
        native: NativeAppend,
        checks: SendChecks,
        topic_home: Callable[[str], tuple[str, int] | None],
        persist_topics: Callable[[], object],
        answers: AnswerPort,
        refusals: RefusalStats,
        refused_by_role: Callable[[], Refusal | None],
    ) -> None:
        self._config = config
        self._store = store
        self._named = named
        self._service = service
        self._native = native
        self._checks = checks
        self._rules = NamedChecks(config, named, topic_home)
        self._persist_topics = persist_topics
        self._answers = answers
        self._refusals = refusals
        self._refused_by_role = refused_by_role
        self._outcome = PutOutcome(store, refused_by_role)
        self.reject_request = self._outcome.at_door
        """As sends are refused."""

    def process(self, drain: Drain) -> None:
        """Serve what was drained, one after the other."""
        for task in drain.tasks:
            try:
                if task.request.code == RequestCode.NAMED_TRANSACTION_STAGE:
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
        check_name(header.name, header.sequence)
        if not 0 < len(header.attempt) <= ATTEMPT_LENGTH_MAX or not 0 <= header.index < INDEX_MAX:
            raise refused(f"attempt {header.attempt[:80]!r}, chunk {header.index}")
        send = self._native.plan(task)
        if send.verdicts:
            raise NotStored(next(iter(send.verdicts.values())))
        topics = sorted({topic for topic, _, _ in header.sections})
        if len(topics) > CHUNK_TOPICS_MAX:
            raise refused(f"a chunk with messages of {len(topics)} topics, at most {CHUNK_TOPICS_MAX}")
        confirm_topics(self._checks, self._persist_topics)
        group = self._native.check_alone(send)
        homes = self._rules.homes(header.sections, topics)
        named = self._named
        with named.lock:
            table = named.table
            state, opened, _ = table.get(header.name, header.sequence)
            self._rules.check_order(header.name, header.sequence, state)
            attempt = None if opened is None else opened.attempts.get(header.attempt)
            if state is NamedState.COMMITTED or (attempt is not None and header.index in attempt.chunks):
                end = self._store.appended_offset  # what came before may still be on its way to the disk
            else:
                self._rules.check_room(header, attempt is None)
                event = Staged(header.name, header.sequence, header.attempt, header.index, len(group), topics, homes)
                end = self._stored(named.write(event, chunk_payload(header.sections, send.sizes, group)))
                state, opened, _ = table.get(header.name, header.sequence)
            answer = self._state(header.name, header.sequence)
        self._acknowledge(task, drain, end, answer)

    # ---- ends

    def _end(self, task: Task, drain: Drain) -> None:
        header: Any = task.request.header
        self._check_leading()
        check_name(header.name, header.sequence)
        check_manifest(header)
        if header.action == COMMIT:
            self._commit(task, drain, header)
            return
        named = self._named
        with named.lock:
            end = self._store.appended_offset
            state, opened, _ = named.table.get(header.name, header.sequence)
            if header.action == SEAL and state is not NamedState.COMMITTED:
                end = self._seal(header, opened, state)
            elif header.action == ABORT and opened is not None:
                end = self._abort(header, opened)
            elif header.action == ENLIST:
                end = self._enlist(header)
            answer = self._state(header.name, header.sequence)
        if header.action == ASK:
            drain.answer(task, encode_answer(task.request, header=answer))
        else:
            self._acknowledge(task, drain, end, answer)

    def _seal(self, header: NamedEndRequestHeader, opened: Open | None, state: NamedState) -> int:
        if not header.token or not header.lead:
            raise refused("a seal without token or lead")
        seal = None if opened is None else opened.seal
        if seal is not None and seal.token == header.token:
            return self._store.appended_offset
        self._rules.check_order(header.name, header.sequence, state)
        self._rules.check_brokers(header)
        is_lead = header.lead == self._config.broker_name
        if not is_lead and seal is not None and seal.lead == header.lead and header.epoch <= seal.epoch:
            raise failed(
                f"{header.name} {header.sequence} is not sealed: another run of the same transaction has taken it over"
            )
        self._rules.check_complete(header, opened)
        self._rules.check_topics(opened, header.attempts)
        self._rules.check_names(header.name)
        event = Sealed(
            header.name,
            header.sequence,
            header.token,
            header.lead,
            header.participants,
            header.attempts,
            0 if is_lead else header.epoch,
        )
        return self._stored(self._named.write(event))

    def _enlist(self, header: NamedEndRequestHeader) -> int:
        named = self._named
        known, until_ms = named.table.brokers(header.name)
        brokers = sorted({*known, *header.brokers} - set(header.gone))
        check_participants(brokers)
        hours, left_ms = keep_hours(header), until_ms - named.now_ms()
        if brokers == known and left_ms >= hours * HOUR_MS // 2:
            return self._store.appended_offset
        self._rules.check_names(header.name)
        return self._stored(
            named.write(Enlisted(header.name, header.sequence, brokers, max(hours, -(-left_ms // HOUR_MS))))
        )

    def _commit(self, task: Task, drain: Drain, header: NamedEndRequestHeader) -> None:
        named, service = self._named, self._service
        assert service is not None
        with named.lock:
            state, opened, _ = named.table.get(header.name, header.sequence)
            if state is NamedState.COMMITTED:
                end = self._store.appended_offset
            else:
                self._rules.check_order(header.name, header.sequence, state)
                seal = None if opened is None else opened.seal
                if (seal.token if seal is not None else "") != header.token:
                    raise failed(
                        f"{header.name} {header.sequence} is not sealed with this token: another run of the same "
                        "transaction has taken it over, or it was too old"
                    )
                if seal is None and not header.attempts:
                    raise failed(f"{header.name} {header.sequence} cannot be committed: no part of it is here")
                if seal is None or seal.lead == self._config.broker_name:  # this commit decides
                    self._rules.check_brokers(header)
                if seal is None and len(header.brokers) > 1:
                    raise refused("a commit over several brokers without a seal")
                manifest = header.attempts if seal is None else seal.manifest
                participants = header.participants if seal is None else seal.participants
                self._rules.check_complete(header, opened)
                self._rules.check_topics(opened, manifest)
                self._rules.check_names(header.name)
                hours = keep_hours(header)
                if len(participants) > 1:  # as long as another may be sealed still: else that one would be given up
                    hours = max(hours, self._store.config.file_reserved_time + SEAL_SPARE_HOURS)
                event = Committed(header.name, header.sequence, manifest, participants, hours, header.token)
                end = self._stored(named.write(event))
            connection, request = task.connection, task.request

            def delivered(end_offset: int) -> None:
                with named.lock:
                    asked = _Asked(task, self._state(header.name, header.sequence))

                def safe(status: PutStatus) -> None:
                    buffers = self._encode(asked, status)
                    if not request.oneway:
                        self._answers.post([(connection, buffers)])

                self._store.acknowledge(end_offset, True, safe)

            if service.when_delivered(header.name, header.sequence, delivered):
                drain.release(task)
                service.wake()
                return
            answer = self._state(header.name, header.sequence)
        self._acknowledge(task, drain, end, answer)

    def _abort(self, header: NamedEndRequestHeader, opened: Open) -> int:
        """Drop attempts, all if none is named; with the token of a seal that seal, and what is named."""
        seal = opened.seal
        unsealed = seal is not None and header.token == seal.token
        if header.token and not unsealed:
            return self._store.appended_offset
        held = set() if seal is None or unsealed else {attempt for attempt, _ in seal.manifest}
        chosen = [attempt for attempt, _ in header.attempts] or ([] if header.token else list(opened.attempts))
        dropped = [attempt for attempt in chosen if attempt in opened.attempts and attempt not in held]
        end = self._store.appended_offset
        if dropped or unsealed:
            for event in dropped_parts(header.name, header.sequence, dropped, unsealed):
                end = self._stored(self._named.write(event))
        return end

    # ---- answers

    def _check_leading(self) -> None:
        refusal = self._refused_by_role()
        if refusal is not None:
            raise NotStored(refusal)
        if self._service is None:
            text = "named transactions are not taken by a slave, or by a master that was replaced"
            raise NotStored(
                Refusal(int(ResponseCode.SLAVE_NOT_AVAILABLE), text, Cause.NOT_MASTER, Stored.NO, RETRY_AFTER_ERROR_MS)
            )

    def _state(self, name: str, sequence: int) -> NamedResponseHeader:
        """Return what a transaction is now. Under the lock."""
        table = self._named.table
        state, opened, done = table.get(name, sequence)
        brokers, _ = table.brokers(name)
        if done is not None:
            delivered = table.delivery(name, sequence) is None
            return NamedResponseHeader(
                int(state), delivered, done.token, participants=done.participants, brokers=brokers, lost=done.lost
            )
        if opened is not None and opened.seal is not None and opened.seal_place is not None:
            seal = opened.seal
            epoch = opened.seal_place.queue_offset if seal.lead == self._config.broker_name else seal.epoch
            return NamedResponseHeader(int(state), False, seal.token, seal.lead, seal.participants, epoch, brokers)
        return NamedResponseHeader(int(state), brokers=brokers)

    def _stored(self, result: AppendResult) -> int:
        """Return the end of what was stored; raise what was not."""
        if result.status.is_stored:
            return result.end_offset
        raise NotStored(self._outcome.refusal(result.status, result))

    def _acknowledge(self, task: Task, drain: Drain, end: int, answer: NamedResponseHeader) -> None:
        """Answer when the log is as safe up to ``end`` as a send's would be."""
        self._outcome.acknowledge(drain, self._answers, [_Asked(task, answer)], end, self._encode)

    def _encode(self, asked: "_Asked", status: PutStatus) -> Buffers:
        if status is PutStatus.PUT_OK:
            return encode_answer(asked.task.request, header=asked.answer)
        return encode_refusal(asked.task.request, self._outcome.refusal(status))

    def _refuse(self, drain: Drain, task: Task, refusal: Refusal) -> None:
        self._refusals.note(refusal.cause.value, refusal.code, refusal.remark)
        drain.refuse(task, refusal)
