"""File descriptors of a daemon: the limit rises where permitted, otherwise the connections get fewer."""

import resource

import msgspec
import pytest

from pocketmq.cli.daemon.descriptors import FILES_MAX, room_for_files
from pocketmq.cli.exit_codes import CannotStart
from pocketmq.common.logs import CapturedLog
from pocketmq.remoting.server_config import ServerConfig
from pocketmq.store.disk.file_cache import files_open_max

NO_LIMIT = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("limits", "servers", "raised", "connections_max"),
    [
        ((1024, 1_000_000), 1, [(12_024, 1_000_000)], 10_000),
        ((1024, NO_LIMIT), 2, [(22_024, NO_LIMIT)], 10_000),
        ((50_000, 50_000), 1, [], 10_000),
        ((NO_LIMIT, NO_LIMIT), 1, [], 10_000),
        ((1024, 4096), 1, [(4096, 4096)], 4096 - FILES_MAX - 256),
        ((1024, 1024), 2, [], 256),
        ((256, 256), 2, [], 64),
    ],
)
def test_connections_leave_descriptors_for_the_store(
    limits: tuple[int, int], servers: int, raised: list[tuple[int, int]], connections_max: int
) -> None:
    """The soft limit rises as far as needed and permitted; the connections give up the rest."""
    log = CapturedLog()
    puts: list[tuple[int, int]] = []
    config = room_for_files(ServerConfig(), servers, log, get=lambda: limits, put=puts.append)
    assert puts == raised
    assert config.connections_max == connections_max
    assert bool(log.of("connections_limited")) == (connections_max < 10_000)


@pytest.mark.parametrize(
    ("config", "limit", "level"),
    [
        (ServerConfig(), 9000, "info"),
        (ServerConfig(), 1500, "warning"),
        (ServerConfig(connections_max=20_000), 9000, "warning"),
    ],
)
def test_a_default_that_is_nearly_met_is_no_warning(config: ServerConfig, limit: int, level: str) -> None:
    """A configured number that cannot be met causes a warning; the default only if few connections remain."""
    log = CapturedLog()
    room_for_files(config, 1, log, get=lambda: (limit, limit), put=lambda limits: None)
    assert [event["level"] for event in log.of("connections_limited")] == [level]


def test_a_limit_that_cannot_be_raised_is_lived_with() -> None:
    """The system may refuse although its hard limit is higher; the daemon still starts."""

    def refuse(limits: tuple[int, int]) -> None:
        raise ValueError("not allowed")

    log = CapturedLog()
    config = room_for_files(ServerConfig(), 1, log, get=lambda: (2048, 100_000), put=refuse)
    assert config.connections_max == 1024
    assert "ulimit" in log.of("connections_limited")[0]["hint"]


def test_few_connections_need_nothing() -> None:
    """Connections that fit stay as many, without a line of output; fewer of them get a second descriptor."""
    log = CapturedLog()
    wanted = ServerConfig(connections_max=10)
    config = room_for_files(wanted, 1, log, get=lambda: (256, 256), put=lambda limits: None)
    assert config == msgspec.structs.replace(wanted, direct_writers_max=16)
    wanted = ServerConfig(connections_max=10, direct_writers_max=5)
    assert room_for_files(wanted, 1, log, get=lambda: (1039, 1039), put=lambda limits: None) is wanted
    assert not log.events


def test_too_few_descriptors_stop_the_start() -> None:
    """Such a broker would serve some connections, and then accept none until it is started again."""
    with pytest.raises(CannotStart, match="the limit of this process is 255, at least 256"):
        room_for_files(ServerConfig(), 1, CapturedLog(), get=lambda: (255, 255), put=lambda limits: None)


@pytest.mark.parametrize(("limit", "files"), [(256, 64), (1024, 256), (4096, 512), (resource.RLIM_INFINITY, 512)])
def test_the_stores_cache_takes_a_share(monkeypatch: pytest.MonkeyPatch, limit: int, files: int) -> None:
    """With few descriptors it must leave some to connections."""
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    assert files_open_max() == files
