"""The destination of chunks of records: staged for a transaction, or appended at once.

Lives here: ``Patience`` (attempts until a time is over), ``StageTarget``, ``AppendTarget``.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from pocketmq.client.connection.instance import BrokerConnection, ClientInstance, check_answer
from pocketmq.client.connection.refusal_facts import refusal_facts, remark_text
from pocketmq.client.connection.route import TopicRoute
from pocketmq.client.errors import BrokerAnswerError, ClientError, NoRoute, answer_error
from pocketmq.client.sender.retry import backoff_ms
from pocketmq.client.staged.chunk_writer import Chunk
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.remoting.codec import Response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import decode_body
from pocketmq.remoting.protocol.namesrv import ClusterInfo
from pocketmq.remoting.protocol.send import NativeAppendRequestHeader
from pocketmq.remoting.protocol.staged import StagedResponseHeader, StagedWriteRequestHeader

REQUEST_TIMEOUT_MS: Final = 15_000
PAUSE_MS: Final = 100
PAUSE_MS_MAX: Final = 2000
AGAIN: Final = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
"""Answers after which the same request may succeed later, or be safe later."""
_COMMITTED: Final = 3
MASTER: Final = "0"
"""The broker id of a master, as the name server's tables write it."""

ResultT = TypeVar("ResultT")


class NotSupportedByBrokerError(ClientError):
    """A broker does not support the request: it is a RocketMQ, or an older PocketMQ."""

    default_cause = Cause.CONFIG


class BrokersUnreachableError(ClientError):
    """Brokers did not answer, or refused, for longer than the caller's ``wait_ms``."""

    default_cause = Cause.TIMEOUT


class Patience:
    """Retries after transient errors, for ``wait_ms``; other errors are raised at once."""

    def __init__(self, instance: ClientInstance, wait_ms: int) -> None:
        self._instance = instance
        self.wait_ms = wait_ms

    async def run(self, ask: Callable[[], Awaitable[ResultT]], what: str, topic: str = "") -> ResultT:
        """Return what ``ask`` returns.

        Raises ``BrokersUnreachableError`` with the last error, or at once an error that a retry cannot cure.
        """
        clock = self._instance.clock
        began_ns = clock.monotonic_ns()
        deadline_ns = began_ns + self.wait_ms * 1_000_000
        failures = 0
        while True:
            try:
                return await ask()
            except PocketMQError as error:
                passes = error.retriable or (isinstance(error, BrokerAnswerError) and error.answer_code in AGAIN)
                if not passes:
                    raise
                now_ns = clock.monotonic_ns()
                left_ms = (deadline_ns - now_ns) / 1e6
                if left_ms <= 0:
                    waited_ms = (now_ns - began_ns) // 1_000_000
                    raise BrokersUnreachableError(
                        what, why=str(error), hint=f"waited {waited_ms} ms; check name server and broker"
                    ) from error
                pause_ms = max(backoff_ms(failures, PAUSE_MS, PAUSE_MS_MAX), error.retry_after_ms)
                wait_ms = min(pause_ms, max(left_ms, 1.0))
            await asyncio.sleep(wait_ms * (1 + self._instance.random.random()) / 2000)
            failures += 1
            if topic:
                try:  # another broker may be the master of this name by now
                    await self._instance.refresh(topic, for_send=True)
                except PocketMQError:
                    pass

    async def route(self, topic: str) -> TopicRoute:
        """Return the route of a topic: the known one, or a name server's.

        Waits for name servers and for brokers: after a restart of both a name server answers before it knows any
        broker. Raises ``NoRoute`` at once for a topic that takes no messages although its brokers (or, if it has none,
        any brokers) are registered: its name or its permission is wrong.
        """
        instance = self._instance

        async def ask() -> TopicRoute | NoRoute:
            timeout_ms = instance.options.api_timeout_ms
            try:
                return await instance.route(topic, timeout_ms=timeout_ms, for_send=True)
            except NoRoute as error:
                if not await self._has_masters(topic):
                    raise NoRoute(str(error.what), why="no broker that takes its messages is registered") from error
            try:  # a broker registers with its topics: a topic missing where masters are registered does not exist
                return await instance.refresh(topic, for_send=True)
            except NoRoute as error:
                return error

        servers = ";".join(instance.name_servers.addresses)
        known = await self.run(ask, f"no route of {topic} from name server {servers}")
        if isinstance(known, NoRoute):
            raise known
        return known

    async def _has_masters(self, topic: str) -> bool:
        """Return whether all brokers of a topic have masters; if it has no brokers, whether any broker has one."""
        servers, timeout_ms = self._instance.name_servers, self._instance.options.api_timeout_ms
        try:
            brokers = (await servers.route(topic, timeout_ms=timeout_ms)).broker_datas
            return bool(brokers) and all(MASTER in each.broker_addrs for each in brokers)
        except NoRoute:
            response = await servers.request(RequestCode.GET_BROKER_CLUSTER_INFO, None, timeout_ms=timeout_ms)
        check_answer(response, "cluster information refused", servers.current)
        info = decode_body(response.body, ClusterInfo)
        return any(MASTER in each.broker_addrs for each in info.broker_addr_table.values())

    async def connection(self, broker: str, topic: str) -> BrokerConnection:
        """Return an open connection to a broker's master."""
        opened = self._instance.open_connection(broker)
        if opened is not None:
            return opened

        async def ask() -> BrokerConnection:
            return await self._instance.connection(broker, timeout_ms=self._instance.options.connect_timeout_ms)

        return await self.run(ask, f"no connection to {broker}", topic)


def check_staged(connection: BrokerConnection) -> None:
    """Raise ``NotSupportedByBrokerError`` for a broker without staged transactions."""
    if connection.announcement is None or not connection.announcement.staged_transactions:
        raise NotSupportedByBrokerError(
            f"{connection.broker_name} takes no staged transactions",
            why="it is a RocketMQ broker, or an older PocketMQ",
            hint="send without transactions: at least once",
        )


def header_of(response: Response, what: str, address: str) -> Any:
    """Return the typed header of an answer, or raise the error of the answer."""
    if response.code != ResponseCode.SUCCESS or response.header is None:
        facts = refusal_facts(response.extra)
        raise answer_error(
            what,
            answer_code=response.code,
            remark=remark_text(response.remark),
            address=address,
            cause=facts.cause,
            retry_after_ms=facts.retry_after_ms,
        )
    return response.header


class _Target:
    """The common part of the targets."""

    def __init__(self, instance: ClientInstance, patience: Patience, group: str) -> None:
        self._instance = instance
        self._patience = patience
        self._group = group

    async def route(self, topic: str) -> TopicRoute:
        """See ``ChunkTarget``."""
        return await self._patience.route(topic)


class StageTarget(_Target):
    """Chunks of one attempt. ``committed``: brokers where the transaction is already committed: they take no more
    chunks, and need none.
    """

    def __init__(
        self,
        instance: ClientInstance,
        patience: Patience,
        group: str,
        transactional_id: str,
        version: int,
        attempt: str,
    ) -> None:
        super().__init__(instance, patience, group)
        self._transactional_id = transactional_id
        self._version = version
        self._attempt = attempt
        self.committed: set[str] = set()

    async def connection(self, broker: str, topic: str) -> BrokerConnection:
        """See ``ChunkTarget``. Raises ``NotSupportedByBrokerError``."""
        connection = await self._patience.connection(broker, topic)
        check_staged(connection)
        return connection

    async def send(self, chunk: Chunk, index: int) -> None:
        """Stage a chunk; after a lost answer it is sent again, and the broker does not store it twice."""
        if chunk.broker in self.committed:
            return
        topic = next(iter(chunk.sections)).topic
        header = StagedWriteRequestHeader(
            self._group, self._transactional_id, self._version, self._attempt, index, chunk.header(), REQUEST_TIMEOUT_MS
        )
        body = chunk.body()

        async def ask() -> StagedResponseHeader:
            connection = await self.connection(chunk.broker, topic)
            response = await connection.channel.request(
                RequestCode.STAGED_TRANSACTION_WRITE, header, body, timeout_ms=REQUEST_TIMEOUT_MS
            )
            answer: StagedResponseHeader = header_of(response, "messages not staged", connection.address)
            return answer

        answer = await self._patience.run(ask, f"messages not staged at {chunk.broker}", topic)
        if answer.state == _COMMITTED:
            self.committed.add(chunk.broker)


class AppendTarget(_Target):
    """Chunks that are messages at once: at least once, since a chunk whose answer is lost is sent again."""

    async def connection(self, broker: str, topic: str) -> BrokerConnection:
        """See ``ChunkTarget``. Raises ``NotSupportedByBrokerError``."""
        connection = await self._patience.connection(broker, topic)
        if connection.announcement is None or not connection.announcement.native:
            raise NotSupportedByBrokerError(
                f"{broker} takes no native appends", why="it is a RocketMQ broker", hint="send with a Producer"
            )
        return connection

    async def send(self, chunk: Chunk, index: int) -> None:
        """Append a chunk; send refused sections again."""
        left = chunk
        topic = next(iter(chunk.sections)).topic

        async def ask() -> None:
            nonlocal left
            connection = await self.connection(chunk.broker, topic)
            header = NativeAppendRequestHeader(self._group, True, left.header(), REQUEST_TIMEOUT_MS)
            response = await connection.channel.request(
                RequestCode.NATIVE_APPEND, header, left.body(), timeout_ms=REQUEST_TIMEOUT_MS
            )
            results = header_of(response, "messages not sent", connection.address).results
            following = Chunk(chunk.broker)
            refused: BrokerAnswerError | None = None
            for (queue, (sizes, data)), (code, _, _, remark) in zip(left.sections.items(), results, strict=True):
                if code != ResponseCode.SUCCESS:
                    error = answer_error(
                        "messages not sent", answer_code=code, remark=remark_text(remark), address=connection.address
                    )
                    if code not in AGAIN:
                        raise error
                    refused = error
                    following.sections[queue] = (sizes, data)
            if refused is not None:
                left = following
                raise refused

        await self._patience.run(ask, f"messages not sent to {chunk.broker}", topic)
