"""The properties of RocketMQ's sends, as they stand in a record.

Lives here: ``Template`` (the properties of one kind, around the unique key), ``Templates`` (the kinds that are known).

Properties of one kind differ in their unique key; the rest of them is the key of a template, which is made by the code
of the wide way, so that records equal its byte for byte.
"""

from dataclasses import dataclass
from typing import Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.send.rocketmq_send import of_broker
from pocketmq.common.errors import MessageIllegal
from pocketmq.common.record import KEYS, TAGS, WAIT, decode_properties, encode_properties, is_plain_forbidden
from pocketmq.common.record_group import UNIQ_KEY_BYTES, UNIQ_PREFIX, tags_code_of

TEMPLATES_MAX: Final = 4096
"""Kinds of properties remembered, each of at most ``TEMPLATE_BYTES_MAX`` bytes; a full table starts again."""
TEMPLATE_BYTES_MAX: Final = 1024
NAME_BYTES: Final = len(UNIQ_PREFIX)
KEY_END: Final = NAME_BYTES + UNIQ_KEY_BYTES
LONG_KEY_BYTES: Final = 56
"""Characters of a key that a Java client makes on a host with a public IPv6 address, which it prefers: 28 bytes in hex
(RocketMQ MessageClientIDSetter); 32 are those of an IPv4 address."""
LONG_KEY_MORE: Final = LONG_KEY_BYTES - UNIQ_KEY_BYTES
KEY_ENDS: Final = (b"\x02", b"")


@dataclass(slots=True, eq=False)
class Template:
    """The properties of a record, around the unique key."""

    before: bytes
    """Length of all of them, and the name of the first one."""
    after: bytes
    tags_code: int
    wait: bool


class Templates:
    """The kinds of properties that are known, apart by the length of their unique key. Belongs to the loop."""

    def __init__(self, config: BrokerConfig) -> None:
        self._of_broker = of_broker(config)
        self.usual: dict[bytes, Template | None] = {}
        """Properties without the 32 characters of their key → template; None: they are not for the short path."""
        self.long: dict[bytes, Template | None] = {}
        """The same for keys of ``LONG_KEY_BYTES``."""

    def judge(
        self, templates: dict[bytes, Template | None], known: bytes, properties: bytes, uniq_at: int, key_end: int
    ) -> Template | None:
        """Return the template of properties that are not known yet; None: they are not for this path."""
        if len(known) > TEMPLATE_BYTES_MAX:
            return None
        template = self._template_of(properties, uniq_at, key_end)
        if len(templates) >= TEMPLATES_MAX:
            templates.clear()
        templates[known] = template
        return template

    def _template_of(self, properties: bytes, uniq_at: int, key_end: int) -> Template | None:
        """Make of properties what ``RocketMQSends.plan`` makes of them, where it does nothing else."""
        if (
            properties.count(UNIQ_PREFIX) != 1
            or (uniq_at and properties[uniq_at - 1] != 2)
            or properties[key_end : key_end + 1] not in KEY_ENDS
        ):
            return None
        try:
            properties.decode()  # RocketMQ's binary header is refused where it is no UTF-8
            pairs = decode_properties(properties)
            if any(name == KEYS or (name != WAIT and is_plain_forbidden(name)) for name in pairs):
                return None
            wait = pairs.pop(WAIT, "true").lower() != "false"
            pairs.update(self._of_broker)
            encoded = encode_properties(pairs)
        except (UnicodeDecodeError, MessageIllegal):
            return None
        return Template(
            len(encoded).to_bytes(2, "big") + encoded[:NAME_BYTES],
            encoded[key_end - uniq_at :],
            tags_code_of(pairs.get(TAGS, "")),
            wait,
        )
