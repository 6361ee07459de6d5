"""From the text ``store=...`` to a store of marks.

Lives here: ``open_store``.
"""

from pocketmq.client.idempotence.memory_store import MemoryStore
from pocketmq.client.idempotence.store import MarkStore
from pocketmq.common.errors import ConfigError


def open_store(text: str) -> MarkStore:
    """Return the store that ``text`` names; it connects with its first use.

    ``memory:``, ``redis://host:port/0`` (or ``rediss:``, ``unix:``), ``rocksdb:///absolute/path`` or
    ``rocksdb:relative/path``, and every SQLAlchemy URL: ``sqlite:///marks.db``, ``postgresql://...``,
    ``mysql+pymysql://...``. Raises ``ConfigError``, also when the library for it is missing.
    """
    scheme, colon, rest = text.partition(":")
    if not colon:
        raise ConfigError("bad store of marks", why=repr(text), hint="memory:, redis://…, rocksdb:///…, sqlite:///…")
    if scheme == "memory":
        return MemoryStore()
    if scheme in ("redis", "rediss", "unix"):
        from pocketmq.client.idempotence.redis_store import RedisStore

        return RedisStore(text)
    if scheme == "rocksdb":
        from pocketmq.client.idempotence.rocksdb_store import RocksStore

        return RocksStore(rest.removeprefix("//"))
    from pocketmq.client.idempotence.sql_store import SqlStore

    return SqlStore(text)
