"""Users and policies of a broker: the requests of ``pocketmq.auth`` as handlers of the default pair, and the version of
both that RocketMQ 4.9's tools ask for.

Lives here: ``auth_handlers``.
"""

import json
from collections.abc import Mapping
from functools import partial

from pocketmq.auth.auth_admin import AuthAdmin
from pocketmq.auth.auth_admin import Handler as AuthHandler
from pocketmq.auth.plain_admin import PlainAclAdmin
from pocketmq.auth.server_auth import ServerAuth
from pocketmq.broker.admin.admin_refused import AdminRefused
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.request.default_processor import Handler
from pocketmq.broker.request.request_task import Buffers, Task, encode_answer
from pocketmq.common.errors import Cause
from pocketmq.common.events import EventLog
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.protocol import PROTOCOL
from pocketmq.remoting.protocol.access import UPDATE_CLUSTER
from pocketmq.remoting.protocol.acl import PlainVersionResponseHeader
from pocketmq.remoting.protocol.body import encode_body


def auth_handlers(
    auth: ServerAuth, log: EventLog, config: BrokerConfig, address: str, *, is_slave: bool
) -> Mapping[int, Handler]:
    """Return code → handler. A slave changes nothing: it takes users and policies from its master."""
    admin = AuthAdmin(auth, log)
    handlers: dict[int, Handler] = {
        code: partial(_refuse_change if is_slave and _is_change(code) else _serve, handler)
        for code, handler in (*admin.handlers.items(), *PlainAclAdmin(admin).handlers.items())
    }
    handlers[RequestCode.GET_BROKER_CLUSTER_ACL_INFO] = partial(_plain_version, auth, config, address)
    return handlers


def _is_change(code: int) -> bool:
    spec = PROTOCOL[code]
    return spec.access == UPDATE_CLUSTER and spec.request is not None


def _serve(handler: AuthHandler, task: Task) -> Buffers:
    return encode_answer(task.request, body=handler(task.request, task.connection.remote))


def _refuse_change(handler: AuthHandler, task: Task) -> Buffers:
    raise AdminRefused("nothing changed", why="this broker is a slave", hint="ask the master", cause=Cause.NOT_MASTER)


def _plain_version(auth: ServerAuth, config: BrokerConfig, address: str, task: Task) -> Buffers:
    """Answer with one file and its version, as 4.9 does with each of its files."""
    if auth.guard is None:
        raise AdminRefused(
            "no version of users and policies", why="this server knows no users", cause=Cause.BAD_REQUEST
        )
    version = encode_body(auth.version()).decode()
    path = "" if auth.file is None else str(auth.file.path)
    header = PlainVersionResponseHeader(
        version=version,
        all_acl_file_version=f"{{{json.dumps(path)}:{version}}}",
        broker_name=config.broker_name,
        broker_addr=address,
        cluster_name=config.broker_cluster_name,
    )
    return encode_answer(task.request, header=header)
