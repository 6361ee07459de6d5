"""Transactions with a name: many messages that appear all or not at all, and once however often they are sent.

    async with NamedTransactions("etl", "127.0.0.1:9876") as transactions:
        writer = transactions.writer("nightly-totals", 17, topic="Totals")
        await writer.write(record_batch)               # columns body, topic, tags, keys, sharding_key, properties
        part = await writer.close()
        await transactions.commit("nightly-totals", 17, [part])

The name and the sequence say what the transaction is, whoever sends it: a program that died, and does not know whether
it had committed, does everything again under the same name and sequence. If it had, the messages of the second run are
dropped. Sequences of a name must grow; brokers remember the last 16 of each.

Lives here: ``NamedTransactions``, ``PartWriter``, ``Part``: writers, commit and abort, over several brokers.

Several brokers. The brokers of a name are all that a run has ever seen, and each of them knows all of them before
anything is committed (``_enlist``): so a run that sees only some knows whom to wait for, and one with an older list is
refused. The lead is the first of them by name, whether it has a part or not. The lead is sealed first; its answer is
the epoch with which the others are sealed, and of two runs the higher epoch counts everywhere. Then the lead commits,
which decides; then the others. Who finds, in a second run, that any broker has committed, finishes that run; where
nobody has, it takes the seals over, so that the first run cannot commit any more.
"""

import asyncio
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from msgspec.structs import replace

from pocketmq.client.connection.instance import ClientInstance
from pocketmq.client.errors import BrokerAnswerError, ClientError, NoRoute
from pocketmq.client.staged.chunk_target import (
    REQUEST_TIMEOUT_MS,
    BrokersAway,
    NotTaken,
    Patience,
    StageTarget,
    check_named,
    header_of,
)
from pocketmq.client.staged.chunk_writer import CHUNK_BYTES, ChunkWriter
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.topics import NAMED_TOPIC, check_group_name
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.staged import NamedEndRequestHeader, NamedResponseHeader

if TYPE_CHECKING:
    import pyarrow as pa

WAIT_MS: Final = 300_000
KEEP_HOURS: Final = 720
GIVE_UP_MS: Final = 5000
"""How long a commit that failed tries to take its seals back; what stays is taken over by the next run."""
RUNS_MAX: Final = 3
"""Tries of a commit that another run has disturbed."""
ASK, SEAL, COMMIT, ABORT, ENLIST = range(5)
STAGED, SEALED, COMMITTED = 1, 2, 3

__all__ = ["InDoubt", "NamedTransactions", "NotTaken", "Part", "PartWriter", "RowsLost"]


class InDoubt(ClientError):
    """One broker has committed its part of a transaction, another has lost its own."""

    default_cause = Cause.CORRUPT


class RowsLost(ClientError):
    """A transaction is committed, but some of its chunks were gone before they could be delivered."""

    default_cause = Cause.CORRUPT


@dataclass(frozen=True, slots=True)
class Part:
    """What one writer has staged; plain data, to be handed to whoever commits. ``chunks``: by broker."""

    name: str
    sequence: int
    attempt: str
    chunks: dict[str, int] = field(default_factory=dict)
    rows: int = 0


class PartWriter:
    """Stages the rows of one part. A part that is written again, by whomever, gets a writer of its own."""

    def __init__(self, part: Part, target: StageTarget, chunks: ChunkWriter) -> None:
        self._part = part
        self._target = target
        self._chunks = chunks

    async def write(self, batch: "pa.RecordBatch") -> None:
        """Take the rows of one batch; some of them may be under way afterwards."""
        await self._chunks.write(batch)

    async def close(self) -> Part:
        """Wait until all rows are staged; return the part."""
        await self._chunks.close()
        part = self._part
        return Part(part.name, part.sequence, part.attempt, self._chunks.chunks, self._chunks.rows)

    async def cancel(self) -> Part:
        """Give up; return what may be staged, for ``abort``."""
        await self._chunks.cancel()
        part = self._part
        return Part(part.name, part.sequence, part.attempt, self._chunks.chunks, self._chunks.rows)


class NamedTransactions:
    """Belongs to one event loop.

    ``wait_ms``: how long brokers may be away before an error. ``gone``: names of brokers that are no more, and are not
    waited for: whether they had committed something nobody knows then. ``fail_on_data_loss`` False: a commit some of
    whose rows were lost counts as done.
    """

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] = "",
        *,
        wait_ms: int = WAIT_MS,
        gone: Sequence[str] = (),
        fail_on_data_loss: bool = True,
        instance: ClientInstance | None = None,
    ) -> None:
        check_group_name(group)
        self.group = group
        self.instance = instance if instance is not None else ClientInstance(namesrv)
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

    def writer(
        self,
        name: str,
        sequence: int,
        *,
        topic: str | None = None,
        attempt: str = "",
        turn: int = 0,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> PartWriter:
        """Return a writer of one part. ``attempt``: a name that no other try has, made up if not given; ``turn``: at
        which queue it begins.
        """
        part = Part(name, sequence, attempt or uuid.uuid4().hex)
        target = StageTarget(self.instance, self.patience, self.group, name, sequence, part.attempt)
        chunks = ChunkWriter(self.instance, target, topic=topic, turn=turn, chunk_bytes=chunk_bytes)
        return PartWriter(part, target, chunks)

    # ---- ends

    async def is_committed(self, name: str, sequence: int) -> bool:
        """Ask all brokers of the name whether any of them has committed this."""
        states = await self._enlist(name, sequence, (), ASK)
        return any(each.state == COMMITTED for each in states.values())

    async def commit(self, name: str, sequence: int, parts: Sequence[Part], *, keep_hours: int = KEEP_HOURS) -> bool:
        """Commit these parts, and nothing else that was staged under the name and sequence; return when all messages
        are in their queues. False: it was committed before, by an earlier run; these parts are dropped.

        After an error nobody knows: commit again, with the same parts, others, or none. Raises ``BrokersAway``,
        ``InDoubt``, ``RowsLost``, ``BrokerAnswerError`` (parts are gone: expired, aborted, taken by a power failure).
        """
        manifests: dict[str, list[tuple[str, int]]] = {}
        for part in parts:
            for broker, count in part.chunks.items():
                manifests.setdefault(broker, []).append((part.attempt, count))
        action = ENLIST if manifests else ASK
        for run in range(1, RUNS_MAX + 1):  # another run may take the seals over in between
            states = await self._enlist(name, sequence, manifests, action, keep_hours)
            if any(each.state == COMMITTED for each in states.values()):
                await self._finish(name, sequence, states, keep_hours)
                await self.abort(parts)
                return False
            sealed = [broker for broker, each in states.items() if each.state == SEALED]
            if not manifests and not sealed:
                return True
            if action == ASK:  # an earlier run had rows, and is not to commit any more
                action = ENLIST
                continue
            try:
                if await self._commit_once(name, sequence, manifests, sorted(states), sealed, keep_hours):
                    return True
            except BrokerAnswerError as error:
                if run == RUNS_MAX or error.answer_code != ResponseCode.TRANSACTION_FAILED:
                    raise
        raise InDoubt(f"{name} {sequence} not committed", why="other runs of it commit at the same time")

    async def abort(self, parts: Sequence[Part]) -> None:
        """Drop what these parts have staged. What is committed, or sealed, stays."""
        by_broker: dict[tuple[str, str, int], list[tuple[str, int]]] = {}
        for part in parts:
            for broker, count in part.chunks.items():
                by_broker.setdefault((broker, part.name, part.sequence), []).append((part.attempt, count))
        await asyncio.gather(
            *(
                self._end(broker, self._header(name, sequence, ABORT, manifest))
                for (broker, name, sequence), manifest in by_broker.items()
            )
        )

    async def _commit_once(
        self,
        name: str,
        sequence: int,
        manifests: dict[str, list[tuple[str, int]]],
        brokers: list[str],
        sealed: list[str],
        keep_hours: int,
    ) -> bool:
        """Commit at these brokers, of which some are sealed by an earlier run; False if an earlier run turned out to
        have committed."""
        if len(brokers) == 1 and not sealed:
            (broker,) = brokers
            alone = self._header(
                name, sequence, COMMIT, manifests[broker], participants=brokers, brokers=brokers, keep_hours=keep_hours
            )
            await self._commit_at(broker, alone)
            return True
        lead, token = brokers[0], uuid.uuid4().hex
        participants = sorted({*manifests, *sealed, lead})
        others = [broker for broker in participants if broker != lead]
        seal = self._header(
            name, sequence, SEAL, [], token=token, lead=lead, participants=participants, brokers=brokers
        )
        asked: list[str] = []
        try:
            for broker in [lead, *others]:
                asked.append(broker)
                answer = await self._end(broker, replace(seal, attempts=manifests.get(broker, [])))
                if answer.state == COMMITTED:
                    return False
                if broker == lead:
                    seal = replace(seal, epoch=answer.epoch)
        except PocketMQError:
            await self._unseal(replace(seal, action=ABORT), asked)
            raise
        commit = replace(seal, action=COMMIT, keep_hours=keep_hours)
        answer = await self._commit_at(lead, commit)
        if answer.token != token:  # another run has taken the lead's seal over, and committed
            return False
        await self._follow(others, commit)
        return True

    async def _follow(self, others: list[str], commit: NamedEndRequestHeader) -> None:
        """Commit at the others what the lead has decided."""
        try:
            answers = await asyncio.gather(*(self._commit_at(broker, commit) for broker in others))
        except BrokersAway as error:
            raise BrokersAway(
                f"{commit.name} {commit.sequence} is committed, but not yet at every broker",
                why=str(error),
                hint=f"when they are back, commit {commit.name!r} {commit.sequence} again, with any rows or none: it "
                "brings this to its end, and adds nothing",
            ) from error
        strange = [
            broker for broker, answer in zip(others, answers, strict=True) if answer.token not in ("", commit.token)
        ]
        if strange:
            raise InDoubt(
                f"{commit.name} {commit.sequence} is committed in part",
                why=f"{', '.join(strange)} has committed the part of another run",
            )

    async def _unseal(self, abort: NamedEndRequestHeader, brokers: list[str]) -> None:
        """Take the seals of a commit back that has failed before it was decided: the lead's first."""
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

    async def _finish(self, name: str, sequence: int, states: dict[str, NamedResponseHeader], keep_hours: int) -> None:
        """Bring a commit to its end that an earlier run began."""
        committed = {broker: each for broker, each in states.items() if each.state == COMMITTED}
        participants = {broker for each in committed.values() for broker in each.participants} - self._gone
        missing = participants - set(states)
        states = {**states, **await self._states(name, sequence, sorted(missing))}
        lost = [broker for broker in sorted(participants) if states[broker].state not in (SEALED, COMMITTED)]
        if lost:
            raise InDoubt(
                f"{name} {sequence} is committed in part",
                why=f"{', '.join(lost)} does not have its part any more",
                hint="it was sealed for longer than file_reserved_time, or its disk lost it",
            )
        tokens = {states[broker].token for broker in participants} - {""}
        if len(tokens) > 1:
            raise InDoubt(
                f"{name} {sequence} is committed in part",
                why="brokers hold parts of different runs: "
                + ", ".join(f"{broker} {states[broker].token[:8] or 'none'}" for broker in sorted(participants)),
                hint="report this as a bug, unless a broker's disk was replaced by an older copy",
            )
        token = next(iter(tokens), "")
        commit = self._header(name, sequence, COMMIT, [], token=token, keep_hours=keep_hours)
        lead = min(committed)  # these have decided: they only wait for their deliveries
        await self._commit_at(lead, commit)
        await self._follow([broker for broker in sorted(participants) if broker != lead], commit)
        for broker, each in states.items():
            if each.state == SEALED and broker not in participants:  # by a run that was too late
                await self._end(broker, self._header(name, sequence, ABORT, [], token=each.token))

    def _header(
        self,
        name: str,
        sequence: int,
        action: int,
        attempts: list[tuple[str, int]],
        *,
        token: str = "",
        lead: str = "",
        participants: Sequence[str] = (),
        brokers: Sequence[str] = (),
        gone: Sequence[str] = (),
        keep_hours: int = KEEP_HOURS,
    ) -> NamedEndRequestHeader:
        return NamedEndRequestHeader(
            self.group,
            name,
            sequence,
            action,
            attempts,
            token,
            lead,
            list(participants),
            keep_hours,
            list(brokers),
            list(gone),
        )

    # ---- brokers

    async def _enlist(
        self,
        name: str,
        sequence: int,
        known: Collection[str],
        action: int,
        keep_hours: int = KEEP_HOURS,
    ) -> dict[str, NamedResponseHeader]:
        """Have all brokers of a name know of each other, or only ask them; return what each knows of the transaction,
        as of after that. Waits for brokers that another one names, and that are away."""
        brokers = (await self._brokers() | set(known)) - self._gone
        if not brokers:
            raise NoRoute(f"{name} {sequence}: no broker takes named transactions", why="the name server knows none")
        while True:
            request = self._header(name, sequence, ASK, [])
            if action == ENLIST and (len(brokers) > 1 or self._gone):
                request = self._header(
                    name,
                    sequence,
                    ENLIST,
                    [],
                    brokers=sorted(brokers),
                    gone=sorted(self._gone),
                    keep_hours=keep_hours,
                )
            try:
                states = await self._states(name, sequence, sorted(brokers), request)
            except BrokersAway as error:
                raise BrokersAway(
                    f"{name} {sequence}: not all of its brokers answer ({', '.join(sorted(brokers))})",
                    why=str(error),
                    hint="one of them may have committed this before: start it again, or promote its slave; one that "
                    "never comes back is named as gone (Spark: option brokersGone)",
                ) from error
            found = brokers.union(*(each.brokers for each in states.values())) - self._gone
            if found == brokers:
                return states
            brokers = found

    async def _brokers(self) -> set[str]:
        """Return the brokers that take named transactions, those included whose master is away."""
        try:
            route = await self.patience.run(
                lambda: self.instance.refresh(NAMED_TOPIC), "no route of named transactions", ""
            )
            return set(route.brokers)
        except NoRoute:
            return set()

    async def _states(
        self, name: str, sequence: int, brokers: Sequence[str], request: NamedEndRequestHeader | None = None
    ) -> dict[str, NamedResponseHeader]:
        ask = self._header(name, sequence, ASK, []) if request is None else request
        answers = await asyncio.gather(*(self._end(broker, ask) for broker in brokers))
        return dict(zip(brokers, answers, strict=True))

    async def _end(self, broker: str, header: NamedEndRequestHeader) -> NamedResponseHeader:
        async def ask() -> NamedResponseHeader:
            link = await self.patience.link(broker, NAMED_TOPIC)
            check_named(link)
            response = await link.channel.request(
                RequestCode.NAMED_TRANSACTION_END, header, timeout_ms=REQUEST_TIMEOUT_MS
            )
            what = f"{header.name} {header.sequence} not ended"
            answer: NamedResponseHeader = header_of(response, what, link.address)
            return answer

        return await self.patience.run(ask, f"no answer from {broker}", NAMED_TOPIC)

    async def _commit_at(self, broker: str, header: NamedEndRequestHeader) -> NamedResponseHeader:
        """Commit at one broker and wait for the delivery, however long that takes while the broker answers. The answer
        says which run it has committed: that of its token."""
        ask = self._header(header.name, header.sequence, ASK, [])
        while True:
            try:
                answer = await self._end(broker, header)
            except BrokersAway:
                answer = await self._end(broker, ask)
                if answer.state != COMMITTED:
                    raise
            if answer.delivered:
                self._check_lost(broker, header, answer)
                return answer
            await asyncio.sleep(0.05)

    def _check_lost(self, broker: str, header: NamedEndRequestHeader, answer: NamedResponseHeader) -> None:
        if not answer.lost:
            return
        if not self._fails:
            self.instance.log.error(
                "named_transaction_rows_lost",
                name=header.name,
                sequence=header.sequence,
                broker=broker,
                chunks=answer.lost,
            )
            return
        raise RowsLost(
            f"{header.name} {header.sequence} is committed, but not all of it",
            why=f"{answer.lost} chunks were gone from the log of {broker} before they could be delivered",
            hint="its disk was full, or damaged; write the missing rows by hand, then go on with data loss allowed",
        )
