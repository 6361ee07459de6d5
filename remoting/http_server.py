"""A small HTTP server for ``/metrics``, ``/health`` and pages like them.

    server = HttpServer([Route("/health", page, is_public=True)], clock, log, access=access)
    server.bind("127.0.0.1", 5557);  server.start(runner)

A new page is one more ``Route``, given at the start or to ``add``. Its function gets the request and returns the
``Answer``; it runs in the server's thread, so it must not wait.

Lives here: ``MetricsConfig``, ``HttpServer``: one thread, few connections, each with a deadline, no state.
"""

import contextlib
import errno
import re
import selectors
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote

import msgspec

from pocketmq.common.clock import Clock
from pocketmq.common.errors import ConfigError
from pocketmq.common.events import EventLog
from pocketmq.common.runner import Runner, Worker
from pocketmq.remoting.errors import AddressInUse, BindFailed

DEFAULT_PORT: Final = 5557
"""Default of the daemon (the port of RocketMQ's Prometheus exporter)."""
CONNECTIONS_MAX: Final = 32
REQUEST_BYTES_MAX: Final = 8192
DEADLINE_NS: Final = 10_000_000_000
"""Time limit of one connection, request and answer together."""
_SELECT_S: Final = 0.5
_NO_DESCRIPTOR_WAIT_MS: Final = 100.0
_READ_BYTES: Final = 4096
_METHOD: Final = re.compile(rb"\s*(?:[A-Za-z]|$)")
"""How a request in HTTP begins. A client of the broker that has come to the wrong port gets its answer at once."""
HEADERS_MAX: Final = 64
"""Headers that a page sees; the rest is not read."""
PARAMETERS_MAX: Final = 32
PATH_CHARACTERS_MAX: Final = 1024
_REASONS: Final = {
    200: "OK",
    302: "Found",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


class MetricsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where ``/metrics``, ``/health``, ``/ready``, ``/live`` and ``/connz`` are served."""

    bind_address: str = "127.0.0.1"
    """Address to listen on."""
    listen_port: int = 0
    """The HTTP port; 0: nothing is served. A name server alone serves it only if it is set."""
    series_max: int = 10_000
    """Topics, and groups in topics, with series of their own on ``/metrics``; the first ones have them, and the rest
    counts together as ``other``."""

    def __post_init__(self) -> None:
        if self.series_max < 1:
            raise ConfigError("bad setting", why=f"metrics.series_max={self.series_max}", hint="at least 1")
        if not 0 <= self.listen_port <= 65_535:
            raise ConfigError("bad setting", why=f"metrics.listen_port={self.listen_port} is no port")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What a client asks for. ``headers``: names in lower case, the last one of a name. ``host``: the peer's address
    without its port."""

    method: str
    path: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Of the query string; the last one of a name."""
    headers: Mapping[str, str] = field(default_factory=dict)
    host: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A page: status, content type, bytes; a list of them is written part by part."""

    status: int
    content_type: str
    body: bytes | list[bytes]
    headers: tuple[tuple[str, str], ...] = ()


Page = Callable[[HttpRequest], Answer]


@dataclass(frozen=True, slots=True)
class Route:
    """One page. ``path``: its path; with ``/`` at its end all paths below it too. ``is_public``: strangers may read it:
    it says whether the server works, and names no topic, group or client."""

    path: str
    page: Page
    is_public: bool = False


def everyone(request: HttpRequest) -> Answer | None:
    """Refuse nobody."""
    return None


@dataclass(slots=True, eq=False)
class _Peer:
    """One connection: the bytes received so far, or the rest of the answer."""

    sock: socket.socket
    deadline_ns: int
    host: str = ""
    received: bytearray = field(default_factory=bytearray)
    sending: deque[memoryview] | None = None


class HttpServer:
    """Answers GET and HEAD of its pages, one request a connection (``Connection: close``).

    After ``bind`` ``port`` is known and connections are accepted by the system; ``start`` serves them; ``stop`` ends
    all of it. Bounded: ``CONNECTIONS_MAX`` peers, ``REQUEST_BYTES_MAX`` bytes and ``DEADLINE_NS`` each. A connection
    beyond the limit replaces the oldest one, so that silent peers keep no client out. Its thread never waits for the
    event loop or for a disk unless a page does.
    """

    def __init__(
        self,
        routes: Iterable[Route],
        clock: Clock,
        log: EventLog,
        tls_context: Callable[[], ssl.SSLContext | None] = lambda: None,
        access: Callable[[HttpRequest], Answer | None] = everyone,
    ) -> None:
        """``tls_context`` returns the context for the next connection; None: it is plain. ``access`` returns the
        refusal of a request for a page that is not public; None: it may be served."""
        self._tls_context = tls_context
        self._access = access
        self._routes: dict[str, Route] = {}
        for route in routes:
            self.add(route)
        self._clock = clock
        self._log = log
        self._selector: selectors.BaseSelector | None = None
        self._listener: socket.socket | None = None
        self._wake: tuple[socket.socket, socket.socket] | None = None
        self._worker: Worker | None = None
        self._peers: set[_Peer] = set()
        self._stopping = False
        self.port = 0

    def add(self, route: Route) -> None:
        """Serve one more page, or another one at its path. Any thread, also while the server runs."""
        self._routes[route.path] = route

    def bind(self, host: str, port: int) -> None:
        """Listen; port 0 takes a free port. Raise ``AddressInUse`` or ``BindFailed``."""
        assert self._listener is None
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(CONNECTIONS_MAX)
            listener.setblocking(False)
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE:
                raise AddressInUse(
                    f"cannot listen on {host}:{port} for metrics",
                    why=f"port {port} is in use by another process",
                    hint="choose another with --metrics-port (metrics.listen_port), or 0 for none",
                ) from error
            raise BindFailed(
                f"cannot listen on {host}:{port} for metrics",
                why=error.strerror or str(error),
                hint="check metrics.bind_address and metrics.listen_port",
            ) from error
        self._listener = listener
        self.port = listener.getsockname()[1]
        self._wake = socket.socketpair()
        for end in self._wake:
            end.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._wake[0], selectors.EVENT_READ)

    def start(self, runner: Runner) -> None:
        """Serve."""
        assert self._listener is not None
        self._worker = runner.start("HttpServer", self.step)

    def stop(self) -> None:
        """Stop the thread and close everything."""
        self._stopping = True
        if self._wake is not None:
            with contextlib.suppress(OSError):
                self._wake[1].send(b"x")
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop()
        for peer in list(self._peers):
            self._close(peer)
        if self._selector is not None:
            self._selector.close()
            self._selector = None
        for sock in (self._listener, *(self._wake or ())):
            if sock is not None:
                sock.close()
        self._listener = self._wake = None

    def step(self) -> float | None:
        """Wait for sockets for a moment and serve those that are ready."""
        selector = self._selector
        assert selector is not None
        wait_ms = 0.0
        for key, _ in selector.select(_SELECT_S):
            if key.fileobj is self._listener:
                if not self._accept():
                    wait_ms = _NO_DESCRIPTOR_WAIT_MS  # the listener stays ready: no use in accepting again at once
            elif isinstance(key.data, _Peer):
                self._serve(key.data)
            elif self._wake is not None:
                with contextlib.suppress(OSError):
                    self._wake[0].recv(16)
        now_ns = self._clock.monotonic_ns()
        for peer in [peer for peer in self._peers if now_ns > peer.deadline_ns]:
            self._close(peer)
        return None if self._stopping else wait_ms

    def _accept(self) -> bool:
        """Accept one connection; False: no descriptors are left."""
        assert self._listener is not None
        assert self._selector is not None
        try:
            sock, address = self._listener.accept()
        except OSError as error:  # else the peer is gone already
            return error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
        if len(self._peers) >= CONNECTIONS_MAX:
            self._close(min(self._peers, key=lambda peer: peer.deadline_ns))
        sock.setblocking(False)
        context = self._tls_context()
        if context is not None:
            try:  # the first read shakes hands
                sock = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            except OSError:  # it is gone already
                sock.close()
                return True
        peer = _Peer(sock, self._clock.monotonic_ns() + DEADLINE_NS, str(address[0]))
        self._peers.add(peer)
        self._selector.register(sock, selectors.EVENT_READ, peer)
        return True

    def _serve(self, peer: _Peer) -> None:
        try:
            if peer.sending is None:
                self._read(peer)
            if peer.sending is not None:
                sent = peer.sock.send(peer.sending[0])
                peer.sending[0] = peer.sending[0][sent:]
                if not peer.sending[0]:
                    peer.sending.popleft()
                if not peer.sending:
                    self._finish(peer)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            self._close(peer)

    def _read(self, peer: _Peer) -> None:
        """Receive bytes; when the request is whole, prepare its answer."""
        assert self._selector is not None
        data = peer.sock.recv(_READ_BYTES)
        while isinstance(peer.sock, ssl.SSLSocket) and peer.sock.pending() and len(data) <= REQUEST_BYTES_MAX:
            data += peer.sock.recv(_READ_BYTES)  # what OpenSSL holds makes no socket readable
        if not data:
            self._close(peer)
            return
        peer.received += data
        whole = b"\r\n\r\n" in peer.received or b"\n\n" in peer.received
        if whole or not _METHOD.match(peer.received) or len(peer.received) > REQUEST_BYTES_MAX:
            parts = self._answer(bytes(peer.received), peer.host)
            peer.sending = deque(memoryview(part) for part in parts if part)
            self._selector.modify(peer.sock, selectors.EVENT_WRITE, peer)

    def answer(self, request: bytes, host: str = "") -> bytes:
        """Return the whole response to a request of a peer at ``host``."""
        return b"".join(self._answer(request, host))

    def _answer(self, request: bytes, host: str) -> list[bytes]:
        words = request.split(b"\n", 1)[0].split()
        method = words[0] if words else b""
        if len(request) > REQUEST_BYTES_MAX:
            answer = Answer(431, TEXT, b"the request is too large\n")
        elif len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            answer = Answer(400, TEXT, b"not an HTTP request\n")
        elif method not in (b"GET", b"HEAD"):
            answer = Answer(405, TEXT, b"GET only\n", (("Allow", "GET, HEAD"),))
        else:
            answer = self._page(_parsed(words, request, host))
        body = [answer.body] if isinstance(answer.body, bytes) else answer.body
        more = "".join(f"{name}: {value}\r\n" for name, value in answer.headers)
        head = (
            f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\n"
            f"Content-Type: {answer.content_type}\r\n"
            f"Content-Length: {sum(map(len, body))}\r\n"
            "Cache-Control: no-store\r\n"
            "X-Content-Type-Options: nosniff\r\n"
            f"{more}"
            "Connection: close\r\n\r\n"
        )
        return [head.encode(), *([] if method == b"HEAD" else body)]

    def _page(self, request: HttpRequest) -> Answer:
        route = self._route(request.path)
        if route is None:
            return Answer(404, TEXT, f"there are: {' '.join(sorted(self._routes))}\n".encode())
        try:
            refusal = None if route.is_public else self._access(request)
            return route.page(request) if refusal is None else refusal
        except Exception as error:  # a fault in one page must not end the thread that serves the others
            self._log.error("http_page_failed", path=route.path, error=repr(error), exc_info=error)
            return Answer(500, TEXT, f"{error!r}\n".encode())

    def _route(self, path: str) -> Route | None:
        """Return the route of a path: its own, else that of the longest path with ``/`` at its end that begins it."""
        routes = self._routes
        end = len(path)
        if not 0 < end <= PATH_CHARACTERS_MAX:
            return None
        while path[:end] not in routes:
            end = path.rfind("/", 0, end - 1) + 1
            if not end:
                return None
        return routes[path[:end]]

    def _finish(self, peer: _Peer) -> None:
        """End the answer; the peer closes."""
        with contextlib.suppress(OSError):
            if isinstance(peer.sock, ssl.SSLSocket):
                peer.sock.unwrap()
        with contextlib.suppress(OSError):
            peer.sock.shutdown(socket.SHUT_WR)
        self._close(peer)

    def _close(self, peer: _Peer) -> None:
        self._peers.discard(peer)
        if self._selector is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(peer.sock)
        peer.sock.close()


def _parsed(words: list[bytes], request: bytes, host: str) -> HttpRequest:
    """Return a request; whatever cannot be read in its headers or its query is left out."""
    path, _, query = words[1].decode("latin-1").partition("?")
    headers: dict[str, str] = {}
    for line in request.split(b"\n")[1 : HEADERS_MAX + 1]:
        if not line.strip():
            break  # what follows is a body, or another request: no header of this one
        name, colon, value = line.partition(b":")
        if colon:
            headers[name.strip().lower().decode("latin-1")] = value.strip().decode("latin-1")
    parameters: dict[str, str] = {}
    with contextlib.suppress(ValueError):  # too many of them
        parameters = dict(parse_qsl(query, max_num_fields=PARAMETERS_MAX))
    return HttpRequest(words[0].decode(), unquote(path), parameters, headers, host)
