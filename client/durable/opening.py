"""From a URL to a retry store.

Lives here: ``open_url``, ``StoreOptions``. A store's library is imported when a URL names that store: each is an extra.
"""

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from pocketmq.client.durable.store import RetryStore
from pocketmq.common.clock import Clock
from pocketmq.common.errors import ConfigError


def split_name(url: str, default: str) -> tuple[str, str]:
    """Take ``name=`` out of a URL's query; return (URL without it, name)."""
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    name = next((value for key, value in pairs if key == "name"), default)
    rest = [(key, value) for key, value in pairs if key != "name"]
    if not name or len(name) > 64 or not all(c.isalnum() or c in "-_.%" for c in name):
        raise ConfigError(
            "retry store refused", why=f"name {name[:80]!r}", hint="1 to 64 letters, digits, '-', '_', '.' or '%'"
        )
    cut = len(parts.scheme) + 1
    if url[cut : cut + 2] != "//" or not parts.netloc:  # urlunsplit would drop the slashes of sqlite:///path
        base = url.split("?", 1)[0]
        return (f"{base}?{urlencode(rest)}" if rest else base), name
    return urlunsplit(parts._replace(query=urlencode(rest))), name


@dataclass(slots=True, frozen=True, kw_only=True)
class StoreOptions:
    """Settings of a store. ``timeout_ms`` bounds each call to a server; ``lease_ms``: how long this owner keeps a store
    on a server without a sign of life. ``sync``: each write of an embedded store is synced to the disk."""

    name: str = "default"
    sync: bool = False
    timeout_ms: int = 3_000
    lease_ms: int = 10_000


def open_url(url: str, options: StoreOptions, clock: Clock) -> RetryStore:
    """Return the store that a URL names, not opened yet. Raises ``ConfigError``, also for a missing extra."""
    scheme = url.split(":", 1)[0].split("+", 1)[0]
    make = _KINDS.get(scheme)
    if make is None or ":" not in url:
        raise ConfigError(
            "retry store refused",
            why=f"{url!r} is no URL of a store",
            hint="memory:, rocksdb:///path, redis://host:6379/0, mysql://, postgresql:// or sqlite:///path",
        )
    return make(url, options, clock)


def _memory(url: str, options: StoreOptions, clock: Clock) -> RetryStore:
    from pocketmq.client.durable.memory_store import MemoryStore

    return MemoryStore()


def _rocksdb(url: str, options: StoreOptions, clock: Clock) -> RetryStore:
    from pocketmq.client.durable.rocksdb_store import RocksDBStore

    path = url.split(":", 1)[1]
    if path.startswith("//"):
        path = path[2:]
    if not path:
        raise ConfigError("retry store refused", why=f"{url!r} names no directory", hint="rocksdb:///var/lib/app/retry")
    return RocksDBStore(path, sync=options.sync, clock=clock)


def _redis(url: str, options: StoreOptions, clock: Clock) -> RetryStore:
    from pocketmq.client.durable.redis_store import RedisStore

    url, name = split_name(url, options.name)
    return RedisStore(url, name, clock=clock, timeout_ms=options.timeout_ms, lease_ms=options.lease_ms)


def _sql(url: str, options: StoreOptions, clock: Clock) -> RetryStore:
    from pocketmq.client.durable.sql_store import SqlStore

    url, name = split_name(url, options.name)
    return SqlStore(url, name, clock=clock, timeout_ms=options.timeout_ms, lease_ms=options.lease_ms, sync=options.sync)


_KINDS: dict[str, Callable[[str, StoreOptions, Clock], RetryStore]] = {
    "memory": _memory,
    "rocksdb": _rocksdb,
    "redis": _redis,
    "rediss": _redis,
    "mysql": _sql,
    "mariadb": _sql,
    "postgresql": _sql,
    "sqlite": _sql,
}
