"""Requests about named transactions.

Lives here: ``NamedProcessor``: NAMED_TRANSACTION_STAGE and NAMED_TRANSACTION_END: who may do what, the answers.
Not here: the appends (``named_log``), what is known (``named_table``), deliveries (``named_service``).

What is answered, always with what the transaction is now:

- a chunk: SUCCESS once it is as safe as a send. One that is there already, or whose transaction is committed, is not
  stored: the answer says so, and who repeats a committed transaction drops what is left of it.
- a commit: SUCCESS once every message of it is in its queue; who has no answer in time asks again, and waits again. One
  that came before: SUCCESS, and nothing is written.
- a seal, or an abort, of what is committed: SUCCESS with that state; nothing changes. What a seal holds no abort drops.
- what cannot be: TRANSACTION_FAILED (chunks are missing: expired, or lost with a power failure; another seal), or
  MESSAGE_ILLEGAL.
"""

from collections.abc import Callable
from typing import Any, Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.flow_control import (
    RETRY_AFTER_ERROR_MS,
    put_remark,
    reject_no_write_buffer,
    reject_page_cache_busy,
    retry_after_busy_ms,
)
from pocketmq.broker.named_log import NamedLog
from pocketmq.broker.named_records import Committed, Dropped, Sealed, Staged, chunk_payload
from pocketmq.broker.named_service import NamedService
from pocketmq.broker.named_table import ATTEMPTS_MAX, CHUNKS_MAX, NAMES_MAX, NamedState, Open
from pocketmq.broker.native_append import NativeAppend
from pocketmq.broker.refusal_book import RefusalBook
from pocketmq.broker.send_checks import SendChecks
from pocketmq.broker.task import AnswerPort, Buffers, Drain, Refusal, Task, encode_answer, encode_refusal, refusal_of
from pocketmq.broker.typed_send import NotStored
from pocketmq.common.errors import Cause, MessageIllegal, PocketMQError, Stored
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers import NamedEndRequestHeader, NamedResponseHeader, NamedStageRequestHeader
from pocketmq.store.append_result import AppendResult, PutStatus
from pocketmq.store.message_store import MessageStore

ASK: Final = 0
SEAL: Final = 1
COMMIT: Final = 2
ABORT: Final = 3
NAME_LENGTH_MAX: Final = 255
ATTEMPT_LENGTH_MAX: Final = 64
MANIFEST_MAX: Final = 10_000
"""Attempts of one transaction on one broker."""
PARTICIPANTS_MAX: Final = 256
INDEX_MAX: Final = 1_000_000
CHUNK_TOPICS_MAX: Final = 16
"""Topics in one chunk: their names must leave its event small."""
KEEP_HOURS_MAX: Final = 24 * 365
FULL_RETRY_MS: Final = 1000


class NamedProcessor:
    """Serves its codes with one thread. ``service`` None: a slave, or a master that was replaced."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        named: NamedLog,
        service: NamedService | None,
        native: NativeAppend,
        checks: SendChecks,
        has_topic: Callable[[str], bool],
        persist_topics: Callable[[], object],
        answers: AnswerPort,
        refusals: RefusalBook,
        refused_by_role: Callable[[], Refusal | None],
    ) -> None:
        self._config = config
        self._store = store
        self._named = named
        self._service = service
        self._native = native
        self._checks = checks
        self._has_topic = has_topic
        self._persist_topics = persist_topics
        self._answers = answers
        self._refusals = refusals
        self._refused_by_role = refused_by_role

    def reject_request(self) -> Refusal | None:
        """Refuse as sends are refused."""
        store = self._store
        if store.is_os_page_cache_busy():
            return reject_page_cache_busy(store.lock_time_mills())
        if store.is_transient_store_pool_deficient():
            return reject_no_write_buffer(store.config.commit_interval_commit_log)
        return self._refused_by_role()

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
        _check_name(header.name, header.sequence)
        if not 0 < len(header.attempt) <= ATTEMPT_LENGTH_MAX or not 0 <= header.index < INDEX_MAX:
            raise _refused(f"attempt {header.attempt[:80]!r}, chunk {header.index}")
        send = self._native.plan(task)
        if send.verdicts:
            raise NotStored(next(iter(send.verdicts.values())))
        topics = sorted({topic for topic, _, _ in header.sections})
        if len(topics) > CHUNK_TOPICS_MAX:
            raise _refused(f"a chunk with messages of {len(topics)} topics, at most {CHUNK_TOPICS_MAX}")
        if send.task.size_bytes > self._named.chunk_bytes_max:
            raise _refused(f"a chunk of {send.task.size_bytes} bytes, this broker takes {self._named.chunk_bytes_max}")
        if self._checks.is_unsure:  # a topic that a crash would forget
            try:
                self._persist_topics()
            except PocketMQError:
                self._checks.forget()
                raise
            self._checks.confirm()
        group = self._native.check_alone(send)
        named = self._named
        with named.lock:
            table = named.table
            state, opened, _ = table.get(header.name, header.sequence)
            self._check_order(header.name, header.sequence, state)
            attempt = None if opened is None else opened.attempts.get(header.attempt)
            if state is NamedState.COMMITTED or (attempt is not None and header.index in attempt.chunks):
                end = self._store.appended_offset  # what came before may still be on its way to the disk
            else:
                self._check_room(header, attempt is None)
                event = Staged(header.name, header.sequence, header.attempt, header.index, len(group), topics)
                end = self._stored(named.write(event, chunk_payload(header.sections, send.sizes, group)))
                state, opened, _ = table.get(header.name, header.sequence)
            answer = self._state(header.name, header.sequence)
        self._acknowledge(task, drain, end, answer)

    def _check_order(self, name: str, sequence: int, state: NamedState) -> None:
        lowest = self._named.table.behind(name, sequence)
        if state is NamedState.UNKNOWN and lowest is not None:
            raise _refused(
                f"sequence {sequence} of {name} is below {lowest}, the lowest that is remembered: nobody knows whether "
                "it was committed",
                hint="sequences of a name must grow; use another name for another stream",
            )

    def _check_room(self, header: NamedStageRequestHeader, new_attempt: bool) -> None:
        table = self._named.table
        full = ""
        if not table.has(header.name) and len(table) >= NAMES_MAX:
            full = f"{NAMES_MAX} names of transactions are remembered"
        elif (new_attempt and table.attempts >= ATTEMPTS_MAX) or table.chunks >= CHUNKS_MAX:
            full = f"{table.attempts} attempts with {table.chunks} chunks wait for their commits"
        elif table.staged_bytes >= self._config.named_transaction_size_bytes_max:
            full = f"{table.staged_bytes} bytes wait for the commits of named transactions"
        if full:
            text = f"not staged: {full}; commit or abort some, or wait until they expire"
            raise NotStored(
                Refusal(int(ResponseCode.SYSTEM_BUSY), text, Cause.MEMORY_LIMIT, retry_after_ms=FULL_RETRY_MS)
            )

    # ---- ends

    def _end(self, task: Task, drain: Drain) -> None:
        header: Any = task.request.header
        self._check_leading()
        _check_name(header.name, header.sequence)
        _check_manifest(header)
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
            answer = self._state(header.name, header.sequence)
        if header.action == ASK:
            drain.answer(task, encode_answer(task.request, header=answer))
        else:
            self._acknowledge(task, drain, end, answer)

    def _seal(self, header: NamedEndRequestHeader, opened: Open | None, state: NamedState) -> int:
        if not header.token or not header.lead:
            raise _refused("a seal without token or lead")
        if opened is not None and opened.seal is not None and opened.seal.token == header.token:
            return self._store.appended_offset
        self._check_order(header.name, header.sequence, state)
        self._check_complete(header, opened)
        if not self._named.table.has(header.name) and len(self._named.table) >= NAMES_MAX:
            raise _refused(f"{NAMES_MAX} names of transactions are remembered")
        event = Sealed(header.name, header.sequence, header.token, header.lead, header.participants, header.attempts)
        return self._stored(self._named.write(event))

    def _commit(self, task: Task, drain: Drain, header: NamedEndRequestHeader) -> None:
        named, service = self._named, self._service
        assert service is not None
        with named.lock:
            state, opened, _ = named.table.get(header.name, header.sequence)
            if state is NamedState.COMMITTED:
                end = self._store.appended_offset
            else:
                self._check_order(header.name, header.sequence, state)
                seal = None if opened is None else opened.seal
                if (seal.token if seal is not None else "") != header.token:
                    raise _failed(
                        f"{header.name} {header.sequence} is not sealed with this token: another run of the same "
                        "transaction has taken it over, or it was too old"
                    )
                manifest = header.attempts if seal is None else seal.manifest
                participants = header.participants if seal is None else seal.participants
                self._check_complete(header, opened)
                self._check_topics(opened)
                keep_hours = min(max(header.keep_hours, 1), KEEP_HOURS_MAX)
                event = Committed(header.name, header.sequence, manifest, participants, keep_hours)
                end = self._stored(named.write(event))
            connection, request = task.connection, task.request

            def delivered(end_offset: int) -> None:
                with named.lock:
                    answer = self._state(header.name, header.sequence)

                def safe(status: PutStatus) -> None:
                    buffers = self._encode(task, answer, status)
                    if not request.oneway:
                        self._answers.post([(connection, buffers)])

                self._store.acknowledge(end_offset, True, safe)

            if service.when_delivered(header.name, header.sequence, delivered):
                drain.release(task)
                service.ring()
                return
            answer = self._state(header.name, header.sequence)
        self._acknowledge(task, drain, end, answer)

    def _abort(self, header: NamedEndRequestHeader, opened: Open) -> int:
        held = set() if opened.seal is None else {attempt for attempt, _ in opened.seal.manifest}
        chosen = [attempt for attempt, _ in header.attempts] or list(opened.attempts)
        dropped = [attempt for attempt in chosen if attempt in opened.attempts and attempt not in held]
        if not dropped:
            return self._store.appended_offset
        return self._stored(self._named.write(Dropped(header.name, header.sequence, dropped)))

    def _check_complete(self, header: NamedEndRequestHeader, opened: Open | None) -> None:
        """Raise unless all of a manifest is here; that of a seal, where there is one and its token is given."""
        manifest = header.attempts
        if opened is not None and opened.seal is not None and header.action == COMMIT:
            manifest = opened.seal.manifest
        missing = self._named.table.missing(opened, manifest)
        if missing:
            raise _failed(
                f"{header.name} {header.sequence} cannot be committed: {missing}: it expired, was aborted, or a power "
                "failure took it; stage it again"
            )

    def _check_topics(self, opened: Open | None) -> None:
        if opened is None:
            return
        topics = {topic for attempt in opened.attempts.values() for topic in attempt.topics}
        gone = sorted(topic for topic in topics if not self._has_topic(topic))
        if gone:
            raise _failed(f"not committed: topic {gone[0]} was deleted after its messages were staged")

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
        seal = None if opened is None else opened.seal
        if done is not None:
            delivered = table.delivery(name, sequence) is None
            return NamedResponseHeader(int(state), delivered, participants=done.participants)
        if seal is not None:
            return NamedResponseHeader(int(state), False, seal.token, seal.lead, seal.participants)
        return NamedResponseHeader(int(state))

    def _stored(self, result: AppendResult) -> int:
        """Return the end of what was stored; raise what was not."""
        if result.status.is_stored:
            return result.end_offset
        cause, retry_after_ms = result.cause, result.retry_after_ms
        if result.status is PutStatus.OS_PAGE_CACHE_BUSY:
            cause = Cause.PAGE_CACHE_BUSY
            retry_after_ms = retry_after_ms or retry_after_busy_ms(self._store.lock_time_mills())
        elif cause is Cause.NONE:
            cause = Cause.DISK_ERROR
        remark = put_remark(result.status.name, result.error)
        raise NotStored(Refusal(result.status.code, remark, cause, Stored.NO, retry_after_ms or RETRY_AFTER_ERROR_MS))

    def _acknowledge(self, task: Task, drain: Drain, end: int, answer: NamedResponseHeader) -> None:
        """Answer when the log is as safe up to ``end`` as a send's would be."""
        if self._store.acknowledges_later:
            drain.release(task)

            def safe(status: PutStatus) -> None:
                if not task.request.oneway:
                    self._answers.post([(task.connection, self._encode(task, answer, status))])

            self._store.acknowledge(end, True, safe)
            return
        told = [PutStatus.PUT_OK]
        self._store.acknowledge(end, True, told.append)
        drain.answer(task, self._encode(task, answer, told[-1]))

    def _encode(self, task: Task, answer: NamedResponseHeader, status: PutStatus) -> Buffers:
        if status is PutStatus.PUT_OK:
            return encode_answer(task.request, header=answer)
        is_slaves = status in (PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE)
        refusal = Refusal(
            status.code,
            put_remark(status.name, ""),
            Cause.TIMEOUT if is_slaves else Cause.DISK_ERROR,
            Stored.YES if status.is_stored else Stored.UNKNOWN,
            RETRY_AFTER_ERROR_MS,
        )
        return encode_refusal(task.request, refusal)

    def _refuse(self, drain: Drain, task: Task, refusal: Refusal) -> None:
        self._refusals.note(refusal.cause.value, refusal.code, refusal.remark)
        drain.refuse(task, refusal)


def _check_name(name: str, sequence: int) -> None:
    if not 0 < len(name) <= NAME_LENGTH_MAX or not name.isprintable():
        raise _refused(f"the name {name[:80]!r} is not 1 to {NAME_LENGTH_MAX} printable characters")
    if sequence < 0:
        raise _refused(f"sequence {sequence} is negative")


def _check_manifest(header: NamedEndRequestHeader) -> None:
    if header.action not in (ASK, SEAL, COMMIT, ABORT):
        raise _refused(f"action {header.action} is not 0 to 3")
    if len(header.attempts) > MANIFEST_MAX or len(header.participants) > PARTICIPANTS_MAX:
        raise _refused(
            f"{len(header.attempts)} attempts, {len(header.participants)} brokers; at most {MANIFEST_MAX}, "
            f"{PARTICIPANTS_MAX}"
        )
    texts = [header.token, header.lead, *header.participants, *(attempt for attempt, _ in header.attempts)]
    if any(len(text) > NAME_LENGTH_MAX for text in texts):
        raise _refused(f"a text of more than {NAME_LENGTH_MAX} characters")
    names = [attempt for attempt, _ in header.attempts]
    if len(set(names)) < len(names):
        raise _refused("an attempt is named twice")
    if any(not 0 < count <= INDEX_MAX for _, count in header.attempts) and header.action != ABORT:
        raise _refused(f"an attempt without chunks, or with more than {INDEX_MAX}")


def _refused(why: str, hint: str = "") -> MessageIllegal:
    return MessageIllegal("named transaction refused", why=why, hint=hint)


def _failed(text: str) -> NotStored:
    return NotStored(Refusal(int(ResponseCode.TRANSACTION_FAILED), text, Cause.BAD_REQUEST))
