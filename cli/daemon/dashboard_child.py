"""The dashboard of ``pocketmq standalone``: ``pocketmq dashboard`` as a process of its own, which ends with this one.

Pages are made in another process, so that they take nothing from the broker's interpreter; ten viewers cost the broker
the questions of one watch (docs/dashboard.md).

Lives here: ``DashboardConfig``, ``DashboardChild``, ``tls_options``.
"""

import asyncio
import contextlib
import os
import sys
from collections import deque
from typing import Final

import msgspec

from pocketmq.common.errors import ConfigError
from pocketmq.common.events import EventLog
from pocketmq.remoting.security.tls_config import ENFORCING, TlsConfig

STOP_S: Final = 5.0
LINE_BYTES_MAX: Final = 2_000
LAST_LINES: Final = 5
READY: Final = b"ready dashboard="


class DashboardConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The web pages that ``pocketmq standalone`` serves beside the broker."""

    bind_address: str = "127.0.0.1"
    """Address to listen on. Beyond loopback visitors have to log in, or auth.open is true."""
    listen_port: int = 0
    """Port of the dashboard; 0: none. Needs ``pip install 'pocketmq[dashboard]'``."""
    allow_writes: bool = False
    """Let visitors publish, reset groups, send dead letters again, decide transactions, promote, and play incidents."""

    def __post_init__(self) -> None:
        if not 0 <= self.listen_port <= 65_535:
            raise ConfigError("bad setting", why=f"dashboard.listen_port={self.listen_port} is no port")


class DashboardChild:
    """The process. A dashboard that cannot start, or ends, is logged; the broker goes on."""

    def __init__(
        self, config: DashboardConfig, namesrv: str, log: EventLog, *, is_open: bool, tls: TlsConfig | None = None
    ) -> None:
        self._log = log
        self._arguments = [] if tls is None else tls_options(tls)
        self._arguments += ["dashboard", "--namesrv", namesrv, "--host", config.bind_address]
        self._arguments += ["--port", str(config.listen_port)]
        self._arguments += ["--allow-writes"] * config.allow_writes + ["--open"] * is_open
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start it; the log says when it serves."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "pocketmq.cli.daemon.bound_to_parent",
            *self._arguments,
            stdin=asyncio.subprocess.PIPE,  # its end tells the process that this one has ended
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            env=dict(os.environ),
        )
        self._task = asyncio.create_task(self._follow(self._process), name="dashboard-child")

    async def stop(self) -> None:
        """Ask it to end, and end it if it does not."""
        process, self._process, task = self._process, None, self._task
        if process is None or task is None:
            return
        for end in (process.terminate, process.kill):
            with contextlib.suppress(ProcessLookupError):
                end()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(task), STOP_S)
                return

    async def _follow(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:  # longer than the reader's limit: it is dropped
                continue
            if not line:
                break
            text = line[:LINE_BYTES_MAX].decode("utf-8", "replace").rstrip()
            if line.startswith(READY):
                self._log.info("dashboard_serving", url=text.partition("=")[2])
            else:
                self._last.append(text)
                self._log.info("dashboard_says", line=text)
        code = await process.wait()
        if self._process is not None:  # nobody has asked for its end
            self._log.warning("dashboard_ended", code=code, last_words=" / ".join(self._last))


def tls_options(tls: TlsConfig) -> list[str]:
    """Return the root options with which a client reaches servers with these settings. The servers' own certificate is
    not shown: it may name a user, and visitors would act as that one."""
    if not tls.serves_tls or not (tls.enable or tls.server_mode == ENFORCING):
        return []
    options = ["--tls"]
    for name, value in (("--tls-ca", tls.client_trust_cert_path), ("--tls-server-hostname", tls.client_server_name)):
        if value:
            options += [name, value]
    return options
