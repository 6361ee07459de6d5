"""A broker shares the queues of a topic among the members of a group, for clients that do not do so themselves.

RocketMQ 5.3's consumers ask for their queues with ``setClientRebalance(false)`` (``QueryAssignmentProcessor``). Here
the answer is what the members would compute: this broker has the members' heartbeats, and the name servers know the
queues of all brokers. A queue is to be pulled, or popped where an administrator has set that for the topic and group.

Lives here: QUERY_ASSIGNMENT, SET_MESSAGE_REQUEST_MODE and GET_ALL_MESSAGE_REQUEST_MODE.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from pocketmq.broker.admin.consumer_relay import LaterHandler, respond
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.group.client_table import ClientTable
from pocketmq.broker.group.request_modes import RequestModes
from pocketmq.broker.group.subscription_groups import SubscriptionGroups
from pocketmq.broker.request.default_processor import Handler
from pocketmq.broker.request.request_task import Buffers, Task, encode_answer, encode_refusal, refusal_of
from pocketmq.broker.topic.queue_checks import find_topic
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.allocation import allocate_averagely, allocate_by_circle
from pocketmq.common.clock import Clock
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.runner import LoopMailbox
from pocketmq.common.topics import RETRY_PREFIX, Perm, check_group_name
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
    """A question that names no group, topic or strategy of ours."""

    default_cause = Cause.BAD_REQUEST


class RetryTopicHasNoMode(AssignmentRefused):
    """Retry topics are always pulled, or come with the pops of their topic."""

    code = ResponseCode.NO_PERMISSION


class GroupUnknown(AssignmentRefused):
    """The broker has no such group."""

    code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


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
    groups: SubscriptionGroups
    modes: RequestModes
    persist_modes: Callable[[], object]
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
        return {
            RequestCode.SET_MESSAGE_REQUEST_MODE: self._set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self._all_modes,
        }

    def later_handlers(self) -> Mapping[int, LaterHandler]:
        """Return the handler of each code that is answered later."""
        return {RequestCode.QUERY_ASSIGNMENT: self._query}

    def _set_mode(self, task: Task) -> Buffers:
        asked = decode_body(task.request.body, SetMessageRequestMode)
        if asked.topic.startswith(RETRY_PREFIX):
            raise RetryTopicHasNoMode("retry topic is not allowed to set mode")
        find_topic(self.topics, asked.topic)
        if self.groups.get(asked.consumer_group) is None:
            raise GroupUnknown("subscription group does not exist")
        self.modes.put(asked)
        self.persist_modes()
        return encode_answer(task.request)

    def _all_modes(self, task: Task) -> Buffers:
        return encode_answer(task.request, body=encode_body(self.modes.body()))

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
            mode = self.modes.get(asked.topic, asked.consumer_group)
            is_popped = mode is not None and mode.mode == "POP" and asked.message_model != "BROADCASTING"
            shared = self._shared(asked, queues, mode if is_popped else None)
            if shared is not None:
                name = "POP" if is_popped else "PULL"
                answer.message_queue_assignments = [MessageQueueAssignment(queue, name) for queue in shared]
        respond(task, encode_answer(task.request, body=encode_body(answer)))

    def _shared(
        self, asked: QueryAssignmentRequest, queues: list[MessageQueue], pops: SetMessageRequestMode | None
    ) -> list[MessageQueue] | None:
        if asked.message_model == "BROADCASTING":
            return queues
        group = self.clients.consumer_group(asked.consumer_group)
        members = [] if group is None else sorted(set(group.client_ids()))
        if asked.client_id not in members:
            return None  # its heartbeat has not come yet: as RocketMQ, which knows no member then
        strategy = STRATEGIES[asked.strategy_name or "AVG"]
        if pops is None:
            return strategy(asked.consumer_group, asked.client_id, queues, members)
        return popped_queues(asked, queues, members, pops.pop_share_queue_num, strategy)

    def _refuse(self, task: Task, error: Exception) -> None:
        refusal = refusal_of(error)
        self.refused.note_request(task.request, task.connection.remote, refusal.code, refusal.cause, refusal.remark)
        respond(task, encode_refusal(task.request, refusal))


def popped_queues(
    asked: QueryAssignmentRequest, queues: list[MessageQueue], members: list[str], shares: int, strategy: Strategy
) -> list[MessageQueue]:
    """Return the queues that one member pops (RocketMQ QueryAssignmentProcessor.allocate4Pop).

    Each pops all queues (-1 of each broker), or its own and those of the next ``shares`` members; with more members
    than queues each has one.
    """
    if shares <= 0 or shares >= len(members) - 1:
        names = sorted({queue.broker_name for queue in queues})
        return [MessageQueue(asked.topic, name, -1) for name in names]
    index = members.index(asked.client_id)
    if len(members) > len(queues):
        return [queues[index % len(queues)]]
    found: dict[MessageQueue, None] = {}
    for step in range(shares + 1):
        member = members[(index + step) % len(members)]
        found |= dict.fromkeys(strategy(asked.consumer_group, member, queues, members))
    return list(found)
