"""The HTTP server: bounded in connections, bytes and time; it always answers."""

import errno
import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pocketmq.common.clock import ManualClock
from pocketmq.common.errors import ConfigError
from pocketmq.common.logs import CapturedLog
from pocketmq.common.runner import ThreadRunner
from pocketmq.remoting import http_server
from pocketmq.remoting.errors import AddressInUse, BindFailed
from pocketmq.remoting.http_server import (
    CONNECTIONS_MAX,
    DEADLINE_NS,
    REQUEST_BYTES_MAX,
    Answer,
    HttpRequest,
    HttpServer,
    MetricsConfig,
    Route,
)


def broken(request: HttpRequest) -> Answer:
    raise ValueError("no metrics today")


def echo(request: HttpRequest) -> Answer:
    text = f"{request.method} {request.path} {dict(request.parameters)} {request.headers.get('x-word')} {request.host}"
    return Answer(200, "text/plain", text.encode(), (("X-More", "1"),))


PAGES = [
    Route("/a", lambda request: Answer(200, "text/plain", b"hello")),
    Route("/large", lambda request: Answer(200, "text/plain", bytes(5_000_000))),
    Route("/broken", broken),
    Route("/sick", lambda request: Answer(503, "application/json", b"{}"), is_public=True),
    Route("/tree/", echo),
    Route("/parts", lambda request: Answer(200, "text/plain", [b"a" * 1_000_000, b"", b"b" * 2_000_000])),
]


class World:
    def __init__(self, tls_context: Callable[[], ssl.SSLContext | None] = lambda: None) -> None:
        self.clock = ManualClock()
        self.log = CapturedLog()
        self.server = HttpServer(PAGES, self.clock, self.log, tls_context)
        self.server.bind("127.0.0.1", 0)

    def ask(self, path: str, method: str = "GET") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        connection.request(method, path)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, body

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=60)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(http_server, "_SELECT_S", 0.01)
    world = World()
    yield world
    world.server.stop()


def test_pages_are_served_and_faults_are_answers(world: World) -> None:
    """Each request has an answer with the right status; a page that fails does not end the server."""
    world.server.start(ThreadRunner())
    assert world.ask("/a") == (200, b"hello")
    assert world.ask("/a?x=1") == (200, b"hello")
    assert world.ask("/a", "HEAD") == (200, b"")
    assert world.ask("/a", "POST")[0] == 405
    assert world.ask("/none") == (404, b"there are: /a /broken /large /parts /sick /tree/\n")
    assert world.ask("/broken") == (500, b"ValueError('no metrics today')\n")
    assert world.ask("/sick") == (503, b"{}")
    assert world.ask("/large")[1] == bytes(5_000_000)
    assert world.ask("/parts") == (200, b"a" * 1_000_000 + b"b" * 2_000_000)
    assert world.ask("/parts", "HEAD") == (200, b"")
    assert len(world.log.of("http_page_failed")) == 1


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /a HTTP/1.1\r\n\r\n", b"200"),
        (b"GET /a HTTP/1.0\n\n", b"200"),
        (b"hello\r\n\r\n", b"400"),
        (b"\r\n\r\n", b"400"),
        (b"GET /\xff\xfe HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /a SPDY/3\r\n\r\n", b"400"),
        (b"G" * (REQUEST_BYTES_MAX + 1), b"431"),
    ],
)
def test_any_bytes_get_an_answer(world: World, request_bytes: bytes, status: bytes) -> None:
    """This holds for bytes that are not HTTP, too."""
    assert world.server.answer(request_bytes).split()[1] == status


def test_a_page_sees_its_request(world: World) -> None:
    """Path, query, headers and peer; a path with a slash at its end serves what lies below, and the longest wins."""
    request = b"GET /tree/of%20life/1?a=1&b=%26&a=2 HTTP/1.1\r\nHost: x\r\nX-Word: yes: it is\r\nbad line\r\n\r\n"
    head, _, body = world.server.answer(request, "10.0.0.7").partition(b"\r\n\r\n")
    assert body == b"GET /tree/of life/1 {'a': '2', 'b': '&'} yes: it is 10.0.0.7"
    assert b"\r\nX-More: 1\r\n" in head
    assert world.server.answer(b"GET /tree HTTP/1.1\r\n\r\n").split()[1] == b"404"
    assert world.server.answer(b"GET /a/b HTTP/1.1\r\n\r\n").split()[1] == b"404"
    assert world.server.answer(b"GET /tree/" + b"/" * 5000 + b" HTTP/1.1\r\n\r\n").split()[1] == b"404"
    many = b"&".join(b"p%d=1" % number for number in range(100))
    assert b"/tree/ {} None" in world.server.answer(b"GET /tree/?" + many + b" HTTP/1.1\r\n\r\n")
    smuggled = b"GET /tree/ HTTP/1.1\r\n\r\nGET /tree/ HTTP/1.1\r\nX-Word: of another request\r\n\r\n"
    assert world.server.answer(smuggled, "h").endswith(b"GET /tree/ {} None h")
    world.server.add(Route("/tree/of life/", lambda request: Answer(200, "text/plain", b"deeper")))
    assert world.server.answer(request).endswith(b"deeper")


def test_only_public_pages_are_for_everybody() -> None:
    """The access of the server decides about all others, before they run."""
    asked: list[HttpRequest] = []

    def access(request: HttpRequest) -> Answer | None:
        asked.append(request)
        return None if request.headers.get("authorization") else Answer(401, "text/plain", b"who are you?")

    server = HttpServer(PAGES, ManualClock(), CapturedLog(), access=access)
    assert server.answer(b"GET /sick HTTP/1.1\r\n\r\n").split()[1] == b"503"
    assert not asked
    assert server.answer(b"GET /broken HTTP/1.1\r\n\r\n", "10.0.0.7").split()[1] == b"401"
    assert (asked[0].path, asked[0].host) == ("/broken", "10.0.0.7")
    assert server.answer(b"GET /a HTTP/1.1\r\nAuthorization: x\r\n\r\n").endswith(b"hello")
    assert server.answer(b"GET /none HTTP/1.1\r\n\r\n").split()[1] == b"404"


def step_until(world: World, probe: Any) -> None:
    while not probe():
        world.server.step()


def test_bytes_that_are_no_http_get_their_answer_at_once(world: World) -> None:
    """A client of the broker that has come to this port waits for no end of lines."""
    client = world.connect()
    client.sendall(b"\0\0\0\x86\0")
    client.settimeout(0.01)
    received = b""
    while not received.startswith(b"HTTP/1.1 400 "):
        world.server.step()
        try:
            received += client.recv(4096)
        except TimeoutError:
            continue
    client.close()


def test_a_request_in_pieces_is_put_together(world: World) -> None:
    """TCP may split a request anywhere."""
    client = world.connect()
    for piece in (b"GET /a HT", b"TP/1.1\r\nHost: x\r\n", b"\r\n"):
        client.sendall(piece)
        world.server.step()
    received = b""
    client.settimeout(0.01)
    while not received.endswith(b"hello"):
        world.server.step()
        try:
            received += client.recv(4096)
        except TimeoutError:
            continue
    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    client.close()


def test_slow_and_excess_connections_are_closed(world: World) -> None:
    """A silent peer takes one of a bounded number of connections, for a bounded time."""
    silent: list[socket.socket] = []
    for _ in range(CONNECTIONS_MAX + 3):  # the system's own queue is short: each is accepted before the next
        silent.append(world.connect())
        world.server.step()
        world.clock.advance_ms(1)
    peers = world.server._peers
    assert len(peers) == CONNECTIONS_MAX
    assert [client.recv(1) for client in silent[:3]] == [b""] * 3
    world.clock.advance_ms(DEADLINE_NS / 1e6 + 1)
    step_until(world, lambda: not peers)
    assert silent[-1].recv(1) == b""
    for client in silent:
        client.close()


def test_silent_peers_keep_no_client_out(world: World) -> None:
    """A probe of ``/health`` is answered while idle connections have reached the limit."""
    silent: list[socket.socket] = []
    for _ in range(CONNECTIONS_MAX):
        silent.append(world.connect())
        world.server.step()
        world.clock.advance_ms(1)
    world.server.start(ThreadRunner())
    assert world.ask("/a") == (200, b"hello")
    for client in silent:
        client.close()


def test_without_descriptors_the_server_does_not_spin(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that cannot be accepted stays ready: the thread pauses before it tries again."""

    class Exhausted:
        def accept(self) -> Any:
            raise OSError(errno.EMFILE, "too many open files")

    exhausted: Any = Exhausted()
    key: Any = SimpleNamespace(fileobj=exhausted, data=None)
    with monkeypatch.context() as patched:
        patched.setattr(world.server, "_listener", exhausted)
        patched.setattr(world.server._selector, "select", lambda timeout: [(key, 1)])
        assert world.server.step() == 100


def test_stop_ends_the_thread_at_once_and_frees_the_port(world: World) -> None:
    """No thread and no descriptor stays."""
    world.server.start(ThreadRunner())
    port = world.server.port
    idle = world.connect()
    while not world.server._peers:  # a connection that was not accepted yet would be reset
        threading.Event().wait(0.001)
    world.server.stop()
    world.server.stop()
    assert "HttpServer" not in [thread.name for thread in threading.enumerate()]
    assert idle.recv(1) == b""
    idle.close()
    again = HttpServer(PAGES, world.clock, world.log)
    again.bind("127.0.0.1", port)
    again.stop()


def test_a_port_in_use_is_named(world: World) -> None:
    """With the remedy."""
    other = HttpServer(PAGES, world.clock, world.log)
    with pytest.raises(AddressInUse, match=rf"{world.server.port} is in use.*metrics\.listen_port"):
        other.bind("127.0.0.1", world.server.port)
    with pytest.raises(BindFailed):
        other.bind("203.0.113.1", 0)
    other.stop()


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"metrics\.listen_port=70000"):
        MetricsConfig(listen_port=70_000)
    assert MetricsConfig().listen_port == 0


CERTIFICATES = Path(__file__).parent / "security" / "certificates"


@pytest.fixture
def encrypted(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A server with a certificate."""
    monkeypatch.setattr(http_server, "_SELECT_S", 0.01)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem")
    world = World(lambda: context)
    yield world
    world.server.stop()


def ask_encrypted(world: World, path: str) -> tuple[int, bytes]:
    trusts = ssl.create_default_context(cafile=str(CERTIFICATES / "ca.pem"))
    trusts.verify_flags &= ~ssl.VERIFY_X509_STRICT  # 3.13's default wants more of a CA than this one says
    connection = http.client.HTTPSConnection("127.0.0.1", world.server.port, timeout=60, context=trusts)
    connection.request("GET", path, headers={"X-Long": "x" * 6000})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, body


def test_pages_are_served_over_tls(encrypted: World) -> None:
    """Short ones and long ones, a request longer than one read. Silent, plain and gone peers disturb nothing."""
    encrypted.server.start(ThreadRunner())
    silent, plain, gone = (encrypted.connect() for _ in range(3))
    gone.close()
    plain.sendall(b"GET /a HTTP/1.1\r\n\r\n")
    try:
        assert b"hello" not in plain.recv(4096)
    except ConnectionResetError:  # it has more to read than the server has
        pass
    assert ask_encrypted(encrypted, "/a") == (200, b"hello")
    assert ask_encrypted(encrypted, "/large") == (200, bytes(5_000_000))
    assert ask_encrypted(encrypted, "/parts")[1] == b"a" * 1_000_000 + b"b" * 2_000_000
    assert ask_encrypted(encrypted, "/none")[0] == 404
    for each in (silent, plain):
        each.close()


def test_a_slow_handshake_ends_in_time(encrypted: World) -> None:
    client = encrypted.connect()
    client.sendall(b"\x16\x03\x01")
    step_until(encrypted, lambda: encrypted.server._peers)
    encrypted.clock.advance_ms(DEADLINE_NS / 1_000_000 + 1)
    step_until(encrypted, lambda: not encrypted.server._peers)
    try:
        assert client.recv(4096) == b""
    except ConnectionResetError:  # it had sent bytes that the server has not read
        pass
    client.close()
