"""How the members of a group get the messages of a topic, where an administrator has said so: by pulling or by POP.

RocketMQ 5.3.3's ``config/messageRequestMode.json`` (``MessageRequestModeManager``): its consumers that let the broker
share the queues learn the mode with their queues.

Lives here: ``RequestModes``.
"""

import threading

import msgspec

from pocketmq.broker.topic.topic_table import TableFull
from pocketmq.common.bounds import bounded
from pocketmq.remoting.protocol.pull import MessageRequestModes, SetMessageRequestMode

ENTRY_BYTES = 2_000


class _File(msgspec.Struct, rename="camel"):
    """``messageRequestMode.json``. Its main key is required: a file without it is damaged, not empty."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestMode]]


@bounded(
    "request modes",
    limit="count_max",
    size="count",
    entry_bytes=ENTRY_BYTES,
    setting="broker.subscription_groups_max",
)
class RequestModes:
    """Topic → group → mode. Thread-safe; a persisted table."""

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        self.count = 0
        self.generation = 0
        self._lock = threading.Lock()
        self._modes: dict[str, dict[str, SetMessageRequestMode]] = {}

    def get(self, topic: str, group: str) -> SetMessageRequestMode | None:
        """Return what was set for the pair."""
        return self._modes.get(topic, {}).get(group)

    def put(self, mode: SetMessageRequestMode) -> None:
        """Keep a mode; raises ``TableFull``."""
        with self._lock:
            groups = self._modes.setdefault(mode.topic, {})
            if mode.consumer_group not in groups:
                if self.count >= self.count_max:
                    raise TableFull(
                        "mode not set",
                        why=f"{self.count} are kept",
                        hint="raise broker.subscription_groups_max",
                    )
                self.count += 1
            groups[mode.consumer_group] = mode
            self.generation += 1

    def forget(self, topic: str = "", group: str = "") -> None:
        """Forget the modes of a topic or of a group that is deleted."""
        with self._lock:
            for each, groups in list(self._modes.items()):
                for name in [name for name in groups if each == topic or name == group]:
                    del groups[name]
                    self.count -= 1
                    self.generation += 1
                if not groups:
                    del self._modes[each]

    def body(self) -> MessageRequestModes:
        """Return all of them."""
        with self._lock:
            return MessageRequestModes({topic: dict(groups) for topic, groups in self._modes.items()})

    def encode(self) -> bytes:
        """Return the content of the file."""
        return msgspec.json.encode(self.body())

    def load(self, content: bytes) -> None:
        """Take over a file; raises ``DECODE_ERRORS``."""
        loaded = msgspec.json.decode(content, type=_File).message_request_mode_map
        with self._lock:
            self._modes = loaded
            self.count = sum(map(len, loaded.values()))
