"""Requests about the replication of one broker.

Lives here: handlers of HA_STATUS, HA_PROMISE, HA_PROMOTE, HA_DEMOTE and HA_HOLD.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pocketmq.broker.ha.ha_environment import ReplicationEnvironment
from pocketmq.broker.ha.ha_node import HaNode, NotPromoted
from pocketmq.broker.ha.ha_roles import MASTER_ROLES, SLAVE, role_settings
from pocketmq.broker.request.default_processor import Handler
from pocketmq.broker.request.request_task import Buffers, Task, encode_answer
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol.body import encode_body
from pocketmq.remoting.protocol.ha import HaHoldResponseHeader


@dataclass(slots=True, eq=False)
class HaAdmin:
    """Handlers about replication. Admin worker thread."""

    node: HaNode
    environment: ReplicationEnvironment

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each code."""
        return {
            RequestCode.HA_STATUS: self._status,
            RequestCode.HA_PROMISE: self._promise,
            RequestCode.HA_PROMOTE: self._promote,
            RequestCode.HA_DEMOTE: self._demote,
            RequestCode.HA_HOLD: self._hold,
        }

    def _status(self, task: Task) -> Buffers:
        body, environment = self.node.status(), self.environment
        body.topics_version = environment.topics.version
        body.groups_version = environment.groups.version
        body.offsets_generation = environment.offsets.generation
        return encode_answer(task.request, body=encode_body(body))

    def _promise(self, task: Task) -> Buffers:
        header: Any = task.request.header
        self._check_name(header.broker_name)
        return encode_answer(task.request, header=self.node.promise(header))

    def _promote(self, task: Task) -> Buffers:
        header: Any = task.request.header
        self._check_name(header.broker_name)
        node = self.node
        if header.role not in MASTER_ROLES:
            raise NotPromoted("not promoted", why=f"{header.role[:80]!r} is no role of a master")
        if not node.may_lead(header.epoch, header.owner):
            raise NotPromoted(
                "not promoted",
                why=f"this broker has not promised itself epoch {header.epoch}, but "
                f"{node.state.promised_epoch} to {node.state.promised_owner or 'no broker'}",
                hint="use pocketmq ha promote",
            )
        role_settings(node.role.config, node.role.store_config, header.role, 0)  # raises before anything changes
        self.environment.logger("ha").warning(
            "promotion_begins", epoch=header.epoch, role=header.role, remote=task.connection.remote
        )
        self.environment.change_role(header.role, 0, False)
        return encode_answer(task.request)

    def _demote(self, task: Task) -> Buffers:
        header: Any = task.request.header
        self._check_name(header.broker_name)
        node = self.node
        leads = not node.role.is_slave and node.fenced_by is None
        if leads and not header.force:
            raise NotPromoted(
                "not demoted",
                why=f"{node.role.config.broker_name} is led by this broker",
                hint="promote another one first (pocketmq ha promote), or use --force: then no broker takes sends",
            )
        role_settings(node.role.config, node.role.store_config, SLAVE, header.broker_id)
        self.environment.logger("ha").warning(
            "demotion_begins",
            broker_id=header.broker_id,
            accept_loss=header.accept_loss,
            remote=task.connection.remote,
        )
        self.environment.change_role(SLAVE, int(header.broker_id), bool(header.accept_loss))
        return encode_answer(task.request)

    def _hold(self, task: Task) -> Buffers:
        header: Any = task.request.header
        self._check_name(header.broker_name)
        node = self.node
        if node.role.is_slave or node.fenced_by is not None:
            raise NotPromoted("sends not held", why="this broker is not the leading master")
        return encode_answer(task.request, header=HaHoldResponseHeader(node.hold(header.hold_ms)))

    def _check_name(self, broker_name: str) -> None:
        own = self.node.role.config.broker_name
        if broker_name != own:
            raise NotPromoted("request refused", why=f"this is {own}, not {broker_name[:80]!r}")
