"""Staged transactions: many messages that appear all or none, and once however often they are sent.

    async with StagedTransactions("etl", "127.0.0.1:9876") as transactions:
        writer = transactions.writer("nightly-totals", 17, topic="Totals")
        await writer.write(record_batch)               # columns body, topic, tags, keys, sharding_key, properties
        part = await writer.close()
        await transactions.commit("nightly-totals", 17, [part])

The transactional id and the version identify the transaction, whichever program sends it. A program that died before it
learned the outcome repeats everything under the same id and version; if it had, the messages of the second run are
dropped. The versions of an id must grow; brokers remember the last 16 of each.

Lives here: ``StagedTransactions``, ``StagedWriter``, ``StagedWrite``: writers, commit and abort, over several brokers.

Several brokers. The brokers of a transactional id are all brokers any run has ever seen, and each knows all of them
before anything is committed (``_add_brokers``): so a run that reaches only some knows which to wait for, and one with
an older list is refused. The coordinator is the broker whose name sorts first, whether it has a part or not. It
prepares first; its answer is the epoch with which the others prepare, and of two runs the higher epoch wins everywhere.
Then the coordinator commits, which decides; then the others. A second run that finds a commit at any broker finishes
that run; where none has committed, it takes over the prepared parts, so that the first run can no longer commit.
"""

import asyncio
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from msgspec.structs import replace

from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.connection.own_instance import instance_for
from pocketmq.client.errors import BrokerAnswerError, ClientError, NoRoute
from pocketmq.client.staged.chunk_target import (
    REQUEST_TIMEOUT_MS,
    BrokersUnreachableError,
    NotSupportedByBrokerError,
    Patience,
    StageTarget,
    check_staged,
    header_of,
)
from pocketmq.client.staged.chunk_writer import CHUNK_BYTES, ChunkWriter
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.former_names import renamed_arguments, renamed_fields, renamed_objects
from pocketmq.common.topics import STAGED_TOPIC, check_group_name
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.staged import StagedEndRequestHeader, StagedResponseHeader
from pocketmq.remoting.security.client_security import TLSArgument
from pocketmq.remoting.security.credentials import Credentials

if TYPE_CHECKING:
    import pyarrow as pa

WAIT_MS: Final = 300_000
KEEP_HOURS: Final = 720
GIVE_UP_MS: Final = 5000
"""How long a failed commit tries to undo its prepared parts; the next run takes over the rest."""
RUNS_MAX: Final = 3
"""Tries of a commit that another run has disturbed."""
ASK, PREPARE, COMMIT, ABORT, ADD_BROKERS = range(5)
STAGED, PREPARED, COMMITTED = 1, 2, 3

__all__ = ["InDoubt", "NotSupportedByBrokerError", "RowsLost", "StagedTransactions", "StagedWrite", "StagedWriter"]

_renamed = renamed_arguments(name="transactional_id", sequence="version")


if not TYPE_CHECKING:
    __getattr__ = renamed_objects(
        __name__,
        {
            "BrokersAway": "BrokersUnreachableError",
            "NamedTransactions": "StagedTransactions",
            "NotTaken": "NotSupportedByBrokerError",
            "Part": "StagedWrite",
            "PartWriter": "StagedWriter",
        },
    )


class InDoubt(ClientError):
    """One broker has committed its part of a transaction, another has lost its own."""

    default_cause = Cause.CORRUPT


class RowsLost(ClientError):
    """A transaction is committed, but some of its chunks were gone before they could be delivered."""

    default_cause = Cause.CORRUPT


@renamed_fields(name="transactional_id", sequence="version")
@dataclass(frozen=True, slots=True)
class StagedWrite:
    """The chunks one writer has staged; plain data for the process that commits. ``chunks``: by broker."""

    transactional_id: str
    version: int
    attempt: str
    chunks: dict[str, int] = field(default_factory=dict)
    rows: int = 0


class StagedWriter:
    """Stages the rows of one part. Each try to write a part, in any process, has its own writer."""

    def __init__(self, part: StagedWrite, target: StageTarget, chunks: ChunkWriter) -> None:
        self._part = part
        self._target = target
        self._chunks = chunks

    async def write(self, batch: "pa.RecordBatch") -> None:
        """Take the rows of one batch; some may still be in flight afterwards."""
        await self._chunks.write(batch)

    async def close(self) -> StagedWrite:
        """Wait until all rows are staged; return the part."""
        await self._chunks.close()
        part = self._part
        return StagedWrite(part.transactional_id, part.version, part.attempt, self._chunks.chunks, self._chunks.rows)

    async def cancel(self) -> StagedWrite:
        """Give up; return the chunks that may be staged, for ``abort``."""
        await self._chunks.cancel()
        part = self._part
        return StagedWrite(part.transactional_id, part.version, part.attempt, self._chunks.chunks, self._chunks.rows)


class StagedTransactions:
    """Belongs to one event loop.

    ``wait_ms``: how long brokers may be unreachable before an error. ``gone``: names of removed brokers, which are not
    waited for: whether they had committed remains unknown. ``fail_on_data_loss`` False: a commit that lost some rows
    counts as done.
    """

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] = "",
        *,
        wait_ms: int = WAIT_MS,
        gone: Sequence[str] = (),
        fail_on_data_loss: bool = True,
        credentials: Credentials | None = None,
        tls: TLSArgument = None,
        instance: ClientInstance | None = None,
    ) -> None:
        check_group_name(group)
        self.group = group
        self.instance = instance_for(instance, namesrv, credentials, tls)
        self.patience = Patience(self.instance, wait_ms)
        self._gone = frozenset(gone)
        self._fails = fail_on_data_loss

    async def start(self) -> None:
        """Start the client."""
        await self.instance.start()

    async def stop(self) -> None:
        """Close the connections."""
        await self.instance.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # ---- writing

    @_renamed
    def writer(
        self,
        transactional_id: str,
        version: int,
        *,
        topic: str | None = None,
        attempt: str = "",
        turn: int = 0,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> StagedWriter:
        """Return a writer of one part. ``attempt``: an id unique to this try, generated if not given; ``turn``: the
        queue to begin at.
        """
        part = StagedWrite(transactional_id, version, attempt or uuid.uuid4().hex)
        target = StageTarget(self.instance, self.patience, self.group, transactional_id, version, part.attempt)
        chunks = ChunkWriter(self.instance, target, topic=topic, turn=turn, chunk_bytes=chunk_bytes)
        return StagedWriter(part, target, chunks)

    # ---- ends

    @_renamed
    async def is_committed(self, transactional_id: str, version: int) -> bool:
        """Ask all brokers of the transactional id whether any of them has committed this."""
        states = await self._add_brokers(transactional_id, version, (), ASK)
        return any(each.state == COMMITTED for each in states.values())

    @_renamed
    async def commit(
        self, transactional_id: str, version: int, parts: Sequence[StagedWrite], *, keep_hours: int = KEEP_HOURS
    ) -> bool:
        """Commit these parts, and nothing else that was staged for this id and version; return when all messages
        are in their queues. False: it was committed before, by an earlier run; these parts are dropped.

        After an error the outcome is unknown: commit again, with the same parts, others, or none. Raises
        ``BrokersUnreachableError``, ``InDoubt``, ``RowsLost``, ``BrokerAnswerError`` (parts are gone: expired, aborted,
        lost in a power failure).
        """
        manifests: dict[str, list[tuple[str, int]]] = {}
        for part in parts:
            for broker, count in part.chunks.items():
                manifests.setdefault(broker, []).append((part.attempt, count))
        action = ADD_BROKERS if manifests else ASK
        for run in range(1, RUNS_MAX + 1):  # another run may take over the prepared parts in between
            states = await self._add_brokers(transactional_id, version, manifests, action, keep_hours)
            if any(each.state == COMMITTED for each in states.values()):
                await self._finish(transactional_id, version, states, keep_hours)
                await self.abort(parts)
                return False
            prepared = [broker for broker, each in states.items() if each.state == PREPARED]
            if not manifests and not prepared:
                return True
            if action == ASK:  # an earlier run had rows, and must not commit any more
                action = ADD_BROKERS
                continue
            try:
                if await self._commit_once(transactional_id, version, manifests, sorted(states), prepared, keep_hours):
                    return True
            except BrokerAnswerError as error:
                if run == RUNS_MAX or error.answer_code != ResponseCode.TRANSACTION_FAILED:
                    raise
        raise InDoubt(f"{transactional_id} {version} not committed", why="other runs of it commit at the same time")

    async def abort(self, parts: Sequence[StagedWrite]) -> None:
        """Drop the staged chunks of these parts. Committed or prepared ones stay."""
        by_broker: dict[tuple[str, str, int], list[tuple[str, int]]] = {}
        for part in parts:
            for broker, count in part.chunks.items():
                by_broker.setdefault((broker, part.transactional_id, part.version), []).append((part.attempt, count))
        await asyncio.gather(
            *(
                self._end(broker, self._header(transactional_id, version, ABORT, manifest))
                for (broker, transactional_id, version), manifest in by_broker.items()
            )
        )

    async def _commit_once(
        self,
        transactional_id: str,
        version: int,
        manifests: dict[str, list[tuple[str, int]]],
        brokers: list[str],
        prepared: list[str],
        keep_hours: int,
    ) -> bool:
        """Commit at these brokers, of which some are prepared by an earlier run; False if an earlier run turned out to
        have committed."""
        if len(brokers) == 1 and not prepared:
            (broker,) = brokers
            alone = self._header(
                transactional_id,
                version,
                COMMIT,
                manifests[broker],
                participants=brokers,
                brokers=brokers,
                keep_hours=keep_hours,
            )
            await self._commit_at(broker, alone)
            return True
        coordinator, token = brokers[0], uuid.uuid4().hex
        participants = sorted({*manifests, *prepared, coordinator})
        others = [broker for broker in participants if broker != coordinator]
        prepare = self._header(
            transactional_id,
            version,
            PREPARE,
            [],
            token=token,
            coordinator=coordinator,
            participants=participants,
            brokers=brokers,
        )
        asked: list[str] = []
        try:
            for broker in [coordinator, *others]:
                asked.append(broker)
                answer = await self._end(broker, replace(prepare, attempts=manifests.get(broker, [])))
                if answer.state == COMMITTED:
                    return False
                if broker == coordinator:
                    prepare = replace(prepare, epoch=answer.epoch)
        except PocketMQError:
            await self._take_back(replace(prepare, action=ABORT), asked)
            raise
        commit = replace(prepare, action=COMMIT, keep_hours=keep_hours)
        answer = await self._commit_at(coordinator, commit)
        if answer.token != token:  # another run has taken over at the coordinator, and committed
            return False
        await self._follow(others, commit)
        return True

    async def _follow(self, others: list[str], commit: StagedEndRequestHeader) -> None:
        """Commit the coordinator's decision at the other brokers."""
        try:
            answers = await asyncio.gather(*(self._commit_at(broker, commit) for broker in others))
        except BrokersUnreachableError as error:
            raise BrokersUnreachableError(
                f"{commit.transactional_id} {commit.version} is committed, but not yet at every broker",
                why=str(error),
                hint=f"when they are back, commit {commit.transactional_id!r} {commit.version} again, with any rows or "
                "none: it completes this one, and adds nothing",
            ) from error
        strange = [
            broker for broker, answer in zip(others, answers, strict=True) if answer.token not in ("", commit.token)
        ]
        if strange:
            raise InDoubt(
                f"{commit.transactional_id} {commit.version} is committed in part",
                why=f"{', '.join(strange)} has committed the part of another run",
            )

    async def _take_back(self, abort: StagedEndRequestHeader, brokers: list[str]) -> None:
        """Undo the prepares of a commit that failed before it was decided: the coordinator's first."""
        patience_ms, self.patience.wait_ms = self.patience.wait_ms, min(self.patience.wait_ms, GIVE_UP_MS)
        try:
            for broker in brokers:
                answer = await self._end(broker, abort)
                if answer.state == COMMITTED or answer.token:  # another run has taken over, and needs the others
                    return
        except PocketMQError:  # they stay, and the next run takes them over
            return
        finally:
            self.patience.wait_ms = patience_ms

    async def _finish(
        self, transactional_id: str, version: int, states: dict[str, StagedResponseHeader], keep_hours: int
    ) -> None:
        """Complete a commit that an earlier run began."""
        committed = {broker: each for broker, each in states.items() if each.state == COMMITTED}
        participants = {broker for each in committed.values() for broker in each.participants} - self._gone
        missing = participants - set(states)
        states = {**states, **await self._states(transactional_id, version, sorted(missing))}
        lost = [broker for broker in sorted(participants) if states[broker].state not in (PREPARED, COMMITTED)]
        if lost:
            raise InDoubt(
                f"{transactional_id} {version} is committed in part",
                why=f"{', '.join(lost)} no longer has its part",
                hint="it was prepared for longer than file_reserved_time, or its disk lost it",
            )
        tokens = {states[broker].token for broker in participants} - {""}
        if len(tokens) > 1:
            raise InDoubt(
                f"{transactional_id} {version} is committed in part",
                why="brokers hold parts of different runs: "
                + ", ".join(f"{broker} {states[broker].token[:8] or 'none'}" for broker in sorted(participants)),
                hint="report this as a bug, unless a broker's disk was replaced by an older copy",
            )
        token = next(iter(tokens), "")
        commit = self._header(transactional_id, version, COMMIT, [], token=token, keep_hours=keep_hours)
        coordinator = min(committed)  # these have decided: they only wait for their deliveries
        await self._commit_at(coordinator, commit)
        await self._follow([broker for broker in sorted(participants) if broker != coordinator], commit)
        for broker, each in states.items():
            if each.state == PREPARED and broker not in participants:  # by a run that was too late
                await self._end(broker, self._header(transactional_id, version, ABORT, [], token=each.token))

    def _header(
        self,
        transactional_id: str,
        version: int,
        action: int,
        attempts: list[tuple[str, int]],
        *,
        token: str = "",
        coordinator: str = "",
        participants: Sequence[str] = (),
        brokers: Sequence[str] = (),
        gone: Sequence[str] = (),
        keep_hours: int = KEEP_HOURS,
    ) -> StagedEndRequestHeader:
        return StagedEndRequestHeader(
            self.group,
            transactional_id,
            version,
            action,
            attempts,
            token,
            coordinator,
            list(participants),
            keep_hours,
            list(brokers),
            list(gone),
        )

    # ---- brokers

    async def _add_brokers(
        self,
        transactional_id: str,
        version: int,
        known: Collection[str],
        action: int,
        keep_hours: int = KEEP_HOURS,
    ) -> dict[str, StagedResponseHeader]:
        """Register all brokers of an id with each other, or only query them; return the state of the transaction at
        each afterwards. Waits for unreachable brokers that another one names."""
        brokers = (await self._brokers() | set(known)) - self._gone
        if not brokers:
            raise NoRoute(
                f"{transactional_id} {version}: no broker takes staged transactions", why="the name server knows none"
            )
        while True:
            request = self._header(transactional_id, version, ASK, [])
            if action == ADD_BROKERS and (len(brokers) > 1 or self._gone):
                request = self._header(
                    transactional_id,
                    version,
                    ADD_BROKERS,
                    [],
                    brokers=sorted(brokers),
                    gone=sorted(self._gone),
                    keep_hours=keep_hours,
                )
            try:
                states = await self._states(transactional_id, version, sorted(brokers), request)
            except BrokersUnreachableError as error:
                raise BrokersUnreachableError(
                    f"{transactional_id} {version}: not all of its brokers answer ({', '.join(sorted(brokers))})",
                    why=str(error),
                    hint="one of them may have committed this before: start it again, or promote its slave; one that "
                    "never comes back is named as gone (Spark: option brokersGone)",
                ) from error
            found = brokers.union(*(each.brokers for each in states.values())) - self._gone
            if found == brokers:
                return states
            brokers = found

    async def _brokers(self) -> set[str]:
        """Return the brokers that take staged transactions, also those without a reachable master."""
        try:
            route = await self.patience.run(
                lambda: self.instance.refresh(STAGED_TOPIC), "no route of staged transactions", ""
            )
            return set(route.brokers)
        except NoRoute:
            return set()

    async def _states(
        self, transactional_id: str, version: int, brokers: Sequence[str], request: StagedEndRequestHeader | None = None
    ) -> dict[str, StagedResponseHeader]:
        ask = self._header(transactional_id, version, ASK, []) if request is None else request
        answers = await asyncio.gather(*(self._end(broker, ask) for broker in brokers))
        return dict(zip(brokers, answers, strict=True))

    async def _end(self, broker: str, header: StagedEndRequestHeader) -> StagedResponseHeader:
        async def ask() -> StagedResponseHeader:
            connection = await self.patience.connection(broker, STAGED_TOPIC)
            check_staged(connection)
            response = await connection.channel.request(
                RequestCode.STAGED_TRANSACTION_END, header, timeout_ms=REQUEST_TIMEOUT_MS
            )
            what = f"{header.transactional_id} {header.version} not ended"
            answer: StagedResponseHeader = header_of(response, what, connection.address)
            return answer

        return await self.patience.run(ask, f"no answer from {broker}", STAGED_TOPIC)

    async def _commit_at(self, broker: str, header: StagedEndRequestHeader) -> StagedResponseHeader:
        """Commit at one broker and wait for the delivery, however long that takes while the broker answers. The token
        in the answer names the committed run."""
        ask = self._header(header.transactional_id, header.version, ASK, [])
        while True:
            try:
                answer = await self._end(broker, header)
            except BrokersUnreachableError:
                answer = await self._end(broker, ask)
                if answer.state != COMMITTED:
                    raise
            if answer.delivered:
                self._check_lost(broker, header, answer)
                return answer
            await asyncio.sleep(0.05)

    def _check_lost(self, broker: str, header: StagedEndRequestHeader, answer: StagedResponseHeader) -> None:
        if not answer.lost:
            return
        if not self._fails:
            self.instance.log.error(
                "staged_transaction_rows_lost",
                transactional_id=header.transactional_id,
                version=header.version,
                broker=broker,
                chunks=answer.lost,
            )
            return
        raise RowsLost(
            f"{header.transactional_id} {header.version} is committed, but not all of it",
            why=f"{answer.lost} chunks were gone from the log of {broker} before they could be delivered",
            hint="its disk was full, or damaged; write the missing rows by hand, then go on with data loss allowed",
        )
