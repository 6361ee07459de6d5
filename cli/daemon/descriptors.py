"""File descriptors of a daemon: connections must not take those that the store needs.

Lives here: ``room_for_files``: raises the limit of the process as far as permitted, and reduces the number of
connections, and of second descriptors for them, if that is not enough.
"""

import contextlib
import resource
from collections.abc import Callable
from typing import Final

import msgspec

from pocketmq.cli.exit_codes import CannotStart
from pocketmq.common.events import EventLog
from pocketmq.remoting.server_config import ServerConfig

FILES_MAX: Final = 1024
"""Descriptors for all but the servers' connections: the store's file cache (512), index files, segments, sockets."""

FILES_MIN: Final = 256
"""With less a broker could serve some tens of queues and connections, and then neither."""
MANY_CONNECTIONS: Final = 1000
"""From this number on the default limit causes no warning."""

Limits = tuple[int, int]
"""Soft and hard limit; ``RLIM_INFINITY``: no limit."""


def room_for_files(
    config: ServerConfig,
    servers: int,
    log: EventLog,
    *,
    get: Callable[[], Limits] = lambda: resource.getrlimit(resource.RLIMIT_NOFILE),
    put: Callable[[Limits], None] = lambda limits: resource.setrlimit(resource.RLIMIT_NOFILE, limits),
) -> ServerConfig:
    """Return the settings of ``servers`` servers that leave descriptors for the store. Raises ``CannotStart``.

    A process that runs out of descriptors while clients connect can create no topic and no segment: idle connections
    would stop every send.
    """
    soft, hard = get()
    wanted = config.connections_max * servers + config.direct_writers_max + FILES_MAX
    if soft != resource.RLIM_INFINITY and soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if raised > soft:
            with contextlib.suppress(OSError, ValueError):
                put((raised, hard))
                soft = raised
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return config
    if soft < FILES_MIN:
        raise CannotStart(
            "too few files may be open",
            why=f"the limit of this process is {soft}, at least {FILES_MIN} are needed",
            hint="raise it: ulimit -n 4096, or LimitNOFILE=4096 in a systemd unit",
        )
    direct_writers_max = min(config.direct_writers_max, max(1, soft // 16))
    connections_max = max(1, max(soft - FILES_MAX - direct_writers_max, soft // 2) // servers)
    config = msgspec.structs.replace(config, direct_writers_max=direct_writers_max)
    if connections_max >= config.connections_max:
        return config
    is_own_choice = config.connections_max != ServerConfig().connections_max
    report = log.warning if is_own_choice or connections_max < MANY_CONNECTIONS else log.info
    report(
        "connections_limited",
        connections_max=connections_max,
        wanted=config.connections_max,
        open_files_max=soft,
        hint=f"raise the limit of open files (ulimit -n, LimitNOFILE) to {wanted}, or set remoting.connections_max",
    )
    return msgspec.structs.replace(config, connections_max=connections_max)
