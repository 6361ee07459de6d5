"""Commit and rollback: the decisions of producers.

Lives here: ``EndTransactionProcessor``: END_TRANSACTION and NATIVE_END_TRANSACTION (RocketMQ EndTransactionProcessor):
verdicts on decisions, many of them in one append, the answers.

The answer depends on the half message, which the request names by both of its offsets:

- open: the decision is written; SUCCESS once it is as safe as a send. Unknown (0): SUCCESS, nothing changes.
- ended the same way: SUCCESS, and nothing is written: a decision may be repeated.
- ended the other way: TRANSACTION_SHOULD_COMMIT or TRANSACTION_SHOULD_ROLLBACK, which names the outcome.
- given up: still decided while the broker remembers it, else TRANSACTION_FAILED.
- unknown, ended and forgotten, of another group, at another offset: SYSTEM_ERROR with RocketMQ's texts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pocketmq.auth.errors import AccessDenied
from pocketmq.auth.stored import check_stored
from pocketmq.broker.flow_control.busy_answers import RETRY_AFTER_ERROR_MS
from pocketmq.broker.flow_control.put_outcome import PutOutcome
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
from pocketmq.broker.transaction.transaction_commits import CommitGroup, CommitTails
from pocketmq.broker.transaction.transaction_records import HalfIllegal, HalfRecords
from pocketmq.broker.transaction.transaction_table import Half, Outcome, TransactionTable
from pocketmq.broker.transaction.transaction_writer import TransactionWriter
from pocketmq.common.errors import Cause, CorruptRecord, PocketMQError, Stored
from pocketmq.common.events import EventLog
from pocketmq.common.record import TRANSACTION_COMMIT, TRANSACTION_NOT, TRANSACTION_ROLLBACK
from pocketmq.common.record_codec import decode_record
from pocketmq.common.topics import HALF_TOPIC
from pocketmq.remoting.codec import Request
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.access import PUB
from pocketmq.remoting.protocol.transaction import NativeEndTransactionResponseHeader
from pocketmq.store.append_result import PutStatus
from pocketmq.store.message_store import MessageStore

ENDS_MAX: Final = 4096
"""Decisions in one native request."""
BUSY_RETRY_MS: Final = 100
NOT_FOUND: Final = "Find prepared transaction message failed"
_OUTCOME: Final = {TRANSACTION_COMMIT: Outcome.COMMITTED, TRANSACTION_ROLLBACK: Outcome.ROLLED_BACK}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to one decision: SUCCESS and ``remark``, or ``refusal``.

    ``waits``: the answer depends on the flush of the decision, written now or earlier.
    """

    remark: str = ""
    refusal: Refusal | None = None
    waits: bool = False

    @property
    def code(self) -> int:
        """Response code."""
        return int(ResponseCode.SUCCESS) if self.refusal is None else self.refusal.code


WRITTEN: Final = Verdict(waits=True)
BEFORE: Final = {outcome: Verdict(f"the transaction was {outcome.value} before", waits=True) for outcome in Outcome}
ASKED_AGAIN: Final = Verdict("unknown: its producers will be asked again")


@dataclass(slots=True)
class _Work:
    """One request: its decisions and their verdicts, None for those still to be written."""

    task: Task
    verdicts: list[Verdict | None]


@dataclass(slots=True)
class _Decision:
    """One half message that this drain ends, and the requests that want it."""

    half: Half
    outcome: Outcome
    asked: list[tuple[_Work, int]]


@dataclass(slots=True, eq=False)
class EndTransactionProcessor:
    """Serves codes 37 and 30037 with one thread; decisions drained together are written together."""

    store: MessageStore
    table: TransactionTable
    writer: TransactionWriter
    answers: AnswerPort
    refusals: RefusalStats
    log: EventLog
    reject_request: Callable[[], Refusal | None] = lambda: None
    """Returns why this broker must not write now, None while it leads. Only a replaced master refuses decisions: one
    that waits costs little."""
    refused: int = 0
    """Refused decisions."""
    from_checks: int = 0
    """Decisions that answered a check."""
    _outcome: PutOutcome = field(init=False)
    _tails: CommitTails | None = None
    _halves: HalfRecords | None = None
    _is_slave: bool = field(init=False)
    _repeated: bool = False

    def __post_init__(self) -> None:
        self._outcome = PutOutcome(self.store, self.reject_request)
        self._is_slave = self.store.config.broker_role == "SLAVE"

    def process(self, drain: Drain) -> None:
        """Judge, write and answer the drained requests."""
        works: list[_Work] = []
        decisions: dict[int, _Decision] = {}
        for task in drain.tasks:
            try:
                works.append(self._judge_task(task, decisions))
            except PocketMQError as error:
                self._refuse_task(drain, task, refusal_of(error, Stored.NO))
        stored_end = self._write(list(decisions.values())) if decisions else 0
        if self._repeated:  # the first decision may not be on the disk, or at a slave, yet
            self._repeated = False
            stored_end = self.store.appended_offset
        self._outcome.acknowledge(drain, self.answers, works, stored_end, self._encode)

    # ---- judging

    def _judge_task(self, task: Task, decisions: dict[int, _Decision]) -> _Work:
        header: Any = task.request.header
        ends: Sequence[tuple[int, int, int, bool]]
        if task.request.code == RequestCode.NATIVE_END_TRANSACTION:
            ends = header.ends
            if not 1 <= len(ends) <= ENDS_MAX:
                raise PocketMQError(
                    "end of transactions refused", why=f"{len(ends)} decisions, not 1 to {ENDS_MAX}",
                    cause=Cause.BAD_REQUEST,
                )  # fmt: skip
        else:
            ends = [
                (
                    header.tran_state_table_offset,
                    header.commit_log_offset,
                    header.commit_or_rollback,
                    header.from_transaction_check,
                )
            ]
        work = _Work(task, [None] * len(ends))
        for index, (offset, physical_offset, kind, from_check) in enumerate(ends):
            self.from_checks += from_check
            verdict = self._judge(header.producer_group, offset, physical_offset, kind, work, index, decisions)
            if verdict is not None:
                work.verdicts[index] = verdict
                self._note(verdict)
        return work

    def _judge(
        self,
        group: str,
        offset: int,
        physical_offset: int,
        kind: int,
        work: _Work,
        index: int,
        decisions: dict[int, _Decision],
    ) -> Verdict | None:
        """Return a verdict, or None when the decision was added to ``decisions``."""
        if self._is_slave:
            text = "Transaction message is not ended on a slave broker"
            return _no(text, ResponseCode.SLAVE_NOT_AVAILABLE, Cause.NOT_MASTER, RETRY_AFTER_ERROR_MS)
        if kind not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, TRANSACTION_NOT):
            return _no(f"commitOrRollback is {kind}, not 8, 12 or 0")
        outcome = _OUTCOME.get(kind)
        joined = decisions.get(offset)
        half = self.table.get(offset) if joined is None else joined.half
        if half is None:
            return self._ended(offset, physical_offset, outcome)
        if half.producer_group != group:
            return _no("The producer group wrong")
        if half.physical_offset != physical_offset:
            return _no("The commit log offset wrong")
        denied = self._denied(work.task.request, half)
        if denied is not None:
            return denied
        if outcome is None:
            return ASKED_AGAIN
        if joined is not None:
            if joined.outcome is not outcome:
                return _other(joined.outcome)
            joined.asked.append((work, index))
            return None
        claimed = self.table.claim(offset)
        if claimed is None:
            text = "another decision on this transaction is being written"
            return _no(text, ResponseCode.SYSTEM_BUSY, Cause.NONE, BUSY_RETRY_MS)
        decisions[offset] = _Decision(claimed, outcome, [(work, index)])
        return None

    def _denied(self, request: Request, half: Half) -> Verdict | None:
        """Return a verdict if the request's user may not send to the topic of ``half``."""
        if request.session is None or not request.session.checks:
            return None
        record = self.writer.contents([half])[0]
        if record is None:
            return None  # it cannot be committed either
        if self._halves is None:
            self._halves = HalfRecords(self.store.store_host)
        try:
            check_stored(request, self._halves.target(record)[0], PUB)
        except AccessDenied as error:
            return Verdict(str(error), refusal_of(error, Stored.NO))
        except (HalfIllegal, CorruptRecord):
            return None  # the decision finds that out as well
        return None

    def _ended(self, offset: int, physical_offset: int, outcome: Outcome | None) -> Verdict:
        """Return the verdict on a decision about a half message that is not open."""
        known, half_at = self.table.outcome(offset) or (None, physical_offset)
        if half_at != physical_offset:  # of another half message: the log was cut, or the offset is made up
            return _no("The commit log offset wrong")
        if known is Outcome.GIVEN_UP:
            text = "the transaction was given up, its half message lies in TRANS_CHECK_MAX_TIME_TOPIC: resume it there"
            return _no(text, ResponseCode.TRANSACTION_FAILED)
        if known is Outcome.LOST:
            return _no(f"{NOT_FOUND}: retention or damage has taken the half message out of the log")
        if known is not None:
            if outcome in (known, None):
                self._repeated = True
                return BEFORE[known]
            return _other(known)
        if self.table.is_known(offset):
            return _no(f"{NOT_FOUND}: the transaction of half message {offset} ended before, how is not remembered")
        record = self.store.read_record(physical_offset)
        if record is not None and decode_record(record, check_crc=False).topic == HALF_TOPIC:
            return _no("The transaction state table offset wrong")
        return _no(f"{NOT_FOUND}: there is no half message {offset}")

    # ---- writing

    def _write(self, decisions: list[_Decision]) -> int:
        """Write all decisions, in groups of bounded size; set their verdicts; return the end of the stored records, 0
        without any.
        """
        end = at = 0
        while at < len(decisions):
            size_bytes = 0
            first = at
            while at < len(decisions) and (at == first or size_bytes < self.writer.group_bytes_max):
                size_bytes += decisions[at].half.size_bytes
                at += 1
            part = decisions[first:at]
            try:
                end = max(end, self._write_part(part))
            except Exception as error:
                refusal = refusal_of(error, Stored.UNKNOWN)
                for decision in part:
                    self.table.release(decision.half)
                self._settle(part, Verdict(refusal.remark, refusal))
                self.log.error("transactions_not_ended", count=len(part), error=refusal.remark)
        return end

    def _write_part(self, decisions: list[_Decision]) -> int:
        if self._tails is None:
            self._tails = CommitTails(HalfRecords(self.store.store_host))
        commits = [each for each in decisions if each.outcome is Outcome.COMMITTED]
        messages = CommitGroup(self._tails, self.store.store_host)
        bad: set[int] = set()
        for decision, record in zip(commits, self.writer.contents([each.half for each in commits]), strict=True):
            half = decision.half
            if record is None:
                self.writer.forget(half)
                text = f"{NOT_FOUND}: retention or damage has taken the half message out of the log"
                bad.add(half.queue_offset)
                self._settle([decision], _no(text))
                self.log.error("half_message_lost", queue_offset=half.queue_offset, group=half.producer_group)
                continue
            try:
                if not (half.recovered and self.writer.delivered(half, record)):
                    messages.add(record, half.physical_offset)
            except (HalfIllegal, CorruptRecord) as error:
                self.table.release(half)
                bad.add(half.queue_offset)
                self._settle([decision], _no(f"the half message cannot be delivered: {error}"))
        ended = [each for each in decisions if each.half.queue_offset not in bad] if bad else decisions
        if not ended:
            return 0
        result = self.writer.end_commits(messages, [(each.half, each.outcome) for each in ended])
        if not result.status.is_stored:
            refusal = self._outcome.refusal(result.status, result)
            self._settle(ended, Verdict(refusal.remark, refusal))
            return 0
        self._settle(ended, WRITTEN)
        return result.end_offset

    def _settle(self, decisions: Sequence[_Decision], verdict: Verdict) -> None:
        for decision in decisions:
            for work, index in decision.asked:
                work.verdicts[index] = verdict
                if verdict is not WRITTEN:
                    self._note(verdict)

    # ---- answering

    def _note(self, verdict: Verdict) -> None:
        if verdict.refusal is not None:
            self._count(verdict.refusal)

    def _count(self, refusal: Refusal) -> None:
        self.refused += 1
        self.refusals.note(refusal.cause.value, refusal.code, refusal.remark)

    def _refuse_task(self, drain: Drain, task: Task, refusal: Refusal) -> None:
        self._count(refusal)
        drain.refuse(task, refusal)

    def _encode(self, work: _Work, status: PutStatus) -> Buffers:
        request = work.task.request
        if status is PutStatus.PUT_OK and work.verdicts.count(WRITTEN) == len(work.verdicts):
            if request.code != RequestCode.NATIVE_END_TRANSACTION:
                return encode_answer(request)
            return encode_answer(request, header=NativeEndTransactionResponseHeader([(0, "")] * len(work.verdicts)))
        verdicts = [self._final(verdict, status) for verdict in work.verdicts]
        if request.code == RequestCode.NATIVE_END_TRANSACTION:
            header = NativeEndTransactionResponseHeader([(each.code, each.remark) for each in verdicts])
            return encode_answer(request, header=header)
        refusal = verdicts[0].refusal
        if refusal is None:
            return encode_answer(request, remark=verdicts[0].remark)
        return encode_refusal(request, refusal)

    def _final(self, verdict: Verdict | None, status: PutStatus) -> Verdict:
        assert verdict is not None
        if status is PutStatus.PUT_OK or not verdict.waits:
            return verdict
        refusal = self._outcome.refusal(status)
        return Verdict(refusal.remark, refusal)


def _no(
    text: str, code: int = ResponseCode.SYSTEM_ERROR, cause: Cause = Cause.BAD_REQUEST, retry_after_ms: int = 0
) -> Verdict:
    return Verdict(text, Refusal(int(code), text, cause, retry_after_ms=retry_after_ms))


def _other(known: Outcome) -> Verdict:
    """Return the verdict on a decision that contradicts the one taken."""
    if known is Outcome.COMMITTED:
        return _no("the transaction was committed before", ResponseCode.TRANSACTION_SHOULD_COMMIT)
    return _no("the transaction was rolled back before", ResponseCode.TRANSACTION_SHOULD_ROLLBACK)
