"""A client that has no connection of RocketMQ's kind: its requests come from an entrance in this process.

    client = InnerConnection(server);  answer = await client.ask(RequestCode.SEND_MESSAGE, header, body)

To the processors it is a ``Connection`` like any other: requests pass the server's guard, the client's quota, the
admission and the queues; answers come as encoded frames and end a future; what a broker asks its clients goes to
``on_command``. So an entrance needs no way of its own to anything.

Lives here: ``InnerConnection``.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pocketmq.common.errors import PocketMQError, Stored
from pocketmq.remoting.codec import Body, Request, Response, decode_response_of
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.connection_owner import ConnectionOwner
from pocketmq.remoting.errors import ConnectionLost, HeaderIllegal
from pocketmq.remoting.frame import MSGPACK, PREFIX_BYTES, Buffer, Frame
from pocketmq.remoting.pending import OPAQUE_MAX
from pocketmq.remoting.protocol.spec import Header

Command = Callable[[int, Header | None, Body, "Callable[[Response | PocketMQError], None] | None"], None]
"""Takes a request of the broker to the client: code, header, body, and what gets the answer; None: nobody does."""


class InnerConnection(Connection):
    """A client of an entrance. Loop thread only.

    ``remote``, ``host`` and their neighbours are those of the socket behind it. ``closed`` ends what it waits for.
    """

    def __init__(self, owner: ConnectionOwner, on_command: Command | None = None) -> None:
        super().__init__(owner)
        self.closed = False
        self.serialize_type = MSGPACK
        self._on_command = on_command
        self._waiting: dict[int, tuple[int, asyncio.Future[Response]]] = {}
        """Opaque → request code, what waits for the answer."""
        self._opaque = 0
        self.opened_ns = self.active_ns = self._clock.monotonic_ns()

    def stands_for(self, other: Connection) -> None:
        """Take the addresses of another connection."""
        self.host, self.remote, self.remote_host = other.host, other.remote, other.remote_host
        self.is_v6, self.local, self.local_host = other.is_v6, other.local, other.local_host
        self.is_encrypted, self.peer_name = other.is_encrypted, other.peer_name

    async def ask(
        self, code: int, header: Header | None = None, body: Buffer = b"", *, session: Any = None
    ) -> Response:
        """Have a request served; return its answer, whatever its code. ``session``: of the user that the entrance has
        recognized. Raise ``ConnectionLost`` when this client is closed."""
        if self.closed:
            raise self._gone()
        self._opaque = self._opaque % OPAQUE_MAX + 1
        opaque = self._opaque
        request = Request(code, opaque, False, self.version, self.language, MSGPACK, header, body, {})
        request.received_ns = self._clock.monotonic_ns()
        future: asyncio.Future[Response] = self._owner.loop.create_future()
        self._waiting[opaque] = code, future
        try:
            self.session = session  # for the guard, which looks at it in this turn
            self.serve(request)
            self.session = None
            return await future
        finally:
            self._waiting.pop(opaque, None)

    # ---- answers ---------------------------------------------------------------------------------------------------

    def respond(self, buffers: Sequence[Buffer]) -> None:
        """Hand an encoded answer to whom it is for."""
        head = memoryview(buffers[0])
        body = buffers[1] if len(buffers) == 2 else b"".join(buffers[1:])
        header_bytes = int.from_bytes(head[5:PREFIX_BYTES], "big")
        header = head[PREFIX_BYTES : PREFIX_BYTES + header_bytes]
        if len(head) > PREFIX_BYTES + header_bytes:  # the body's first part stands behind the header
            body = b"".join((head[PREFIX_BYTES + header_bytes :], body))
        code, future = -1, None

        def code_of(opaque: int) -> int | None:
            nonlocal code, future
            code, future = self._waiting.get(opaque, (-1, None))
            return None if future is None else code

        try:
            response = decode_response_of(Frame(head[4], header, body), code_of)
        except HeaderIllegal as error:
            if future is not None and not future.done():
                future.set_exception(error)
            return
        if response is not None and future is not None and not future.done():
            future.set_result(response)

    def respond_all(self, responses: Iterable[Sequence[Buffer]]) -> None:
        """See ``Connection``."""
        for buffers in responses:
            self.respond(buffers)

    # ---- what the broker asks the client ---------------------------------------------------------------------------

    def send_oneway(self, code: int, header: Header | None = None, body: Body = b"") -> None:
        """See ``Connection``."""
        if self._on_command is not None and not self.closed:
            self._on_command(code, header, body, None)

    def request_nowait(
        self,
        code: int,
        header: Header | None,
        body: Body = b"",
        *,
        timeout_ms: int,
        done: Callable[[Response | PocketMQError], None],
    ) -> None:
        """See ``Connection``."""
        if self.closed or self._on_command is None:
            done(self._gone())
        else:
            self._on_command(code, header, body, done)

    def direct_turn(self) -> int:
        """No other thread may write: there is nothing to write to."""
        return -1

    def close(self, reason: str) -> None:
        """End everything that waits, and tell the broker that this client has gone."""
        if self.closed:
            return
        self.closed = True
        self._reason = reason
        for _, future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(self._gone())
        self._waiting.clear()
        self._handler.on_close(self, reason)

    def close_when_written(self, reason: str) -> None:
        """See ``Connection``."""
        self.close(reason)

    def abort(self, reason: str) -> None:
        """See ``Connection``."""
        self.close(reason)

    def _gone(self) -> ConnectionLost:
        why = self._reason or "it is closed"
        return ConnectionLost(f"client {self.remote} has gone", why=why, stored=Stored.UNKNOWN)
