"""Named sets of settings: ``--profile small``.

Lives here: ``PROFILES``. A profile lies between the defaults and everything that an operator gives: a settings file,
variables, options and ``--set`` change its values one by one.
"""

from collections.abc import Mapping
from typing import Final

from pocketmq.common.errors import ConfigError

_MIB: Final = 1 << 20

PROFILES: Final[Mapping[str, Mapping[str, object]]] = {
    "small": {
        "store.mapped_file_size_commit_log": 16 * _MIB,
        "store.mapped_file_size_consume_queue": 20 * 30_000,
        "store.max_hash_slot_num": 50_000,
        "store.max_index_num": 200_000,
        "store.file_reserved_time": 24,
        "store.transient_store_pool_size": 3,
        "store.timer_memory_bytes_max": 8 * _MIB,
        "store.recovery_quarantine_bytes_max": 64 * _MIB,
        "broker.send_queue_size_bytes_max": 32 * _MIB,
        "broker.queue_size_bytes_max": 16 * _MIB,
        "broker.clients_size_bytes_max": 32 * _MIB,
        "broker.pull_holds_size_bytes_max": 16 * _MIB,
        "remoting.half_frames_bytes_max": 48 * _MIB,
        "remoting.write_hard_limit_bytes": 16 * _MIB,
        "remoting.unwritten_bytes_max": 32 * _MIB,
    },
}
"""Name → settings. ``small`` is for an edge box and for CI: a store begins with 24 MB of disk instead of 1.5 GB, keeps
messages for a day, and all buffers together stay below 200 MiB."""


def profile_settings(name: str) -> Mapping[str, object]:
    """Return the settings of a profile. Raises ``ConfigError`` for an unknown name."""
    found = PROFILES.get(name)
    if found is None:
        raise ConfigError("unknown profile", why=f"{name[:80]!r}", hint=f"there is {', '.join(PROFILES)}")
    return found
