"""The dashboard behind a real HTTP server in this process, and what tests read from its pages."""

import asyncio
import contextlib
import html
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import uvicorn

from pocketmq.dashboard.application import create_app
from pocketmq.dashboard.options import DashboardOptions
from pocketmq.dashboard.pages.desk import Desk

WAIT_S = 60.0


@dataclass
class Served:
    """A dashboard that serves at ``url``. ``desk`` lives in another thread."""

    url: str
    desk: Desk
    stop: Callable[[], None]
    """Ends it as SIGTERM would, and waits."""
    clients: list[httpx.Client] = field(default_factory=list)

    def client(self, **headers: str) -> httpx.Client:
        """Return a browser of its own, with its own cookies."""
        client = httpx.Client(base_url=self.url, timeout=WAIT_S, headers=headers, trust_env=False)
        self.clients.append(client)
        return client


@contextmanager
def serving(options: DashboardOptions) -> Iterator[Served]:
    """Serve on a free port of 127.0.0.1 until the block ends."""
    app = create_app(options)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    config = uvicorn.Config(app, log_config=None, lifespan="on", ws="none", timeout_graceful_shutdown=5)

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            app.state.desk.closing.set()
            await super().shutdown(sockets)

    server = Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), name="dashboard")
    thread.start()

    def stop() -> None:
        server.should_exit = True
        thread.join(WAIT_S)
        assert not thread.is_alive()

    served = Served(f"http://127.0.0.1:{listener.getsockname()[1]}", app.state.desk, stop)
    try:
        yield served
    finally:
        for client in served.clients:
            client.close()
        stop()
        listener.close()


def token_of(page: httpx.Response) -> str:
    """Return the token of a page's forms."""
    found = re.search(r'name="token" value="([0-9a-f]{64})"', page.text)
    assert found is not None, page.text
    return found[1]


def events(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Yield (name, data) of server-sent events."""
    name, data = "", []
    for line in lines:
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            data.append(line[6:])
        elif not line and name:
            yield name, "\n".join(data)
            name, data = "", []


def text_of(page: httpx.Response | str) -> str:
    """Return what a reader sees: without tags, with one space between words."""
    text = page if isinstance(page, str) else page.text
    text = re.sub(r"<(script|style)\b.*?</\1>", " ", text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", text)))


@contextmanager
def stream(client: httpx.Client, path: str) -> Iterator[Iterator[tuple[str, str]]]:
    """Open a stream of events."""
    with contextlib.ExitStack() as stack:
        response = stack.enter_context(client.stream("GET", path))
        assert response.status_code == 200, response.read()
        yield events(response.iter_lines())


def until_seen(browser: httpx.Client, path: str, words: str) -> str:
    deadline = time.monotonic() + 60
    while words not in (text := text_of(browser.get(path))):
        assert time.monotonic() < deadline, text
        time.sleep(0.05)
    return text
