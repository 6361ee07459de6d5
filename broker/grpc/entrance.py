"""The gRPC listener of a broker: opens its port, builds its services, looks after its clients.

    entrance = GrpcEntrance(...);  await entrance.start(server, host, port);  ...;  await entrance.stop()

Lives here: ``GrpcEntrance``, ``GrpcMissing``.
"""

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pocketmq.auth.guard import AuthGuard
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.group.subscription_groups import SubscriptionGroups
from pocketmq.broker.grpc.callers import Callers
from pocketmq.broker.grpc.clients import GrpcClients
from pocketmq.broker.grpc.methods import Services, methods_of
from pocketmq.broker.grpc.open_transactions import OpenTransactions
from pocketmq.broker.grpc.receives import Receives
from pocketmq.broker.grpc.renewal import STEP_S, Renewal
from pocketmq.broker.grpc.routes import Routes
from pocketmq.broker.grpc.sends import Sends
from pocketmq.broker.grpc.settings import Policies
from pocketmq.broker.grpc.settlement import Settlement
from pocketmq.broker.grpc.telemetry import Telemetry
from pocketmq.broker.grpc.transactions import Transactions
from pocketmq.broker.topic.message_types import message_type_of
from pocketmq.broker.topic.topic_table import TopicTable
from pocketmq.common.clock import Clock
from pocketmq.common.errors import Cause, PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.remoting.protocol.namesrv import TopicRouteData
from pocketmq.remoting.server import RemotingServer
from pocketmq.store.config import StoreConfig

if TYPE_CHECKING:
    from pocketmq.remoting.grpc.http2 import Http2Connection

MEMORY_BYTES_MAX: Final = 128 << 20
"""Requests that are not whole, and answers that are not read, of all connections together."""
SEND_ROOM_BYTES: Final = 1 << 20
"""Of a send, beside the bodies: properties of a batch."""
STOP_S: Final = 1.0
"""How long a stop waits for calls whose answer is known."""


class GrpcMissing(PocketMQError):
    """The library for gRPC is not installed."""

    default_cause = Cause.CONFIG


@dataclass(slots=True, eq=False)
class GrpcEntrance:
    """Loop thread only."""

    config: BrokerConfig
    store_config: StoreConfig
    topics: TopicTable
    groups: SubscriptionGroups
    guard: AuthGuard | None
    host: str
    """Under which clients find this broker."""
    clock: Clock
    log: EventLog
    port: int = 0
    """Where it listens; 0: it does not."""
    clients: GrpcClients | None = None
    routes: Routes | None = None
    _connections: "weakref.WeakSet[Http2Connection]" = field(default_factory=weakref.WeakSet)
    _renewal: Renewal | None = None
    _upkeep: asyncio.Task[None] | None = None

    async def start(self, server: RemotingServer, host: str, port: int) -> None:
        """Listen; port -1 takes a free one. Raise ``GrpcMissing``, ``AddressInUse``, ``BindFailed``."""
        try:
            from pocketmq.remoting.grpc.http2 import Budget, Http2Connection
        except ImportError as error:
            raise GrpcMissing(
                "gRPC is not served", why=f"{error.name or error} is not installed", hint="pip install 'pocketmq[grpc]'"
            ) from error
        services, clients, renewal = self._services(server)
        methods = methods_of(services, self.store_config.max_message_size + SEND_ROOM_BYTES)
        budget = Budget(MEMORY_BYTES_MAX)

        def make() -> Http2Connection:
            made = Http2Connection(server, methods, budget, on_error=self._failed)
            self._connections.add(made)
            return made

        self.port = await server.listen_also(host, max(port, 0), make)
        self.clients, self.routes, self._renewal = clients, services.routes, renewal
        self._upkeep = asyncio.get_running_loop().create_task(self._look_after(clients, renewal))

    def _services(self, server: RemotingServer) -> tuple[Services, GrpcClients, Renewal]:
        config, clock = self.config, self.clock
        transactions = OpenTransactions()
        telemetry = Telemetry(
            broker_name=config.broker_name,
            policies=Policies(self.groups, self.store_config.max_message_size),
            transactions=transactions,
            clock=clock,
        )
        clients = GrpcClients(server, server.limits, clock, telemetry.command)
        callers = Callers(clients, self.guard, clock)
        settlement = Settlement(callers)
        renewal = Renewal(clients, settlement.renew, clock)
        settlement.renewal = renewal
        telemetry.callers, telemetry.clients, telemetry.on_gone = callers, clients, renewal.gone
        routes = Routes(config, callers, self.topics, self.groups, clock, message_type_of, self.host, lambda: self.port)
        sends = Sends(config, self.store_config, callers, self.topics, transactions, clock, message_type_of)
        receives = Receives(config, server, callers, settlement, renewal, clock)
        services = Services(routes, sends, Transactions(callers, transactions), telemetry, receives, settlement)
        return services, clients, renewal

    def use_route(self, route: Callable[[str], Awaitable[TopicRouteData | None]]) -> None:
        """Ask name servers for routes from now on."""
        if self.routes is not None:
            self.routes.route = route

    async def _look_after(self, clients: GrpcClients, renewal: Renewal) -> None:
        while True:
            await asyncio.sleep(STEP_S)
            try:
                await renewal.step()
                clients.sweep()
            except Exception as error:
                self._failed("upkeep", error)

    def _failed(self, method: str, error: Exception) -> None:
        self.log.error("grpc_call_failed", method=method, error=repr(error), exc_info=error)

    async def stop(self) -> None:
        """Answer what waits, and forget the clients. The server closes the port and the connections."""
        upkeep, self._upkeep = self._upkeep, None
        if upkeep is not None:
            upkeep.cancel()
            await asyncio.wait([upkeep])
        if self.clients is not None:
            self.clients.close("the broker stops")
        ending = [task for connection in list(self._connections) for task in connection.end("the broker stops")]
        if ending:
            await asyncio.wait(ending, timeout=STOP_S)
        for connection in list(self._connections):
            connection.say_goodbye()
        self.port = 0
