"""A broker shares the queues of a topic among the members of a group, for clients that do not do so themselves.

RocketMQ 5.3's consumers ask for their queues with ``setClientRebalance(false)`` (``QueryAssignmentProcessor``). Here
the answer is what the members would compute: this broker has the members' heartbeats, and the name servers know the
queues of all brokers. Every queue is to be pulled; POP is not served.

Lives here: QUERY_ASSIGNMENT and SET_MESSAGE_REQUEST_MODE.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from pocketmq.broker.admin.consumer_relay import LaterHandler, respond
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.group.client_table import ClientTable
from pocketmq.broker.request.default_processor import Handler
from pocketmq.broker.request.request_task import Buffers, Task, encode_answer, encode_refusal, refusal_of
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.allocation import allocate_averagely, allocate_by_circle
from pocketmq.common.clock import Clock
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.runner import LoopMailbox
from pocketmq.common.topics import Perm, check_group_name
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.protocol.body import MessageQueue, decode_body, encode_body
from pocketmq.remoting.protocol.namesrv import TopicRouteData
from pocketmq.remoting.protocol.pull import (
    MessageQueueAssignment,
    QueryAssignmentAnswer,
    QueryAssignmentRequest,
    SetMessageRequestMode,
)
from pocketmq.remoting.refused_requests import RefusedRequests
from pocketmq.remoting.server import Connection

ROUTE_AGE_NS: Final = 5_000_000_000
"""How long the queues of a topic are kept; members ask every 20 s for each topic (RocketMQ's broker: 30 s)."""
TOPICS_MAX: Final = 1_000
"""Topics whose queues are kept."""
ASKING_MAX: Final = 1_000
"""Questions that wait for name servers at once."""
QUEUES_MAX: Final = 16_384
"""Queues of one topic, on all brokers, that are shared: about 10 ms of the loop's time."""


class Strategy(Protocol):
    """Shares sorted queues among sorted members."""

    def __call__(
        self, consumer_group: str, client_id: str, queues: list[MessageQueue], client_ids: list[str], /
    ) -> list[MessageQueue]:
        """Return the queues of one member."""
        ...


STRATEGIES: Final[Mapping[str, Strategy]] = {"AVG": allocate_averagely, "AVG_BY_CIRCLE": allocate_by_circle}
"""Those that RocketMQ's broker has."""


class AssignmentRefused(PocketMQError):
    """A question that names no group, topic or strategy of ours, or asks for POP."""

    default_cause = Cause.BAD_REQUEST


class PopNotServed(AssignmentRefused):
    """A group was to consume by POP."""

    code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED


class TooManyQuestions(PocketMQError):
    """Too many questions wait for a name server."""

    code = ResponseCode.SYSTEM_BUSY
    default_cause = Cause.QUEUE_FULL
    retriable = True


@dataclass(slots=True, eq=False)
class Assignments:
    """Answers members of a group. Handlers run in the admin worker's thread, all else in the loop's."""

    config: BrokerConfig
    topics: TopicTable
    clients: ClientTable[Connection]
    refused: RefusedRequests
    mailbox: LoopMailbox
    clock: Clock
    route: Callable[[str], Awaitable[TopicRouteData | None]] | None = None
    """Asks the name servers for a topic; None before the broker is registered."""
    _kept: dict[str, tuple[int, list[MessageQueue]]] = field(default_factory=dict)
    """Topic → (monotonic ns until which they count, its queues in order)."""
    _asking: set[asyncio.Task[None]] = field(default_factory=set)

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code that is answered at once."""
        return {RequestCode.SET_MESSAGE_REQUEST_MODE: self._set_mode}

    def later_handlers(self) -> Mapping[int, LaterHandler]:
        """Return the handler of each code that is answered later."""
        return {RequestCode.QUERY_ASSIGNMENT: self._query}

    @staticmethod
    def _set_mode(task: Task) -> Buffers:
        asked = decode_body(task.request.body, SetMessageRequestMode)
        if asked.mode != "PULL":
            raise PopNotServed(
                "setMessageRequestMode refused",
                why=f"mode {asked.mode[:40]!r}: this broker serves PULL alone",
                hint="leave the group in mode PULL, which it always has here",
            )
        return encode_answer(task.request)

    def _query(self, task: Task) -> None:
        asked = decode_body(task.request.body, QueryAssignmentRequest)
        check_group_name(asked.consumer_group)
        if not asked.topic or not asked.client_id:
            raise AssignmentRefused("queryAssignment refused", why="no topic, or no client id")
        if (asked.strategy_name or "AVG") not in STRATEGIES:
            raise AssignmentRefused(
                "queryAssignment refused",
                why=f"strategy {(asked.strategy_name or '')[:40]!r}",
                hint=f"{', '.join(STRATEGIES)}, or let the client share the queues: setClientRebalance(true)",
            )
        self.mailbox.post(self._begin, task, asked)

    def _begin(self, task: Task, asked: QueryAssignmentRequest) -> None:
        kept = self._kept.get(asked.topic)
        if kept is not None and self.clock.monotonic_ns() < kept[0]:
            self._answer(task, asked, kept[1])
        elif len(self._asking) >= ASKING_MAX:
            self._refuse(task, TooManyQuestions("queryAssignment refused", why=f"{ASKING_MAX} wait for a name server"))
        else:
            question = asyncio.get_running_loop().create_task(self._ask(task, asked))
            self._asking.add(question)
            question.add_done_callback(self._asking.discard)

    async def _ask(self, task: Task, asked: QueryAssignmentRequest) -> None:
        try:
            queues = await self._queues(asked.topic)
            self._answer(task, asked, queues)
        except Exception as error:  # whatever it was, the member gets an answer, and its refusal a trace
            self._refuse(task, error)

    async def _queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic on all brokers, in RocketMQ's order; none for an unknown topic."""
        if self.route is None or not self.config.name_servers():
            own = self.topics.get(topic)
            found = [] if own is None else [(self.config.broker_name, own.perm, own.read_queue_nums)]
        else:
            route = await self.route(topic)
            datas = [] if route is None else route.queue_datas
            found = [(each.broker_name, each.perm, each.read_queue_nums) for each in datas]
        parts = sorted((name, max(0, count)) for name, perm, count in found if perm & Perm.READ)
        total = sum(count for _, count in parts)
        if total > QUEUES_MAX:
            raise AssignmentRefused(
                "queryAssignment refused",
                why=f"the topic has {total} queues, limit {QUEUES_MAX}",
                hint="let the client share the queues: setClientRebalance(true)",
            )
        queues = [MessageQueue(topic, name, number) for name, count in parts for number in range(count)]
        if len(self._kept) >= TOPICS_MAX:
            self._kept.clear()
        self._kept[topic] = (self.clock.monotonic_ns() + ROUTE_AGE_NS, queues)
        return queues

    def _answer(self, task: Task, asked: QueryAssignmentRequest, queues: list[MessageQueue]) -> None:
        answer = QueryAssignmentAnswer()
        if queues:
            shared = self._shared(asked, queues)
            if shared is not None:
                answer.message_queue_assignments = [MessageQueueAssignment(queue) for queue in shared]
        respond(task, encode_answer(task.request, body=encode_body(answer)))

    def _shared(self, asked: QueryAssignmentRequest, queues: list[MessageQueue]) -> list[MessageQueue] | None:
        if asked.message_model == "BROADCASTING":
            return queues
        group = self.clients.consumer_group(asked.consumer_group)
        members = [] if group is None else sorted(set(group.client_ids()))
        if asked.client_id not in members:
            return None  # its heartbeat has not come yet: as RocketMQ, which knows no member then
        return STRATEGIES[asked.strategy_name or "AVG"](asked.consumer_group, asked.client_id, queues, members)

    def _refuse(self, task: Task, error: Exception) -> None:
        refusal = refusal_of(error)
        self.refused.note_request(task.request, task.connection.remote, refusal.code, refusal.cause, refusal.remark)
        respond(task, encode_refusal(task.request, refusal))
