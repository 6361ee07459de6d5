"""uvicorn with the dashboard in this process, until SIGTERM or Ctrl-C.

Lives here: ``Listening``, ``serve``.
"""

import errno
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pocketmq.cli.exit_codes import CannotStart

if TYPE_CHECKING:
    from pocketmq.dashboard.options import DashboardOptions

CONNECTIONS_MAX: Final = 500
STOP_S: Final = 3
"""How long open pages may take to end; streams never end by themselves."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Where to listen. ``cert``, ``key``: files in PEM, for HTTPS."""

    host: str
    port: int
    cert: str = ""
    key: str = ""

    def bind(self) -> socket.socket:
        """Return a listening socket. Raises ``CannotStart``."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        # with its protocol named, asyncio turns off Nagle's algorithm, which holds each page back for 40 ms
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self.host, self.port))
            listener.listen(128)
        except OSError as error:
            listener.close()
            in_use = error.errno == errno.EADDRINUSE
            raise CannotStart(
                f"cannot listen on {self.host}:{self.port}",
                why="another process uses the port" if in_use else error.strerror or str(error),
                hint="choose another --port; 0 takes a free one" if in_use else "check --host and --port",
            ) from error
        return listener


async def serve(options: "DashboardOptions", listening: Listening, listener: socket.socket) -> None:
    """Serve on a socket until a signal; print one line when it can be used."""
    import uvicorn

    from pocketmq.dashboard.application import create_app

    app = create_app(options)

    class Server(uvicorn.Server):
        """Ends the open streams first: it would wait for them."""

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            app.state.desk.closing.set()
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        ws="none",
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=STOP_S,
        timeout_keep_alive=15,
        ssl_certfile=listening.cert or None,
        ssl_keyfile=listening.key or None,
    )
    server = Server(config)
    port = listener.getsockname()[1]
    host = f"[{listening.host}]" if ":" in listening.host else listening.host
    print(f"ready dashboard={'https' if listening.cert else 'http'}://{host}:{port}/", flush=True)
    await server.serve(sockets=[listener])
