"""What a connection of a server needs from the two that own it.

Lives here: ``RequestHandler``, which serves the requests, ``Guard``, which refuses those of strangers, and
``ConnectionOwner``, the server.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pocketmq.common.clock import Clock
from pocketmq.common.errors import PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.common.histogram import SampledHistogram
from pocketmq.remoting.codec import Request
from pocketmq.remoting.frame_budget import FrameBudget
from pocketmq.remoting.protocol.authenticate import AuthenticateRequestHeader, AuthenticateResponseHeader
from pocketmq.remoting.protocol.hello import Announcement
from pocketmq.remoting.refused_requests import RefusedRequests
from pocketmq.remoting.server_config import ServerConfig
from pocketmq.remoting.turns import Turns

if TYPE_CHECKING:
    from pocketmq.remoting.connection import Connection


class RequestHandler(Protocol):
    """Serves a server's requests. All calls come in the loop's thread and must not block."""

    def on_request(self, connection: "Connection", request: Request) -> None:
        """Take one request; answer it now or later with ``connection.respond``. A oneway request is not answered."""
        ...

    def on_open(self, connection: "Connection") -> None:
        """Note a new connection."""
        ...

    def on_close(self, connection: "Connection", reason: str) -> None:
        """Note that a connection is closed; it takes no more answers."""
        ...


class Guard(Protocol):
    """Decides who a connection's peer is and what it may ask for. Loop thread only; must not block."""

    def nonce(self, connection: "Connection") -> str:
        """Return the nonce that the peer's AUTHENTICATE is to answer, the same for the life of the connection."""
        ...

    def authenticate(
        self, connection: "Connection", header: AuthenticateRequestHeader
    ) -> AuthenticateResponseHeader | PocketMQError:
        """Check a proof. From then on the connection has the user, or gets the error and is closed."""
        ...

    def refusal(self, connection: "Connection", request: Request) -> PocketMQError | None:
        """Return why this request may not be carried out, or None."""
        ...


class ConnectionOwner(Protocol):
    """The server, as one of its connections sees it."""

    config: ServerConfig
    handler: RequestHandler
    clock: Clock
    log: EventLog
    loop: asyncio.AbstractEventLoop
    budget: FrameBudget
    scratch: memoryview
    read_times: SampledHistogram | None
    slow_read_ns: int
    on_slow_read: "Callable[[Connection, Request, int], None] | None"
    short_path: "Callable[[Connection, int], int] | None"
    serves: Callable[[int], bool] | None
    guard: Guard | None
    refused: RefusedRequests | None
    direct_writers: int
    turns: Turns

    def opened(self, connection: "Connection") -> bool:
        """Count the connection; False refuses it."""
        ...

    def lost(self, connection: "Connection") -> None:
        """Stop counting the connection."""
        ...

    def charge_unwritten(self, connection: "Connection", size_bytes: int) -> None:
        """Note how many bytes of answers wait for the peer; above the common limit close the connection with most."""
        ...

    def announce(self, connection: "Connection") -> Announcement:
        """Return what this server announces."""
        ...
