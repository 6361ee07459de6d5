"""The table of services: which method serves which path.

Lives here: ``methods_of``, ``Services``, ``SERVICE``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pocketmq.broker.grpc.receives import Receives
from pocketmq.broker.grpc.routes import Routes
from pocketmq.broker.grpc.sends import Sends
from pocketmq.broker.grpc.settlement import Settlement
from pocketmq.broker.grpc.telemetry import Telemetry
from pocketmq.broker.grpc.transactions import Transactions
from pocketmq.remoting.grpc import messages as m
from pocketmq.remoting.grpc.call import Method

SERVICE: Final = "/apache.rocketmq.v2.MessagingService/"
LARGE_BYTES: Final = 256 << 10
"""Longest request that names many messages or topics."""


@dataclass(frozen=True, slots=True)
class Services:
    """The objects that serve calls."""

    routes: Routes
    sends: Sends
    transactions: Transactions
    telemetry: Telemetry
    receives: Receives
    settlement: Settlement


def methods_of(services: Services, send_bytes_max: int) -> Mapping[str, Method]:
    """Return path → method. What RocketMQ 5.3.3's proxy does not serve is not in it either: PullMessage, UpdateOffset,
    GetOffset, QueryOffset and SyncLiteSubscription are answered with UNIMPLEMENTED."""
    routes, sends, telemetry = services.routes, services.sends, services.telemetry
    receives, settlement = services.receives, services.settlement
    rows: tuple[tuple[str, type[Any], Any, int], ...] = (
        ("QueryRoute", m.QueryRouteRequest, routes.query_route, 0),
        ("QueryAssignment", m.QueryAssignmentRequest, routes.query_assignment, 0),
        ("SendMessage", m.SendMessageRequest, sends.send, send_bytes_max),
        ("RecallMessage", m.RecallMessageRequest, sends.recall, 0),
        ("EndTransaction", m.EndTransactionRequest, services.transactions.end, 0),
        ("Heartbeat", m.HeartbeatRequest, telemetry.heartbeat, 0),
        ("NotifyClientTermination", m.NotifyClientTerminationRequest, telemetry.terminate, 0),
        ("ReceiveMessage", m.ReceiveMessageRequest, receives.receive, 0),
        ("AckMessage", m.AckMessageRequest, settlement.acknowledge, LARGE_BYTES),
        ("ChangeInvisibleDuration", m.ChangeInvisibleDurationRequest, settlement.change, 0),
        ("ForwardMessageToDeadLetterQueue", m.ForwardMessageToDeadLetterQueueRequest, settlement.give_up, 0),
    )
    methods = {f"{SERVICE}{name}": _method(name, request, serve, size) for name, request, serve, size in rows}
    methods[f"{SERVICE}Telemetry"] = Method(
        "Telemetry", m.TelemetryCommand, telemetry.serve, takes_stream=True, bytes_max=LARGE_BYTES
    )
    return methods


def _method(name: str, request: type[Any], serve: Any, size: int) -> Method:
    return Method(name, request, serve, bytes_max=size) if size else Method(name, request, serve)
