"""The consumer groups of a broker and their settings.

Lives here: ``SubscriptionGroups``, automatic creation, the JSON of ``subscriptionGroup.json``.
"""

import threading

import msgspec

from pocketmq.auth.session import Session
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.topic.creators import CREATOR_ATTRIBUTE, claim, without_creator
from pocketmq.broker.topic.topic_table import OnIllegal, TableFull
from pocketmq.common.bounds import bounded
from pocketmq.common.clock import Clock
from pocketmq.common.topics import SYSTEM_GROUPS, GroupIllegal, check_group_name
from pocketmq.remoting.protocol.body import LONG_MAX, LONG_MIN, DataVersion
from pocketmq.remoting.protocol.group import SubscriptionGroupConfigBody, SubscriptionGroupWrapper


class _GroupsFile(msgspec.Struct, rename="camel"):
    """``subscriptionGroup.json``. Its main key is required: a file without it is damaged, not empty.

    Its numbers are not checked: an administrator may set any.
    """

    subscription_group_table: dict[str, SubscriptionGroupConfigBody]
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


@bounded(
    "subscription groups",
    limit="_config.subscription_groups_max",
    size="_groups",
    entry_bytes=1024,
    setting="broker.subscription_groups_max",
)
class SubscriptionGroups:
    """Group → settings. Thread-safe; bounded by ``subscription_groups_max``. A config in the table is never changed in
    place."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._lock = threading.Lock()
        self._groups: dict[str, SubscriptionGroupConfigBody] = {}
        self._version = DataVersion(clock.now_ms(), 0)
        self.generation = 0

    def add_system_groups(self) -> None:
        """Add RocketMQ's own groups."""
        for name, broadcast in SYSTEM_GROUPS.items():
            if name not in self._groups:
                self._groups[name] = SubscriptionGroupConfigBody(group_name=name, consume_broadcast_enable=broadcast)

    def get(self, group: str) -> SubscriptionGroupConfigBody | None:
        """Return the settings of ``group`` if it exists."""
        return self._groups.get(group)

    def find(self, group: str, session: Session | None = None) -> SubscriptionGroupConfigBody | None:
        """Return the settings of ``group``, created if that is allowed; raises ``GroupIllegal``, ``TableFull``, and
        ``QuotaExceeded`` where the user of ``session`` may create no more."""
        known = self._groups.get(group)
        if known is not None or not self._config.auto_create_subscription_group:
            return known
        check_group_name(group)
        with self._lock:
            known = self._groups.get(group)
            if known is None:
                known = SubscriptionGroupConfigBody(group_name=group, attributes=self._claim(session, group))
                self._store(known)
        return known

    def put(self, group: SubscriptionGroupConfigBody, session: Session | None = None) -> None:
        """Create or change a group; raises ``GroupIllegal``, ``TableFull``, ``QuotaExceeded``."""
        check_group_name(group.group_name)
        with self._lock:
            known = self._groups.get(group.group_name)
            group.attributes = without_creator(group.attributes)
            if known is None:
                group.attributes |= self._claim(session, group.group_name)
            elif known.attributes and CREATOR_ATTRIBUTE in known.attributes:
                group.attributes[CREATOR_ATTRIBUTE] = known.attributes[CREATOR_ATTRIBUTE]
            self._store(group)

    def _claim(self, session: Session | None, group: str) -> dict[str, str]:
        return claim(session, "group", group, (known.attributes for known in self._groups.values()))

    def delete(self, group: str) -> bool:
        """Forget ``group``; False when there was none."""
        with self._lock:
            if self._groups.pop(group, None) is None:
                return False
            self._advance()
            return True

    def _store(self, group: SubscriptionGroupConfigBody) -> None:
        if group.group_name not in self._groups and len(self._groups) >= self._config.subscription_groups_max:
            raise TableFull(
                "group not created",
                why=f"{len(self._groups)} groups exist",
                hint="raise broker.subscription_groups_max",
            )
        self._groups[group.group_name] = group
        self._advance()

    def _advance(self) -> None:
        self._version = DataVersion(self._clock.now_ms(), self._version.counter + 1)
        self.generation += 1

    def names(self) -> list[str]:
        """Return all groups, in no order."""
        return list(self._groups)

    def encode(self) -> bytes:
        """Return the content of ``subscriptionGroup.json``."""
        with self._lock:
            return msgspec.json.encode(SubscriptionGroupWrapper(self._groups, self._version))

    @property
    def version(self) -> DataVersion:
        """The version of the table."""
        return self._version

    def mirror(self, content: bytes, on_illegal: OnIllegal) -> None:
        """Copy a master's table, as its ``encode`` returned it. An entry that no request could have created, or for
        which there is no room, goes to ``on_illegal``; this broker's settings of that group stay. Raises
        ``DECODE_ERRORS``.
        """
        masters = msgspec.json.decode(content, type=_GroupsFile, strict=False)
        groups: dict[str, SubscriptionGroupConfigBody] = {}
        for name, group in masters.subscription_group_table.items():
            why = _mirror_error(name, group)
            if why is None and len(groups) >= self._config.subscription_groups_max:
                why = f"there are {len(groups)} groups before it: raise broker.subscription_groups_max"
            if why is None:
                group.group_name = name
                groups[name] = group
                continue
            on_illegal(name, why)
            known = self._groups.get(name)
            if known is not None:
                groups[name] = known
        with self._lock:
            self._groups = groups
            self._version = masters.data_version.bounded()
            self.generation += 1
        self.add_system_groups()

    def load(self, content: bytes) -> None:
        """Add the groups of a file; raises ``DECODE_ERRORS``."""
        loaded = msgspec.json.decode(content, type=_GroupsFile, strict=False)
        with self._lock:
            self._groups.update(loaded.subscription_group_table)
            self._version = loaded.data_version


def _mirror_error(name: str, group: SubscriptionGroupConfigBody) -> str | None:
    """Return why no request could have created this group, or None."""
    try:
        check_group_name(name)
    except GroupIllegal as error:
        return error.why
    for field in group.__struct_fields__:
        value = getattr(group, field)
        if isinstance(value, int) and not LONG_MIN <= value <= LONG_MAX:
            return f"{field} is not a 64-bit number"
    return None
