"""Who is here and what they want: the stream of settings and commands, heartbeats, goodbyes.

A client says on its stream what it is (``Settings``), gets them back with what the server decides (``merged``), and
keeps the stream: commands of the broker go out on it. To the broker it is then a producer of its topics or a member of
its group: its settings and heartbeats become RocketMQ's heartbeat.

Lives here: ``Telemetry``.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from pocketmq.broker.grpc.callers import Caller, Callers
from pocketmq.broker.grpc.clients import Done, GrpcClient, GrpcClients
from pocketmq.broker.grpc.messages import message_of
from pocketmq.broker.grpc.names import group_of, topic_of
from pocketmq.broker.grpc.open_transactions import OpenTransactions
from pocketmq.broker.grpc.settings import Policies, merged
from pocketmq.broker.grpc.statuses import OK, CallRefused, status_of_answer, status_of_error
from pocketmq.common.clock import Clock
from pocketmq.common.errors import PocketMQError, Stored
from pocketmq.common.record_codec import received_message
from pocketmq.remoting.codec import Body, Response
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RequestTimeout
from pocketmq.remoting.frame import MSGPACK
from pocketmq.remoting.grpc.call import Call, GrpcError
from pocketmq.remoting.grpc.codes import ClientType, Code, FilterType, GrpcStatus
from pocketmq.remoting.grpc.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    MessageOf,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
    PrintThreadStackTraceCommand,
    RecoverOrphanedTransactionCommand,
    Settings,
    Status,
    TelemetryCommand,
    VerifyMessageCommand,
)
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.client import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from pocketmq.remoting.protocol.relay import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from pocketmq.remoting.protocol.spec import Header

ASKED_MAX: Final = 10_000
"""Questions to clients that wait for an answer."""
ANSWER_S: Final = 10.0
"""How long a client has to answer a question (RocketMQ's relay: 10 s)."""
NODE: Final = 8
"""``Language.NODE_JS`` of the settings; in its metadata that client says HTTP."""
TOLD_AGAIN_S: Final = (0.5, 2.0, 8.0)
"""A Node client (1.0.8) with several topics begins to wait for its first settings when it has all routes: where they
come before that, it waits for those that the next five minutes bring."""
CONSUME_RESULTS: Final[dict[int, str]] = {
    Code.OK: "CR_SUCCESS",
    Code.FAILED_TO_CONSUME_MESSAGE: "CR_LATER",
    Code.MESSAGE_CORRUPTED: "CR_RETURN_NULL",
}
"""Status of a verified message → RocketMQ's ``CMResult``."""


@dataclass(slots=True, eq=False)
class Telemetry:
    """Serves three methods, and takes to clients what the broker asks them. Loop thread only."""

    broker_name: str
    policies: Policies
    transactions: OpenTransactions
    clock: Clock
    callers: Callers = field(init=False)
    clients: GrpcClients = field(init=False)
    on_gone: Callable[[GrpcClient], Awaitable[None]] = field(init=False)
    """Called with a client that has said goodbye."""
    asked: dict[str, tuple[int, Done, asyncio.TimerHandle]] = field(default_factory=dict)
    """Nonce → request code, what gets the answer, its end."""

    # ---- the stream ------------------------------------------------------------------------------------------------

    async def serve(self, call: Call, nothing: None) -> None:
        """Serve one stream until either side ends it."""
        try:
            caller = self.callers.of(call, RequestCode.HEART_BEAT)
        except CallRefused as refused:
            await call.send(TelemetryCommand(status=refused.status))
            return
        except PocketMQError as error:
            await call.send(TelemetryCommand(status=status_of_error(error)))
            return
        client = caller.client
        sender = asyncio.get_running_loop().create_task(self._send_commands(call, client))
        try:
            while True:
                command = await call.next()
                if command is None:
                    return
                assert isinstance(command, TelemetryCommand)
                await self._take(caller, command)
        finally:
            sender.cancel()
            if client.stream is call:
                client.stream = None

    async def _take(self, caller: Caller, command: TelemetryCommand) -> None:
        client, call = caller.client, caller.call
        client.seen_ns = self.clock.monotonic_ns()
        if command.settings is not None:
            answer = await self._settle(caller, command.settings)
            await call.send(answer)
        elif command.thread_stack_trace is not None:
            trace = command.thread_stack_trace
            self._answer(trace.nonce, command.status, trace.thread_stack_trace or "")
        elif command.verify_message_result is not None:
            self._answer(command.verify_message_result.nonce, command.status, "")

    async def _settle(self, caller: Caller, settings: Settings) -> TelemetryCommand:
        """Take a client's settings; return them with what the server decides. Raise ``GrpcError``."""
        if settings.publishing is None and settings.subscription is None:
            raise GrpcError(GrpcStatus.INVALID_ARGUMENT, "settings without publishing and subscription")
        client = caller.client
        try:
            _check_names(settings)
            answer = merged(settings, self.policies)
            data = heartbeat_of(client.client_id, answer, self.clock.now_ms())
            response = await caller.ask(RequestCode.HEART_BEAT, None, encode_body(data))
            if response.code != ResponseCode.SUCCESS:
                return TelemetryCommand(status=status_of_answer(response))
        except CallRefused as refused:
            return TelemetryCommand(status=refused.status)
        except PocketMQError as error:
            return TelemetryCommand(status=status_of_error(error))
        told = TelemetryCommand(status=OK, settings=answer)
        is_first = client.settings is None
        try:
            client.keep(answer)
        except PocketMQError as error:
            return TelemetryCommand(status=status_of_error(error))
        agent = settings.user_agent
        if is_first and agent is not None and agent.language == NODE:
            for delay_s in TOLD_AGAIN_S:
                asyncio.get_running_loop().call_later(delay_s, client.tell, told)
        client.stream = caller.call
        return told

    @staticmethod
    async def _send_commands(call: Call, client: GrpcClient) -> None:
        with contextlib.suppress(GrpcError):
            while not call.closed:
                command = await client.next_command(call)
                await call.send(command)

    # ---- heartbeats and goodbyes -----------------------------------------------------------------------------------

    async def heartbeat(self, call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
        """Keep a client known."""
        try:
            caller = self.callers.of(call, RequestCode.HEART_BEAT)
            settings = caller.client.settings
            if settings is None:
                raise CallRefused(
                    Code.UNRECOGNIZED_CLIENT_TYPE, "this client has sent no settings: telemetry comes first"
                )
            if settings.subscription is not None and request.group is not None:
                group_of(request.group)
            data = heartbeat_of(caller.client.client_id, settings, self.clock.now_ms())
            answer = await caller.ask(RequestCode.HEART_BEAT, None, encode_body(data))
        except CallRefused as refused:
            return HeartbeatResponse(status=refused.status)
        except PocketMQError as error:
            return HeartbeatResponse(status=status_of_error(error))
        return HeartbeatResponse(status=status_of_answer(answer))

    async def terminate(self, call: Call, request: NotifyClientTerminationRequest) -> NotifyClientTerminationResponse:
        """Forget a client."""
        try:
            caller = self.callers.of(call, RequestCode.UNREGISTER_CLIENT)
        except CallRefused as refused:
            return NotifyClientTerminationResponse(status=refused.status)
        except PocketMQError as error:
            return NotifyClientTerminationResponse(status=status_of_error(error))
        await self.on_gone(caller.client)
        self.clients.forget(caller.client, "it has said goodbye")
        return NotifyClientTerminationResponse(status=OK)

    # ---- what the broker asks --------------------------------------------------------------------------------------

    def command(self, client: GrpcClient, code: int, header: Header | None, body: Body, done: Done | None) -> None:
        """Take a request of the broker to a client."""
        asked: Any = header
        if code == RequestCode.CHECK_TRANSACTION_STATE:
            self._check(client, asked, _bytes(body))
        elif done is not None:
            if code == RequestCode.GET_CONSUMER_RUNNING_INFO and asked.jstack_enable:
                nonce = self._ask(code, done)
                command = TelemetryCommand(print_thread_stack_trace_command=PrintThreadStackTraceCommand(nonce=nonce))
            elif code == RequestCode.GET_CONSUMER_RUNNING_INFO:
                done(_response(body=self._running_info(client, "").encode()))
                return
            elif code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
                nonce = self._ask(code, done)
                message = self._message(client, _bytes(body))
                verify = VerifyMessageCommand(nonce=nonce, message=message)
                command = TelemetryCommand(verify_message_command=verify)
            else:
                done(_response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"gRPC clients have no answer to code {code}"))
                return
            if not client.tell(command, len(_bytes(body))):
                self._fail(nonce, "its stream is closed, or it does not read")

    def _check(self, client: GrpcClient, header: Any, record: bytes) -> None:
        """Ask a producer how a transaction is to end."""
        message = self._message(client, record)
        topic = received_message(record, self.broker_name).topic
        place = header.tran_state_table_offset, header.commit_log_offset
        self.transactions.begun(topic, header.transaction_id, *place)
        command = RecoverOrphanedTransactionCommand(message=message, transaction_id=header.transaction_id)
        client.tell(TelemetryCommand(recover_orphaned_transaction_command=command), len(record))

    def _message(self, client: GrpcClient, record: bytes) -> MessageOf:
        message = received_message(record, self.broker_name)
        settings = client.settings
        topics = [] if settings is None or settings.publishing is None else settings.publishing.topics
        named = next((each for each in topics if _is_named(each, message.topic)), None)
        return message_of(message, named)

    @staticmethod
    def _running_info(client: GrpcClient, stacks: str) -> ConsumerRunningInfo:
        settings = client.settings
        properties = {}
        if settings is not None:
            is_push = settings.client_type == ClientType.PUSH_CONSUMER
            properties["PROP_CONSUME_TYPE"] = "CONSUME_PASSIVELY" if is_push else "CONSUME_ACTIVELY"
            if settings.user_agent is not None:
                properties["PROP_CLIENT_VERSION"] = settings.user_agent.version[:64]
        return ConsumerRunningInfo(properties=properties, jstack=stacks)

    def _ask(self, code: int, done: Done) -> str:
        nonce = secrets.token_hex(16)
        if len(self.asked) >= ASKED_MAX:
            self._fail(next(iter(self.asked)), "too many questions wait")
        timer = asyncio.get_running_loop().call_later(ANSWER_S, self._fail, nonce, f"no answer in {ANSWER_S:.0f} s")
        self.asked[nonce] = code, done, timer
        return nonce

    def _fail(self, nonce: str, why: str) -> None:
        known = self.asked.pop(nonce, None)
        if known is not None:
            known[2].cancel()
            known[1](RequestTimeout("the client did not answer", why=why, stored=Stored.NO))

    def _answer(self, nonce: str, status: Status | None, stacks: str) -> None:
        known = self.asked.pop(nonce, None)
        if known is None:
            return
        code, done, timer = known
        timer.cancel()
        if code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            done(_response(body=ConsumerRunningInfo(jstack=stacks).encode()))
            return
        result = CONSUME_RESULTS.get(int(Code.OK) if status is None else status.code, "CR_THROW_EXCEPTION")
        remark = "" if status is None else status.message
        done(_response(body=encode_body(ConsumeMessageDirectlyResult(consume_result=result, remark=remark))))


def _response(code: int = ResponseCode.SUCCESS, remark: str = "", body: bytes = b"") -> Response:
    return Response(code, 0, remark, None, body, MSGPACK, {}, 0)


def _bytes(body: Body) -> bytes:
    return bytes(body) if isinstance(body, (bytes, bytearray, memoryview)) else b"".join(body)


def _is_named(resource: Any, topic: str) -> bool:
    try:
        return topic_of(resource) == topic
    except CallRefused:
        return False


def _check_names(settings: Settings) -> None:
    """Raise ``CallRefused`` for a topic or a group that is none."""
    if settings.publishing is not None:
        for topic in settings.publishing.topics:
            topic_of(topic)
    if settings.subscription is not None:
        group_of(settings.subscription.group)
        for entry in settings.subscription.subscriptions:
            topic_of(entry.topic)


def heartbeat_of(client_id: str, settings: Settings, now_ms: int) -> HeartbeatData:
    """Return RocketMQ's heartbeat for a client: a producer counts as one of a group with the name of each topic
    (RocketMQ ``ClientActivity``)."""
    producers: list[ProducerData] = []
    consumers: list[ConsumerData] = []
    if settings.publishing is not None:
        producers = [ProducerData(group_name=topic_of(topic)) for topic in settings.publishing.topics]
    if settings.subscription is not None:
        subscriptions = []
        for entry in settings.subscription.subscriptions:
            topic, expression = topic_of(entry.topic), entry.expression
            is_sql = expression is not None and expression.type == FilterType.SQL
            text = "*" if expression is None else expression.expression or "*"
            tags = [] if is_sql or text == "*" else [tag.strip() for tag in text.split("||") if tag.strip()]
            subscriptions.append(
                SubscriptionData(
                    topic=topic,
                    sub_string=text,
                    tags_set=tags,
                    sub_version=now_ms,
                    expression_type="SQL92" if is_sql else "TAG",
                )
            )
        is_push = settings.client_type == ClientType.PUSH_CONSUMER
        consumers.append(
            ConsumerData(
                group_name=group_of(settings.subscription.group),
                consume_type="CONSUME_PASSIVELY" if is_push else "CONSUME_ACTIVELY",
                subscription_data_set=subscriptions,
            )
        )
    return HeartbeatData(client_id=client_id, producer_data_set=producers, consumer_data_set=consumers)
