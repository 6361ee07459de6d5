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
Not here: chunks (``chunk_writer``), how they reach brokers (``chunk_target``), what brokers do (``broker.named_…``).

Several brokers: each part is sealed first, with the name of the lead; then the lead commits, which decides; then the
others. Who finds, in a second run, that any broker has committed, finishes the first run; where nobody has, it takes
the seals over, the lead's first, so that the first run cannot commit any more.
"""

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from pocketmq.client.chunk_target import (
    REQUEST_TIMEOUT_MS,
    BrokersAway,
    NotTaken,
    Patience,
    StageTarget,
    check_named,
    header_of,
)
from pocketmq.client.chunk_writer import CHUNK_BYTES, ChunkWriter
from pocketmq.client.errors import ClientError, NoRoute
from pocketmq.client.instance import ClientInstance
from pocketmq.common.errors import Cause
from pocketmq.common.topics import NAMED_TOPIC, check_group_name
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers import NamedEndRequestHeader, NamedResponseHeader

if TYPE_CHECKING:
    import pyarrow as pa

WAIT_MS: Final = 300_000
KEEP_HOURS: Final = 720
ASK, SEAL, COMMIT, ABORT = range(4)
STAGED, SEALED, COMMITTED = 1, 2, 3

__all__ = ["InDoubt", "NamedTransactions", "NotTaken", "Part", "PartWriter"]


class InDoubt(ClientError):
    """One broker has committed its part of a transaction, another has lost its own."""

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
    """Belongs to one event loop. ``wait_ms``: how long brokers may be away before an error."""

    def __init__(
        self,
        group: str,
        namesrv: str | Sequence[str] = "",
        *,
        wait_ms: int = WAIT_MS,
        instance: ClientInstance | None = None,
    ) -> None:
        check_group_name(group)
        self.group = group
        self.instance = instance if instance is not None else ClientInstance(namesrv)
        self.patience = Patience(self.instance, wait_ms)

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
        """Ask all brokers whether any of them has committed this."""
        states = await self._states(name, sequence, await self._brokers(()))
        return any(each.state == COMMITTED for each in states.values())

    async def commit(self, name: str, sequence: int, parts: Sequence[Part], *, keep_hours: int = KEEP_HOURS) -> bool:
        """Commit these parts, and nothing else that was staged under the name and sequence; return when all messages
        are in their queues. False: it was committed before, by an earlier run; these parts are dropped.

        After an error nobody knows: commit again, with the same parts or others. Raises ``BrokersAway``, ``InDoubt``,
        ``BrokerAnswerError`` (parts are gone: expired, aborted, taken by a power failure).
        """
        manifests: dict[str, list[tuple[str, int]]] = {}
        for part in parts:
            for broker, count in part.chunks.items():
                manifests.setdefault(broker, []).append((part.attempt, count))
        brokers = await self._brokers(manifests)
        for _ in range(3):  # another run may take the seals over in between
            states = await self._states(name, sequence, brokers)
            if any(each.state == COMMITTED for each in states.values()):
                await self._finish(name, sequence, states)
                await self.abort(parts)
                return False
            if not manifests:
                return True
            sealed = [broker for broker, each in states.items() if each.state == SEALED]
            if not sealed and len(manifests) == 1:
                ((broker, manifest),) = manifests.items()
                header = self._header(name, sequence, COMMIT, manifest, participants=[broker], keep_hours=keep_hours)
                await self._commit_at(broker, header)
                return True
            if await self._commit_sealed(name, sequence, manifests, states, sealed, keep_hours):
                return True
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

    async def _commit_sealed(
        self,
        name: str,
        sequence: int,
        manifests: dict[str, list[tuple[str, int]]],
        states: dict[str, NamedResponseHeader],
        sealed: list[str],
        keep_hours: int,
    ) -> bool:
        """Commit over several brokers; False when an earlier run turned out to have committed."""
        lead = states[sealed[0]].lead if sealed else min(manifests)
        token = uuid.uuid4().hex
        participants = sorted({*manifests, *sealed, lead})
        others = [broker for broker in participants if broker != lead]
        seal = self._header(name, sequence, SEAL, [], token=token, lead=lead, participants=participants)
        for broker in [lead, *others]:
            answer = await self._end(broker, _with(seal, manifests.get(broker, [])))
            if answer.state == COMMITTED:
                return False
        commit = self._header(
            name, sequence, COMMIT, [], token=token, lead=lead, participants=participants, keep_hours=keep_hours
        )
        await self._commit_at(lead, commit)
        await asyncio.gather(*(self._commit_at(broker, commit) for broker in others))
        return True

    async def _finish(self, name: str, sequence: int, states: dict[str, NamedResponseHeader]) -> None:
        """Bring a commit to its end that an earlier run began."""
        participants = {broker for each in states.values() if each.state == COMMITTED for broker in each.participants}
        missing = participants - set(states)
        states = {**states, **await self._states(name, sequence, sorted(missing))}
        lost = [broker for broker in sorted(participants) if states[broker].state not in (SEALED, COMMITTED)]
        if lost:
            raise InDoubt(
                f"{name} {sequence} is committed in part",
                why=f"{', '.join(lost)} does not have its part any more",
                hint="it was sealed for longer than file_reserved_time, or its disk lost it",
            )
        await asyncio.gather(
            *(
                self._commit_at(broker, self._header(name, sequence, COMMIT, [], token=states[broker].token))
                for broker in sorted(participants)
            )
        )

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
        keep_hours: int = KEEP_HOURS,
    ) -> NamedEndRequestHeader:
        return NamedEndRequestHeader(
            self.group, name, sequence, action, attempts, token, lead, list(participants), keep_hours
        )

    # ---- brokers

    async def _brokers(self, known: Sequence[str] | dict[str, list[tuple[str, int]]]) -> list[str]:
        """Return the masters that may know something of a transaction: all that take named ones."""
        try:
            route = await self.patience.run(
                lambda: self.instance.refresh(NAMED_TOPIC), "no route of named transactions", ""
            )
            masters = {name for name, each in route.brokers.items() if each.master}
        except NoRoute:
            masters = set()
        return sorted(masters | set(known))

    async def _states(self, name: str, sequence: int, brokers: Sequence[str]) -> dict[str, NamedResponseHeader]:
        ask = self._header(name, sequence, ASK, [])
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

    async def _commit_at(self, broker: str, header: NamedEndRequestHeader) -> None:
        """Commit at one broker and wait for the delivery, however long that takes while the broker answers."""
        ask = self._header(header.name, header.sequence, ASK, [])
        while True:
            try:
                answer = await self._end(broker, header)
            except BrokersAway:
                answer = await self._end(broker, ask)
                if answer.state != COMMITTED:
                    raise
            if answer.delivered:
                return
            await asyncio.sleep(0.05)


def _with(header: NamedEndRequestHeader, attempts: list[tuple[str, int]]) -> NamedEndRequestHeader:
    return NamedEndRequestHeader(
        header.producer_group,
        header.name,
        header.sequence,
        header.action,
        attempts,
        header.token,
        header.lead,
        header.participants,
        header.keep_hours,
    )
