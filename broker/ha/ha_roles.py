"""The role of a broker at this start: that of its settings, or the one that a promotion or demotion gave it.

Lives here: ``RoleOfRun`` and how it is found; the administrators' requests that a slave refuses.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from pocketmq.broker.config import MASTER_ID, BrokerConfig
from pocketmq.broker.request.default_processor import Handler
from pocketmq.broker.request.request_task import Buffers, Task
from pocketmq.common.errors import Cause, ConfigError, PocketMQError
from pocketmq.common.events import EventLog
from pocketmq.remoting.codes import RequestCode
from pocketmq.store.config import StoreConfig
from pocketmq.store.ha.state import HaState

SLAVE: Final = "SLAVE"
MASTER_ROLES: Final = ("SYNC_MASTER", "ASYNC_MASTER")
SLAVE_TEXT: Final = "Can't modify topic or subscription group from slave broker, please execute it from master broker."
"""RocketMQ AdminBrokerProcessor."""
CHANGES: Final = (
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.MAKE_TOPIC,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.CLEAN_UNUSED_TOPIC,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.CLONE_GROUP_OFFSET,
)
"""Changes of tables that a slave copies from its master; a slave refuses them."""


class ChangeOnSlaveRefused(PocketMQError):
    """A slave copies its tables from its master and changes none itself."""

    default_cause = Cause.NOT_MASTER


@dataclass(slots=True, frozen=True)
class RoleOfRun:
    """The settings of one run, its role included."""

    config: BrokerConfig
    store_config: StoreConfig

    @property
    def is_slave(self) -> bool:
        """Whether this broker follows a master."""
        return self.store_config.broker_role == SLAVE


def role_settings(config: BrokerConfig, store_config: StoreConfig, role: str, broker_id: int) -> RoleOfRun:
    """Return the settings of a broker in ``role``. Raises ``ConfigError`` for a role that its settings cannot have."""
    if role not in (SLAVE, *MASTER_ROLES):
        raise ConfigError("role refused", why=f"{role[:80]!r} is no role", hint="SYNC_MASTER, ASYNC_MASTER or SLAVE")
    if (role == SLAVE) != (broker_id > MASTER_ID):
        raise ConfigError("role refused", why=f"{role} with broker id {broker_id}", hint="a master has 0, a slave more")
    changes: dict[str, object] = {"broker_role": role}
    if role == SLAVE and store_config.transient_store_pool_enable:
        changes["transient_store_pool_enable"] = False  # a slave confirms records in its log, not in a buffer
    return RoleOfRun(
        msgspec.structs.replace(config, broker_id=broker_id), msgspec.structs.replace(store_config, **changes)
    )


def role_of_run(config: BrokerConfig, store_config: StoreConfig, state: HaState, log: EventLog) -> RoleOfRun:
    """Return the role of this start: a remembered role overrides the settings, and a log event reports it."""
    if not state.role:
        return RoleOfRun(config, store_config)
    chosen = role_settings(config, store_config, state.role, state.broker_id)
    log.warning(
        "role_overridden",
        role=state.role,
        broker_id=state.broker_id,
        configured_role=store_config.broker_role,
        configured_broker_id=config.broker_id,
        what_to_do="nothing; a promotion or demotion gave this role, pocketmq ha promote and demote change it",
    )
    return chosen


def _refuse(task: Task) -> Buffers:
    raise ChangeOnSlaveRefused(SLAVE_TEXT)


def without_changes(handlers: Mapping[int, Handler]) -> dict[int, Handler]:
    """Return the handlers of a slave, which refuse ``CHANGES`` in RocketMQ's words."""
    return {code: _refuse if code in CHANGES else handler for code, handler in handlers.items()}
