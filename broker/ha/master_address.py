"""The address at which a slave last found its master.

Lives here: ``MasterAddress`` and the JSON of its file.
"""

import threading
from typing import Final

import msgspec

MASTER_FILE: Final = "pocketmq/master.json"


class _Content(msgspec.Struct, rename="camel"):
    ha_address: str  # both required: a file without them is damaged
    broker_address: str


class MasterAddress:
    """Kept across restarts: a master that lost the end of its log asks its slaves for it before it registers, so they
    must find it without a name server. Thread-safe; a ``persisted_table.Table``.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._content = _Content("", "")
        self.generation = 0

    @property
    def ha_address(self) -> str:
        """Where slaves connect, host:port; empty: unknown."""
        return self._content.ha_address

    @property
    def broker_address(self) -> str:
        """Where the master serves clients, host:port; empty: unknown."""
        return self._content.broker_address

    def learn(self, ha_address: str, broker_address: str) -> None:
        """Note the addresses that a name server returned."""
        content = _Content(ha_address, broker_address)
        with self._lock:
            if content != self._content:
                self._content = content
                self.generation += 1

    def encode(self) -> bytes:
        """Return the content of the file."""
        with self._lock:
            return msgspec.json.encode(self._content)

    def load(self, content: bytes) -> None:
        """Take over a file's content; raises ``DECODE_ERRORS``."""
        loaded = msgspec.json.decode(content, type=_Content)
        with self._lock:
            self._content = loaded
